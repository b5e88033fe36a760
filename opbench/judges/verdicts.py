"""Reading a LoCoMo judge's verdict: correct, wrong, or nothing."""

from __future__ import annotations

import json
import re

from opbench.judges.text import parts, plain, strip_thinking

_NOT = r"(?:\b(?:not|never|isn't|wasn't|aren't|neither)\s+(?:\w+\s+){0,2}?)"
_LABEL = (
    r"(?P<not>"
    + _NOT
    + r")?(?P<partly>\b(?:partially|partly|mostly|nearly|half|somewhat)[\s-]+)?\b(?P<label>correct|incorrect|wrong)\b"
)
_LABEL_LINE = re.compile(
    r"(?:\b(?:label|verdict|judge?ment|final answer|result|decision|evaluation)|^[^\w\n]*answer)"
    r"\s*(?:[:=]|→|\bis\b)\s*" + _LABEL,
    re.IGNORECASE | re.MULTILINE,
)
_OWN_LINE = re.compile(rf"^[^\w\n]*{_LABEL}[^\w\n]*$", re.IGNORECASE | re.MULTILINE)
_CHOICE = re.compile(
    r"\b(?:correct|wrong|incorrect)\b\s*(?:/|\bor\b|\bvs\b\.?|\|)\s*\b(?:correct|wrong|incorrect)\b", re.IGNORECASE
)
_ATTRIBUTE = re.compile(
    r"\b(?:the|a|any|one|gold|only)\s+(?:correct|wrong|incorrect)\s+(?=[a-z])(?!and\b|or\b|but\b|because\b|since\b|as\b)",
    re.IGNORECASE,
)
_KEYS = (
    "label",
    "verdict",
    "judgment",
    "judgement",
    "final_answer",
    "result",
    "decision",
    "evaluation",
    "correct",
    "answer",
)


def parse_verdict(text: str) -> bool | None:
    """True for CORRECT, False for WRONG, None when the reply has no verdict or more than one.

    A JSON label decides; else the last labelled line (`Label: WRONG`), else the last line that is a label alone, else
    the labels in capitals when they agree, else all labels of the text when they agree. A reply that runs on into a
    further example and judges that differently has no verdict. "Not correct" and "incorrect"
    are wrong; "partially correct" and "not wrong" are no verdict.
    """
    text = plain(strip_thinking(text))
    for found in re.findall(r"\{[^{}]*\}", text)[::-1]:
        try:
            return _from_json(json.loads(found))
        except (ValueError, RecursionError):
            continue
    text = _CHOICE.sub(" ", re.sub(r"[*`\"_{}]", "", text))
    if lines := [match for part in parts(text) if (match := _label_line(part))]:
        return _one({_reading(match) for match in lines})
    labels = list(re.finditer(_LABEL, _ATTRIBUTE.sub(" ", text), re.IGNORECASE))
    capitals = [match for match in labels if match["label"].isupper()]
    return _one({_reading(match) for match in capitals or labels})


def _label_line(text: str) -> re.Match[str] | None:
    """The last line that gives a label, labelled lines before bare ones."""
    for pattern in (_LABEL_LINE, _OWN_LINE):
        if matches := list(pattern.finditer(text)):
            return matches[-1]
    return None


def _one(readings: set[bool | None]) -> bool | None:
    return readings.pop() if len(readings) == 1 else None


def _from_json(reply: object) -> bool | None:
    if not isinstance(reply, dict):
        return None
    values = {str(key).lower().replace(" ", "_"): value for key, value in reply.items()}
    for key in _KEYS:
        value = values.get(key)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and (match := re.fullmatch(rf"\W*{_LABEL}\W*", value, re.IGNORECASE)):
            return _reading(match)
    return None


def _reading(match: re.Match[str]) -> bool | None:
    if match["partly"]:
        return None
    correct = match["label"].lower() == "correct"
    if match["not"]:
        return False if correct else None
    return correct
