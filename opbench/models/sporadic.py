"""Tells refusals that come whatever one sends from those of a limit: only the latter grow rare when less is sent."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean

#: Refusals that are looked back on, and how many of the first and the last of them are compared.
_LOOKED_AT = 6
_COMPARED = 3
#: Less is sent when the pace has fallen to this share; refusals are rarer when there are so many times the answers
#: between them.
_FALLEN = 0.6
_RARER = 2.0
#: Refusals are no longer sporadic when they are so many times as frequent, in about the last so many requests.
_FREQUENT = 4.0
_LAST = 64


class Sporadic:
    """Watches the refusals of one endpoint. An overloaded one may refuse one request in thirty at any pace: to go
    slower and slower would help nobody."""

    __slots__ = ("_answers", "_seen", "_share", "_usual")

    def __init__(self) -> None:
        self._answers = 0
        self._seen: deque[tuple[int, float]] = deque(maxlen=_LOOKED_AT)
        """(answers since the refusal before, pace) of the last refusals."""
        self._share = 0.0
        """Share of refusals in the last requests, while they are sporadic."""
        self._usual = 0.0
        """The share at which they were found to be; 0 while they aren't."""

    def answered(self) -> None:
        """A request was answered."""
        self._answers += 1
        self._share -= self._share / _LAST

    def refused(self, pace: float) -> bool:
        """A request was refused at that pace (most a minute, infinite where no limit is known): whether it is one of
        those that come at any pace."""
        answers, self._answers = self._answers, 0
        if self._usual:
            self._share += (1 - self._share) / _LAST
            if self._share > min(self._usual * _FREQUENT, 0.5):
                self._usual = 0.0
                self._seen.clear()
            return bool(self._usual)
        if answers and pace < math.inf:
            self._seen.append((answers, pace))
            if self._come_anyway():
                self._usual = self._share = 1 / (1 + fmean(answers for answers, _ in self._seen))
        return bool(self._usual)

    def _come_anyway(self) -> bool:
        if len(self._seen) < _LOOKED_AT or self._seen[-1][1] > self._seen[0][1] * _FALLEN:
            return False
        between = [answers for answers, _ in self._seen]
        return fmean(between[-_COMPARED:]) < _RARER * fmean(between[:_COMPARED])
