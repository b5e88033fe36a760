"""Two texts side by side: which words differ."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Literal

Run = tuple[str, bool]
"""A piece of text, and whether it differs from the other side."""
Change = tuple[str, Literal["kept", "dropped", "added"]]
"""A piece of text, and what became of it from the first text to the second."""

#: Comparing takes time by the product of the lengths: longer texts are compared line by line.
_MOST_WORDS = 1_500
#: Chinese and Japanese put no space between words: there each sign stands for itself.
_ALONE = "\u3040-\u30ff\u3400-\u9fff"
_WORDS = re.compile(rf"\s+|[{_ALONE}]|[^\s{_ALONE}]+")
#: A word with the white space after it.
_SPACED = re.compile(rf"\s*(?:[{_ALONE}]|[^\s{_ALONE}]+)\s*")
_PUNCTUATION = ".,;:!?…"
_LINES = re.compile(r"\n|[^\n]+")


def word_marks(first: str, second: str) -> tuple[list[Run], list[Run]]:
    """Both texts in pieces, whose concatenation is the text. White space alone never counts as a difference."""
    pieces = [_WORDS.findall(text) for text in (first, second)]
    if max(map(len, pieces)) > 2 * _MOST_WORDS:
        pieces = [_LINES.findall(text) for text in (first, second)]
    # A word is the same whatever white space stands around it.
    solid = [[place for place, piece in enumerate(side) if not piece.isspace()] for side in pieces]
    words = [[side[place] for place in places] for side, places in zip(pieces, solid, strict=True)]
    marks = [[False] * len(side) for side in pieces]
    for kind, a, b, c, d in SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes():
        if kind != "equal":
            for side, low, high in ((0, a, b), (1, c, d)):
                if high > low:
                    # From the first differing word to the last, the space between them included.
                    low_piece, high_piece = solid[side][low], solid[side][high - 1]
                    marks[side][low_piece : high_piece + 1] = [True] * (high_piece + 1 - low_piece)
    return _runs(pieces[0], marks[0]), _runs(pieces[1], marks[1])


def word_changes(first: str, second: str) -> list[Change]:
    """The way from the first text to the second in reading order.

    Punctuation at a word's ends doesn't make it another. What is kept is as the second text has it; pieces that had no
    white space between them get a space."""
    sides = [_SPACED.findall(text) for text in (first, second)]
    if max(map(len, sides)) > _MOST_WORDS:
        sides = [re.findall(r"[^\n]*\n|[^\n]+", text) for text in (first, second)]
    bare = [[piece.strip().strip(_PUNCTUATION) or piece.strip() for piece in side] for side in sides]
    runs: list[Change] = []
    for kind, a, b, c, d in SequenceMatcher(None, bare[0], bare[1], autojunk=False).get_opcodes():
        if kind == "equal":
            runs.append(("".join(sides[1][c:d]), "kept"))
            continue
        if b > a:
            runs.append(("".join(sides[0][a:b]), "dropped"))
        if d > c:
            runs.append(("".join(sides[1][c:d]), "added"))
    last = len(runs) - 1
    return [
        (text if place == last or text[-1:].isspace() or re.match(rf"[{_ALONE}]", text[-1:]) else f"{text} ", became)
        for place, (text, became) in enumerate(runs)
    ]


def _runs(pieces: list[str], marks: list[bool]) -> list[Run]:
    runs: list[Run] = []
    for piece, mark in zip(pieces, marks, strict=True):
        if runs and runs[-1][1] == mark:
            runs[-1] = (runs[-1][0] + piece, mark)
        else:
            runs.append((piece, mark))
    return runs
