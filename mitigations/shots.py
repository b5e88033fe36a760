"""The invented examples S1 to S6 of Few-Shot-CoT (`prompts/shots.txt`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from mitigations.prompting import PROMPTS

SEPARATOR = "====="


@dataclass(frozen=True, slots=True)
class Shot:
    """One example. `id` is the situation (S1 unrelated, S2 bait, S3 personal and dated, S4 false memory, S5
    contradiction, S6 list); the rest are the parts of the text as they stand."""

    id: str
    memories: str
    question: str
    need: str
    check: str
    context: str

    def as_reasoning(self) -> str:
        """Case, analysis and filtered context."""
        return (
            f"Memories:\n{self.memories}\nQuestion: {self.question}\n\n"
            f"Need: {self.need}\nCheck: {self.check}\nContext:\n{self.context}"
        )

    def as_outcome(self) -> str:
        """Case and outcome alone."""
        return f"Memories:\n{self.memories}\nQuestion: {self.question}\n\n{self.context}"


@cache
def load_shots() -> tuple[Shot, ...]:
    """All shots in the order none, keep, none, keep, none, keep."""
    text = (PROMPTS / "shots.txt").read_text(encoding="utf-8")
    return tuple(_read(part.strip()) for part in text.split(SEPARATOR))


def _read(part: str) -> Shot:
    name, _, body = part.partition("\n")
    parts = re.split(r"^(?:Memories|Question|Need|Check|Context):\s*", body, flags=re.MULTILINE)[1:]
    return Shot(name, *(piece.strip() for piece in parts))
