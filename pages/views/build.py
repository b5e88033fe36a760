"""Making a benchmark of OP-Bench's kind from conversations, and what became of each candidate."""

from pages.shared import parts

parts.title("Can a benchmark be made from your own users' histories?")
