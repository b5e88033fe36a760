"""Tells refusals that come whatever one sends, as overloaded servers make them, from those of a limit."""

from __future__ import annotations

import math
from typing import Literal

Cause = Literal["limit", "chance", "unknown"]

#: Refusals before a trial, and the seconds in which half of one is forgotten.
_PATIENCE = 2.5
_FADES_S = 60.0
#: Seconds without a trial after one that failed; four times as long after each further one; at most.
_FAILED_S = 300.0
_LONGER = 4.0
_LONGEST_S = 1800.0
#: Refusals are more frequent than they were when there are so many more of them than this many times the usual share,
#: or than a share that harms nobody. The longer a trial has gone well, the more it takes.
_SURELY = (4.0, 12.0)
_FREQUENT = 3.0
_HARMLESS = 0.01
_MOST_FREQUENT = 0.3
#: Of the requests sent before a refusal was heard, refused ones of which an endpoint is full.
_FULL = 1 / 3
#: Who asks to wait for longer counts minutes.
_MINUTES_S = 10.0
#: Requests after which the pace goes up a step.
_STEP = 16


class Sporadic:
    """Watches one endpoint's refusals, and tries what they depend on.

    A pace that has come down to a limit's meets a refusal now and then, and a server that refuses one request in a
    thousand at any pace looks the same. What differs is what happens at a faster pace, with refusals held against
    nobody but those who were refused: at a limit far more requests are refused, and at once.
    """

    __slots__ = (
        "_alone",
        "_at",
        "_bearable",
        "_before",
        "_excess",
        "_failed_s",
        "_followed",
        "_last",
        "_not_before",
        "_number",
        "_patience",
        "_refusals",
        "_requests",
        "_step_at",
        "_surely",
        "trying",
    )

    def __init__(self, share: int) -> None:
        """`share`: this process is one of so many that ask the endpoint."""
        self._patience = _PATIENCE * math.sqrt(share)
        self.trying = False
        """Whether refusals are taken for chance at present."""
        self._not_before = 0.0
        self._failed_s = _FAILED_S
        self._refusals = self._requests = 0.0
        """Lately: refusals, and requests of which they were."""
        self._at = 0.0
        self._number = self._last = self._before = 0
        """The request last refused, and the last one sent before that was heard; `_before`: the same, a refusal ago."""
        self._followed = self._alone = 0
        self._bearable = 0.0
        """Share of refusals up to which they are sporadic."""
        self._excess = 0.0
        self._surely = _SURELY[0]
        self._step_at = 0

    def answered(self, number: int, sent: int) -> bool:
        """During a trial the request of that number was answered, so many are sent: whether to go faster now."""
        if number < self._step_at:
            return False
        self._step_at = sent + _STEP
        if self._surely < _SURELY[1]:
            self._surely += 1
        else:
            self._failed_s = _FAILED_S
        return True

    def refused(self, number: int, sent: int, now: float, wait_s: float | None, *, alone: bool) -> Cause:
        """Why that request was refused: it was sent alone after a pause or not, and the endpoint asks to wait."""
        # Counted by what was sent, since refusals are heard sooner than answers.
        requests = max(number - self._last, 0)
        if self.trying:
            self._last = max(number, self._last)
            self._excess = max(0.0, self._excess - requests * self._bearable) + 1
            if self._excess <= self._surely:
                return "chance"
            self.trying = False
            self._last = sent
            self._refusals = self._requests = 0.0
            self._not_before = now + self._failed_s
            self._failed_s = min(self._failed_s * _LONGER, _LONGEST_S)
            return "limit"
        self._before, self._number, self._last = self._last, number, sent
        self._followed = 0
        left = 0.5 ** ((now - self._at) / _FADES_S)
        self._at = now
        self._requests = self._requests * left + requests
        # When what goes alone is refused too, twice, the endpoint is full.
        self._refusals = max(self._refusals * left + (-1 if alone else 1), 0.0)
        self._alone = self._alone + 1 if alone else 0
        if self._alone > 1 or now < self._not_before or (wait_s is not None and wait_s > _MINUTES_S):
            return "limit"
        if alone or self._refusals < self._patience:
            return "unknown" if self._refusals < _PATIENCE else "limit"
        self.trying = True
        share = (self._refusals + 1) / (self._requests + 1)
        self._bearable = min(max(_FREQUENT * share, _HARMLESS), _MOST_FREQUENT)
        self._excess = 0.0
        self._surely = _SURELY[0]
        self._step_at = sent + _STEP
        return "chance"

    def followed(self, number: int) -> bool:
        """A request was refused too that was sent before the last refusal was heard: whether so many were that it is
        a limit. Told once."""
        if number <= self._before:
            return False
        before = self._followed
        self._followed += 1
        since = self._last - self._number
        enough = max(1, min(since, 2), since * _FULL)
        if before < enough <= self._followed:
            self._refusals = self._requests = 0.0
            return True
        return False
