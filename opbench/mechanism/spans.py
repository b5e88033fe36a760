"""Which token of a prompt belongs to which segment: by character offsets in the rendered chat template.

Nothing is searched for by its wording, so a question that also stands in a memory, or a memory that also stands in the
instructions, is no matter. The template is rendered twice, with the messages and with marks in their place: what stands
between the marks is the template's own, and where the messages begin and end follows from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from opbench.errors import OpbenchError
from opbench.store.attention import SEGMENTS

Piece = tuple[str, str]
"""(segment, text): a message's content in pieces; the segment is `memory`, `query` or `instructions`."""
_FIRST, _TEMPLATE = (SEGMENTS.index(name) for name in ("first", "template"))
_BETWEEN = "\n\n"


class Unreadable(OpbenchError):
    """A record that can't be read; the message is the reason in a few words, which records are counted by."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the prompt."""

    role: str
    pieces: tuple[Piece, ...]

    @property
    def content(self) -> str:
        return "".join(text for _, text in self.pieces)


class Renders(Protocol):
    """Renders messages by the reading model's chat template, up to where the response begins.

    Raises `Refused` when the template refuses these messages.
    """

    def __call__(self, messages: Sequence[dict[str, str]], /) -> str: ...


class Refused(Exception):
    """What a chat template says of messages that it doesn't take."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A prompt token by token, in four tuples of one length (`text` apart)."""

    text: str
    """As rendered."""
    ids: tuple[int, ...]
    segments: tuple[int, ...]
    """Places in `SEGMENTS`."""
    texts: tuple[str, ...]
    """What each token stands for: together they are `text`. A sign of several tokens stands in the first of these."""


def lay_out(turns: Sequence[Turn], render: Renders, tokenizer: Any) -> Layout:
    """The prompt's tokens with their segments. `tokenizer` is a fast one of `transformers`.

    Raises:
        Unreadable: the template takes no such messages or alters them, or the text can't be tokenised.
    """
    text, segments = _rendered(turns, render)
    try:
        coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    except (TypeError, UnicodeError):
        raise Unreadable("its text holds signs that can't be tokenised") from None
    offsets = [(int(start), int(end)) for start, end in coded["offset_mapping"]]
    placed = _placed(offsets, segments)
    if placed:
        placed[0] = _FIRST
    return Layout(text, tuple(coded["input_ids"]), tuple(placed), tuple(_texts(text, offsets)))


def _rendered(turns: Sequence[Turn], render: Renders) -> tuple[str, list[int]]:
    """The rendered text and the segment of each of its characters."""
    try:
        return _place(turns, render)
    except Refused as refused:
        joined = _without_system(turns)
        if joined is None:
            raise Unreadable(f"the chat template refuses its messages ({refused})") from None
    try:
        return _place(joined, render)
    except Refused as refused:
        raise Unreadable(f"the chat template refuses its messages ({refused})") from None


def _without_system(turns: Sequence[Turn]) -> list[Turn] | None:
    """The system message at the head of the one after it, for templates that know none."""
    if len(turns) < 2 or turns[0].role != "system":
        return None
    system, second, *others = turns
    return [Turn(second.role, (*system.pieces, ("instructions", _BETWEEN), *second.pieces)), *others]


def _place(turns: Sequence[Turn], render: Renders) -> tuple[str, list[int]]:
    text = render([{"role": turn.role, "content": turn.content} for turn in turns])
    marks = _marks(turns)
    marked = render([{"role": turn.role, "content": mark} for turn, mark in zip(turns, marks, strict=True)])
    own = []
    for mark in marks:
        before, found, marked = marked.partition(mark)
        if not found or mark in marked:
            raise Unreadable("the chat template leaves a message out or repeats it")
        own.append(before)
    own.append(marked)
    for contents in itertools.product(*(_as_shown(turn.content) for turn in turns)):
        whole = own[0] + "".join(shown + after for (_, shown), after in zip(contents, own[1:], strict=True))
        if whole == text:
            break
    else:
        raise Unreadable("the chat template alters the messages")
    segments = [_TEMPLATE] * len(own[0])
    for turn, (start, shown), after in zip(turns, contents, own[1:], strict=True):
        of_content = [SEGMENTS.index(segment) for segment, piece in turn.pieces for _ in piece]
        segments += of_content[start : start + len(shown)] + [_TEMPLATE] * len(after)
    return text, segments


def _marks(turns: Sequence[Turn]) -> list[str]:
    """A word for each message that stands in none of them."""
    tries = ([f"Message{n}x{place}end" for place in range(len(turns))] for n in itertools.count())
    return next(marks for marks in tries if not any(mark in turn.content for mark in marks for turn in turns))


def _as_shown(content: str) -> list[tuple[int, str]]:
    """A message as templates show it, whole or trimmed: where in it that begins, and the text."""
    left = len(content) - len(content.lstrip())
    shown = [(0, content), (left, content.strip()), (left, content.lstrip()), (0, content.rstrip())]
    return list(dict.fromkeys(shown))


def _placed(offsets: Sequence[tuple[int, int]], segments: Sequence[int]) -> list[int]:
    """Each token's segment: the one that holds most of its characters, of equal ones the earlier. A token without
    characters belongs where it stands."""
    placed = []
    for start, end in offsets:
        inside = segments[start:end] or segments[start : start + 1] or segments[-1:]
        counts: dict[int, int] = {}
        for segment in inside:
            counts[segment] = counts.get(segment, 0) + 1
        placed.append(max(counts, key=lambda segment: counts[segment]))
    return placed


def _texts(text: str, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """Each token's text, from the end of the one before: what a tokeniser leaves out between two goes to the second."""
    ends = list(itertools.accumulate((end for _, end in offsets), max))
    if ends:
        ends[-1] = len(text)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
