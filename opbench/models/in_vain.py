"""Models that answer nobody any more: what a run has to know to stop, rather than to fail call by call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from opbench.errors import ModelError, ModelErrorKind

#: The next call would be refused too, and the one after it.
_REFUSED: frozenset[ModelErrorKind] = frozenset({"auth", "quota", "not_found"})
#: These may pass, and then it was worth waiting for.
_PASSING: frozenset[ModelErrorKind] = frozenset({"connection", "timeout", "server", "bad_reply", "rate_limit"})
_CALLS = 20
_PATIENCE_S = 600.0


@dataclass(slots=True)
class _Row:
    """Calls that failed for good one after the other."""

    since: float
    calls: int = 0
    refused: int = 0
    """Of the last ones, those that were refused whatever they asked for."""
    last: str = ""


class InVain:
    """By model: the calls that failed for good since its last answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    def answered(self, who: str) -> None:
        """A call of `who` was answered."""
        if self._rows:
            self._rows.pop(who, None)

    def failed(self, who: str, error: ModelError) -> None:
        """A call of `who` failed for good. One that is its prompt's fault says that somebody is there."""
        refused = error.kind in _REFUSED
        if not (refused or error.kind in _PASSING):
            self.answered(who)
            return
        row = self._rows.setdefault(who, _Row(self._clock()))
        row.calls += 1
        row.refused = row.refused + 1 if refused else 0
        row.last = str(error)

    def reasons(self) -> dict[str, str]:
        """By who was asked: why asking on makes no sense, in sentences. 20 calls in a row were refused for the key, the
        quota or the model's name, or at least 20 calls failed and none was answered for 10 minutes."""
        found: dict[str, str] = {}
        for who, row in self._rows.items():
            lasted = self._clock() - row.since
            if row.refused >= _CALLS or (row.calls >= _CALLS and lasted >= _PATIENCE_S):
                how = "in a row" if row.refused >= _CALLS else f"and none was answered for {lasted / 60:.0f} minutes"
                found[who] = f"{row.calls} calls failed {how}. {row.last}"
        return found

    def reason_to_halt(self) -> str | None:
        """Why work stops that needs all of its models, as a sentence; None while asking makes sense."""
        for reason in self.reasons().values():
            return f"Stopped: {reason} What is left waits for the next start."
        return None
