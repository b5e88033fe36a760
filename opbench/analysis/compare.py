"""Paired comparison: configurations are only compared over what all of them have scored (design, rule 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from opbench.analysis.aggregate import Rule, aggregate, unscored
from opbench.analysis.grids import Bools, Floats, Grid, Ints, Key, Repetition, repetition_grid, score_grid
from opbench.store.rundata import RunData
from opbench.study import BASE, NO_MITIGATION
from opbench.types import OP_SUBTYPES


@dataclass(frozen=True)
class Paired:
    """Several configurations over what they share: sub-scores of each (points), and how many instances are shared."""

    subscores: list[dict[str, float | None]]
    n: dict[str, int]
    unequal_users: int
    """Users whose repetition rests on different responses in each configuration and couldn't be made equal."""

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

    @property
    def weights(self) -> dict[str, int]:
        """Planned instances by subtype."""
        counts = np.bincount(self.subtype, minlength=len(OP_SUBTYPES))
        return {name: int(count) for name, count in zip(OP_SUBTYPES, counts, strict=True)}

    def paired(self, columns: Sequence[int]) -> Paired:
        """Sub-scores of the configurations in `columns` over what all of them have scored; one column: all it has."""
        values = self.grid.values[:, list(columns)]
        shared = ~np.isnan(values).any(axis=1) & (self.subtype != OP_SUBTYPES.index("repetition"))
        means, counts = group_means(values, self.subtype, shared, len(OP_SUBTYPES))
        by_user, responses, unequal = self.repetition.paired(columns)
        users = ~np.isnan(by_user).any(axis=1)
        subscores: list[dict[str, float | None]] = []
        for place in range(len(columns)):
            scores = {name: _none(means[at, place]) for at, name in enumerate(OP_SUBTYPES)}
            scores["repetition"] = float(by_user[users, place].mean()) if users.any() else None
            subscores.append(scores)
        n = {name: int(count) for name, count in zip(OP_SUBTYPES, counts, strict=True)}
        n["repetition"] = int(responses[users].sum())
        return Paired(subscores, n, unequal)


def op_board(data: RunData, first_only: bool = False, judge: str | None = None) -> OpBoard:
    """The OP-Bench scores of a run, over first speakers only if so wished.

    Raises:
        UsageError: several judges and none named.
    """
    grid = score_grid(data, "op", "score", first_only, judge)
    subtype = pd.Index(OP_SUBTYPES).get_indexer(pd.Index(grid.instances["subtype"])).astype(np.intp)
    return OpBoard(grid, repetition_grid(data, first_only, judge), subtype)


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

    @classmethod
    def missing(cls, note: str, n: int = 0) -> Change:
        return cls(math.nan, math.nan, n, note)

    @classmethod
    def between(cls, value: float | None, reference: float | None, n: int, note: str) -> Change:
        """From `reference` to `value`; the relative change is NaN when the reference is 0."""
        if value is None or reference is None:
            return cls.missing(note, n)
        points = value - reference
        if reference <= 0:
            return cls(points, math.nan, n, f"{note}, no relative change: the reference is 0")
        return cls(points, 100.0 * points / reference, n, note)


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
    return Change.between(value, base, pair.total, _pairing_note(pair))


@dataclass(frozen=True)
class Gap:
    """Share of the oracle gap that a method closes: 1 reaches BASE, below 0 is worse than the memory system."""

    closed: float
    n: int
    reason: str
    """Why `closed` is NaN, else empty or a remark on the pairing."""


def gap_closed(board: OpBoard, key: Key, rule: Rule) -> Gap:
    """(method − memory system) / (oracle − memory system), over what all three have scored."""
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
    gone = unscored(triple.subscores[0], board.weights)
    if gone:
        return Gap(math.nan, triple.total, f"nothing scored by all three: {', '.join(gone)}")
    averages = [aggregate(scores, board.weights, rule) for scores in triple.subscores]
    return gap_of(averages[0], averages[1], averages[2], triple.total, _remark(triple))


def gap_of(method: float | None, system: float | None, oracle: float | None, n: int = 0, remark: str = "") -> Gap:
    """The share from three averages; undefined when the memory system isn't below the oracle."""
    if method is None or system is None or oracle is None:
        return Gap(math.nan, n, "an average is missing")
    if oracle <= system:
        return Gap(math.nan, n, f"no gap to close: oracle {oracle:.2f}, memory system {system:.2f}")
    return Gap((method - system) / (oracle - system), n, remark)


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
