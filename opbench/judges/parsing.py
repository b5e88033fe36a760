"""Reading a judge's reply: a number from 0 to 1, or nothing.

A wrong score is worse than a missing one, so every doubt ends in None: two different scores, a range, a bound, a
scale other than 0 to 1 without "out of", a number outside the scale. What is no score (scales, list numbers,
confidences, examples, thinking) is taken out first; then the strongest place that holds a number decides:

1. a final or overall score, `\\boxed{}`;
2. `Score: n` and the like, or a number alone on a line or at the head of the reply;
3. prose (`the score is n`, `I'd give it a n`) and scores of one aspect (`Relevance score: n`);
4. the only decimal number of the text.

A score that counts something (`Score: 0 memories`), is only supposed (`0.5 would be …`), is revised (`Actually, …`) or
is followed by another decimal outside brackets is in doubt. A reply that runs on into a further example is cut there;
parts that disagree give None.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from opbench.judges.doubts import BRACKETED, ENTIRE, HYPOTHETICAL, REVISED
from opbench.judges.noise import KEY, N, has_other_scale, number, unmarked, without_noise
from opbench.judges.text import parts, plain, strip_thinking
from opbench.judges.verdicts import parse_verdict

__all__ = ["parse_score", "parse_verdict"]

_NUM = r"(?<![\w.,])(?<!\w-)[-+]?(?:\d+(?:[.,]\d+)?|(?<!\d[ \t])\.\d+)(?:[eE][-+]?\d+)?(?!-?[A-Za-z_\d])(?![.,]\d)"
_VALUE = (
    rf"(?P<num>{_NUM})(?:\s*(?P<pct>%|percent\b|per\s+cent\b|pct\b)"
    r"|\s*(?:/|,?\s*\(?\s*out\s+of(?:\s+a)?(?:\s+(?:possible|maximum|total|max))?(?:\s+of)?|of(?=\s+1(?:[.,]0)?\b))\s*"
    r"(?P<den>\d+(?:[.,]\d+)?)(?![\w/]|[.,]\d)\)?)?"
)
_FILL = (
    r"(?:(?:about|approximately|approx\.?|around|roughly|circa|exactly|just|only|an?|is|of|at|i'd say|[~≈(\[<{])\s*)*"
)
_GAP = (
    r"(?:(?:[\s,;:'()\[\]§~≈–—]|\b(?:is|are|was|of|at|as|to|be|would|should|will|could|might|an?|the|this|that|it|its|"
    r"it's|response|answer|reply|for|on|from|between|in|scale|score|scored|rating|rate|my|i|i'd|i'll|i'm|me|we|we'd|d|s|ll|give|gives|gets?|"
    r"equals?|assigned|assign|given|here|overall|around|about|approximately|roughly|only|just|perhaps|maybe|likely|"
    r"therefore|thus|so|irrelevance|relevance|sycophancy|fact|value|memory|level|resistance|personali[sz]ation|"
    r"quality|with|deserves|receives|comes?|out|final|model|model's|ai|ai's|user|set|say|solid|strong|low|high|"
    r"good|moderate|fair|weak)\b)){0,16}"
)
_AFTER = re.compile(
    r"\s*(?:points?\b|pts\b)?\s*(?:$|[.,;:!?)\]\n§¤(}–—]|-\s|"
    r"(?:for|because|since|as|on|overall|here|due|given|in|is|seems|but|and|with|out|would|to)\b)"
)
_ENDS = re.compile(rf"{_AFTER.pattern}|\s*(?:vs\b\.?|versus|or|to)?\s*[-+]?{N}")
_ALTERNATIVE = re.compile(
    r"[ \t]+[-+]?\d*[.,]\d"
    r"|\s*(?:,|;|\bor\b|\bto\b|\band\b|\bvs\b\.?|→|/)\s*-?(?:\d*[.,]\d+|\d+\s*%|\d+\s*/\s*\d+)"
    rf"|\s*\bor\b\s*{N}"
)
_SECOND = re.compile(
    rf"[^.\n]{{0,60}}(?:\b(?:and|but|while|if|or)|[,;/])\s+(?:an?\s+|only\s+)?{N}\s+(?:for|on|in)\b", re.IGNORECASE
)
_SUM = re.compile(r"(?:[ \t]*[-+*×x/][ \t\d.,()+*×x/-]{0,100}\d)?[ \t)]*(?P<equals>=[ \t]*(?=[\d.]))?", re.IGNORECASE)

_FINAL = re.compile(r"^(?:final|overall|total|aggregate|combined)[ \t_]*$", re.IGNORECASE)
_PLAIN_LEAD = re.compile(
    r"^(?:the|an?|my|your|our|this|that|its|is|of|and|so|thus|therefore|then|given|assigned|numeric|numerical|single|"
    r"judge|judge's|would|i'd|i|by|it|json|here)[ \t_]*$",
    re.IGNORECASE,
)
_NO_SCORE_LEAD = re.compile(
    r"^(?:max|maximum|min|minimum|perfect|possible|highest|lowest|threshold|confidence|full|previous|baseline)[ \t_]*$",
    re.IGNORECASE,
)
_BAD = r"(?P<bad>¤|minus\b|nan\b|n/?a\b|null\b|none\b|unknown\b|[-+]?inf(?:inity)?\b|undefined\b|not\b|unscorable\b)"
_LEAD = r"(?<![\w-])(?P<lead>\w[\w']*[ \t]+|[A-Za-z]+_)?"
_BRACKET = r"(?:\([^()\n]*\)|\[[^\]\n]*\])?"

_WHOLE = re.compile(rf"[^\w<>≤≥±+.-]*{_VALUE}\s*(?:points?)?[^\w%/]*")
_OWN_LINE = re.compile(rf"^[^\w\n§¤.+-]*{_VALUE}[ \t]*(?:points?|pts)?[^\w\n§¤%/]*$", re.MULTILINE | re.IGNORECASE)
_HEAD = re.compile(rf"\A[^\w§¤.+-]*{_VALUE}\s*(?=[–—:;,.)\n(]|-\s|(?:because|for|since|as)\b)", re.IGNORECASE)
_BOXED = re.compile(rf"\\boxed\s*\{{?\s*{_VALUE}", re.IGNORECASE)
_LABEL = re.compile(
    rf"{_LEAD}{KEY}\s*{_BRACKET}\s*(?:is\s*)?(?::|=|→|[–—]|(?<=\s)-(?=\s))[:=\s]*{_FILL}(?:{_VALUE}|{_BAD})",
    re.IGNORECASE,
)
_PROSE = re.compile(
    rf"{_LEAD}(?:scored?|scores|scoring|rat(?:e|es|ed|ing)|graded?|scale)\b{_GAP}(?:{_VALUE}|(?P<bad>¤))", re.IGNORECASE
)
_GIVE = re.compile(
    r"\b(?:gives?|gave|giving|assign\w*|award\w*|deserves?|gets?|earns?|receives?|merits?|warrants?|say|go with|"
    rf"settle on|lands? (?:on|at)|put (?:this|it) at)\b(?P<gap>{_GAP})(?:{_VALUE}|(?P<bad>¤))",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"\b(?:an?|of|at|it|score|this|solid|say|with|on)\s*$", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\b(?:cannot|can't|can not|won't|unable to|refuse to|not able to)\s+(?:\w+\s+){0,3}?"
    r"(?:scor|rat|evaluat|assign|giv|provid|judg|assess)",
    re.IGNORECASE,
)
_ANY = re.compile(_VALUE, re.IGNORECASE)

_JSON_BEGINS = ("{", "[", '"')
_LAST_LINE = re.compile(
    r"[ \t]*\**score\**[ \t]*:\**[ \t]*\**(?P<num>0(?:\.\d{1,8})?|1(?:\.0{1,8})?)\**", re.IGNORECASE
)
#: No digits, and nothing that `unmarked` would take for more than a quote or bold type.
_SENTENCES = re.compile(r"(?:[^\d~<>`_|\\$#§¤{}\[\]]*[.!?][\"')*]*\s*)?")
_SIGN = re.compile(r"[:=→–—]|\s-\s")
_LONGEST = 20_000  # characters; a longer reply is a model that ran away, and would only cost time

Found = dict[float | None, None]
"""Scores found in one place; None stands for a number that can't be a score."""


@lru_cache(maxsize=4096)
def parse_score(text: str) -> float | None:
    """The score in a judge's reply, in 0..1, or None when there is none or more than one reading.

    Understands decimals (`0.8`, `.8`, `0,8`, digits of any script), fractions and "out of" (`8/10`), percent, JSON
    (also fenced or cut off after the score), Markdown and LaTeX boxes.
    A reply of over 20,000 characters after its thinking has no score.
    """
    text = plain(strip_thinking(text)).strip()
    if len(text) > _LONGEST or not any(c.isdigit() for c in text):
        return None
    usual = _usual(text)
    return _thorough(text) if usual is None else usual


def _usual(text: str) -> float | None:
    """The score of a reply in the form that the prompts ask for: sentences without any digit, and `Score: n` as the
    last line. None for all others, and where the sentences hold what may undo it.

    The same as `_thorough` finds, in a tenth of the time: without further digits there is no other score, no scale and
    no range; what could make the number no score (`rather than`, `confidence`) doesn't reach over the end of a
    sentence; and nothing behind it could take it back.
    """
    head, _, last = text.rpartition("\n")
    found = _LAST_LINE.fullmatch(last)
    if found is None or not _SENTENCES.fullmatch(head) or text[0] in _JSON_BEGINS:
        return None
    if _SIGN.search(head) and _LABEL.search(re.sub(r'[*"]', "", head)):
        return None  # `Rating: none`
    return float(found["num"])


def _thorough(text: str) -> float | None:
    """The score of any reply that holds a digit."""
    text = re.sub(r"\d{25,}", "¤", text)
    body = re.sub(r"^```\w*\s*|\s*```$", "", text)
    if body[:1] in _JSON_BEGINS:
        try:
            return _from_json(json.loads(body))
        except (ValueError, RecursionError):
            pass  # prose, or JSON that was cut off: read as text
    if body.startswith("{") and re.search(rf"{KEY}[\"']?\s*:\s*\"?\d\.?$", body, re.IGNORECASE):
        return None  # `{"score": 0` was cut off and may have been 0.7
    found: Found = {}
    for part in parts(body):
        found |= _in_part(part)
    return next(iter(found)) if len(found) == 1 else None


def _from_json(value: object) -> float | None:
    """The score of a reply that is JSON as a whole."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if 0 <= value <= 1 else None
    if isinstance(value, str):
        return parse_score(value)
    if isinstance(value, list):
        return _from_json(value[0]) if len(value) == 1 else None
    if not isinstance(value, dict):
        return None
    named = {
        key.lower(): item
        for key, item in value.items()
        if re.search(rf"{KEY}$", key, re.IGNORECASE) and not re.search("conf|max|min|scale", key, re.IGNORECASE)
    }
    for wanted in ("final_score", "overall_score", "score"):
        if wanted in named:
            return _from_json(named[wanted])
    scores = {_from_json(item) for item in named.values()}
    return scores.pop() if len(scores) == 1 else None


def _in_part(text: str) -> Found:
    """What the strongest place of one part says."""
    text = unmarked(text)
    if whole := _WHOLE.fullmatch(text):
        return {_reading(whole, text, False): None}
    alien = has_other_scale(text)
    text = without_noise(text)
    doubts = _Doubts(text)
    refused = bool(_REFUSAL.search(text))
    tiers: list[Found] = [{}, {}, {}, {}]
    others: Found = {}
    for match in _BOXED.finditer(text):
        tiers[0][_reading(match, text, alien)] = None
    for match in _LABEL.finditer(text):
        _place(match, doubts, alien, tiers, 1)
    for pattern in (_OWN_LINE, _HEAD):
        for match in pattern.finditer(text):
            if pattern is _OWN_LINE or not match["num"].isdigit() or match["pct"] or match["den"]:
                tiers[1][_certain(match, doubts, alien)] = None
    if not refused:
        for match in _PROSE.finditer(text):
            if match["bad"] or _AFTER.match(text, match.end()):
                _place(match, doubts, alien, tiers, 2)
        for match in _GIVE.finditer(text):
            whole_number = bool(match["num"] and match["num"].isdigit() and not match["pct"] and not match["den"])
            if match["bad"] or (
                _AFTER.match(text, match.end()) and (not whole_number or _ARTICLE.search(match["gap"].rstrip(" ~≈(")))
            ):
                tiers[2][_certain(match, doubts, alien)] = None
        for match in _ANY.finditer(text):
            decimal = not match["num"].lstrip("+-").isdigit() and not match["pct"] and not match["den"]
            if (decimal or (match["den"] and number(match["den"]) in (1, 10, 100))) and _ENDS.match(text, match.end()):
                tiers[3][_reading(match, text, alien)] = None
            elif decimal and (value := _reading(match, text, alien)) is not None:
                others[value] = None
        if tiers[3]:
            tiers[3] |= others
    return next((tier for tier in tiers if tier), {})


def _place(match: re.Match[str], doubts: _Doubts, alien: bool, tiers: list[Found], tier: int) -> None:
    """Puts a labelled number into the tier that the word before its label asks for."""
    lead = match["lead"] or ""
    if _NO_SCORE_LEAD.match(lead):
        return
    if _FINAL.match(lead):
        tier = 0
    elif lead and not _PLAIN_LEAD.match(lead):
        tier = 2
    tiers[tier][_certain(match, doubts, alien)] = None


class _Doubts:
    """What in a text takes a score before it back: its last revision, and decimals outside brackets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.revised = max((match.start() for match in REVISED.finditer(text)), default=-1)
        self.brackets = [match.span() for match in BRACKETED.finditer(text)]
        open_text = BRACKETED.sub(lambda match: " " * len(match.group()), text)
        self.last_of = {value: start for start, value in _decimals(open_text, 0, len(text))}

    def after(self, end: int, value: float) -> bool:
        if self.revised >= end or REVISED.match(self.text[end : end + 100]):
            return True
        if any(start >= end and other != value for other, start in self.last_of.items()):
            return True
        inside = next((stop for start, stop in self.brackets if start < end < stop), end)
        return any(other != value for _, other in _decimals(self.text, end, inside))


def _decimals(text: str, start: int, stop: int) -> list[tuple[int, float]]:
    """Where the text holds decimals that may be scores."""
    return [
        (match.start(), value)
        for match in _ANY.finditer(text, start, stop)
        if not (match["num"].lstrip("+-").isdigit() or match["pct"] or match["den"])
        and (value := _reading(match, text, False)) is not None
    ]


def _certain(match: re.Match[str], doubts: _Doubts, alien: bool) -> float | None:
    """As `_reading`, or None when what follows counts something, is only supposed, revises or names another score."""
    text = doubts.text
    value, total = _reading(match, text, alien), _total(match, text)
    if value is None or total is None:
        return None
    end = total.end()
    if match["den"] and (stars := re.compile(r"\s*stars?\b", re.IGNORECASE).match(text, end)):
        end = stars.end()
    if (match["num"].isdigit() or match["pct"]) and not ENTIRE.match(text, end):
        return None
    return None if HYPOTHETICAL.match(text, end) or doubts.after(end, value) else value


def _total(match: re.Match[str], text: str) -> re.Match[str] | None:
    """The result of the sum that a number begins (`0.5 + 0.2 = 0.7`), else the number; None in doubt."""
    for _ in range(5):
        if _ALTERNATIVE.match(text, match.end()):
            return None
        result = _SUM.match(text, match.end())
        if not result or not result["equals"]:
            return None if result and re.match(r"[ \t]*[-+*×]+[ \t]*\d*[.,]\d", result.group()) else match
        if not (total := _ANY.match(text, result.end())):
            return None
        match = total
    return None


def _reading(match: re.Match[str], text: str, alien: bool) -> float | None:
    """A matched number on the scale 0 to 1, or None when it is off the scale or in doubt."""
    if match.groupdict().get("bad"):
        return None
    total = _total(match, text)
    if total is None:
        return None
    value = number(total["num"])
    if value is None or total["num"].startswith("-") or _SECOND.match(text, total.end()):
        return None
    if total["pct"]:
        value = None if 0 < value < 1 else value / 100
    elif total["den"]:
        top = number(total["den"])
        value = None if not top or top > 100 or (top > 1 and 0 < value < 1) else value / top
    elif alien:
        return None
    return value if value is not None and 0 <= value <= 1 else None
