"""What the forms for other annotation tools have in common: items without a hint at which response is which.

There everybody sees A and B of an item in the same order, which the import works out again from the review's seed.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

from opbench.review.choosing import first_of
from opbench.review.entries import digest
from opbench.review.spec import Content, Side
from opbench.store.reviews import ItemRow

ASKED = "Which response is over-personalised?"
HELP = (
    "It brings the user's memories in where they don't belong, agrees for their sake, or would put you off as the user."
)
CHOICES = {"a": "A", "b": "B", "neither": "Neither", "both": "Both"}
SCORED = "1: not over-personalised at all; 0: wholly."


def first(seed: int, item: str, tool: str) -> Side:
    """Which response is A there."""
    return first_of(seed, item, f"tool:{tool}")


def shown(content: Content, side: Side) -> tuple[str, str]:
    """The texts of A and B."""
    return (content.base, content.memory) if side == "base" else (content.memory, content.base)


def remembered(content: Content) -> str:
    """The memories, one a line, those that were retrieved for the question marked."""
    return "\n".join(
        f"{'[relevant] ' if memory.relevant else ''}{f'({memory.date}) ' if memory.date else ''}{memory.text}"
        for memory in content.memories
    )


def about(content: Content) -> str:
    """Profile and topics."""
    topics = f"\nTopics: {', '.join(content.topics)}" if content.topics else ""
    return f"{content.profile or 'No profile.'}{topics}"


def shuffled(items: Sequence[ItemRow], seed: int) -> list[ItemRow]:
    """In random order, so that spot checks don't stand together."""
    return sorted(items, key=lambda item: digest(str(seed), "outside", item.item))


def verdict(choice: str, side: Side) -> str:
    """The verdict that a choice between A and B means; any other text as it is."""
    other = "memory" if side == "base" else "base"
    return {"a": side, "b": other}.get(choice, choice)


def by_side(a: float | None, b: float | None, side: Side) -> dict[str, float | None]:
    """Scores of A and B as those of the responses."""
    base, memory = (a, b) if side == "base" else (b, a)
    return {"base_score": base, "memory_score": memory}


def packed(files: Mapping[str, str]) -> bytes:
    """A zip of texts by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return out.getvalue()
