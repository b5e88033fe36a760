"""Tells refusals that come whatever one sends, as overloaded servers make them, from those of a limit."""

from __future__ import annotations

#: Refusals that are taken for a limit's before a trial. After a trial that failed, so many times as many; at most.
_PATIENCE = 3
_MORE_PATIENCE = 4
_MOST_PATIENCE = 48
#: Refusals are more frequent than before when they are so many more than this many times what was usual, or than a
#: share that would harm nobody.
_FREQUENT = 3.0
_HARMLESS = 0.01
_MOST_FREQUENT = 0.5
_SURELY = 4.0
#: Answers after which the pace goes up a step.
_STEP = 32


class Sporadic:
    """Watches one endpoint's refusals, and tries what they depend on.

    A pace that has come down to a limit's meets a refusal now and then, and a server that refuses one request in a
    thousand at any pace looks the same. What differs is what happens at a faster pace, with refusals held against
    nobody but those who were refused: at a limit far more requests are refused, and at once.
    """

    __slots__ = ("_answers", "_excess", "_patience", "_refusals", "_usual", "trying")

    def __init__(self) -> None:
        self.trying = False
        """Whether refusals are taken for sporadic ones at present."""
        self._patience = _PATIENCE
        self._answers = self._refusals = 0
        self._usual = 0.0
        self._excess = 0.0

    def answered(self) -> bool:
        """A request was answered that was sent since the last refusal that counted: whether to go faster now."""
        self._answers += 1
        if not self.trying:
            return False
        self._excess = max(0.0, self._excess - self._usual)
        return self._answers % _STEP == 0

    def refused(self) -> bool:
        """Such a request was refused: whether it was a sporadic refusal."""
        if self.trying:
            self._excess += 1 - self._usual
            if self._excess > _SURELY:
                self.trying = False
                self._patience = min(self._patience * _MORE_PATIENCE, _MOST_PATIENCE)
                self.explained()
            return self.trying
        if not self._answers:
            # The one that went alone was refused too: the endpoint is full.
            self.explained()
            return False
        self._refusals += 1
        if self._refusals >= self._patience:
            self.trying = True
            share = (self._refusals + 1) / (self._refusals + self._answers)
            self._usual = min(max(_FREQUENT * share, _HARMLESS), _MOST_FREQUENT)
            self._excess = 0.0
            self._answers = 0
        return self.trying

    def explained(self) -> None:
        """The refusals so far had another cause."""
        self._answers = self._refusals = 0
