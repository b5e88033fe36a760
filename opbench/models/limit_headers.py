"""What the headers of an answer tell of the endpoint's limits, in the dialects of the providers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


class Told(NamedTuple):
    """Requests or tokens: the most a minute, and how many of them are left. None where nothing credible is told."""

    limit: float | None
    left: float | None


NOTHING = Told(None, None)

#: (header of the limit, header of what is left). Names without a unit of time that everyone reads otherwise
#: (`x-ratelimit-limit`: a second at Together, a day at OpenRouter) are left out.
_REQUESTS = (
    ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-limit-requests-minute", "x-ratelimit-remaining-requests-minute"),
    ("x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute"),
    ("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining"),
)
_TOKENS = (
    ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens"),
    ("x-ratelimit-limit-tokens-minute", "x-ratelimit-remaining-tokens-minute"),
    ("anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining"),
)


def requests_told(headers: Mapping[str, str]) -> Told:
    """What is told of requests."""
    return _told(headers, _REQUESTS)


def tokens_told(headers: Mapping[str, str]) -> Told:
    """What is told of tokens, prompt and completion together."""
    return _told(headers, _TOKENS)


def _told(headers: Mapping[str, str], names: tuple[tuple[str, str], ...]) -> Told:
    for limit_name, left_name in names:
        limit = _number(headers.get(limit_name))
        if limit is None:
            continue
        left = _number(headers.get(left_name))
        if limit <= 0 or (left is not None and left > limit):
            return NOTHING
        return Told(limit, left)
    return NOTHING


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text.strip()) else None
