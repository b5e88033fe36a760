"""What became of each retrieved memory on its way to the response: kept, altered, dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mitigations.base import Memory
from mitigations.context import prepare

Became = Literal["kept", "restored", "altered", "merged", "dropped", "added"]
#: What each means, for pages and the command line.
MEANINGS: dict[Became, str] = {
    "kept": "as it was retrieved",
    "restored": "kept; the post-processor had worded it otherwise, and the stored wording was put back",
    "altered": "kept in other words",
    "merged": "put together with other memories",
    "dropped": "left out by the post-processor",
    "added": "a line that comes from no retrieved memory",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """A retrieved memory, or a line that the post-processor added (`text` None).

    `rank` counts retrieved memories from 1, `similarity` is the retriever's. `lines` are those of the response
    prompt that it went into, as they were shown to the model.
    """

    became: Became
    rank: int | None
    text: str | None
    date: str | None
    similarity: float | None
    lines: tuple[str, ...] = ()


def fates(retrieved: Sequence[Mapping[str, Any]] | None, context: Sequence[Mapping[str, Any]] | None) -> list[Fate]:
    """The memories of a record (`schema.records.retrieved` and `.context`) in rank order, then lines that were added.

    Empty for BASE, which retrieves nothing, and where the texts were left out.
    """
    memories = [Memory(str(each["text"]), each.get("date"), each.get("score")) for each in retrieved or ()]
    lines = list(context or ())
    if any("sources" not in line for line in lines):
        # No post-processor, one that revises the answer, or one that failed: the context is what was retrieved.
        return [_fate("kept", rank, each, (each.text,)) for rank, each in enumerate(memories, 1)]
    numbers = iter(prepare(memories).numbers)
    found = []
    for rank, memory in enumerate(memories, 1):
        blank = not prepare([memory]).numbers
        number = None if blank else next(numbers)
        into = [line for line in lines if number in line["sources"]]
        found.append(_fate(_became(memory, into), rank, memory, tuple(str(line["text"]) for line in into)))
    known = set(prepare(memories).numbers)
    added = [line for line in lines if not known & set(line["sources"])]
    return found + [Fate("added", None, None, line.get("date"), None, (str(line["text"]),)) for line in added]


def _became(memory: Memory, into: Sequence[Mapping[str, Any]]) -> Became:
    if not into:
        return "dropped"
    if any(len(line["sources"]) > 1 for line in into):
        return "merged"
    stored = prepare([memory]).memories[0].text.split()
    if any(str(line["text"]).split() != stored for line in into):
        return "altered"
    return "restored" if any(line.get("altered") for line in into) else "kept"


def _fate(became: Became, rank: int, memory: Memory, lines: tuple[str, ...]) -> Fate:
    return Fate(became, rank, memory.text, memory.date, memory.score, lines)
