"""Whether a judge says the same when it is asked again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from opbench.calibration.correlating import FEWEST_CLUSTERS, Floats

#: Scores that differ by less are the same.
_SAME = 1e-9
COLUMNS = (
    "judging",
    "label",
    "responses",
    "n",
    "repeats",
    "missing",
    "same",
    "same_low",
    "same_high",
    "spread",
    "spread_low",
    "spread_high",
    "largest",
    "reliability",
    "note",
)


def self_consistency(judgements: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    """One row a judging of `labels` (judging to label): `COLUMNS`. `judgements` is `store.judgings.read_judgements`.

    n: responses with at least two scores, of `responses`; repeats: the most that one has; missing: judgements without a
    score. same: percent of the n whose scores are all equal, with Wilson's interval; spread: mean over them of the
    standard deviation within a response (n − 1 in the denominator), 0 to 1, with a percentile bootstrap over responses;
    largest: greatest difference within a response; reliability: ICC(1), the share of the scores' variance that lies
    between responses (Shrout & Fleiss 1979), over responses with all repeats. NaN where one can't be told, and `note`
    says why.
    """
    rows: list[dict[str, Any]] = []
    for judging, label in labels.items():
        mine = judgements[judgements["judging"] == judging]
        scored = mine[mine["value"].notna()]
        groups = [part["value"].to_numpy(dtype=np.float64) for _, part in scored.groupby("item", sort=False)]
        several = [values for values in groups if len(values) > 1]
        row: dict[str, Any] = dict.fromkeys(COLUMNS, math.nan) | {
            "judging": judging,
            "label": label,
            "responses": int(mine["item"].nunique()),
            "n": len(several),
            "repeats": max((len(values) for values in groups), default=0),
            "missing": int(mine["value"].isna().sum()),
            "note": "",
        }
        if several:
            row |= _told(several)
        else:
            row["note"] = "no response was scored twice: judge with --repeats 2 or more"
        rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _told(several: list[Floats]) -> dict[str, Any]:
    ranges = np.array([np.ptp(values) for values in several])
    spreads = np.where(ranges < _SAME, 0.0, [values.std(ddof=1) for values in several])
    equal = int((ranges < _SAME).sum())
    told: dict[str, Any] = {
        "same": 100 * equal / len(several),
        "spread": float(spreads.mean()),
        "largest": float(ranges.max()),
        "reliability": _icc([values for values in several if len(values) == max(map(len, several))]),
    }
    if len(several) < FEWEST_CLUSTERS:
        return told | {"note": f"{len(several)} responses, an interval needs {FEWEST_CLUSTERS}"}
    same = stats.binomtest(equal, len(several)).proportion_ci(method="wilson")
    told |= {"same_low": 100 * same.low, "same_high": 100 * same.high}
    if np.ptp(spreads) < _SAME:
        return told | {"note": "the spread of all responses is the same: no draw can tell more"}
    drawn = stats.bootstrap((spreads,), np.mean, n_resamples=4999, method="percentile", rng=np.random.default_rng(2601))
    return told | {"spread_low": drawn.confidence_interval.low, "spread_high": drawn.confidence_interval.high}


def _icc(groups: list[Floats]) -> float:
    """ICC(1) of groups of one size; NaN with fewer than two, or when all scores are the same."""
    if len(groups) < 2:
        return math.nan
    values = np.stack(groups)
    n, k = values.shape
    means = values.mean(axis=1)
    between = k * ((means - values.mean()) ** 2).sum() / (n - 1)
    within = ((values - means[:, None]) ** 2).sum() / (n * (k - 1))
    total = between + (k - 1) * within
    return float((between - within) / total) if total > _SAME**2 else math.nan
