"""The study in figures: OP-Bench by model and memory system, published and measured, in one shape.

The two are never one frame: each has its own `source`, and a page shows them beside each other.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from opbench.analysis import audit, published
from opbench.analysis.aggregate import Rule
from opbench.analysis.op import SUBSCORE_COLUMNS
from opbench.study import NO_MITIGATION

Averages = Literal["printed", "recomputed"]
#: How a published average is made, as a choice.
AVERAGES: dict[Averages, str] = {"printed": "as printed", "recomputed": "recomputed by the rule"}
#: Drop below BASE of the published table, and what else both frames have.
STUDY_COLUMNS = [
    "model",
    "memory",
    "mitigation",
    *SUBSCORE_COLUMNS.values(),
    "op",
    "drop",
    "drop_note",
    "n_scored",
    "n_planned",
    "missing",
    "rule",
    "source",
]


def published_study(averages: Averages, rule: Rule, first_only: bool = False) -> pd.DataFrame:
    """Table 2 in `STUDY_COLUMNS`: sub-scores and `op` in points, `drop` in percent below BASE of the model.

    `printed` takes average and drop as the paper prints them, whatever rule made them (`rule` is then `published`);
    `recomputed` works both out of the printed sub-scores by `rule`, with the counts of first speakers if asked for.
    The paper tells no n for a row, so both are NaN.
    """
    if averages == "printed":
        frame = published.op_scores()
    else:
        frame = published.op_scores(rule, audit.FIRST_SPEAKER_WEIGHTS if first_only else None)
        frame["drop"] = audit.recomputed(rule, "first" if first_only else "all")["drop"]
    return frame.assign(drop_note="", n_scored=np.nan, n_planned=np.nan, missing="")[STUDY_COLUMNS]


def measured_study(op_table: pd.DataFrame, mitigation: str = NO_MITIGATION) -> pd.DataFrame:
    """Rows of `opbench.analysis.op.op_table` with one post-processor, in `STUDY_COLUMNS`, BASE always among them.

    `drop` is paired: over the instances that the row and BASE have both scored, so it needn't be that of the averages.
    """
    frame = op_table[(op_table["mitigation"] == mitigation) | (op_table["memory"] == "base")]
    frame = frame.rename(columns={"drop_relative": "drop"}).assign(source="measured")
    base = frame["memory"] == "base"
    frame["drop"] = frame["drop"].mask(base & frame["op"].notna(), 0.0)
    frame["drop_note"] = frame["drop_note"].mask(base, "")
    return frame[STUDY_COLUMNS].reset_index(drop=True)


def radar_table(study: pd.DataFrame, model: str, memories: list[str]) -> pd.DataFrame:
    """The six sub-scores of one model, a row a subtype and a column a memory system, in points; figure 2's radar.

    `memories`: those wanted, all if empty. What has no score is NaN.
    """
    rows: dict[Any, Any] = study[study["model"] == model].set_index("memory").to_dict("index")
    chosen = [memory for memory in rows if not memories or memory in memories]
    return pd.DataFrame(
        {
            "subtype": list(SUBSCORE_COLUMNS),
            **{memory: [rows[memory][column] for column in SUBSCORE_COLUMNS.values()] for memory in chosen},
        }
    )
