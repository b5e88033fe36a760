"""How far judges agree with people on the same responses (paper, A.4.2 and table 5).

Correlations say whether a judge puts responses in people's order, errors whether its numbers are people's. Intervals
are clustered (`analysis/intervals.py`, `correlating.py`): by question, since two responses to one are no independent
evidence, or by user.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pandas as pd

from opbench.analysis.intervals import Interval, paired_difference
from opbench.calibration.correlating import FEWEST_CLUSTERS, Floats, correlations

Cluster = Literal["pair", "user"]
_NUMBERS = ("spearman", "pearson", "error", "absolute_error")
COLUMNS = (
    "judging",
    "label",
    "group",
    "responses",
    "n",
    "missing",
    "unrated",
    "clusters",
    *(f"{name}{end}" for name in _NUMBERS for end in ("", "_low", "_high")),
    "note",
)
ALL = "all"


def agreement_with_people(
    pairs: pd.DataFrame, by: Literal["subtype", "kind"] | None = None, cluster: Cluster = "pair"
) -> pd.DataFrame:
    """One row a judging (and group of `by`): `COLUMNS`. `pairs` is `pairs.paired`.

    responses: in the set; n: scored by people and judge, what all numbers rest on; missing: scored by people and not
    by the judge; unrated: by nobody. error: mean of judge − people, absolute_error: mean of its size, 0 to 1; low and
    high: 95 %. NaN where a number can't be told, and `note` says why.
    """
    rows: list[dict[str, Any]] = []
    for judging, mine in pairs.groupby("judging", sort=False):
        groups = [(ALL, mine)] if by is None else [(str(name), part) for name, part in mine.groupby(by, sort=False)]
        for group, part in groups:
            rows.append({"judging": judging, "label": part["label"].iloc[0], "group": group, **_row(part, cluster)})
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [f"{name}{end}" for name in _NUMBERS for end in ("", "_low", "_high")]
    return frame.astype(dict.fromkeys(numbers, "float64"))


def worst(pairs: pd.DataFrame, judging: str, n: int = 10) -> pd.DataFrame:
    """The `n` responses on which a judging and people are furthest apart, the furthest first; rows of `pairs`."""
    mine = pairs[(pairs["judging"] == judging) & pairs["residual"].notna()]
    order = mine["residual"].abs().sort_values(ascending=False, kind="stable").index
    return mine.loc[order].head(n).reset_index(drop=True)


def verdict(row: pd.Series) -> str:
    """What a row of `agreement_with_people` comes to, in one sentence."""
    who = row["label"]
    if math.isnan(row["spearman"]):
        return f"{who}: no agreement can be told ({row['note']})."
    rank = f"Spearman's ρ = {row['spearman']:.2f}"
    if math.isnan(row["spearman_low"]):
        return f"{who}: {rank} over {row['n']} responses, without an interval ({row['note']}): no more than a hint."
    between = f"{rank} [{row['spearman_low']:.2f}, {row['spearman_high']:.2f}], n = {row['n']}"
    if row["spearman_low"] > 0:
        return f"{who}: {between}: it puts responses in people's order better than chance does."
    if row["spearman_high"] < 0:
        return f"{who}: {between}: it puts responses in the reverse of people's order."
    return f"{who}: {between}: no agreement with people is shown."


def _row(part: pd.DataFrame, cluster: Cluster) -> dict[str, Any]:
    rated = part[part["people"].notna()]
    both = rated[rated["value"].notna()]
    people, judge = both["people"].to_numpy(dtype=np.float64), both["value"].to_numpy(dtype=np.float64)
    clusters = [str(name) for name in both[cluster]]
    what = {"pair": "questions", "user": "users"}[cluster]
    spearman, pearson = correlations(people, judge, clusters, what)
    error = paired_difference(judge, people, clusters)
    size: Floats = np.abs(judge - people)
    absolute = paired_difference(size, np.zeros(len(size)), clusters)
    n_clusters = len(set(clusters))
    notes = [spearman.reason]
    if 0 < n_clusters < FEWEST_CLUSTERS and "interval" not in spearman.reason:
        notes.append(f"{n_clusters} {what}, an interval needs {FEWEST_CLUSTERS}")
    if not len(rated):
        notes = ["nobody scored these responses"]
    elif len(rated) > len(both) and not len(both):
        notes = [str(rated["reason"].iloc[0])]
    return {
        "responses": len(part),
        "n": len(both),
        "missing": len(rated) - len(both),
        "unrated": len(part) - len(rated),
        "clusters": n_clusters,
        "spearman": spearman.value,
        "spearman_low": spearman.low,
        "spearman_high": spearman.high,
        "pearson": pearson.value,
        "pearson_low": pearson.low,
        "pearson_high": pearson.high,
        "error": (judge - people).mean() if len(both) else math.nan,
        **_ends("error", error),
        "absolute_error": size.mean() if len(both) else math.nan,
        **_ends("absolute_error", absolute, floor=0.0),
        "note": "; ".join(note for note in notes if note),
    }


def _ends(name: str, interval: Interval, floor: float = -1.0) -> dict[str, float]:
    """Within what the number can be; NaN stays."""
    low, high = np.clip([interval.low, interval.high], floor, 1.0)
    return {f"{name}_low": float(low), f"{name}_high": float(high)}
