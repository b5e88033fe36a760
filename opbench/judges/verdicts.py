"""Reading a LoCoMo judge's verdict: correct, wrong, or nothing.

A wrong verdict is worse than a missing one: prose that merely holds the word "correct" may deny it, make it depend on
something, or speak of the gold answer or of a part. So a verdict counts only where it can be nothing else:

1. a JSON label;
2. a labelled line (`Label: WRONG`);
3. a line that is a label alone;
4. a label in capitals standing alone: a sentence of its own, or at the head of the reply;
5. a plain statement about the graded answer as a whole (`The answer is not correct.`), without condition or contrast.

Two verdicts that disagree, and a verdict that is taken back, give None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache

from opbench.judges.text import parts, plain, strip_thinking

_NOT = r"(?:\b(?:not|never|isn't|wasn't|aren't|neither)\s+(?:\w+\s+){0,2}?)"
_LABEL = (
    r"(?P<not>"
    + _NOT
    + r")?(?P<partly>\b(?:partially|partly|mostly|nearly|half|somewhat)[\s-]+)?\b(?P<label>correct|incorrect|wrong)\b"
)
#: What may follow a verdict on its line: nothing, an aside, a further sentence or a reason.
_REST = r"(?P<rest>[^\w\n?]*$|\s*(?:[.!,;:()\[\]–—-]|→|(?:because|since|as|for)\b)[^\n]*)"
_LABEL_LINE = re.compile(
    r"(?:\b(?:label|verdict|judge?ment|final answer|result|decision|evaluation)|^[^\w\n]*answer)"
    rf"\s*(?P<sign>[:=]|→|\bis\b)[^\w\n?]*{_LABEL}(?P<rest>[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_OWN_LINE = re.compile(rf"^[^\w\n]*{_LABEL}[^\w\n?]*$", re.IGNORECASE | re.MULTILINE)
_HEAD = re.compile(rf"\A\W*{_LABEL}{_REST}", re.IGNORECASE | re.MULTILINE)
_SENTENCE = re.compile(
    rf"(?<=[.!?;:])\s[^\w\n]{{0,9}}{_LABEL}(?P<rest>[^\w\n?]*(?:$|[.!;]\s))", re.IGNORECASE | re.MULTILINE
)
_STATEMENT = re.compile(
    r"(?:(?:^|(?<=[.!?;:])\s)\W{0,9}(?:(?:so|thus|hence|therefore|overall),?\s+)?(?:the|this)\s+"
    r"(?:(?:generated|given|model's|ai's|candidate|predicted)\s+)*(?:answer|response|reply|prediction)|\A\W*(?:it|this))"
    r"\s*(?:'s|\bis|(?=\bisn't))\s*(?:(?:fully|completely|entirely|factually|clearly|simply|therefore|thus)\s+)?"
    rf"{_LABEL}{_REST}",
    re.IGNORECASE | re.MULTILINE,
)
#: Words that limit a verdict of "correct" in its sentence, and those that make any verdict depend on something.
_LIMIT = re.compile(
    r"\b(?:but|however|though|although|except|yet|if|unless|only|would|could|might|may|should|cannot|hardly|barely|"
    r"far from|fails?|partly|partially|in part|half|doubt\w*|missing|lacks?|incomplete|otherwise)\b|\?",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\b(?:if|unless|only when|provided that|assuming)\b|\A[^\w.!]*\?", re.IGNORECASE)
_DENIAL = re.compile(r"\b(?:not|no|never|neither|nor|disagree)\b|n't\b", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"(?:^|[.!?;:,(–—\n])\s*(?:but\s+|oh,?\s+|hmm,?\s+)?"
    r"(?:actually|wait|scratch that|correction|sorry|hold on|(?:on|upon) (?:second |further |closer )?"
    r"(?:reflection|thought|inspection|look|reading)|let me (?:re|correct|change)|i take (?:that|it) back|"
    r"no[.,!:]\s*(?:it|that|this|the|wrong|incorrect|correct))\b"
    r"|\bi\s+(?:\w+\s+)?(?:revise|change|reconsider|retract|withdraw|correct)\s+(?:it|this|that|my)\b"
    r"|\b(?:revised|corrected|changed)\s+(?:to|label|verdict)\b",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?\s*(?:label|verdict|judge?ment|result|decision|(?:final_)?answer)\s*>", re.IGNORECASE)
_CHOICE = re.compile(
    r"\b(?:correct|wrong|incorrect)\b\s*(?:/|\bor\b|\bvs\b\.?|\|)\s*\b(?:correct|wrong|incorrect)\b", re.IGNORECASE
)
_ATTRIBUTE = re.compile(
    r"\b(?:the|a|any|one|gold|only)\s+(?:correct|wrong|incorrect)\s+(?=[a-z])(?!and\b|or\b|but\b|because\b|since\b|as\b)",
    re.IGNORECASE,
)
_LABEL_KEYS = ("label", "verdict", "judgment", "judgement", "decision", "correct")
_TEXT_KEYS = ("final_answer", "result", "evaluation", "answer")
"""Keys that may hold a verdict or something else."""


@lru_cache(maxsize=4096)
def parse_verdict(text: str) -> bool | None:
    """True for CORRECT, False for WRONG, None when the reply has no clear verdict or more than one.

    Of several labelled lines the last decides; all else has to agree, also over further examples that a reply which
    runs on judges. "Not correct" and "incorrect" are wrong; "partially correct" and "not wrong" are no verdict.
    """
    text = plain(strip_thinking(text))
    outside, labels = _json_labels(text)
    outside = _CHOICE.sub(" ", re.sub(r"[*`\"_{}]", "", _TAG.sub("\n", outside)))
    formal = [reading for part in parts(outside) for reading in _formal(part)]
    if labels or formal:
        return _one([*labels, *formal])
    return _one(_in_prose(outside))


def _one(readings: Iterable[bool | None]) -> bool | None:
    found = set(readings)
    return found.pop() if len(found) == 1 else None


def _json_labels(text: str) -> tuple[str, list[bool | None]]:
    """The text without its JSON objects that hold labels, and the readings of those, one an object."""
    labels: list[bool | None] = []
    pieces, position = [], 0
    for found in re.finditer(r"\{[^{}]*\}", text):
        try:
            pairs = json.loads(found.group(), object_pairs_hook=list)
        except (ValueError, RecursionError):
            continue
        if readings := _from_pairs(pairs):
            labels.append(_one(readings))
            pieces.append(text[position : found.start()])
            position = found.end()
    after = text[position:]
    if labels and _TAKEN_BACK.search(after):
        labels.append(None)
    return "\n".join([*pieces, after]), labels


def _from_pairs(pairs: list[tuple[str, object]]) -> list[bool | None]:
    readings: list[bool | None] = []
    for name, value in pairs:
        key = name.lower().replace(" ", "_")
        if key not in _LABEL_KEYS + _TEXT_KEYS:
            continue
        if isinstance(value, bool):
            readings.append(value)
        elif isinstance(value, str) and (match := re.fullmatch(rf"\W*{_LABEL}[^\w?]*", value, re.IGNORECASE)):
            readings.append(_reading(match))
        elif key in _LABEL_KEYS:
            readings.append(None)
    return readings


def _formal(text: str) -> list[bool | None]:
    """The verdict of the last labelled line, else those of the lines that are a label alone."""
    own = list(_OWN_LINE.finditer(text))
    if lines := [match for match in _LABEL_LINE.finditer(text) if not _is_talk(match)]:
        last = lines[-1]
        readings = [_certain(last), *(_reading(match) for match in own if match.start() > last.end())]
        end = last.start("rest")
    elif own:
        readings, end = [_reading(match) for match in own], own[-1].end()
    else:
        return []
    return [*readings, None] if _TAKEN_BACK.search(text, end) else readings


def _is_talk(match: re.Match[str]) -> bool:
    """`The result is correct in part.`: a sentence that happens to begin like a labelled line."""
    return match["sign"].lower() == "is" and _certain(match) is None


def _in_prose(text: str) -> list[bool | None]:
    """Labels in capitals standing alone, else plain statements, which any other label or denial of the text undoes."""
    stated = list(_STATEMENT.finditer(text))
    alone = [match for pattern in (_HEAD, _SENTENCE) for match in pattern.finditer(text) if match["label"].isupper()]
    readings = [_certain(match) for match in alone + stated]
    if not readings:
        return []
    if not alone:
        rest = "".join(match["rest"] for match in stated)
        readings += [_reading(match) for match in re.finditer(_LABEL, _ATTRIBUTE.sub(" ", text), re.IGNORECASE)]
        if True in readings and (_LIMIT.search(text) or _DENIAL.search(rest)):
            readings.append(None)
    return [*readings, None] if _TAKEN_BACK.search(text) else readings


def _certain(match: re.Match[str]) -> bool | None:
    """The reading of a verdict, or None when its sentence goes on to condition, limit or contradict it."""
    reading = _reading(match)
    if not re.match(_REST, match["rest"], re.IGNORECASE):
        return None
    sentence = re.split(r"(?<=[.!])\s", match["rest"], maxsplit=1)[0]
    others = {_reading(other) for other in re.finditer(_LABEL, _ATTRIBUTE.sub(" ", sentence), re.IGNORECASE)}
    doubt = _LIMIT if reading else _CONDITION
    return None if doubt.search(sentence) or others - {reading} else reading


def _reading(match: re.Match[str]) -> bool | None:
    if match["partly"]:
        return None
    correct = match["label"].lower() == "correct"
    if match["not"]:
        return False if correct else None
    return correct
