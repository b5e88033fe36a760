"""Bootstrap-t clustered by user (`intervals.py`) for statistics that aren't made of averages: log odds, areas under a
curve. Same draws, same interval, same fewest users."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from opbench.analysis.intervals import (
    FEWEST_USERS,
    REPLICATES,
    SEED,
    Interval,
    in_errors,
    interval_of,
)

Floats = npt.NDArray[np.float64]
Measure = Callable[[Floats], tuple[Floats, Floats]]
"""From how often each user is taken (replicates × users) to statistics and their standard errors, both statistics ×
replicates; the statistic of no difference is 0, NaN is one that isn't defined for these users."""
_BATCH = 500


def resampled(measure: Measure, n_users: int) -> list[Interval]:
    """The interval of each statistic over 4,999 draws of `n_users` users with replacement.

    A draw without which a statistic isn't defined counts as far off as can be: where many draws are so, there is no
    interval. Fewer than 5 users give none.
    """
    values, errors = (each[:, 0] for each in measure(np.ones((1, n_users))))
    if n_users < FEWEST_USERS:
        few = "1 user" if n_users == 1 else f"{n_users} users"
        return [Interval.missing(f"{few}, an interval needs {FEWEST_USERS}", n_users)] * len(values)
    drawn = np.concatenate([in_errors(*measure(times), values) for times in _draws(n_users)], axis=1)
    return [
        interval_of(float(value), float(error), distances, n_users)
        for value, error, distances in zip(values, errors, drawn, strict=True)
    ]


def _draws(n_users: int) -> Iterator[Floats]:
    """How often each user is taken, replicates × users, a batch at a time."""
    rng = np.random.default_rng(SEED)
    for start in range(0, REPLICATES, _BATCH):
        picked = rng.integers(0, n_users, size=(min(_BATCH, REPLICATES - start), n_users))
        yield np.stack([np.bincount(row, minlength=n_users) for row in picked]).astype(np.float64)
