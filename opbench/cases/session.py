"""A case being asked: its columns at work, as far as they have come. Safe to use from any thread."""

from __future__ import annotations

from typing import Any

from opbench.cases.outcome import Ablation, At, Outcome
from opbench.cases.spec import CaseSpec


class Session:
    """One asking of a case; made by `Desk.open`. Nothing here waits but `wait`."""

    def __init__(self, id: str, spec: CaseSpec) -> None:
        self.id = id
        """Random hex digits."""
        self.spec = spec
        self.started_at = 0.0
        """Unix seconds."""

    @property
    def over(self) -> bool:
        """Whether nothing more comes of the columns: each is done, failed or cancelled, or the case can't be asked."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether anything is at work: columns or leave-one-outs."""
        raise NotImplementedError

    @property
    def error(self) -> str | None:
        """Why the case as a whole can't be asked, with the mend (an unknown user, damaged data); None otherwise. What
        is wrong with one column is that column's error."""
        raise NotImplementedError

    @property
    def provenance(self) -> dict[str, Any]:
        """What the numbers rest on, JSON values: data, models, prompts, judge, embedder, versions, commit. Grows
        until the case is `over`."""
        raise NotImplementedError

    def outcomes(self) -> tuple[Outcome, ...]:
        """A snapshot, one by column in the spec's order."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop all that is at work, leave-one-outs included: connections close, what was finished is kept. Columns
        that weren't over become `cancelled`. Returns at once; `wait` for the end."""
        raise NotImplementedError

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is at work (columns and leave-one-outs); False when the time is up before."""
        raise NotImplementedError

    def leave_one_out(self, column: int, at: At = "retrieval") -> None:
        """Ask the column without each of its memories in turn; see `ablations`. `column` is 0-based. Does nothing
        while that is at work; when it is over it is asked again (what was finished is reused).

        Raises:
            UsageError: no such column, it isn't done, or it has no memories.
        """
        raise NotImplementedError

    def ablations(self) -> dict[tuple[int, At], Ablation]:
        """A snapshot of the leave-one-outs by (column, where), in the order in which they were asked for."""
        raise NotImplementedError

    def cancel_ablation(self, column: int, at: At = "retrieval") -> None:
        """Stop one leave-one-out: what isn't over becomes `cancelled`. Does nothing where none is at work."""
        raise NotImplementedError
