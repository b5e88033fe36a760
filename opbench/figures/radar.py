"""The radar over OP-Bench's six subtypes (the paper's figure 2)."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.overview import styles


def radar(table: pd.DataFrame, mark: str = "", title: str = "Sub-scores") -> go.Figure:
    """A line a memory system over the six subtypes, always from 0 to 100 points; further out is better.

    `table` is `opbench.analysis.overview.radar_table`. Lines differ in dash and marker too. Where a subtype has no
    score the line is open.
    """
    memories = [str(column) for column in table.columns if column != "subtype"]
    look = styles(memories)
    spokes = [theme.label(str(subtype)).replace(" ", "<br>") for subtype in table["subtype"]]
    traces = []
    for memory in memories:
        values = [None if pd.isna(value) else float(value) for value in table[memory]]
        traces.append(
            go.Scatterpolar(
                r=[*values, values[0]],
                theta=[*spokes, spokes[0]],
                name=theme.label(memory),
                mode="lines+markers",
                connectgaps=False,
                line={"color": look[memory]["color"], "dash": look[memory]["dash"], "width": 2},
                marker={"symbol": look[memory]["symbol"], "size": 8},
                customdata=[*map(_points, values), _points(values[0])],
                hovertemplate="<b>%{fullData.name}</b><br>%{theta}: %{customdata} points<extra></extra>",
            )
        )
    grid = "rgba(138,138,138,0.35)"
    layout = theme.layout(title, mark, height=440, legend={"y": -0.12})
    layout["margin"] = {"l": 56, "r": 56, "t": 96 if mark else 76, "b": 8}
    layout["polar"] = {
        "bgcolor": "rgba(0,0,0,0)",
        "radialaxis": {
            "range": [0, 100],
            "tickvals": [25, 50, 75, 100],
            "angle": 90,
            "tickangle": 90,
            "gridcolor": grid,
            "linecolor": grid,
            "tickfont": {"size": 10},
        },
        "angularaxis": {"rotation": 90, "direction": "clockwise", "gridcolor": grid, "linecolor": grid},
    }
    return go.Figure(traces, layout)


def _points(value: float | None) -> str:
    return theme.points(float("nan") if value is None else value)
