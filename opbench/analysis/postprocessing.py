"""How often a post-processor failed: the answer then comes from what it was given, and a change of 0 says nothing."""

from __future__ import annotations

import pandas as pd

from opbench.analysis.grids import KEY

FAILED = "failed"


def failures(records: pd.DataFrame) -> pd.DataFrame:
    """model, memory, mitigation, failed and n: records whose post-processing failed, of those that had some.

    `records`: model, memory, mitigation and state, as in `RunData.records`. Configurations without a failure have no
    row; those that failed most come first.
    """
    had = records[records["state"].notna()]
    counts = (had["state"] == FAILED).groupby([had[name] for name in KEY], sort=False).agg(["sum", "size"])
    found = counts.set_axis(["failed", "n"], axis=1).reset_index()
    order = (-found["failed"] / found["n"]).argsort(kind="stable")
    return found.iloc[order].query("failed > 0").reset_index(drop=True)
