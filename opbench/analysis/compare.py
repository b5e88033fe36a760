"""Paired comparison: configurations are only compared over what all of them have scored (design, rule 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from opbench.analysis import intervals
from opbench.analysis.aggregate import Rule, aggregate, coefficients, unscored
from opbench.analysis.grids import Bools, Floats, Grid, Ints, Key, Repetition, repetition_grid, score_grid
from opbench.analysis.intervals import Interval, Question, UserSums
from opbench.store.rundata import RunData
from opbench.study import BASE, NO_MITIGATION
from opbench.types import OP_SUBTYPES

Kind = Literal["points", "relative"]
_REPETITION = OP_SUBTYPES.index("repetition")
_STATISTICS: dict[Kind, intervals.Combine] = {"points": intervals.change, "relative": intervals.relative}


@dataclass(frozen=True)
class Paired:
    """Several configurations over what they share: sub-scores of each (points), and how many instances are shared."""

    subscores: list[dict[str, float | None]]
    n: dict[str, int]
    unequal_users: int
    """Users whose repetition rests on different responses in each configuration and couldn't be made equal."""
    sums: UserSums = field(repr=False)

    @property
    def total(self) -> int:
        return sum(self.n.values())


@dataclass(frozen=True)
class OpBoard:
    """All OP-Bench scores of a run: judged subtypes by instance, repetition by user."""

    grid: Grid
    repetition: Repetition
    subtype: Ints
    """Of each instance, as a position in OP_SUBTYPES."""
    _paired: dict[tuple[int, ...], Paired] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def weights(self) -> Mapping[str, int]:
        """Planned instances by subtype."""
        counts = np.bincount(self.subtype, minlength=len(OP_SUBTYPES))
        return {name: int(count) for name, count in zip(OP_SUBTYPES, counts, strict=True)}

    @cached_property
    def _owners(self) -> tuple[Ints, pd.Index]:
        """The user of each instance, as a position among the users."""
        return pd.factorize(self.grid.instances["user"])

    def paired(self, columns: Sequence[int]) -> Paired:
        """Sub-scores of the configurations in `columns` over what all of them have scored; one column: all it has.

        Worked out once: no averaging rule changes them. Read-only.
        """
        key = tuple(columns)
        if key not in self._paired:
            self._paired[key] = self._pair(key)
        return self._paired[key]

    def _pair(self, columns: Sequence[int]) -> Paired:
        values = self.grid.values[:, list(columns)]
        shared = ~np.isnan(values).any(axis=1) & (self.subtype != _REPETITION)
        owner, users = self._owners
        size = len(users), len(OP_SUBTYPES)
        cell = (owner * len(OP_SUBTYPES) + self.subtype)[shared]
        counts: Floats = np.bincount(cell, minlength=size[0] * size[1]).reshape(size).astype(np.float64)
        sums: Floats = np.stack(
            [np.bincount(cell, weights=row, minlength=counts.size).reshape(size) for row in values[shared].T]
        )
        n = {name: int(count) for name, count in zip(OP_SUBTYPES, counts.sum(axis=0), strict=True)}
        by_user, responses, unequal = self.repetition.paired(columns)
        told = ~np.isnan(by_user).any(axis=1)
        at = users.get_indexer(pd.Index(self.repetition.users))[told]
        counts[at, _REPETITION] = 1.0
        sums[:, at, _REPETITION] = by_user[told].T
        n["repetition"] = int(responses[told].sum())
        scores = counts.sum(axis=0)
        means = np.where(scores > 0, sums.sum(axis=1) / np.where(scores > 0, scores, 1.0), np.nan)
        subscores = [{name: _none(row[at]) for at, name in enumerate(OP_SUBTYPES)} for row in means]
        return Paired(subscores, n, unequal, UserSums(sums, counts, OP_SUBTYPES))


def op_board(data: RunData, first_only: bool = False, judge: str | None = None) -> OpBoard:
    """The OP-Bench scores of a run, over first speakers only if so wished; worked out once for a run.

    Raises:
        UsageError: several judges and none named.
    """

    def make() -> OpBoard:
        grid = score_grid(data, "op", "score", first_only, judge)
        subtype = pd.Index(OP_SUBTYPES).get_indexer(pd.Index(grid.instances["subtype"])).astype(np.intp)
        return OpBoard(grid, repetition_grid(data, first_only, judge), subtype)

    return data.keep(("board", first_only, judge), make)


def group_means(values: Floats, groups: Ints, rows: Bools, n_groups: int) -> tuple[Floats, Ints]:
    """Means by group (groups × columns, NaN for an empty group) and counts (groups) over the chosen rows."""
    counts = np.bincount(groups[rows], minlength=n_groups)
    sums = np.stack(
        [
            np.bincount(groups[rows], weights=values[rows, column], minlength=n_groups)
            for column in range(values.shape[1])
        ],
        axis=1,
    )
    filled = np.where(counts > 0, counts, 1)[:, None]
    return np.where(counts[:, None] > 0, sums / filled, np.nan), counts


@dataclass(frozen=True)
class Change:
    """A paired change, in points and in percent of the reference (`relative`); NaN when missing, `note` says why."""

    points: float
    relative: float
    n: int
    note: str
    sums: UserSums | None = field(default=None, repr=False, compare=False)
    """Of the configuration and its reference, for `interval`."""
    coefficients: Floats | None = field(default=None, repr=False, compare=False)

    @classmethod
    def missing(cls, note: str, n: int = 0) -> Change:
        return cls(math.nan, math.nan, n, note)

    @classmethod
    def between(
        cls, value: float | None, reference: float | None, n: int, note: str, sums: UserSums, coefficients: Floats
    ) -> Change:
        """From `reference` to `value`, both sums of `sums`' part means times `coefficients`; the relative change is
        NaN when the reference is 0."""
        if value is None or reference is None:
            return cls.missing(note, n)
        points, relative = value - reference, math.nan
        if reference > 0:
            relative = 100.0 * points / reference
        else:
            note = f"{note}, no relative change: the reference is 0"
        return cls(points, relative, n, note, sums, coefficients)

    def question(self, kind: Kind = "points") -> Question | None:
        """What to ask `intervals` for the interval of the change in points or in percent; None where it is missing."""
        if self.sums is None or self.coefficients is None:
            return None
        return Question(self.sums, self.coefficients, _STATISTICS[kind])

    def interval(self, kind: Kind = "points") -> Interval:
        """Of the change in points or in percent, over users drawn anew; missing where the change is."""
        return change_intervals([self], kind)[0]


def change_intervals(changes: Sequence[Change], kind: Kind = "points") -> list[Interval]:
    """The interval of each change, worked out together: much quicker than one by one."""
    asked = [change.question(kind) for change in changes]
    answers = iter(intervals.intervals([question for question in asked if question is not None]))
    return [
        Interval.missing(change.note) if question is None else next(answers)
        for change, question in zip(changes, asked, strict=True)
    ]


def reference_of(key: Key) -> Key:
    """The same memory system without post-processor."""
    return key[0], key[1], NO_MITIGATION


def oracle_of(key: Key) -> Key:
    """BASE of the same model."""
    return key[0], BASE, NO_MITIGATION


def op_change(board: OpBoard, key: Key, reference: Key, rule: Rule) -> Change:
    """Change of the OP average from `reference` to `key` over what both have scored."""
    column, other = board.grid.column(key), board.grid.column(reference)
    if column is None or other is None:
        return Change.missing(f"not in the study: {' · '.join(reference if other is None else key)}")
    pair = board.paired([column, other])
    gone = unscored(pair.subscores[0], board.weights)
    if gone:
        return Change.missing(f"nothing scored by both: {', '.join(gone)}", pair.total)
    value, base = (aggregate(scores, board.weights, rule) for scores in pair.subscores)
    factors = coefficients(board.weights, rule)
    return Change.between(value, base, pair.total, _pairing_note(pair), pair.sums, factors)


@dataclass(frozen=True)
class Gap:
    """Share of the oracle gap that a method closes: 1 reaches BASE, below 0 is worse than the memory system."""

    closed: float
    n: int
    reason: str
    """Why `closed` is NaN, else empty or a remark on the pairing."""
    averages: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    """Of the method, the memory system and the oracle, over the same instances."""
    sums: UserSums | None = field(default=None, repr=False, compare=False)
    coefficients: Floats | None = field(default=None, repr=False, compare=False)


def gap_intervals(gaps: Sequence[Gap]) -> list[Interval]:
    """The interval of each share, the three configurations resampled together; missing where the gap itself isn't
    distinguishable from none."""
    found = [Interval.missing(gap.reason) for gap in gaps]
    there = [at for at, gap in enumerate(gaps) if not math.isnan(gap.closed) and gap.sums is not None]
    widths, shares = [], []
    for at in there:
        sums, factors = gaps[at].sums, gaps[at].coefficients
        assert sums is not None  # for the type checker, as chosen above
        assert factors is not None
        ends = UserSums(sums.sums[[2, 1]], sums.counts, sums.parts)
        widths.append(Question(ends, factors, intervals.change))
        shares.append(Question(sums, factors, intervals.gap))
    for at, width, share in zip(there, intervals.intervals(widths), intervals.intervals(shares), strict=True):
        why = width.reason or "the gap itself isn't distinguishable from none"
        found[at] = share if width.low > 0 else Interval.missing(why, width.n_users)
    return found


def gap_closed(board: OpBoard, key: Key, rule: Rule, weights: Mapping[str, int] | None = None) -> Gap:
    """(method − memory system) / (oracle − memory system), over what all three have scored.

    `weights` are planned instances by subtype, the board's own by default; those of one subtype alone give its gap.
    """
    weights = board.weights if weights is None else weights
    reference, oracle = reference_of(key), oracle_of(key)
    columns = [board.grid.column(each) for each in (key, reference, oracle)]
    method, system, base = columns
    if base is None:
        return Gap(math.nan, 0, f"no oracle: BASE of {key[0]} isn't in the study")
    if system is None:
        return Gap(math.nan, 0, f"{key[1]} without post-processor isn't in the study")
    if method is None:
        return Gap(math.nan, 0, f"not in the study: {' · '.join(key)}")
    triple = board.paired([method, system, base])
    shared = sum(count for name, count in triple.n.items() if weights.get(name, 0))
    gone = unscored(triple.subscores[0], weights)
    if gone:
        return Gap(math.nan, shared, f"nothing scored by all three: {', '.join(gone)}")
    first, second, third = (aggregate(scores, weights, rule) for scores in triple.subscores)
    remark = _remark(triple) if weights.get("repetition", 0) else ""
    found = gap_of(first, second, third, shared, remark)
    return replace(found, sums=triple.sums, coefficients=coefficients(weights, rule))


def gap_of(method: float | None, system: float | None, oracle: float | None, n: int = 0, remark: str = "") -> Gap:
    """The share from three averages; undefined when the memory system isn't below the oracle."""
    if method is None or system is None or oracle is None:
        return Gap(math.nan, n, "an average is missing")
    averages = method, system, oracle
    if oracle <= system:
        return Gap(math.nan, n, f"no gap to close: oracle {oracle:.2f}, memory system {system:.2f}", averages)
    return Gap((method - system) / (oracle - system), n, remark, averages)


def _remark(paired: Paired) -> str:
    if not paired.unequal_users:
        return ""
    users = "1 user" if paired.unequal_users == 1 else f"{paired.unequal_users} users"
    return f"repetition of {users} rests on different responses"


def _pairing_note(paired: Paired) -> str:
    remark = _remark(paired)
    return f"paired, but {remark}" if remark else "paired"


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
