"""To be written."""

from pages.shared import parts

parts.title("To be written?")
