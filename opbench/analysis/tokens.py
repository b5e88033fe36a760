"""Words and phrases of a response, as the analysis of language counts them.

Text is taken as `judges.text.plain` has it (one kind of quotes, no zero-width signs) and lower-cased. A word is a run
of letters and digits, with apostrophes and hyphens inside it (`don't`, `well-being`), or a number (`3.5`). Phrases (2
or 3 words that follow each other) go over commas, but not over a sentence's or a line's end, a colon, a semicolon,
brackets or a dash. What numbers or marks a list (`1.`, `2)`, `-`, `*`) is no word, nor are Markdown's signs. Scripts
without spaces between words aren't cut into words.
"""

from __future__ import annotations

import re
from collections import Counter

from opbench.judges.text import plain

_WORD = re.compile(r"\d+(?:[.,:]\d+)+|[^\W_]+(?:['-][^\W_]+)*")
_LIST_MARK = re.compile(r"^[ \t>#*+-]*(?:\(?\d{1,3}[.)]\s+)?", re.MULTILINE)
_MARKDOWN = re.compile(r"[*_`~]+")
#: A full stop inside a number or a name of letters and stops (3.5, e.g.) ends nothing.
_END = re.compile(r"[!?;:…\n()\[\]{}]+|\.(?=\s|$)|\.{2,}|\s[–—-]+\s|—")


def ngrams(text: str, order: int) -> Counter[str]:
    """How often each phrase of `order` words stands in the text; its words are joined by one space."""
    found: Counter[str] = Counter()
    for clause in clauses(text):
        found.update(" ".join(clause[at : at + order]) for at in range(len(clause) - order + 1))
    return found


def clauses(text: str) -> list[list[str]]:
    """The text's words, cut where no phrase goes on."""
    bare = _MARKDOWN.sub("", _LIST_MARK.sub("", plain(text))).lower()
    return [words for part in _END.split(bare) if (words := _WORD.findall(part))]
