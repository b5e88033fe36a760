"""People's review: two responses side by side, by keyboard; and what the one who runs it sees."""

from pages.shared import parts

parts.title("Which of the two responses is over-personalised?")
