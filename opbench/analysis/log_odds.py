"""Log-odds ratio of phrases between two sides, with an informative Dirichlet prior (`language.py` has the formulas)."""

from __future__ import annotations

import numpy as np

from opbench.analysis.clustered import resampled
from opbench.analysis.intervals import FEWEST_USERS, Floats, Interval

#: Phrases resampled at a time.
_CHUNK = 400
#: Words that the others of a side are at least, so that nothing is divided by 0.
_LEAST = 1e-9
#: Share of its terms that a variance is at least, some hundred times what doubles are rounded by.
_ROUNDING = 1e-13
Side = tuple[Floats, Floats]
"""Counts of phrases and of all words of their length, as arrays that go together."""


def log_odds_ratio(first: Side, second: Side, prior: Floats, alpha0: float) -> Floats:
    """delta of phrases, natural; NaN for one that both sides consist of."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (np.log(y + prior) - np.log(np.maximum(n + alpha0 - y - prior, 0.0)) for y, n in (first, second))
        ratio: Floats = one - other
    return ratio


def delta_intervals(y1: Floats, y2: Floats, n1: Floats, n2: Floats, prior: Floats, alpha0: float) -> list[Interval]:
    """Of delta by phrase, users drawn anew with both of their sides; the prior stays as it is.

    `y1` and `y2` are counts (users × phrases), `n1` and `n2` totals (users). A phrase that fewer than 5 users have has
    no interval: without one of them it would be another phrase.
    """
    size = len(n1)
    holding = ((y1 + y2) > 0).sum(axis=0)
    enough = np.flatnonzero(holding >= FEWEST_USERS)
    found = [Interval.missing(_few(int(n)), size) for n in holding]
    for start in range(0, len(enough), _CHUNK):
        part = enough[start : start + _CHUNK]
        told = resampled(_Delta(y1[:, part], y2[:, part], n1, n2, prior[part], alpha0), size)
        for place, interval in zip(part, told, strict=True):
            found[place] = interval
    return found


def _few(n: int) -> str:
    return f"{'1 user has' if n == 1 else f'{n} users have'} it, an interval needs {FEWEST_USERS}"


class _Delta:
    """delta with its standard error over users, linearised, for users taken some number of times each."""

    def __init__(self, y1: Floats, y2: Floats, n1: Floats, n2: Floats, prior: Floats, alpha0: float) -> None:
        self.prior, self.alpha0 = prior, alpha0
        # What delta is made of, by user: (users × words or × 1).
        self.parts = (y1, n1[:, None], y2, n2[:, None])
        places = range(len(self.parts))
        self.products = {(i, j): self.parts[i] * self.parts[j] for i in places for j in places[i:]}

    def __call__(self, times: Floats) -> tuple[Floats, Floats]:
        y1, n1, y2, n2 = (times @ each for each in self.parts)
        value = log_odds_ratio((y1, n1), (y2, n2), self.prior, self.alpha0)
        slopes = [*self._slopes(y1, n1), *(-each for each in self._slopes(y2, n2))]
        size = times.shape[1]
        terms = [
            (1.0 if i == j else 2.0) * slopes[i] * slopes[j] * (times @ product)
            for (i, j), product in self.products.items()
        ]
        mean = sum(slope * total for slope, total in zip(slopes, (y1, n1, y2, n2), strict=True)) / size
        terms.append(-size * mean**2)
        square = sum(terms)
        # Users that are all alike leave what the large terms were rounded by, which is no spread.
        square = np.where(square > _ROUNDING * sum(np.abs(each) for each in terms), square, 0.0)
        return value.T, np.sqrt(size / max(size - 1, 1) * square).T

    def _slopes(self, y: Floats, n: Floats) -> tuple[Floats, Floats]:
        """Of a side's log odds, by y and by n."""
        rest = np.maximum(n + self.alpha0 - y - self.prior, _LEAST)
        return 1.0 / (y + self.prior) + 1.0 / rest, -1.0 / rest
