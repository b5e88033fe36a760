"""How far a judge may be trusted: against people, against itself, against traps."""

from pages.shared import parts

parts.title("How far can the judge be trusted?")
