"""Spearman's and Pearson's correlation with intervals from resampled clusters.

Responses to the same question are no independent pieces of evidence, so clusters are drawn anew, each with all of its
responses (4,999 times). The interval is the house's bootstrap-t (`analysis/intervals.py`) on Fisher's scale
z = artanh(r), each replicate measured in its own linearised error, and is then taken back: it keeps within −1 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from opbench.analysis.clustered import resampled
from opbench.analysis.intervals import FEWEST_USERS, Interval

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

#: With fewer responses a correlation says nothing: two points lie on a line.
FEWEST = 3
#: With fewer clusters there is no interval.
FEWEST_CLUSTERS = FEWEST_USERS
#: A correlation this near to 1 is 1: Fisher's scale has no end.
_PERFECT = 1e-9


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation and its 95 % interval; NaN where they can't be told, and `reason` says why."""

    value: float
    low: float
    high: float
    reason: str = ""


def correlations(
    first: Floats, second: Floats, clusters: Sequence[str], what: str = "questions"
) -> tuple[Correlation, Correlation]:
    """Spearman's (mean ranks for ties) and Pearson's correlation of aligned numbers, none missing; `first` are
    people's. `what` the clusters are, in reasons."""
    n = len(first)
    if n < FEWEST:
        return _both(f"{_responses(n)}, a correlation needs {FEWEST}")
    for values, whose in ((first, "people"), (second, "the judge")):
        if np.ptp(values) < _PERFECT:
            return _both(f"{whose} gave the same score to all {n}")
    owner, names = _numbered(clusters)
    told = (float(stats.spearmanr(first, second).statistic), float(stats.pearsonr(first, second).statistic))
    if len(names) < FEWEST_CLUSTERS:
        reason = f"{len(names)} {what}, an interval needs {FEWEST_CLUSTERS}"
        spearman, pearson = (Correlation(value, math.nan, math.nan, reason) for value in told)
        return spearman, pearson
    weighing = _Weighing(first, second, owner, len(names))
    found = resampled(weighing.measure, len(names))
    spearman, pearson = (_taken_back(value, each, what) for value, each in zip(told, found, strict=True))
    return spearman, pearson


class _Weighing:
    """Both correlations on Fisher's scale with their errors, for clusters that are taken so and so often."""

    def __init__(self, first: Floats, second: Floats, owner: Ints, n_clusters: int) -> None:
        # By cluster, so that each one's responses stand together.
        order = np.argsort(owner, kind="stable")
        self.owner = owner[order]
        self.begins = np.searchsorted(self.owner, np.arange(n_clusters))
        self.n_clusters = n_clusters
        self.pair = (first[order], second[order])
        self.places = (_Places(self.pair[0]), _Places(self.pair[1]))

    def measure(self, times: Floats) -> tuple[Floats, Floats]:
        """Statistics × replicates, as `resampled` wants them: Spearman's, Pearson's."""
        weights = times[:, self.owner]
        by_rank = self._fisher(self.places[0].ranks(weights), self.places[1].ranks(weights), weights, times)
        found = [by_rank, self._fisher(*self.pair, weights, times)]
        return np.stack([value for value, _ in found]), np.stack([error for _, error in found])

    def _fisher(self, x: Floats, y: Floats, weights: Floats, times: Floats) -> tuple[Floats, Floats]:
        total = weights.sum(axis=1, keepdims=True)
        zx, zy = (_standard(each, weights, total) for each in (x, y))
        r = (weights * zx * zy).sum(axis=1, keepdims=True) / total
        with np.errstate(divide="ignore", invalid="ignore"):
            r = np.where(np.abs(r) > 1 - _PERFECT, np.nan, r)
            influence = (zx * zy - r / 2 * (zx**2 + zy**2)) / (1 - r**2) / total
            z = np.arctanh(r)
        by_cluster = np.add.reduceat(influence, self.begins, axis=1)
        n = self.n_clusters
        error = np.sqrt(n / (n - 1) * (times * by_cluster**2).sum(axis=1))
        return z[:, 0], error


class _Places:
    """Ranks of numbers that are taken so and so often; equal numbers share the mean of their ranks."""

    def __init__(self, values: Floats) -> None:
        levels, self.level = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.level, kind="stable")
        self.ends = np.cumsum(np.bincount(self.level, minlength=len(levels))) - 1

    def ranks(self, weights: Floats) -> Floats:
        """Replicates × numbers."""
        until = np.cumsum(weights[:, self.order], axis=1)[:, self.ends]
        below = np.concatenate([np.zeros((len(weights), 1)), until[:, :-1]], axis=1)
        ranks: Floats = ((below + until + 1) / 2)[:, self.level]
        return ranks


def _standard(values: Floats, weights: Floats, total: Floats) -> Floats:
    """Weighted standard scores; NaN where all are the same."""
    mean = (weights * values).sum(axis=1, keepdims=True) / total
    variance = (weights * (values - mean) ** 2).sum(axis=1, keepdims=True) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = (values - mean) / np.where(variance > _PERFECT**2, np.sqrt(variance), np.nan)
    return found


def _taken_back(value: float, interval: Interval, what: str) -> Correlation:
    low, high = math.tanh(interval.low), math.tanh(interval.high)
    reason = interval.reason
    if math.isnan(low):
        perfect = abs(value) > 1 - _PERFECT
        reason = "a perfect correlation has no interval" if perfect else f"too few {what} differ for an interval"
    return Correlation(value, low, high, reason)


def _both(reason: str) -> tuple[Correlation, Correlation]:
    none = Correlation(math.nan, math.nan, math.nan, reason)
    return none, none


def _numbered(clusters: Sequence[str]) -> tuple[Ints, list[str]]:
    names = list(dict.fromkeys(clusters))
    at = {name: place for place, name in enumerate(names)}
    return np.array([at[name] for name in clusters], dtype=np.intp), names


def _responses(n: int) -> str:
    return "1 response" if n == 1 else f"{n} responses"
