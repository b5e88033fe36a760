"""How the changes from one configuration to another are spread over instances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from opbench.figures import theme
from opbench.figures.drawing import Drawing

_NAMES = {"op": "OP-Bench", "locomo": "LoCoMo"}
#: Bins of 10 points to both sides of those that are equal.
_STEPS = 10
_EQUAL = 1e-9


def binned(frame: pd.DataFrame) -> pd.DataFrame:
    """The figure's numbers: benchmark, bin (−10 … 10; 0 is equal), change (what the bin holds), n.

    `frame` has benchmark and change (points). A bin holds changes over its near end up to and with its far end.
    """
    # Scores are means of thirds and tenths: without the little step back 30 could be a bit over 30.
    size = np.ceil(frame["change"].abs() / 10 - 1e-6).clip(1, _STEPS)
    place = (np.sign(frame["change"]) * size).where(frame["change"].abs() > _EQUAL, 0).astype(int)
    counted = frame.assign(bin=place).groupby(["benchmark", "bin"]).size()
    benchmarks = [name for name in _NAMES if (frame["benchmark"] == name).any()]
    index = pd.MultiIndex.from_product([benchmarks, range(-_STEPS, _STEPS + 1)], names=["benchmark", "bin"])
    found = counted.reindex(index, fill_value=0).rename("n").reset_index()
    return found.assign(change=found["bin"].map(_span))[["benchmark", "bin", "change", "n"]]


def spread_of_changes(frame: pd.DataFrame, mark: str = "", title: str = "Changes by instance") -> go.Figure:
    """Bars of how many instances changed by how much, one panel a benchmark. `frame` as for `binned`."""
    bins = binned(frame)
    benchmarks = list(dict.fromkeys(bins["benchmark"]))
    totals = bins.groupby("benchmark")["n"].sum()
    heads = [f"{_NAMES[name]}, n = {theme.count(totals[name])}" for name in benchmarks]
    drawing = Drawing(heads, rows=max(1, len(benchmarks)), spacing=0.26)
    for row, name in enumerate(benchmarks, start=1):
        mine = bins[bins["benchmark"] == name]
        colours = [
            theme.GREY if place == 0 else sample_colorscale(theme.DIVERGING, [_shade(place)])[0]
            for place in mine["bin"]
        ]
        drawing.add(
            "bar",
            row,
            x=mine["bin"].tolist(),
            y=mine["n"].tolist(),
            marker={"color": colours, "line": {"color": theme.GREY, "width": 0.5}},
            text=[theme.count(n) if n else "" for n in mine["n"]],
            textposition="outside",
            cliponaxis=False,
            customdata=[[change] for change in mine["change"]],
            hovertemplate="<b>%{customdata[0]}</b><br>%{y:,} instances<extra></extra>",
            showlegend=False,
        )
    marked = [-10, -5, 0, 5, 10]
    words = ["−100", "−50", "equal", "+50", "+100"]
    drawing.x(title="change, points", tickvals=marked, ticktext=words, range=[-10.7, 10.7])
    drawing.y(title="instances", rangemode="tozero")
    return drawing.figure(title, mark, height=110 + 250 * max(1, len(benchmarks)), legend=False, bargap=0.08)


def _shade(place: int) -> float:
    """Where on the diverging scale a bin stands; never the middle, which would be lost on a light page."""
    return 0.5 + float(np.sign(place)) * (0.12 + 0.38 * abs(place) / _STEPS)


def _span(place: int) -> str:
    if place == 0:
        return "equal"
    sign = "+" if place > 0 else "−"
    return f"over {sign}{10 * (abs(place) - 1)} to {sign}{10 * abs(place)} points".replace(f"{sign}0 ", "0 ")
