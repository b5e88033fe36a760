"""How far a build is: units and candidates, tokens, dollars and time; while it goes, and read from the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from opbench.construction.at_work import AtWork
from opbench.construction.loading import Source, source_of
from opbench.construction.slots import Outline
from opbench.construction.spec import BuildSpec, Stage, State
from opbench.store.builds import Candidate, Request, Unit, count_candidates, load_build, read_units, told
from opbench.store.database import Store

N = TypeVar("N", int, float)
_EVERY_S = 1.0
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
    def left(self) -> int:
        return sum(count.left for count in self.stages.values())

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
    counted = _count(Outline(known.spec, source_of(known.provenance)), units, candidate_states(store, build_id))
    return replace(counted, halted=known.halted, worker=known.worker, request=known.request)


def candidate_states(store: Store, build_id: str) -> Counter[State]:
    """How many candidates are in each state."""
    states: Counter[State] = Counter()
    for _, _, state, _, n in count_candidates(store, build_id):
        states[state] += n
    return states


class Counting:
    """Counts while a process is at work, and tells at most once a second."""

    def __init__(
        self,
        spec: BuildSpec,
        source: Source,
        units: Mapping[str, Unit],
        states: Counter[State],
        work: AtWork,
        on_progress: Callable[[Progress], None],
    ) -> None:
        """`units` grows with what is done, before `add` is told of it."""
        self._outline = Outline(spec, source)
        self._units = units
        self._states = states
        self._work = work
        self._on_progress = on_progress
        self._began, self._now = time.monotonic(), 0
        self._told = 0.0
        self._tell()

    def add(self, unit: Unit, candidates: Sequence[Candidate]) -> None:
        """A unit is kept. One that is done again brought no candidates before."""
        self._now += 1
        self._states.update(each.state for each in candidates)
        if time.monotonic() - self._told >= _EVERY_S:
            self._tell()

    def left(self) -> str | None:
        """What kept a build that came to its end from being whole: a sentence; None when nothing did."""
        found = self._progress()
        if not found.failed and not found.left:
            return None
        waits = f", and {found.left:,} wait for what they should have given" if found.left else ""
        failed = [unit for unit in self._units.values() if unit.status == "failed" and unit.stage in found.stages]
        unusable = sum(not unit.retriable for unit in failed)
        mends = ["The next start does again what failed in transport."] if unusable < len(failed) else []
        if unusable:
            mends.append(f"{unusable:,} gave no usable answer: ask again where answers were unusable (--again).")
        return " ".join([f"{found.failed:,} units failed{waits}.", *mends])

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._on_progress(self._progress())

    def _progress(self) -> Progress:
        found = _count(self._outline, self._units, self._states)
        pace = (time.monotonic() - self._began) / self._now if self._now >= _ENOUGH else None
        return replace(found, worker=told(self._work.worker), seconds_left=None if pace is None else pace * found.left)


def _count(outline: Outline, units: Mapping[str, Unit], states: Mapping[State, int]) -> Progress:
    stages: dict[Stage, Count] = {}
    for stage, names in outline.expected(units).items():
        there = [units[name].status for name in names if name in units]
        failed = there.count("failed")
        stages[stage] = Count(len(there) - failed, failed, len(names))
    making = [unit for unit in units.values() if unit.stage in stages]
    failures = Counter(unit.reason or "" for unit in making if unit.status == "failed")
    called = [unit for unit in making if unit.calls]
    return Progress(
        stages,
        dict(states),
        Spent(
            _sum([unit.prompt_tokens for unit in called]),
            _sum([unit.completion_tokens for unit in called]),
            _sum([unit.cost_usd for unit in called]),
            None if (ms := _sum([unit.duration_ms for unit in called])) is None else ms / 1000,
        ),
        sum(unit.repaired for unit in making),
        failures=dict(failures.most_common()),
    )


def _sum(values: Sequence[N | None]) -> N | None:
    """None when one isn't known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
