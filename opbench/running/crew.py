"""A run of several processes: what each of them is given, and what the leader wants of whoever starts them.

The leader (`opbench.running.team`) claims the run, takes in histories, has members started and started anew when they
die, shows the progress of all, and scores users at the end. Members (`opbench.running.member`) lease shards of the
plan in the store and do them with the engine, as a sole process does its plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Part:
    """A member's part of a run. JSON values, no secrets."""

    run_id: str
    leader: str
    """Id of the leader's row in `schema.workers`; when it is gone or silent the member finishes what is in flight."""
    number: int
    """From 0; a member that replaces a dead one has its number."""
    of: int
    """Members in all: each keeps to its share (1 / of) of every endpoint's concurrency and ceilings."""
    concurrency: int
    """Instances at a time of this member."""
    budget_usd: float | None = None
    """What this member may spend."""


class Member(Protocol):
    """A process that was started for a part."""

    @property
    def part(self) -> Part: ...

    def ended(self) -> str | None:
        """None while it runs; then how it ended: `""` when its work was done, else a sentence for people that says
        what happened (killed by signal 9, its node is gone, …)."""
        ...

    def stop(self) -> None:
        """Ask it to finish what is in flight and end."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Crew(Protocol):
    """Starts members: processes of this machine (`opbench.running.local_crew`), or workers of a Ray cluster
    (`opbench.running.ray_crew`)."""

    @property
    def size(self) -> int:
        """Members that it starts."""
        ...

    def start(self, part: Part) -> Member:
        """Start a member; it is at work when it has a row in `schema.workers`.

        Raises:
            UsageError: none can be started; says why and what mends it.
        """
        ...

    def close(self) -> None:
        """End all that is left of it."""
        ...
