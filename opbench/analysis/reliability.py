"""How far several people agree about the same items: percent, Cohen's kappa, Krippendorff's alpha, with intervals.

Every one of them is a function of sums over items (counts of verdicts, of pairs that agree, of squared differences), so
items are drawn anew with replacement, each with all of its answers, 2,000 times, and a coefficient is worked out from
each draw's sums: the interval is from the 2.5th to the 97.5th percentile. Where nobody disagrees, no draw has a
disagreement either: then there is no interval, and it is said so.

Cohen, J. (1960), A coefficient of agreement for nominal scales, Educational and Psychological Measurement 20.
Krippendorff, K. (2011), Computing Krippendorff's alpha-reliability, University of Pennsylvania.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.analysis.intervals import LEVEL, SEED

Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""From sums over items (replicates × columns) to a coefficient a replicate; NaN where it isn't defined."""

REPLICATES = 2_000
#: With fewer items there is no interval.
FEWEST_ITEMS = 10
#: More replicates in which a coefficient isn't defined leave no interval.
_MOST_UNDEFINED = 0.05
_BATCH_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A value with its 95 % interval over `n` items (or, of a score, responses); NaN where there is none, and `reason`
    says why."""

    value: float
    low: float
    high: float
    n: int
    reason: str = ""

    @classmethod
    def missing(cls, reason: str, n: int = 0) -> Coefficient:
        return cls(math.nan, math.nan, math.nan, n, reason)


def percent(answers: pd.DataFrame) -> Coefficient:
    """Percent of items on which two agree, and of an item that more have answered, of its pairs.

    `answers` has item, reviewer, verdict. The interval is Wilson's where an item has two answers.
    """
    counts = _counts(answers)
    if not len(counts):
        return Coefficient.missing("no item has two answers")
    sizes = counts.sum(axis=1)
    shares = (counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1))
    if (sizes == 2).all():
        return proportion(int(shares.sum()), len(shares))
    rows = np.stack([np.ones_like(shares), shares], axis=1)
    return _told(rows, lambda sums: 100.0 * sums[:, 1] / sums[:, 0], 100.0 * float(shares.mean()), shares.min() < 1)


def proportion(right: int, n: int) -> Coefficient:
    """`right` of `n` in percent with Wilson's interval; NaN of none."""
    if not n:
        return Coefficient.missing("none")
    from scipy import stats

    told = stats.binomtest(right, n).proportion_ci(LEVEL, method="wilson")
    return Coefficient(100.0 * right / n, 100.0 * float(told.low), 100.0 * float(told.high), n)


def kappa(answers: pd.DataFrame, only: Sequence[tuple[str, str]] | None = None) -> Coefficient:
    """Cohen's kappa of two reviewers; of more, the mean over all pairs (or `only` these), each weighted by the items
    that both have answered, and `reason` tells how many pairs are left out: those that share fewer than 10 items (what
    chance gives can't be told from these, and their kappas tend to 0) and those whose kappa isn't defined, since both
    gave one verdict only.

    `answers` has item, reviewer, verdict.
    """
    wide = _wide(answers)
    pairs = list(combinations(wide.columns, 2)) if only is None else list(only)
    codes, size = _codes(wide)
    tables = [_pair_rows(codes[first], codes[second], size) for first, second in pairs if {first, second} <= set(codes)]
    tables = [table for table in tables if table.any()]
    if not tables:
        return Coefficient.missing("no two reviewers have answered the same item")
    n_pairs = len(tables)
    if n_pairs > 1:
        tables = [table for table in tables if table.sum() >= FEWEST_ITEMS]
        if not tables:
            return Coefficient.missing(f"none of {n_pairs} pairs of reviewers shares {FEWEST_ITEMS} items: see alpha")
    rows = np.concatenate(tables, axis=1)
    rows = rows[rows.any(axis=1)]

    def mean(sums: Floats) -> Floats:
        return _kappas(sums.reshape(len(sums), -1, size, size))

    value = float(mean(rows.sum(axis=0, keepdims=True))[0])
    cells = rows.sum(axis=0).reshape(-1, size, size)
    agreed = np.trace(cells, axis1=1, axis2=2).sum()
    told = _told(rows, mean, value, agreed < cells.sum(), "all gave the same single verdict: kappa isn't defined")
    gone = n_pairs - int(np.isfinite([_kappas(cell[None, None])[0] for cell in cells]).sum())
    if not gone or math.isnan(value):
        return told
    left_out = f"{gone} of {n_pairs} pairs left out, which share too few items or gave one verdict only"
    return replace(told, reason="; ".join(each for each in (told.reason, left_out) if each))


def alpha(answers: pd.DataFrame) -> Coefficient:
    """Krippendorff's alpha of verdicts (nominal); answers may be missing. `n`: items with two or more answers.

    `answers` has item, reviewer, verdict.
    """
    import krippendorff

    counts = _counts(answers)
    if not len(counts):
        return Coefficient.missing("no item has two answers")
    if (counts.sum(axis=0) > 0).sum() < 2:
        return Coefficient.missing("all gave the same single verdict: alpha isn't defined", len(counts))
    value = float(krippendorff.alpha(value_counts=counts, level_of_measurement="nominal"))
    sizes = counts.sum(axis=1)
    agreed = (counts * (counts - 1)).sum(axis=1) / (sizes - 1)
    rows = np.column_stack([counts, agreed])
    return _told(rows, _nominal_alpha, value, bool((agreed < sizes).any()))


def score_alpha(scores: pd.DataFrame) -> Coefficient:
    """Krippendorff's alpha of scores (interval data); scores may be missing. `n`: responses with two or more.

    `scores` has item, unit (a response of the item), reviewer, value. An item's responses are drawn together.
    """
    import krippendorff

    wide = scores.dropna(subset=["value"]).pivot_table("value", ["item", "unit"], "reviewer", aggfunc="last")
    wide = wide[wide.notna().sum(axis=1) >= 2]
    if not len(wide):
        return Coefficient.missing("no response has two scores")
    values = wide.to_numpy(np.float64)
    if np.nanmin(values) == np.nanmax(values):
        return Coefficient.missing("all scores are the same: alpha isn't defined", len(wide))
    value = float(krippendorff.alpha(values.T, level_of_measurement="interval"))
    sizes, sums, squares = (~np.isnan(values)).sum(axis=1), np.nansum(values, axis=1), np.nansum(values**2, axis=1)
    apart = 2 * (sizes * squares - sums**2) / (sizes - 1)
    units = pd.DataFrame(np.column_stack([sizes, sums, squares, apart]), index=wide.index)
    rows = units.groupby(level="item").sum().to_numpy(np.float64)
    told = _told(rows, _interval_alpha, value, bool((apart > 1e-12).any()))
    return Coefficient(told.value, told.low, told.high, len(wide), told.reason)


def _nominal_alpha(sums: Floats) -> Floats:
    counts, agreed = sums[:, :-1], sums[:, -1]
    n = counts.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = 1.0 - (counts * (counts - 1)).sum(axis=1) / (n * (n - 1))
        return np.where(expected > 0, 1.0 - (1.0 - agreed / n) / expected, np.nan)


def _interval_alpha(sums: Floats) -> Floats:
    n, first, second, apart = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = 2 * (n * second - first**2) / (n * (n - 1))
        return np.where(expected > 1e-12, 1.0 - apart / n / expected, np.nan)


def _kappas(tables: Floats) -> Floats:
    """Mean kappa (replicates) over pairs, weighted by items; `tables` is replicates × pairs × verdicts × verdicts."""
    n = tables.sum(axis=(2, 3))
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.trace(tables, axis1=2, axis2=3) / n
        expected = (tables.sum(axis=3) * tables.sum(axis=2)).sum(axis=2) / n**2
        each = (observed - expected) / (1.0 - expected)
        defined = np.isfinite(each) & (expected < 1.0 - 1e-12)
        weights = np.where(defined, n, 0.0)
        means: Floats = (np.where(defined, each, 0.0) * weights).sum(axis=1) / weights.sum(axis=1)
    return means


def _pair_rows(first: npt.NDArray[np.intp], second: npt.NDArray[np.intp], size: int) -> Floats:
    """items × (verdicts × verdicts): 1 in the cell that an item of both is in; 0 all over where one hasn't answered."""
    rows = np.zeros((len(first), size * size))
    both = (first >= 0) & (second >= 0)
    rows[np.flatnonzero(both), (first * size + second)[both]] = 1.0
    return rows


def _wide(answers: pd.DataFrame) -> pd.DataFrame:
    """items × reviewers, None where somebody hasn't answered."""
    return answers.drop_duplicates(["item", "reviewer"], keep="last").pivot(
        index="item", columns="reviewer", values="verdict"
    )


def _codes(wide: pd.DataFrame) -> tuple[dict[str, npt.NDArray[np.intp]], int]:
    """Verdicts as numbers, −1 for none, by reviewer; and how many kinds there are."""
    flat, kinds = pd.factorize(wide.to_numpy(dtype=object).ravel())
    codes = flat.reshape(wide.shape)
    return {str(name): codes[:, column] for column, name in enumerate(wide.columns)}, max(len(kinds), 1)


def _counts(answers: pd.DataFrame) -> npt.NDArray[np.int64]:
    """items × verdicts: how many gave which, of items with two or more answers."""
    once = answers.drop_duplicates(["item", "reviewer"], keep="last").dropna(subset=["verdict"])
    counts: npt.NDArray[np.int64] = pd.crosstab(once["item"], once["verdict"]).to_numpy(np.int64)
    return counts[counts.sum(axis=1) >= 2] if counts.size else counts.reshape(0, 0)


def _told(rows: Floats, statistic: Statistic, value: float, apart: bool, undefined: str = "") -> Coefficient:
    """The value with its interval: items (rows of sums) drawn anew. `apart`: whether anybody disagreed."""
    n = len(rows)
    if math.isnan(value):
        return Coefficient.missing(undefined, n)
    if n < FEWEST_ITEMS:
        few = "1 item" if n == 1 else f"{n} items"
        return Coefficient(value, math.nan, math.nan, n, f"{few}, an interval needs {FEWEST_ITEMS}")
    if not apart:
        return Coefficient(value, math.nan, math.nan, n, f"nobody disagrees on {n} items: no draw can tell more")
    drawn = _drawn(rows, statistic)
    defined = drawn[~np.isnan(drawn)]
    if len(defined) < (1 - _MOST_UNDEFINED) * len(drawn):
        return Coefficient(value, math.nan, math.nan, n, "too few items differ for an interval")
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Coefficient(value, float(low), float(high), n)


def _drawn(rows: Floats, statistic: Statistic) -> Floats:
    """The statistic of each draw. Items with equal sums are alike: how often each kind is drawn is multinomial."""
    kinds, often = np.unique(rows, axis=0, return_counts=True)
    rng = np.random.default_rng(SEED)
    batch = max(1, _BATCH_CELLS // max(kinds.size, 1))
    found = []
    for start in range(0, REPLICATES, batch):
        times = rng.multinomial(len(rows), often / len(rows), size=min(batch, REPLICATES - start))
        found.append(statistic(times.astype(np.float64) @ kinds))
    return np.concatenate(found)
