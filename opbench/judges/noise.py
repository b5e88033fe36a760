"""Taking out of a judge's reply what holds digits and is no score: scales, ranges, list numbers, confidences, examples.

`§` stands where something without meaning for the score was, `¤` where a doubt was (a range, a bound): a label right
before `¤` has no score.
"""

from __future__ import annotations

import re

N = r"(?:\d+(?:[.,]\d+)?|\.\d+)"
KEY = r"(?:scores?|ratings?|grade|output|answer|results?|verdict|judge?ment|evaluation|assessment)"
_POINT = r"(?:[.,]0+)?"
_ASIDE = r"(?:[ \t]*\([^()\d]*\))?"
_EXTREME = r"(?:best|worst|perfect|excellent|highest|lowest|max(?:imum)?|min(?:imum)?|good|bad|poor)"
_ALIEN_SCALE = re.compile(
    r"\b(?:scale|range|score|scored|rate|rated|rating|points?|stars?)\W{0,3}(?:of|from|between|is|in|on)?\W{0,3}"
    rf"[01]\s*(?:-|–|to|and|\.\.+)\s*(?:[2-9]|\d{{2,3}})(?![\d.])|\b(?!1-)\d+-point\b"
    rf"|\b(?:scored?|rat(?:e|ed|ing))\s*\(?\s*out\s+of\s+(?!1{_POINT}(?![\d.])){N}"
    rf"|(?<![\w.,/=-])(?<![=+*/-]\s)(?:[2-9]|\d{{2,3}})(?:\s*=(?!\s*[\d.])|\s+(?:is|being)\s+(?:the\s+)?{_EXTREME}\b"
    r")"  # `5 = best`
    r"|(?:^|[(,;]\s*|\b(?:and|score of)\s+)(?:[2-9]|\d{2,3})\s+(?:means?|represents?|denotes?|indicates?|stands? for)\b"
    rf"|\b{_EXTREME}\s*=\s*(?:[2-9]|\d{{2,3}})(?![\w.,]*\d)"  # `best = 5`
    rf"|\b[01]\s*{_ASIDE}\s*(?:-|–|to|and|\.\.+)\s*(?:[2-9]|\d{{2,3}})\s*\([^()\d]*{_EXTREME}[^()\d]*\)"
    r"|\bmax(?:imum)?(?:\s+possible)?(?:\s+(?:score|rating|value|is|of))*\W{0,3}(?:[2-9]|\d{2,3})"
    r"(?=\s*(?:[;:)\]\n]|[.,](?!\d)|points?\b|$))",
    re.IGNORECASE,
)
_ZERO_TO_ONE = (
    rf"(?<![\w.,-])0{_POINT}{_ASIDE}\s*(?:-|–|—|to|and|or|through|\.\.+|…)"
    rf"\s*1{_POINT}(?![\d,.]*\d|\s*[%/]){_ASIDE}"
)
_LEGEND = (
    rf"(?<![\w.,/-])[01]{_POINT}\s*(?:=(?!\s*{N})|means?\b|meaning\b|being\b|represent|indicat|denot|signif|"
    r"stands? for|correspond|would\b|is reserved|is for\b)|\b(?:where|with)\s+[01](?:\.0+)?\s+is\b"
)
_CONFIDENCE = (
    r"\b(?:confidence|certainty|probability|likelihood)(?:\s+(?:score|level|rating|value))?"
    rf"(?:(?!\b(?:score|rating|output)\b\W*[:=])[^\n.;,\d]){{0,40}}{N}\s*%?(?:\s*/\s*{N})?"
)
_CONFIDENT = (
    rf"\bconfident\s*\(\s*{N}\s*%?|\b(?:p|temperature|p-value)\s*[=<]\s*{N}"
    rf"|{N}\s?%?[ -]?(?:confiden|certain|sure\b|probab|likel)"
)
_NUMBERED = (
    r"\b(?:criteri(?:on|a)|steps?|points?|rules?|items?|examples?|questions?|parts?|sections?|figures?|turns?|"
    r"memor(?:y|ies)|facts?|lines?|options?|numbers?|no\.|levels?|categor(?:y|ies)|types?|sentences?|paragraphs?|"
    r"requirements?|notes?|definitions?|guidelines?|cases?|bullets?|version|reasons?|issues?)"
    r"[ \t]*#?\d+(?:\s*(?:,|and|&)\s*\d+)*(?![.,]?\d|\s*/)|#\d+|\d+:\d\d\b"
)
_BOUND = (
    r"(?:\b(?:not|cannot|exceed\w*|surpass\w*|(?:capped|limited) (?:at|to)|"
    r"a (?:cap|limit|ceiling) of|rather than|instead of|(?:less|more|greater|lower|higher|worse|better) than|below|"
    r"above|under|over|at least|at most|up to|by|threshold|max(?:imum)?|min(?:imum)?)\b|n't\b|[<>≤≥]=?)"
    r"\s*(?:(?:be|an?|of|is|the|by|score|possible|points?|full|perfect|value|at|:|=)\s*){0,5}"
    rf"-?{N}\s*%?(?:\s*/\s*{N})?"
)
_DEDUCTION = (
    r"\b(?:minus|less(?=\s+\d?\.\d)|deduct\w*|subtract\w*|reduced by|lowered by|penalty of|penali[sz]\w+)"
    rf"\s*(?:(?:an?|of|is|the|by|points?|at|:|=)\s*){{0,5}}-?{N}\s*%?(?:\s*/\s*{N})?"
)
#: What is no score, in the order in which it is taken out, and the mark that is left in its place.
_NOISE = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), mark)
    for pattern, mark in (
        (rf"(?<=[a-z]\s)\(?out\s+of\s+1{_POINT}\b\)?(?=\s*[:=])", "§"),  # `Score out of 1:`
        (rf"\b0\s*(?:≤|<=?)\s*\w+\s*(?:≤|<=?)\s*1\b|±\s*{N}", "§"),
        (rf"[\[(]\s*0{_POINT}\s*[,;]\s*1{_POINT}\s*[\])]", "§"),  # `[0, 1]`
        (_ZERO_TO_ONE, "§"),
        (_LEGEND, "§ "),  # `1 = perfect`
        (_CONFIDENCE, "§"),
        (_CONFIDENT, "§"),
        (rf"\b(?:e\.?g\.?|for example|for instance|such as)\s*[,:]?\s*(?:an? )?{N}(?:\s*(?:,|or|and)\s*{N})*", "§"),
        (r"^[ \t]*(?:[-•+][ \t]*)?\(?\d{1,2}(?:\)\.?|[.:])[ \t]+(?=\S)", "§ "),  # list numbers
        (_NUMBERED, "§"),  # `criterion 1`, `#2`, `10:30`
        (rf"[$€£]\s*{N}", "§"),
        (_DEDUCTION, "minus ¤"),
        (r"(?<![\w.,])\d(?:[ \t]?[·∙•‧][ \t]?|[.,][ \t]+)\d+(?![\w.,]*\d)(?![.)])", "¤"),  # `0·8`, `0. 8`
        (_BOUND, "¤"),  # `at least 0.8`, `not 1.0`
    )
)
_RANGE = re.compile(
    rf"(?:\bbetween\s+)?(?<![\w.,])(?P<low>{N})\s?%?[ \t]*(?P<join>-|–|—|to\b|through\b|and\b|\.\.+)"
    rf"[ \t]*(?P<high>{N})(?![\w]|[.,]\d)\s?%?",
    re.IGNORECASE,
)


def unmarked(text: str) -> str:
    """Without Markdown, HTML tags, LaTeX delimiters and double quotes; tags named like a score become labels."""
    text = re.sub(r"~~[^~\n]*~~", " ", text)
    text = re.sub(r"[=-]+>", "→", re.sub(r"<\|[^|<>\n]*\|>", " ", text))
    text = re.sub(rf"<\s*((?:[a-z]+[ _])?{KEY})\s*>", r" \1: ", text, flags=re.IGNORECASE)
    text = re.sub(r"</?[A-Za-z][^<>\n]*>", " ", text)
    text = re.sub(r"\\[()\[\]]|\$(?=[^$\n]*\$)([^$\n]*)\$", lambda m: m[1] or " ", text)
    text = re.sub(r"^[ \t]*(?:>+[ \t]+)+|^[ \t]*#+[ \t]+", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<!\d)\*+|\*+(?!\d)|[`\"]", "", text)
    text = re.sub(r"(?<!\w)_+|_+(?!\w)", "", text)
    return re.sub(r"[ \t]*\|[ \t]*", " : ", text).strip()


def has_other_scale(text: str) -> bool:
    """Whether the text speaks of a scale other than 0 to 1; a number without "out of" is then in doubt."""
    return bool(_ALIEN_SCALE.search(text))


def without_noise(text: str) -> str:
    """The text with `§` and `¤` for all that is no score."""
    for pattern, mark in _NOISE:
        text = pattern.sub(mark, text)
    return _RANGE.sub(_range_mark, text)


def number(digits: str) -> float | None:
    """`0,8` is a decimal comma; `1,000` may be a thousand and is no number here."""
    if "," in digits and len(digits.split(",")[1]) > 2 and not digits.lstrip("+-").startswith("0,"):
        return None
    return float(digits.replace(",", "."))


def _range_mark(match: re.Match[str]) -> str:
    """`¤` for a range from low to high; other pairs (`1.0 - 0.3`, `0.8 and 0.6`) stay as they are."""
    low, high = number(match["low"]), number(match["high"])
    together = match["join"].lower() != "and" or match.group().lower().startswith("between")
    return "¤" if low is not None and high is not None and low < high and together else match.group()
