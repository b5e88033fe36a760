"""OP-Bench tables of a run: sub-scores, the average by one rule, and paired changes. All scores in points, 0 to 100."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.aggregate import Rule, aggregate, unplanned, unscored
from opbench.analysis.compare import Change, Gap, gap_closed, op_board, op_change, oracle_of, reference_of
from opbench.analysis.grids import KEY
from opbench.store.rundata import RunData
from opbench.study import NO_MITIGATION
from opbench.types import OP_CATEGORIES, OP_SUBTYPES

#: The column of each sub-score; `memory` alone would be the memory system.
SUBSCORE_COLUMNS = {
    "fully-irrelevant": "fully_irrelevant",
    "baiting": "baiting",
    "repetition": "repetition",
    "fact": "fact_level",
    "value": "value_level",
    "memory": "memory_level",
}
OP_COLUMNS = [
    *KEY,
    *SUBSCORE_COLUMNS.values(),
    "op",
    "rule",
    "n_planned",
    "n_scored",
    "partial",
    "left_out",
    "missing",
    "op_change_points",
    "op_change_relative",
    "n_paired",
    "pairing",
    "drop_relative",
    "drop_n",
    "drop_note",
    "gap_closed",
    "gap_n",
    "gap_reason",
    "judge",
    "repetition_judge",
]


def op_subscores(data: RunData, first_only: bool = False, judge: str | None = None) -> pd.DataFrame:
    """One row a configuration and planned subtype.

    Columns: model, memory, mitigation, subtype, category, n_planned, n_scored (instances; for repetition the
    responses that the users' values rest on), users_planned, users_scored, mean (points; NaN when nothing is scored).
    Repetition's mean is over the users' values, the other means over instances (paper, section 3.2).

    Raises:
        UsageError: several judges and none named.
    """
    board = op_board(data, first_only, judge)
    weights = board.weights
    users = board.grid.instances["user"].to_numpy()
    rows: list[dict[str, Any]] = []
    for column, key in enumerate(board.grid.keys):
        alone = board.paired([column])
        scored = ~np.isnan(board.grid.values[:, column])
        for code, subtype in enumerate(OP_SUBTYPES):
            if not weights[subtype]:
                continue
            of_subtype = board.subtype == code
            if subtype == "repetition":
                users_scored = int((~np.isnan(board.repetition.values[:, column])).sum())
            else:
                users_scored = len(set(users[of_subtype & scored]))
            rows.append(
                {
                    **dict(zip(KEY, key, strict=True)),
                    "subtype": subtype,
                    "category": OP_CATEGORIES[subtype],
                    "n_planned": weights[subtype],
                    "n_scored": alone.n[subtype],
                    "users_planned": len(set(users[of_subtype])),
                    "users_scored": users_scored,
                    "mean": _nan(alone.subscores[0][subtype]),
                }
            )
    columns = [*KEY, "subtype", "category", "n_planned", "n_scored", "users_planned", "users_scored", "mean"]
    return pd.DataFrame(rows, columns=columns)


def op_table(data: RunData, rule: Rule, first_only: bool = False, judge: str | None = None) -> pd.DataFrame:
    """One row a configuration, in the study's order; columns as in `OP_COLUMNS`.

    The six sub-scores (`SUBSCORE_COLUMNS`) and `op` are over all that the row has scored. `op_change_points` and
    `op_change_relative` (%) are against the same memory system without post-processor, `drop_relative` (% below BASE,
    table 2's "drop") and `gap_closed` (a share; figure 7) against BASE of the same model; each over the instances that
    all compared rows have scored (`n_paired`, `drop_n`, `gap_n`), so they needn't equal differences of the columns
    beside them. What is missing is NaN, with the reason in `missing`, `pairing`, `drop_note` or `gap_reason`.
    `partial` rows lack the subtypes in `left_out` because the slice has none of them.

    Raises:
        UsageError: several judges and none named.
    """
    board = op_board(data, first_only, judge)
    weights = board.weights
    n_planned = sum(weights.values())
    left_out = unplanned(weights)
    rows: list[dict[str, Any]] = []
    for column, key in enumerate(board.grid.keys):
        alone = board.paired([column])
        scores = alone.subscores[0]
        gone = unscored(scores, weights)
        missing = f"nothing scored: {', '.join(gone)}" if gone else ""
        if not n_planned:
            missing = "the slice has no OP-Bench instance"
        change, gap = Change.missing("reference"), Gap(float("nan"), 0, "reference")
        if key[2] != NO_MITIGATION:
            change = op_change(board, key, reference_of(key), rule)
            gap = gap_closed(board, key, rule)
        drop = Change.missing("oracle") if key == oracle_of(key) else op_change(board, key, oracle_of(key), rule)
        rows.append(
            {
                **dict(zip(KEY, key, strict=True)),
                **{name: _nan(scores[subtype]) for subtype, name in SUBSCORE_COLUMNS.items()},
                "op": _nan(aggregate(scores, weights, rule)),
                "rule": rule,
                "n_planned": n_planned,
                "n_scored": alone.total,
                "partial": bool(left_out),
                "left_out": ", ".join(left_out),
                "missing": missing,
                "op_change_points": change.points,
                "op_change_relative": change.relative,
                "n_paired": change.n,
                "pairing": change.note,
                "drop_relative": -drop.relative,
                "drop_n": drop.n,
                "drop_note": drop.note,
                "gap_closed": gap.closed,
                "gap_n": gap.n,
                "gap_reason": gap.reason,
                "judge": board.grid.judge or "",
                "repetition_judge": board.repetition.judge or "",
            }
        )
    return pd.DataFrame(rows, columns=OP_COLUMNS)


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value
