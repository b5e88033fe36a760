"""The oracle gap of the paper's figure 7, with its interval and in words: for the average, or for one subtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis import published
from opbench.analysis.aggregate import Rule, aggregate, unplanned, unscored
from opbench.analysis.compare import Gap, Kind, gap_closed, gap_intervals, op_board
from opbench.analysis.grids import KEY
from opbench.analysis.intervals import LEVEL, holm
from opbench.analysis.op import SUBSCORE_COLUMNS
from opbench.analysis.tradeoff import is_control
from opbench.store.rundata import RunData
from opbench.study import BASE, NO_MITIGATION

GAP_COLUMNS = [
    *KEY,
    "control",
    "subtype",
    "rule",
    "op",
    "n_scored",
    "n_planned",
    "missing",
    "left_out",
    "gap_closed",
    "gap_low",
    "gap_high",
    "gap_p",
    "gap_p_holm",
    "gap_users",
    "gap_n",
    "gap_reason",
    "interval_note",
    "words",
    "source",
]
#: What is measured when no subtype is named.
AVERAGE = "average"


def gap_table(
    data: RunData, rule: Rule, first_only: bool = False, subtype: str | None = None, judge: str | None = None
) -> pd.DataFrame:
    """One row a configuration, in the study's order; columns as in `GAP_COLUMNS`.

    `op` is the average by `rule`, or the sub-score of `subtype` (points), over all that the row has scored.
    `gap_closed` is a share of the way from the memory system to BASE of the same model, over what all three have
    scored (`gap_n`), with its 95 % interval over `gap_users` users and p of no change (`gap_p_holm`: Holm over the
    post-processors, controls by themselves). Rows without post-processor are references. `gap_reason` says why there
    is no share, `interval_note` why there is no interval, `words` what the row comes to.

    Raises:
        UsageError: several judges and none named.
    """
    board = op_board(data, first_only, judge)
    weights = board.weights
    if subtype is not None:
        weights = {name: count if name == subtype else 0 for name, count in weights.items()}
    n_planned = sum(weights.values())
    left_out = "" if subtype is not None else ", ".join(unplanned(weights))
    rows: list[dict[str, Any]] = []
    gaps: list[Gap] = []
    for column, key in enumerate(board.grid.keys):
        alone = board.paired([column])
        scores = alone.subscores[0]
        gone = unscored(scores, weights)
        missing = f"nothing scored: {', '.join(gone)}" if gone else ""
        if not n_planned:
            missing = f"the slice has no {subtype or 'OP-Bench'} instance"
        closed = Gap(np.nan, 0, "reference")
        if key[2] != NO_MITIGATION:
            closed = gap_closed(board, key, rule, weights) if n_planned else Gap(np.nan, 0, missing)
        gaps.append(closed)
        average = aggregate(scores, weights, rule)
        rows.append(
            {
                **dict(zip(KEY, key, strict=True)),
                "control": is_control(key[2]),
                "subtype": subtype or AVERAGE,
                "rule": rule,
                "op": np.nan if average is None else average,
                "n_scored": sum(count for name, count in alone.n.items() if weights[name]),
                "n_planned": n_planned,
                "missing": missing,
                "left_out": left_out,
                "gap_closed": closed.closed,
                "gap_n": closed.n,
                "gap_reason": closed.reason,
            }
        )
    for row, gap, told in zip(rows, gaps, gap_intervals(gaps), strict=True):
        row |= {"gap_low": told.low, "gap_high": told.high, "gap_p": told.p, "gap_users": told.n_users}
        row["interval_note"] = "" if np.isnan(gap.closed) else told.reason
    frame = pd.DataFrame(rows, columns=[name for name in GAP_COLUMNS if name not in ("gap_p_holm", "words", "source")])
    frame["gap_p_holm"] = np.nan
    for control in (False, True):
        of_family = frame["control"] == control
        frame.loc[of_family, "gap_p_holm"] = holm(frame.loc[of_family, "gap_p"].to_numpy(float))
    frame["source"] = "measured"
    return with_words(frame)[GAP_COLUMNS]


def published_gap(kind: Kind, subtype: str | None = None) -> pd.DataFrame:
    """The published figures in the shape of `gap_table`: table 2's averages or sub-scores of all four models.

    Shares are worked out from table 2 and figure 6 read as `kind`, which has the averages of GPT-4o-mini alone; n,
    intervals and p aren't told.
    """
    table = published.op_scores()
    frame = table.assign(
        op=table["avg_op"] if subtype is None else table[SUBSCORE_COLUMNS[subtype]],
        gap_closed=np.nan,
        gap_reason="reference",
    )
    if subtype is None:
        changed = published.oracle_gap(kind)
        frame = pd.concat([frame, changed[changed["mitigation"] != NO_MITIGATION]], ignore_index=True)
    untold = dict.fromkeys(("n_scored", "n_planned", "gap_low", "gap_high", "gap_p", "gap_users", "gap_n"), np.nan)
    frame = frame.assign(
        control=False,
        subtype=subtype or AVERAGE,
        rule="published",
        missing="",
        left_out="",
        interval_note="no intervals are published",
        source="published",
        gap_p_holm=np.nan,
        **untold,
    )
    return with_words(frame)[GAP_COLUMNS]


def with_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with what each row comes to, in words."""
    return frame.assign(words=[_words(row) for row in frame.to_dict("records")])


def _words(row: dict[Any, Any]) -> str:
    return f"control: {_verdict(row)}" if row["control"] else _verdict(row)


def _verdict(row: dict[Any, Any]) -> str:
    if row["missing"]:
        return str(row["missing"])
    if row["mitigation"] == NO_MITIGATION:
        return "the oracle" if row["memory"] == BASE else "the memory system as it is"
    closed = row["gap_closed"]
    if np.isnan(closed):
        return str(row["gap_reason"])
    p = row["gap_p_holm"]
    if not np.isnan(p) and p > 1.0 - LEVEL:
        return "not distinguishable from no post-processor"
    if closed < 0:
        found = "widens the gap: worse than no post-processor"
    elif closed == 0:
        found = "closes nothing of the gap"
    else:
        found = "goes beyond the oracle" if closed > 1 else "closes a part of the gap"
    # A measured share without an interval may be chance; of published ones none has any.
    return f"{found} (by the averages: {row['interval_note']})" if np.isnan(p) and _measured(row) else found


def _measured(row: dict[Any, Any]) -> bool:
    return bool(row["source"] == "measured" and row["interval_note"])
