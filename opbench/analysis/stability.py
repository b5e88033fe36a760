"""Does the order of configurations survive the choice of judge, prompt and averaging rule?

A view is a judge (with its prompts) and an averaging rule. All views rest on the same records: those that every judge
has scored, over the instances that all compared configurations have, so that nothing but the choice differs. Repetition
is measured by embeddings, not judged: it is the same in every view.

Two orders are compared by Kendall's tau-b and Spearman's rho. Their intervals draw users anew, 2,000 times, the same
ones for both views of a draw, from the 2.5th to the 97.5th percentile of the draws that have all subtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.aggregate import RULES, Rule, coefficients
from opbench.analysis.compare import OpBoard, op_board
from opbench.analysis.grids import Floats, Key, score_grid
from opbench.analysis.intervals import FEWEST_USERS, LEVEL, SEED, UserSums
from opbench.errors import UsageError
from opbench.store.rundata import RunData
from opbench.types import OP_SUBTYPES

REPLICATES = 2_000
#: Points below which two averages are equal.
EQUAL = 1e-9
#: A judge that has scored less of what the study's own has would leave too few records to compare any by.
LEAST_SCORED = 0.5
#: Fewer configurations have no order worth a correlation.
FEWEST_CONFIGURATIONS = 3
_BATCH = 200
CORRELATION_COLUMNS = [
    "first_label",
    "first_rule",
    "second_label",
    "second_rule",
    "tau",
    "tau_low",
    "tau_high",
    "spearman",
    "spearman_low",
    "spearman_high",
    "kept",
    "pairs",
    "control",
    "note",
]
ORDER_COLUMNS = ["label", "rule", "control", "model", "memory", "mitigation", "op", "place", "n", "users"]


@dataclass(frozen=True, slots=True)
class View:
    """A judge with its prompts, and an averaging rule. `control`: the judge scores at random."""

    label: str
    rule: Rule
    control: bool = False

    @property
    def name(self) -> str:
        return f"{self.label} · {self.rule}"


@dataclass(frozen=True)
class Views:
    """The averages of each configuration in each view, over the same records."""

    keys: list[Key]
    views: list[View]
    reference: int
    """The view that the others are set against, as a position in `views`."""
    values: Floats
    """views × keys, points."""
    sums: Mapping[str, UserSums] = field(repr=False)
    """By judge; counts are the same for all."""
    factors: Mapping[Rule, Floats] = field(repr=False)
    """What each of OP_SUBTYPES contributes to the average; 0 for those that aren't there."""
    n: int
    """Instances of each configuration that the averages are over."""
    planned: int
    users: int
    left_out: Mapping[str, str]
    """Judges, configurations and subtypes that are no part of it, and why."""
    same: Mapping[str, float]
    """By judge, the share of the judged responses that got its most frequent score: near 1, it tells hardly any
    apart."""
    alike: tuple[str, ...]
    """Judges that give every response the score that the reference's gives: the same one by another name, perhaps."""
    no_interval: str
    """Why users can't be drawn anew; empty when they can."""


def views(
    data: RunData,
    judged: Mapping[str, pd.DataFrame],
    *,
    controls: Collection[str] = (),
    rules: Sequence[Rule] = RULES,
    rule: Rule = "task-mean",
    first_only: bool = False,
    only: Collection[Key] = (),
) -> Views:
    """A run's configurations (`only` these; none named: all) under its own judge and each of `judged`, by each rule.

    `judged`: scores of the run's records by label, in the shape of `RunData.scores`; `controls` are labels of judges
    that score at random. The reference is the study's own judge and `rule`.

    Raises:
        UsageError: fewer than two configurations have scores of all judges.
    """
    board = op_board(data, first_only)
    own = board.grid.judge
    values = {} if own is None else {own: board.grid.values}
    left_out: dict[str, str] = {}
    compared = [not only or key in only for key in board.grid.keys]
    there = 0 if own is None else int((~np.isnan(board.grid.values[:, compared])).sum())
    for label, scores in judged.items():
        if label == own:
            continue
        grid = score_grid(_with_scores(data, scores, label), "op", "score", first_only, label)
        scored = int((~np.isnan(grid.values[:, compared])).sum())
        if not scored or scored < LEAST_SCORED * there:
            left_out[label] = f"has scored {scored:,} of {there:,} responses" if there else "has scored nothing"
        else:
            values[label] = grid.values
    if not values:
        raise UsageError(f"run {data.run_id} has no scores yet: judge it with 'opbench judges rescore {data.run_id}'.")
    lacking = np.any([np.isnan(each) for each in values.values()], axis=0)
    boards = {
        label: OpBoard(
            dataclasses.replace(board.grid, values=np.where(lacking, np.nan, each)), board.repetition, board.subtype
        )
        for label, each in values.items()
    }
    keys, unlike = _compared(board, boards, only)
    left_out |= unlike
    columns = [board.grid.keys.index(key) for key in keys]
    sums = {label: each.paired(columns).sums for label, each in boards.items()}
    paired = next(iter(boards.values())).paired(columns)
    counts = paired.sums.counts
    weights = {name: count if paired.n[name] else 0 for name, count in board.weights.items()}
    for name, count in board.weights.items():
        if count and not weights[name]:
            left_out[name] = "no instance has a score of all judges under all configurations"
    if not any(count for name, count in weights.items() if name != "repetition"):
        raise UsageError("no instance has a score of every judge under every configuration: choose fewer of either.")
    factors = {each: coefficients(weights, each) for each in dict.fromkeys((rule, *rules))}
    first = next(iter(values))
    made = [View(label, each, label in controls) for label in values for each in factors]
    means = {label: _means(each.sums.sum(axis=1), counts.sum(axis=0)) for label, each in sums.items()}
    return Views(
        keys=keys,
        views=made,
        reference=made.index(next(view for view in made if view.rule == rule)),
        values=np.stack([means[view.label] @ factors[view.rule] for view in made]),
        sums=sums,
        factors=factors,
        n=paired.total,
        planned=sum(board.weights.values()),
        users=int((counts.sum(axis=1) > 0).sum()),
        left_out=left_out,
        same={label: _same(each.grid.values[:, columns]) for label, each in boards.items()},
        alike=tuple(label for label, each in values.items() if label != first and _alike(each, values[first])),
        no_interval=_no_interval(counts, np.array([weights[name] > 0 for name in OP_SUBTYPES])),
    )


def _with_scores(data: RunData, scores: pd.DataFrame, label: str) -> RunData:
    """The same run with another judge's scores."""
    return RunData(
        **{each.name: getattr(data, each.name) for each in dataclasses.fields(data)[:7]},
        instances=data.instances,
        configurations=data.configurations,
        records=lambda: data.records,
        scores=scores.assign(judge=label),
        user_scores=lambda: data.user_scores,
        vectors=lambda: data.vectors,
    )


def _compared(board: OpBoard, boards: Mapping[str, OpBoard], only: Collection[Key]) -> tuple[list[Key], dict[str, str]]:
    """The configurations that have scores of all judges in every subtype that any has them in."""
    some = next(iter(boards.values()))
    held = {
        key: {name for name, count in some.paired([column]).n.items() if count}
        for column, key in enumerate(board.grid.keys)
        if not only or key in only
    }
    wanted = set[str]().union(*held.values())
    left_out = {
        " · ".join(key): f"no score of all judges: {', '.join(name for name in OP_SUBTYPES if name in wanted - there)}"
        for key, there in held.items()
        if there != wanted
    }
    keys = [key for key, there in held.items() if there == wanted]
    if len(keys) < 2 or not wanted:
        alone = "no configuration has" if not keys or not wanted else "only 1 configuration has"
        raise UsageError(f"{alone} scores of all judges, and an order needs two: choose fewer judges.")
    return keys, left_out


def _alike(one: Floats, other: Floats) -> bool:
    """Whether two judges give the same scores wherever both give one."""
    both = ~np.isnan(one) & ~np.isnan(other)
    return bool(both.any()) and bool((np.abs(one[both] - other[both]) < EQUAL).all())


def _same(values: Floats) -> float:
    """The share of the most frequent value."""
    _, counts = np.unique(values[~np.isnan(values)].round(9), return_counts=True)
    return float(counts.max() / counts.sum())


def _means(sums: Floats, counts: Floats) -> Floats:
    """… × subtypes; 0 where there is nothing, which has no part in any average."""
    means: Floats = sums / np.where(counts > 0, counts, 1.0)
    return means


def _no_interval(counts: Floats, used: Floats) -> str:
    n_users = int((counts[:, used] > 0).any(axis=1).sum())
    holding = (counts[:, used] > 0).sum(axis=0)
    if holding.min() >= FEWEST_USERS:
        return ""
    name = [each for each, there in zip(OP_SUBTYPES, used, strict=True) if there][int(holding.argmin())]
    few = "1 user" if holding.min() == 1 else f"{holding.min()} users"
    of_part = few if holding.min() == n_users else f"{name} rests on {few}"
    return f"{of_part}, an interval needs {FEWEST_USERS}"


def order_table(found: Views) -> pd.DataFrame:
    """One row a view and configuration. Columns: `ORDER_COLUMNS`; op in points, place 1 is the best (equal averages
    share the better place), n instances and users that they rest on."""
    rows = []
    for view, values in zip(found.views, found.values, strict=True):
        places = pd.Series(values.round(9)).rank(method="min", ascending=False).astype(int)
        for key, value, place in zip(found.keys, values, places, strict=True):
            rows.append([view.label, view.rule, view.control, *key, float(value), int(place), found.n, found.users])
    return pd.DataFrame(rows, columns=ORDER_COLUMNS)


def correlation_table(found: Views) -> pd.DataFrame:
    """One row a pair of views. Columns: `CORRELATION_COLUMNS`: tau and spearman with their 95 % intervals, kept (of
    `pairs` of configurations, how many both views order alike), control (a view of the two is one)."""
    from scipy import stats

    signs = signs_of(found.values)
    few = len(found.keys) < FEWEST_CONFIGURATIONS
    drawn = None if found.no_interval or few else _drawn(found)
    rows: list[dict[str, Any]] = []
    for first, second in combinations(range(len(found.views)), 2):
        one, other = found.views[first], found.views[second]
        both = found.values[[first, second]].round(9)
        row: dict[str, Any] = dict.fromkeys(CORRELATION_COLUMNS, np.nan)
        row |= {"first_label": one.label, "first_rule": one.rule}
        row |= {"second_label": other.label, "second_rule": other.rule, "control": one.control or other.control}
        row |= {"kept": int((signs[first] == signs[second]).sum()), "pairs": signs.shape[1]}
        if few:
            row["note"] = f"fewer than {FEWEST_CONFIGURATIONS} configurations"
        elif (np.ptp(both, axis=1) < EQUAL).any():
            row["note"] = "all averages are equal in a view"
        else:
            row |= {"tau": stats.kendalltau(*both).statistic, "spearman": stats.spearmanr(*both).statistic}
            row["note"] = found.no_interval
            for name, each in zip(("tau", "spearman"), drawn or (), strict=False):
                row[f"{name}_low"], row[f"{name}_high"] = _ends(each[:, first, second])
        rows.append(row)
    return pd.DataFrame(rows, columns=CORRELATION_COLUMNS)


def signs_of(values: Floats) -> Floats:
    """… × pairs of configurations: 1 where the first is better, −1 where the second is, 0 where they are equal."""
    first, second = np.triu_indices(values.shape[-1], 1)
    apart = values[..., first] - values[..., second]
    signs: Floats = np.where(np.abs(apart) < EQUAL, 0.0, np.sign(apart))
    return signs


def _drawn(found: Views) -> tuple[Floats, Floats]:
    """Tau-b and rho (draws × views × views) of draws of users; NaN for a draw that lacks a subtype."""
    from scipy import stats

    rng = np.random.default_rng(SEED)
    counts = next(iter(found.sums.values())).counts
    active = counts.sum(axis=1) > 0
    n_users = int(active.sum())
    used = next(iter(found.factors.values())) > 0
    taus, rhos = [], []
    for start in range(0, REPLICATES, _BATCH):
        size = min(_BATCH, REPLICATES - start)
        times = rng.multinomial(n_users, np.full(n_users, 1.0 / n_users), size=size).astype(np.float64)
        totals = times @ counts[active]
        means = {
            label: _means(np.einsum("bu,kup->bkp", times, sums.sums[:, active]), totals[:, None])
            for label, sums in found.sums.items()
        }
        values = np.stack([means[view.label] @ found.factors[view.rule] for view in found.views], axis=1)
        whole = (totals[:, used] > 0).all(axis=1)[:, None, None]
        ranks = stats.rankdata(values.round(9), axis=-1)
        taus.append(np.where(whole, _products(signs_of(values)), np.nan))
        rhos.append(np.where(whole, _products(ranks - ranks.mean(axis=-1, keepdims=True)), np.nan))
    return np.concatenate(taus), np.concatenate(rhos)


def _products(rows: Floats) -> Floats:
    """draws × views × views: of each two views' rows, the product over the root of their squares."""
    inner = rows @ rows.swapaxes(-1, -2)
    squares = np.sqrt(np.einsum("bvv->bv", inner))
    with np.errstate(divide="ignore", invalid="ignore"):
        products: Floats = inner / (squares[:, :, None] * squares[:, None, :])
    return products


def _ends(drawn: Floats) -> tuple[float, float]:
    told = drawn[~np.isnan(drawn)]
    if len(told) < 0.95 * len(drawn):
        return np.nan, np.nan
    low, high = np.quantile(told, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
