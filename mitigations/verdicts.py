"""What a model says about a memory instead of from it: "not relevant", "drop", "keep".

A verdict stands before or after the memory's words on its line, or as a heading over several lines.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from mitigations.text import content_words, is_in, is_negated, tokens, word_keys

_NEED = r"(?:relevant|useful|needed|related|necessary|applicable|pertinent|helpful|required|connected)"
_END = r"(?=\W*$|\s*[,;:()–—.-]|\s+(?:as|since|because|it|this)\b)"
_REJECTED = (
    rf"(?:(?:not|(?:is|are|was)n't)\s+(?!only\b|just\b|merely\b)(?:\w+\s+){{0,2}}?{_NEED}\b"
    r"|(?:does|do|did)(?:\s+not|n't)\s+(?:\w+\s+)?(?:relate|help|apply|matter|bear|pertain)\b"
    r"|(?:irrelevant|unrelated|unnecessary|unneeded|inapplicable|off-topic)\b"
    r"|(?:(?:has|have|of|bears?)\s+)?no\s+(?:\w+\s+)?(?:relevance|relation|connection|bearing)\b"
    r"|(?:has|have)\s+nothing\s+to\s+do\s+with\b"
    rf"|(?:drop(?:ped)?|discard(?:ed)?|excluded?|omit(?:ted)?|skip(?:ped)?|removed?|rejected|left\s+out){_END})"
)
_NO = r"no(?=\W*$)"
_KEPT = (
    r"(?:(?:directly|highly|very|clearly|most|somewhat|partly)\s+)?"
    rf"(?:{_NEED}|keep|kept|yes)(?=\W*$|\s*[,;:()–—.-]|\s+(?:to|for|as|since|because|here)\b)"
)
#: Runs are bounded, so that a reply of nothing but spaces or dots takes no longer than another.
_STRONG_BREAK = r"(?:(?:[(\[:|]|->|=>|→|⇒)\s{0,3}|\s[-–—]{1,3}\s{0,3}|[–—]{1,3}\s{0,3}|-\s{1,3})"
_BREAK = rf"(?:{_STRONG_BREAK}|[;,.!?]{{1,3}}[\"')\]]{{0,2}}\s{{0,3}})"
_LEAD = (
    r"(?:(?:so|thus|hence|but|and|therefore|which|this|that|it|these|the|memory|one|line|fact|information|detail|verdict"
    r"|relevan(?:t|ce)|is|are|was|seems?|appears?|to|can|should|would|be|entirely|completely|clearly|probably|directly"
    r"|totally)\b[\s:]{0,3}){0,7}"
)
_TAIL_REJECTED = re.compile(
    rf"(?:{_BREAK}{_LEAD}(?P<core>{_REJECTED})|{_STRONG_BREAK}{_LEAD}(?P<no>{_NO}))(?P<rest>.*)$", re.IGNORECASE
)
_TAIL_KEPT = re.compile(
    rf"(?:{_STRONG_BREAK}|[.!?]\s+(?=th(?:is|at)\b|it\b)){_LEAD}(?P<core>{_KEPT}).*$", re.IGNORECASE
)
_HEAD_REJECTED = re.compile(
    rf"^\W*{_LEAD}(?:(?P<core>{_REJECTED})(?:\s+\w+){{0,6}}?\s*(?:[:,.()\]|–—]|\s-|->|→|$)"
    r"|(?P<no>no)\s*(?:[:–—|]|\s-|->|→))(?P<body>.*)$",
    re.IGNORECASE,
)
_HEAD_KEPT = re.compile(rf"^\W*(?P<core>{_KEPT})\s*(?:[:)\]–—|]|\s-\s|->|→|\.?$)(?P<body>.*)$", re.IGNORECASE)
_AFTER_ALL = re.compile(
    rf"\b(?:but|however|(?:al)?though|yet|except)\b(?!.*\b(?:not|no)\b).*\b(?:{_NEED}|keep|kept)\b", re.IGNORECASE
)
_ONLY_REJECTED = re.compile(rf"^\W*{_LEAD}{_REJECTED}(?:\s+[\w']+){{0,10}}\W*$", re.IGNORECASE)
_HEADING = re.compile(
    rf"^\W*(?:the\s+)?(?:following\s+)?(?:(?:memories|lines|entries|ones)\s+)?(?:(?:that|which)\s+)?(?:are\s+)?{_REJECTED}"
    r"(?:\s+(?:memories|lines|entries|ones|(?:to|for) (?:the|this) (?:question|request)))*\W*:$",
    re.IGNORECASE,
)


_TELLS_OF_NOTHING = re.compile(
    r"^\W*(?:the |this |that )?(?:memory|note|it|this|there)\b.{0,40}\b(?:no|not|nothing|doesn't|isn't)\b.{0,40}"
    r"\b(?:mention\w*|relevan\w*|inform\w*|related|about|state\w*|say\w*|bear\w*|evidence)\b",
    re.IGNORECASE,
)


class Judged(NamedTuple):
    """A line without the model's verdict on it."""

    text: str
    verdict: Literal["rejected", "kept"] | None


def split_verdict(text: str, memory: str) -> Judged:
    """Takes a verdict off the beginning or the end of `text`. Words that `memory` itself holds are none."""
    head = _HEAD_REJECTED.match(text)
    if head and not _holds(memory, head["core"] or head["no"]):
        after_all = _AFTER_ALL.search(head["body"])
        return Judged(head["body"].strip(), None if after_all else "rejected")
    tail = next((found for found in _tails(text) if not _holds(memory, found["core"] or found["no"])), None)
    if tail:
        return Judged(_closed(text[: tail.start()]), "kept" if _AFTER_ALL.search(tail["rest"]) else "rejected")
    head = _HEAD_KEPT.match(text)
    if head and not _holds(memory, head["core"]):
        return Judged(head["body"].strip(), "kept")
    tail = _TAIL_KEPT.search(text)
    if tail and not _holds(memory, tail["core"]):
        return Judged(_closed(text[: tail.start()] + ("." if tail.group()[0] in ".!?" else "")), "kept")
    return Judged(text, None)


def is_only_rejection(text: str) -> bool:
    """Whether the text says nothing but that something isn't needed. A bare "no" is an answer."""
    return bool(_ONLY_REJECTED.match(text))


def tells_of_nothing(text: str) -> bool:
    """Whether the text says that a memory holds nothing on the question ("The memory doesn't mention nuts.")."""
    return bool(_TELLS_OF_NOTHING.match(text))


def is_rejecting_heading(text: str) -> bool:
    """Whether a line heads memories that aren't needed ("Not relevant:")."""
    return bool(_HEADING.match(text))


def _tails(text: str) -> list[re.Match[str]]:
    """Every place where a rejecting end begins, from the left."""
    found = []
    at = 0
    while match := _TAIL_REJECTED.search(text, at):
        found.append(match)
        at = match.start() + 1
    return found


def _holds(memory: str, said: str) -> bool:
    """Whether the memory has the words of a verdict itself."""
    words, known = content_words(said), word_keys(memory)
    if not words:
        lines = [[token.casefold() for token in tokens(line)] for line in memory.splitlines()]
        return any(said.casefold() in (line[0], line[-1]) for line in lines if line)
    return all(is_in(word, known) for word in words) and is_negated(memory) >= is_negated(said)


def _closed(text: str) -> str:
    """Without a bracket or bar that was opened for the verdict."""
    return text.rstrip(" ([|-–—")
