"""What a reader sees of a model's text: thinking blocks taken off, digits of every script made plain."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from itertools import pairwise

_TAG = r"(?:think(?:ing)?|thought|reason(?:ing)?|reflection|scratchpad)"
_TAGS = re.compile(rf"(?P<open><\s*{_TAG}\s*>|\[THINK\]|◁think▷)|<\s*/\s*{_TAG}\s*>|\[/THINK\]|◁/think▷", re.IGNORECASE)


def strip_thinking(text: str) -> str:
    """The text without thinking blocks, stripped of outer white space.

    A closing tag without an opening one ends a block that began with the text (some chat templates swallow the
    opening tag); an opening tag without a closing one is a block that was cut off, and so everything after it goes.
    """
    if not any(sign in text for sign in "<[◁"):
        return text.strip()  # as below, without a search for tags
    kept: list[str] = []
    position, thinking = 0, False
    for tag in _TAGS.finditer(text):
        if tag["open"]:
            if not thinking:
                kept.append(text[position : tag.start()])
            thinking = True
        else:
            if not thinking:
                kept.clear()
            position, thinking = tag.end(), False
    if not thinking:
        kept.append(text[position:])
    return " ".join(kept).strip()


def plain(text: str) -> str:
    """NFKC with digits of every script as 0-9, straight quotes, and without circled digits and superscripts.

    Circled digits number lists and superscripts number notes; NFKC would turn `0.8²` into `0.82`.
    """
    if text.isascii():
        return text  # as all of it would leave it, a hundred times faster
    return unicodedata.normalize("NFKC", text.translate(_NO_NOTES)).translate(_PLAIN)


class _Signs(dict[int, str]):
    """What becomes of characters, worked out once for each that is met."""

    def __init__(self, rule: Callable[[str], str], known: Mapping[int, str]) -> None:
        super().__init__(known)
        self._rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = self._rule(chr(code))
        return self[code]


def _without_note(sign: str) -> str:
    note = unicodedata.category(sign) == "No" and not unicodedata.decomposition(sign).startswith("<fraction>")
    return " " if note else sign


def _digit(sign: str) -> str:
    return str(unicodedata.decimal(sign)) if unicodedata.category(sign) == "Nd" else sign


_NO_NOTES = _Signs(_without_note, {})
_PLAIN = _Signs(
    _digit,
    str.maketrans(
        {"⁄": "/", "∕": "/", "٫": ".", "’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-"}
        | {"‑": "-", "‐": "-", "‒": "–", "\u00a0": " ", "\u200b": "", "\ufeff": ""}
    ),
)

_NEXT_EXAMPLE = re.compile(
    r"^\W{0,6}(?:(?:the\s+)?(?:user(?:'s)?\s+)?(?:question|query|input|prompt|message)\s*\d*\W{0,3}[:>]"
    r"|(?:the\s+)?(?:(?:ai|model|assistant)(?:'s)?\s+)?(?:response|reply)\s*\d*\W{0,3}[:>]"
    r"|(?:user|human|assistant|system)\s*[:>]|(?:example|case|instance|sample|test|question|query)\s*\#?\d+\b"
    r"|next\s+(?:example|question|case)|now\s+evaluate)",
    re.MULTILINE | re.IGNORECASE,
)


def parts(text: str) -> list[str]:
    """The reply, cut where a line starts a further example; a model that runs on judges examples of its own there."""
    starts = [0, *(match.start() for match in _NEXT_EXAMPLE.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(starts)]
