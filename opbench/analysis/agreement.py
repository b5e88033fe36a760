"""How far the judge's scores agree with the scores that people gave to the same responses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.intervals import paired_difference

#: With fewer records that both scored, a mean difference would be taken for a finding.
FEWEST = 10
COLUMNS = ["benchmark", "n", "raters", "judge", "people", "difference", "low", "high", "apart", "note"]


def agreement(scores: pd.DataFrame) -> pd.DataFrame:
    """One row a benchmark with records that both a person and the judge scored.

    `scores` is `opbench.store.human.human_scores`; entries that aren't current don't count, and several raters of a
    record count as their mean. Columns: benchmark, n (records), raters, judge and people (means in points),
    difference (judge − people, points) with its 95 % interval `low`, `high` (clustered by user), apart (mean absolute
    difference, points), note (why numbers are missing). Numbers are NaN with fewer than 10 records.
    """
    both = scores[scores["current"] & scores["judge_score"].notna()]
    rows: list[dict[str, Any]] = []
    for benchmark, mine in both.groupby("benchmark", sort=False):
        keys = ["model", "memory", "mitigation", "instance", "user"]
        records = mine.groupby(keys, as_index=False).agg(people=("value", "mean"), judge=("judge_score", "first"))
        row = dict.fromkeys(COLUMNS, np.nan) | {"benchmark": benchmark, "n": len(records), "note": ""}
        row["raters"] = mine["rater"].nunique()
        if len(records) < FEWEST:
            row["note"] = f"{len(records)} scored by both, {FEWEST} are needed to compare"
        else:
            judge, people = 100 * records["judge"].to_numpy(), 100 * records["people"].to_numpy()
            interval = paired_difference(judge, people, list(records["user"]))
            row |= {"judge": judge.mean(), "people": people.mean(), "difference": (judge - people).mean()}
            row |= {"low": interval.low, "high": interval.high, "note": interval.reason}
            row["apart"] = np.abs(judge - people).mean()
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)
