"""Intervals and tests of paired changes: a bootstrap-t clustered by user, and Holm's correction.

Users are drawn anew with replacement, each with all of its instances, 4,999 times. In each replicate the change t* is
measured in its own standard error (linearised, over users). The interval is symmetric, `change ± q · error`, where q
is the 95 % quantile of |t*| (Hall 1988); p is (1 + replicates with |t*| at least the observed one) / (1 + replicates),
so that p ≤ 0.05 exactly where the interval leaves out 0. scipy draws the replicates and offers percentile and BCa
intervals besides; with 10 users, as LoCoMo has, these cover 90 % instead of 95 % (`docs/scores.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

LEVEL = 0.95
REPLICATES = 4_999
SEED = 2601
#: With fewer users there is no interval: a handful of clusters tells nothing about the next one.
FEWEST_USERS = 5
#: Replicates worked out at a time: few enough for the processor's cache, and for matrix products without threads.
_BATCH = 500
#: Points below which a number is rounding.
_NOTHING = 1e-9
#: Stands for an infinite distance: a replicate that differs and has no spread.
_FAR = 1e9


@dataclass(frozen=True)
class Interval:
    """A 95 % interval and a two-sided p of no difference; NaN when they can't be told, and `reason` says why."""

    low: float
    high: float
    p: float
    n_users: int
    reason: str = ""

    @classmethod
    def missing(cls, reason: str, n_users: int = 0) -> Interval:
        return cls(math.nan, math.nan, math.nan, n_users, reason)


@dataclass(frozen=True)
class UserSums:
    """What a resampling of users needs of scores, for configurations over the same instances.

    `sums` (configurations × users × parts) are of scores in points, `counts` (users × parts) of scores. A part is
    what is averaged by itself: a subtype, or all of LoCoMo. Repetition counts a user's value as one score.
    """

    sums: Floats
    counts: Floats
    parts: tuple[str, ...]


Averages = list[Floats]
#: From the configurations' averages (each an array over replicates) to a statistic and its gradient by each of them.
Combine = Callable[[Averages], tuple[Floats, Averages]]


def change(averages: Averages) -> tuple[Floats, Averages]:
    """First minus second, in points."""
    first, second = averages
    return first - second, [np.ones_like(first), -np.ones_like(second)]


def relative(averages: Averages) -> tuple[Floats, Averages]:
    """First against second in percent of second; NaN where that isn't positive."""
    first, second = averages
    base = np.where(second > 0, second, np.nan)
    return 100.0 * (first / base - 1.0), [100.0 / base, -100.0 * first / base**2]


def gap(averages: Averages) -> tuple[Floats, Averages]:
    """(method − system) / (oracle − system), a share; NaN where the oracle isn't above the system."""
    method, system, oracle = averages
    width = np.where(oracle > system, oracle - system, np.nan)
    return (method - system) / width, [1.0 / width, (method - oracle) / width**2, (system - method) / width**2]


def paired_difference(a: npt.ArrayLike, b: npt.ArrayLike, users: Sequence[str] | npt.ArrayLike) -> Interval:
    """Interval of mean(a) − mean(b), in the unit of the scores, over the places where both have one.

    `a` and `b` are aligned scores (NaN: missing), `users` the user of each: those are resampled.

    Raises:
        ValueError: the three aren't of one length.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    names = np.asarray(users, dtype=object)
    if not len(first) == len(second) == len(names):
        raise ValueError(f"scores and users aren't aligned: {len(first)}, {len(second)}, {len(names)}")
    both = ~np.isnan(first) & ~np.isnan(second)
    owner, _ = pd.factorize(names[both])
    return interval(single_part(np.stack([first[both], second[both]]), owner), np.ones(1), change)


def single_part(values: Floats, owner: Ints, name: str = "scores") -> UserSums:
    """Sums of `values` (configurations × scores, none missing), of which each belongs to the user at `owner`."""
    size = int(owner.max()) + 1 if len(owner) else 0
    sums = np.stack([np.bincount(owner, weights=row, minlength=size) for row in values]).astype(np.float64)
    return UserSums(sums[:, :, None], np.bincount(owner, minlength=size)[:, None].astype(np.float64), (name,))


def interval(sums: UserSums, coefficients: Floats, combine: Combine) -> Interval:
    """The interval of one statistic; see `intervals`."""
    return intervals([Question(sums, coefficients, combine)])[0]


@dataclass(frozen=True)
class Question:
    """A statistic of averages, each the sum of part means times `coefficients` (0: the part isn't planned)."""

    sums: UserSums
    coefficients: Floats
    combine: Combine


def intervals(questions: Sequence[Question]) -> list[Interval]:
    """The interval of each statistic, all over the same draws of users.

    A replicate without any instance of a planned part has no average and is left out, so an interval is over the
    replicates that have all parts. A part that fewer than 5 users hold gives none.
    """
    found: dict[int, Interval] = {}
    alike: dict[tuple[object, ...], list[tuple[int, _Prepared]]] = {}
    for place, question in enumerate(questions):
        ready = _prepare(question)
        if isinstance(ready, Interval):
            found[place] = ready
        else:
            alike.setdefault((question.combine, ready.sums.shape), []).append((place, ready))
    for (combine, _), group in alike.items():
        replicates = _Replicates([ready for _, ready in group], combine)  # type: ignore[arg-type]
        found |= dict(zip((place for place, _ in group), replicates.intervals(), strict=True))
    return [found[place] for place in range(len(questions))]


@dataclass(frozen=True)
class _Prepared:
    """A question without users who hold nothing and parts that aren't planned."""

    sums: Floats
    counts: Floats
    coefficients: Floats


def _prepare(question: Question) -> _Prepared | Interval:
    sums, planned = question.sums, question.coefficients != 0
    counts = sums.counts[:, planned]
    active = counts.sum(axis=1) > 0
    n_users = int(active.sum())
    if n_users < FEWEST_USERS:
        return Interval.missing(f"{_users(n_users)}, an interval needs {FEWEST_USERS}", n_users)
    names = [name for name, taken in zip(sums.parts, planned, strict=True) if taken]
    for name, holding in zip(names, (counts > 0).sum(axis=0), strict=True):
        if holding < FEWEST_USERS:
            few = _users(int(holding))
            return Interval.missing(f"{name} rests on {few}, an interval needs {FEWEST_USERS}", n_users)
    return _Prepared(sums.sums[:, active][:, :, planned], counts[active], question.coefficients[planned])


def holm(p: Sequence[float] | Floats) -> Floats:
    """Holm's adjusted p over those that there are; NaN stays NaN and isn't counted.

    As `statsmodels` has it, whose function collects all garbage first: a third of a second beside a large run.
    """
    given = np.asarray(p, dtype=np.float64)
    adjusted = np.full(len(given), np.nan)
    order = np.argsort(given)[: int((~np.isnan(given)).sum())]  # NaN is sorted to the end
    raised = np.maximum.accumulate(given[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


class _Replicates:
    """Statistics of one kind over equally many users and parts, worked out together."""

    def __init__(self, prepared: Sequence[_Prepared], combine: Combine) -> None:
        self.combine = combine
        self.counts = np.stack([each.counts for each in prepared])  # questions × users × parts
        self.sums = np.stack([each.sums for each in prepared], axis=1)  # configurations × questions × users × parts
        self.coefficients = np.stack([each.coefficients for each in prepared])[:, None, :]
        self.flat = np.concatenate([*self.sums, self.counts], axis=-1).swapaxes(-1, -2)

    def intervals(self) -> list[Interval]:
        n_users = self.counts.shape[1]
        values, errors = (each[:, 0] for each in self.measure(np.ones((1, n_users))))
        drawn = stats.bootstrap(
            (np.arange(n_users),),
            lambda picked, axis: self.distances(picked, values),
            n_resamples=REPLICATES,
            batch=_BATCH,
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(SEED),
        ).bootstrap_distribution
        return [
            interval_of(float(value), float(error), distances, n_users)
            for value, error, distances in zip(values, errors, drawn, strict=True)
        ]

    def measure(self, times: Floats) -> tuple[Floats, Floats]:
        """Statistics and their standard errors (questions × replicates) for users taken `times` (replicates × users)
        often; NaN where a part is lacking."""
        totals = times @ self.counts
        totals[(totals == 0).any(axis=-1)] = np.nan
        weights = self.coefficients / totals
        means = (times @ self.sums) / totals
        averages = (means * self.coefficients).sum(axis=-1)
        value, gradient = self.combine(list(averages))
        slopes = [slope[:, :, None] * weights for slope in gradient]
        level = sum(slope * mean for slope, mean in zip(slopes, means, strict=True))
        influence = np.concatenate([*slopes, -level], axis=-1) @ self.flat
        size = times.shape[1]
        return value, np.sqrt(size / (size - 1) * np.einsum("bu,qbu->qb", times, influence * influence))

    def distances(self, picked: Ints, centres: Floats) -> Floats:
        """|t*| (questions × replicates): how far each replicate lies from the centre, in its own errors; −1 for one
        that lacks a part.

        A replicate whose statistic isn't defined though it has all parts (no gap to close) is as far as can be.
        """
        batch, size = picked.shape
        places = picked + size * np.arange(batch)[:, None]
        times = np.bincount(places.ravel(), minlength=batch * size).reshape(batch, size).astype(np.float64)
        value, error = self.measure(times)
        whole = ((times @ self.counts) > 0).all(axis=-1)
        return np.where(whole, in_errors(value, error, centres), -1.0)


def in_errors(value: Floats, error: Floats, centres: Floats) -> Floats:
    """|t*| (questions × replicates) of values with their errors; as far as can be where a value isn't defined."""
    apart = np.abs(value - centres[:, None])
    apart[apart < _NOTHING] = 0.0
    far = np.minimum(apart / np.maximum(error, _NOTHING / _FAR), _FAR)
    return np.where(np.isnan(far), _FAR, far)


def interval_of(value: float, error: float, drawn: Floats, n_users: int) -> Interval:
    """The interval of a statistic (no difference: 0) from the |t*| of its replicates; negative ones are left out."""
    if math.isnan(value):
        return Interval.missing("the statistic isn't defined", n_users)
    if error < _NOTHING:
        return _without_spread(value, n_users)
    distances = np.sort(drawn[drawn >= 0])
    p = (1 + int((distances >= abs(value) / error).sum())) / (1 + len(distances))
    quantile = float(distances[math.ceil(LEVEL * (len(distances) + 1)) - 1])
    if quantile >= _FAR:
        return Interval(math.nan, math.nan, p, n_users, "too few users differ for an interval")
    return Interval(value - quantile * error, value + quantile * error, p, n_users)


def _without_spread(value: float, n_users: int) -> Interval:
    """Of a statistic that is the same whichever users are drawn: 0, or one that every user has.

    No draw can be as far off as a change of all users, but if there were no difference, users that go up and down by
    the same would all go one way in 2 of 2^n studies (the exact sign test): p is no less than that.
    """
    if abs(value) < _NOTHING:
        return Interval(value, value, 1.0, n_users)
    p = max(1.0 / (REPLICATES + 1), 2.0 ** (1 - n_users))
    if p > 1.0 - LEVEL:
        return Interval(math.nan, math.nan, p, n_users, f"all {n_users} users change by the same, too few to tell more")
    return Interval(value, value, p, n_users)


def _users(n: int) -> str:
    return "1 user" if n == 1 else f"{n} users"
