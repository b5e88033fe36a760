"""Who did it to whom, and from where to where: the same words in other places are another statement."""

from __future__ import annotations

import re
from collections import defaultdict

from mitigations.text import STOP_WORDS, same_word, sentences, stem, word_keys

_ROLE = re.compile(
    r"\b(?:(?P<source>from|out of|left|leav(?:e|es|ing)|instead of|no longer(?: (?:in|on|at))?)"
    r"|(?P<goal>to|into|towards?|now (?:in|on|at)))"
    r"\s+(?:(?:the|a|an|her|his|their|its|my|our|your)\s+)?(?P<word>\d[\d:.,]*|[^\W\d_]+)",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"^\W*(?P<name>[^\W\d_]+)\s+(?P<verb>[^\W\d_]+)")


def reorders(text: str, source: str) -> bool:
    """Whether `text` swaps what `source` tells: the from and the to, or the doer and another name."""
    return _turns_round(text, source) or _swaps_subject(text, source)


def _turns_round(text: str, source: str) -> bool:
    told, known = _roles(text), _roles(source)
    pair = {role for roles in known.values() for role in roles} == {"source", "goal"}
    for word, said in told.items():
        held = {role for other, roles in known.items() if same_word(stem(word), stem(other)) for role in roles}
        if held and said - held and (pair or not word.islower()):
            return True
    return False


def _roles(text: str) -> dict[str, set[str]]:
    """Word, as written, to whether it follows a word of origin (`source`) or of direction (`goal`)."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for match in _ROLE.finditer(text):
        found[match["word"]].add("source" if match["source"] else "goal")
    return found


def _swaps_subject(text: str, source: str) -> bool:
    mine, theirs = _subjects(text), _subjects(source)
    said, held = word_keys(text), word_keys(source)
    for name, verb in mine - theirs:
        doers = {other for other, same in theirs if same == verb}
        if name in held and doers and name not in doers and doers <= said:
            return True
    return False


def _subjects(text: str) -> set[tuple[str, str]]:
    """The stems of the name that begins a sentence and of the word after it."""
    matches = filter(None, map(_SUBJECT.match, sentences(text)))
    return {
        (stem(match["name"]), stem(match["verb"]))
        for match in matches
        if match["name"][0].isupper()
        and match["name"].casefold() not in STOP_WORDS
        and match["verb"].casefold() not in ("and", "or")
    }
