"""The trade-off of one memory system as a scatter: OP-Bench change against LoCoMo change, with the Pareto front."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.analysis.tradeoff import front
from opbench.figures import theme
from opbench.figures.drawing import Drawing, Part
from opbench.figures.tradeoff import PANELS, hover

FRONT = "Pareto front"
CONTROLS = "controls"
WITHOUT = "no post-processor"
_SYMBOLS = ("circle", "square", "triangle-up", "pentagon", "hexagram", "star", "triangle-down", "cross")


def tradeoff_scatter(frame: pd.DataFrame, unit: str, mark: str = "", title: str = "") -> go.Figure:
    """Post-processors of one model and memory system, from a trade-off frame; right and up is better.

    The origin is the memory system without post-processor. Bars are 95 % intervals where there are any; the line joins
    what no other post-processor beats on both. Controls are open diamonds. A row that lacks a change has no place.
    """
    told = frame.dropna(subset=["op_change", "locomo_change"])
    methods, controls = (told[told["control"].astype(bool) == apart] for apart in (False, True))
    names = list(methods["mitigation"])
    colours = theme.palette(names)
    drawing = Drawing()
    _add_front(drawing, methods)
    drawing.add(
        "scatter",
        x=[0],
        y=[0],
        mode="markers",
        name=WITHOUT,
        marker={"symbol": "x", "size": 11, "color": theme.GREY},
        hovertemplate=f"<b>{WITHOUT}</b><br>the memory system as it is<extra></extra>",
    )
    for place, row in enumerate(methods.to_dict("records")):
        marker = {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 12, "color": colours[row["mitigation"]]}
        drawing.add("scatter", **_point(row, unit, marker))
    for place, row in enumerate(controls.to_dict("records")):
        point = _point(row, unit, {"symbol": "diamond-open", "size": 11, "color": theme.GREY}, "control: ")
        drawing.add("scatter", **point | {"name": CONTROLS, "legendgroup": CONTROLS, "showlegend": place == 0})
    drawing.x(title=f"{PANELS['op']}, {unit}<br>less over-personalised →")
    drawing.y(title=f"{PANELS['locomo']}, {unit}<br>better recall →")
    return drawing.figure(title, mark, height=500, legend={"y": -0.28})


def _add_front(drawing: Drawing, methods: pd.DataFrame) -> None:
    """A line through the front, going without included where nothing beats it on both."""
    scores = methods[["op_points", "locomo_points"]].to_numpy(dtype=np.float64)
    places = methods[["op_change", "locomo_change"]].to_numpy(dtype=np.float64)
    without = front(np.vstack([scores, [0.0, 0.0]]))[-1:]
    line = np.vstack([places, [0.0, 0.0]])[np.concatenate([methods["pareto"].to_numpy(dtype=np.bool_), without])]
    if len(line) < 2:
        return
    line = line[line[:, 0].argsort()]
    drawing.add(
        "scatter",
        x=line[:, 0].tolist(),
        y=line[:, 1].tolist(),
        mode="lines",
        name=FRONT,
        line={"color": theme.GREY, "dash": "dot", "width": 2},
        hoverinfo="skip",
    )


def _point(row: dict[Any, Any], unit: str, marker: dict[str, Any], before: str = "") -> Part:
    name = f"{before}{theme.label(row['mitigation'])}"
    on_front = f"<br>on the {FRONT}" if row["pareto"] else ""
    text = "<br>".join(f"<b>{panel}</b>: {hover(row, benchmark, unit)}" for benchmark, panel in PANELS.items())
    return {
        "x": [row["op_change"]],
        "y": [row["locomo_change"]],
        "mode": "markers",
        "name": name,
        "marker": marker,
        "error_x": _bar(row, "op", marker["color"]),
        "error_y": _bar(row, "locomo", marker["color"]),
        "hovertemplate": f"<b>{name}</b>{on_front}<br>{text}<extra></extra>",
    }


def _bar(row: dict[Any, Any], benchmark: str, colour: str) -> dict[str, Any] | None:
    low, value, high = (row[f"{benchmark}_{name}"] for name in ("low", "change", "high"))
    if pd.isna(low):
        return None
    return {"array": [high - value], "arrayminus": [value - low], "color": colour, "thickness": 1.2, "width": 4}
