"""One way of writing dates, so that `May 7th, 2023`, `2023-05-07` and `7 May 2023` count as the same answer."""

from __future__ import annotations

import re
from calendar import month_name
from functools import lru_cache

_MONTHS = {name[:3].lower(): name.lower() for name in month_name if name}
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{4})(?!\d)"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?<![\d/-])(?P<year>\d{4})(?P<sep>[-/.])(?P<number>0?[1-9]|1[0-2])(?P=sep)(?P<day>0?[1-9]|[12]\d|3[01])(?![\d/-])",
        r"(?<![\d/-])(?P<year>\d{4})-(?P<number>0[1-9]|1[0-2])(?![\d/-])",
        rf"(?<![\d/.-]){_DAY}[`']?\s*(?:of\s+)?{_MONTH}\b\.?(?:\s*,?\s*(?:of\s+)?{_YEAR})?",
        rf"(?<!\d )\b{_MONTH}\b\.?\s*(?:the\s+)?{_DAY}(?![\w:/-]|–\d|—\d)(?:\s*,?\s*(?:of\s+)?{_YEAR})?",
        rf"\b{_MONTH}\b\s*[.,]?\s*(?:of\s+)?{_YEAR}",
    )
)


@lru_cache(maxsize=4096)  # three metrics ask for the same texts
def canonical_dates(text: str) -> str:
    """The text with dates as `7 may 2023`, `7 may` or `may 2023`, by what the text says.

    Read are day and month in either order with or without year, ordinals, abbreviated months, month and year, and
    ISO dates. `05/07/2023` stays as it is: it has two readings. Relative dates stay too.
    """
    for form in _FORMS:
        text = form.sub(_canonical, text)
    return text


def _canonical(match: re.Match[str]) -> str:
    found = match.groupdict()
    month = month_name[int(found["number"])].lower() if found.get("number") else _MONTHS[found["month"][:3].lower()]
    day = str(int(found["day"])) if found.get("day") else None
    return " ".join(part for part in (day, month, found.get("year")) if part)
