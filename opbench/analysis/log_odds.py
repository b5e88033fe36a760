"""Log-odds ratio of phrases between two sides, with an informative Dirichlet prior (`language.py` has the formulas)."""

from __future__ import annotations

import numpy as np

from opbench.analysis.clustered import resampled
from opbench.analysis.intervals import Floats, Interval

#: Phrases resampled at a time.
_CHUNK = 400


def log_odds(y: Floats, n: Floats, prior: Floats, alpha0: float) -> Floats:
    """Of a phrase within its side: y of n, with the prior. An odds of infinity is one that a side consists of."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(y + prior) - np.log(np.maximum(n + alpha0 - y - prior, 0.0))
    return odds


def delta_intervals(y1: Floats, y2: Floats, n1: Floats, n2: Floats, prior: Floats, alpha0: float) -> list[Interval]:
    """Of delta, users (rows of y, places of n) drawn anew with both of their sides; the prior stays."""
    size = len(n1)
    found: list[Interval] = []
    for start in range(0, len(prior), _CHUNK):
        part = slice(start, start + _CHUNK)
        found += resampled(_Delta(y1[:, part], y2[:, part], n1, n2, prior[part], alpha0), size) if size else []
    return found


class _Delta:
    """delta with its standard error over users, linearised, for users taken some number of times each."""

    def __init__(self, y1: Floats, y2: Floats, n1: Floats, n2: Floats, prior: Floats, alpha0: float) -> None:
        self.prior, self.alpha0 = prior, alpha0
        # What delta is made of, by user: (users × words or × 1).
        self.parts = (y1, n1[:, None], y2, n2[:, None])
        self.products = [[first * second for second in self.parts] for first in self.parts]

    def __call__(self, times: Floats) -> tuple[Floats, Floats]:
        y1, n1, y2, n2 = (times @ each for each in self.parts)
        value = log_odds(y1, n1, self.prior, self.alpha0) - log_odds(y2, n2, self.prior, self.alpha0)
        slopes = [*self._slopes(y1, n1), *(-each for each in self._slopes(y2, n2))]
        size = times.shape[1]
        mean = sum(slope * total for slope, total in zip(slopes, (y1, n1, y2, n2), strict=True)) / size
        square = sum(
            slopes[i] * slopes[j] * (times @ self.products[i][j])
            for i in range(len(slopes))
            for j in range(len(slopes))
        )
        variance = size / max(size - 1, 1) * np.maximum(square - size * mean**2, 0.0)
        return value.T, np.sqrt(variance).T

    def _slopes(self, y: Floats, n: Floats) -> tuple[Floats, Floats]:
        """Of a side's log odds, by y and by n."""
        rest = np.maximum(n + self.alpha0 - y - self.prior, np.finfo(np.float64).tiny)
        return 1.0 / (y + self.prior) + 1.0 / rest, -1.0 / rest
