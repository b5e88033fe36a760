"""Memories before a method sees them, and the context lines that come out of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitigations.base import Line, Memory, Processed, Reply
from mitigations.text import mentions, normalise

_HEADING = re.compile(
    r"^\s*memories\s+(?:for|of|about)\s+(?:the\s+)?(?:user\s*)?[^:\n]{0,60}:[ \t]*(?:\n|$)", re.IGNORECASE
)
_DATE_SEPARATOR = "; "


@dataclass(frozen=True, slots=True)
class Prepared:
    """Memories as retrieved (`original`) and as numbered for the model (`memories`: exact duplicates dropped).

    `numbers[i]` is the 1-based number of `original[i]` among `memories`. Blank memories and a heading such as
    `Memories for user X:` are in neither.
    """

    original: tuple[Memory, ...]
    memories: tuple[Memory, ...]
    numbers: tuple[int, ...]
    heading: str = ""

    def untouched(self) -> tuple[Line, ...]:
        """The original memories as context lines, in rank order."""
        return tuple(
            Line(memory.text, memory.date, (number,))
            for memory, number in zip(self.original, self.numbers, strict=True)
        )

    def stored(self, number: int, *, altered: bool = False) -> Line:
        """Memory `number` (1-based) as it is stored, whole."""
        memory = self.memories[number - 1]
        return Line(memory.text, memory.date, (number,), altered)

    def missing_dates(self, text: str, sources: Sequence[int]) -> str | None:
        """The dates of several memories (1-based) that `text` doesn't tell, each once, joined by `; `."""
        dates = (self.memories[number - 1].date for number in sources)
        found = dict.fromkeys(date for date in dates if date and not mentions(text, date))
        return _DATE_SEPARATOR.join(found) or None

    def pass_through(self, *, note: str = "", preface: str = "") -> Processed:
        """The memories as retrieved, without a call; `nothing` if there are none."""
        return Processed(
            "kept" if self.original else "nothing",
            self.untouched(),
            self.memories,
            reason=None if self.original else "no memories",
            response_note=note,
            response_preface=preface,
            heading=self.heading,
        )

    def kept(self, lines: Sequence[Line], replies: Sequence[Reply], counts: Mapping[str, int]) -> Processed:
        """`lines` (at least one) are the context."""
        return Processed(
            "kept", tuple(lines), self.memories, None, tuple(replies), True, _met(counts), heading=self.heading
        )

    def nothing(self, reason: str, replies: Sequence[Reply], counts: Mapping[str, int]) -> Processed:
        """The response gets the no-memory prompt."""
        return Processed("nothing", (), self.memories, reason, tuple(replies), True, _met(counts))

    def failed(self, reason: str, replies: Sequence[Reply], counts: Mapping[str, int]) -> Processed:
        """The reply couldn't be used: the original memories stand, and it is counted."""
        met = {**_met(counts), "failed": 1}
        return Processed(
            "failed", self.untouched(), self.memories, reason, tuple(replies), True, met, heading=self.heading
        )


def prepare(memories: Sequence[Memory]) -> Prepared:
    """Takes off headings, drops blank memories, and numbers what remains without exact duplicates (text and date)."""
    heading = ""
    original: list[Memory] = []
    numbered: dict[tuple[str, str | None], int] = {}
    first: list[Memory] = []
    numbers: list[int] = []
    for memory in memories:
        match = _HEADING.match(memory.text)
        if match:
            heading = heading or match.group().strip()
        text = (memory.text[match.end() :] if match else memory.text).strip()
        if not text:
            continue
        bare = memory if text == memory.text else Memory(text, memory.date, memory.score)
        key = (" ".join(normalise(text).split()), memory.date)
        if key not in numbered:
            first.append(bare)
            numbered[key] = len(first)
        original.append(bare)
        numbers.append(numbered[key])
    return Prepared(tuple(original), tuple(first), tuple(numbers), heading)


def _met(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def dated(text: str, date: str | None) -> str:
    """`(9 May 2024) text`."""
    return f"({date}) {text}" if date else text


def context_lines(processed: Processed) -> list[str]:
    """The lines for the response prompt, each with its date; empty for `nothing`: use the no-memory prompt then."""
    lines = [dated(line.text, line.date) for line in processed.lines]
    return [processed.heading, *lines] if processed.heading and lines else lines
