"""What a point on OP-Bench costs: LoCoMo points, seconds and dollars for each (no figure of the paper; our reading)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.grids import KEY
from opbench.study import NO_MITIGATION

PRICE_COLUMNS = ["locomo_per_op", "seconds", "seconds_per_op", "usd_per_1000", "usd_per_op", "price_note"]

#: Points below which a gain is rounding.
_ROUNDING = 1e-9


def with_prices(frame: pd.DataFrame, latency: pd.DataFrame, spending: pd.DataFrame | None = None) -> pd.DataFrame:
    """A trade-off frame with `PRICE_COLUMNS`.

    `seconds` is the mean post-processing stage of the records that asked a model (0 when none did), as `latency` has
    it; `usd_per_1000` what 1,000 questions cost more than without post-processor, NaN when a price isn't known.
    `locomo_per_op`, `seconds_per_op` and `usd_per_op` (per 1,000 questions) are for each point gained on OP-Bench, of
    `op_points`; `locomo_per_op` counts lost points, so it is negative where LoCoMo gains too. They are NaN, and
    `price_note` says so, where OP-Bench isn't improved or the gain isn't distinguishable from none: a price over what
    may be nothing could be any number. A published `latency` names no model and no memory system and is that of all.
    """
    on = KEY if latency["memory"].any() else ["mitigation"]
    frame = frame.merge(_seconds(latency)[[*on, "seconds"]], on=on, how="left")
    frame["usd_per_1000"] = np.nan
    if spending is not None:
        frame["usd_per_1000"] = _dollars(frame, spending)
    told = (frame["op_points"] > _ROUNDING) & (frame["op_verdict"] != "not distinguishable")
    gained = frame["op_points"].where(told)
    frame["locomo_per_op"] = -frame["locomo_points"] / gained + 0.0
    frame["seconds_per_op"] = frame["seconds"] / gained
    frame["usd_per_op"] = frame["usd_per_1000"] / gained
    verdicts = zip(frame["op_points"], frame["op_verdict"], frame["locomo_verdict"], strict=True)
    frame["price_note"] = [_note(*row) for row in verdicts]
    return frame


def _note(points: float, op: str, locomo: str) -> str:
    """Why there is no price, or what it rests on."""
    if np.isnan(points):
        return "no OP-Bench change to pay for"
    if points <= _ROUNDING:
        return "OP-Bench isn't improved: no price"
    if op == "not distinguishable":
        return "the gain isn't distinguishable from none: no price"
    if op == "can't be told":
        return "whether the gain is more than chance can't be told"
    return "the LoCoMo change isn't distinguishable from none" if locomo == "not distinguishable" else ""


def _seconds(latency: pd.DataFrame) -> pd.DataFrame:
    """Mean post-processing seconds by configuration; 0 where records are done and none asked a model."""
    post = latency[latency["stage"] == "post"].set_index(KEY)
    whole = latency[latency["stage"] == "total"].set_index(KEY)["n"].reindex(post.index)
    seconds = post["mean_ms"] / 1000.0
    asked_nobody = (post["n"] == 0) & (whole > 0)
    return seconds.mask(asked_nobody, 0.0).rename("seconds").reset_index()


def _dollars(frame: pd.DataFrame, spending: pd.DataFrame) -> list[float]:
    cost: dict[Any, float] = spending.set_index(KEY)["cost_usd_per_record"].to_dict()
    return [
        1000.0 * (cost.get((model, memory, mitigation), np.nan) - cost.get((model, memory, NO_MITIGATION), np.nan))
        for model, memory, mitigation in frame[KEY].itertuples(index=False, name=None)
    ]
