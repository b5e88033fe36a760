"""What a reader sees of a model's text: thinking blocks taken off, digits of every script made plain."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_TAG = r"(?:think(?:ing)?|thought|reason(?:ing)?|reflection|scratchpad)"
_OPEN = rf"(?:<\s*{_TAG}\s*>|\[THINK\]|◁think▷)"
_CLOSE = rf"(?:<\s*/\s*{_TAG}\s*>|\[/THINK\]|◁/think▷)"
_CLOSED_BLOCK = re.compile(f"{_OPEN}.*?{_CLOSE}", re.IGNORECASE | re.DOTALL)
_UP_TO_CLOSE = re.compile(f".*{_CLOSE}", re.IGNORECASE | re.DOTALL)
_FROM_OPEN = re.compile(f"{_OPEN}.*", re.IGNORECASE | re.DOTALL)


def strip_thinking(text: str) -> str:
    """The text without thinking blocks, stripped of outer white space.

    A closing tag without an opening one ends a block that began with the text (some chat templates swallow the
    opening tag); an opening tag without a closing one is a block that was cut off, and so everything after it goes.
    """
    text = _CLOSED_BLOCK.sub(" ", text)
    text = _UP_TO_CLOSE.sub(" ", text)
    return _FROM_OPEN.sub(" ", text).strip()


def plain(text: str) -> str:
    """NFKC with digits of every script as 0-9, straight quotes, and without circled digits and superscripts.

    Circled digits number lists and superscripts number notes; NFKC would turn `0.8²` into `0.82`.
    """
    kept = "".join(
        " " if unicodedata.category(c) == "No" and not unicodedata.decomposition(c).startswith("<fraction>") else c
        for c in text
    )
    digits = "".join(
        str(unicodedata.decimal(c)) if unicodedata.category(c) == "Nd" else c
        for c in unicodedata.normalize("NFKC", kept)
    )
    return digits.translate(_PLAIN)


_PLAIN = str.maketrans(
    {"⁄": "/", "∕": "/", "٫": ".", "’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-"}
    | {"‑": "-", "‐": "-", "‒": "–", "\u00a0": " ", "\u200b": "", "\ufeff": ""}
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
