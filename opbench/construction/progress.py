"""How far a build is: units and candidates, tokens, dollars and time; while it goes, and read from the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from opbench.construction.at_work import AtWork
from opbench.construction.loading import Source, source_of
from opbench.construction.slots import expected
from opbench.construction.spec import STAGES, BuildSpec, Stage
from opbench.store.builds import Request, State, Unit, count_candidates, load_build, read_units
from opbench.store.database import Store

#: Units of this start after which the time that is left is told.
_ENOUGH = 4


@dataclass(frozen=True, slots=True)
class Count:
    """Units of a stage. `planned` is what is known now: it falls when topics turn out to be related."""

    done: int = 0
    failed: int = 0
    planned: int = 0

    @property
    def left(self) -> int:
        return max(0, self.planned - self.done - self.failed)


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens, dollars and seconds of calls' sum; None when a part isn't known."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    cost_usd: float | None = 0.0
    seconds: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is; `seconds_left` None while nothing can be told, or nothing is at work."""

    stages: dict[Stage, Count]
    candidates: Mapping[State, int]
    spent: Spent
    repaired: int
    halted: str | None = None
    worker: str | None = None
    """The process at work, as `12 on host`; None when there is none."""
    request: Request = "go"
    seconds_left: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    """Reasons of failed units, and how many have each."""

    @property
    def done(self) -> int:
        return sum(count.done for count in self.stages.values())

    @property
    def failed(self) -> int:
        return sum(count.failed for count in self.stages.values())

    @property
    def planned(self) -> int:
        return sum(count.planned for count in self.stages.values())

    @property
    def working(self) -> bool:
        return self.worker is not None

    def line(self) -> str:
        """Progress in one line, for logs and terminals."""
        made = sum(self.candidates.values())
        parts = [f"{self.done + self.failed:,} of {self.planned:,} units, {made:,} candidates"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.spent.cost_usd:
            parts.append(f"{self.spent.cost_usd:.4f} USD")
        if self.seconds_left is not None:
            parts.append(f"{self.seconds_left:.0f} s left")
        return ", ".join(parts)


def read_progress(store: Store, build_id: str) -> Progress:
    """How far a build is, as its store tells.

    Raises:
        UsageError: no such build.
        StoreError, DataError: it, or its conversations, can't be read.
    """
    known = load_build(store, build_id)
    units = read_units(store, build_id)
    states: Counter[State] = Counter()
    for _, _, state, _, n in count_candidates(store, build_id):
        states[state] += n
    return Progress(
        stages=_stages(known.spec, source_of(known.provenance), units),
        candidates=dict(states),
        spent=_spent(units.values()),
        repaired=sum(unit.repaired for unit in units.values()),
        halted=known.halted,
        worker=known.worker,
        request=known.request,
        failures=_failures(units.values()),
    )
