"""The trade-off of the paper's figure 6: what a post-processor does to OP-Bench and, at the same time, to LoCoMo."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from opbench.analysis.aggregate import Rule
from opbench.analysis.grids import KEY
from opbench.analysis.locomo import locomo_table
from opbench.analysis.op import op_table
from opbench.store.rundata import RunData
from opbench.study import NO_MITIGATION

Kind = Literal["points", "relative"]
UNITS: dict[Kind, str] = {"points": "points", "relative": "% of the memory system"}

TRADEOFF_COLUMNS = [
    *KEY,
    "op_change",
    "op_n",
    "op_n_planned",
    "op_note",
    "left_out",
    "locomo_change",
    "locomo_n",
    "locomo_n_planned",
    "locomo_note",
    "locomo_metric",
    "unit",
    "source",
    "comparable",
]


def tradeoff(
    data: RunData,
    rule: Rule,
    kind: Kind = "points",
    first_only: bool = False,
    metric: str | None = None,
    judge: str | None = None,
) -> pd.DataFrame:
    """One row a configuration with a post-processor; columns as in `TRADEOFF_COLUMNS`.

    `op_change` and `locomo_change` are paired changes against the same memory system without post-processor, in
    points or in percent of it (`kind`, told in `unit`), NaN where missing with the reason in `op_note` or
    `locomo_note`. `left_out` names the subtypes that the slice has none of. `source` is `measured`;
    `comparable` is the run's.

    Raises:
        UsageError: several judges and none named.
    """
    op = op_table(data, rule, first_only, judge)
    locomo = locomo_table(data, metric, first_only, judge)
    frame = op[KEY].copy()
    frame["op_change"] = op[f"op_change_{kind}"]
    frame["op_n"] = op["n_paired"]
    frame["op_n_planned"] = op["n_planned"]
    # An average over some of the subtypes is said to be one, wherever it stands.
    partial = ("without " + op["left_out"]).where(op["partial"].astype(bool), "")
    note = op["pairing"].where(op["n_planned"] > 0, op["missing"])
    frame["op_note"] = [", ".join(part for part in parts if part) for parts in zip(note, partial, strict=True)]
    frame["left_out"] = op["left_out"]
    frame["locomo_change"] = locomo[f"change_{kind}"]
    frame["locomo_n"] = locomo["n_paired"]
    frame["locomo_n_planned"] = locomo["n_planned"]
    frame["locomo_note"] = locomo["pairing"].where(locomo["n_planned"] > 0, locomo["missing"])
    frame["locomo_metric"] = locomo["metric_label"]
    frame["unit"] = UNITS[kind]
    frame["source"] = "measured"
    frame["comparable"] = data.comparable
    changed = frame[frame["mitigation"] != NO_MITIGATION]
    return changed[TRADEOFF_COLUMNS].reset_index(drop=True)
