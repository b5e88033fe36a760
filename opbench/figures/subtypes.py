"""Sub-scores of OP-Bench by configuration, as a heatmap in points (the paper's table 2)."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from opbench.analysis.op import SUBSCORE_COLUMNS
from opbench.figures import theme
from opbench.figures.drawing import Drawing


def op_by_subtype(frame: pd.DataFrame, mark: str = "", title: str = "OP-Bench by subtype") -> go.Figure:
    """One row a configuration, one column a subtype and the average; from `op_table` or `published.op_scores`.

    Cells are points, 0 to 100, higher is less over-personalised; a missing one is empty and says `n/a`.
    """
    heads = {column: theme.label(subtype) for subtype, column in SUBSCORE_COLUMNS.items()} | {"op": "<b>average</b>"}
    several = [name for name in ("model", "memory", "mitigation") if frame[name].nunique() > 1] or ["mitigation"]
    y = ["<br>".join(theme.label(str(part)) for part in row) for row in frame[several].itertuples(index=False)]
    z = [
        [None if pd.isna(value) else float(value) for value in row] for row in frame[list(heads)].to_numpy(dtype=float)
    ]
    drawing = Drawing()
    drawing.add(
        "heatmap",
        z=z,
        x=list(heads.values()),
        y=y,
        text=[[theme.points(float("nan") if value is None else value) for value in row] for row in z],
        texttemplate="%{text}",
        textfont={"color": theme.CELL_TEXT},
        hovertemplate="<b>%{y}</b><br>%{x}: %{text} points<extra></extra>",
        colorscale=theme.SEQUENTIAL,
        zmin=0,
        zmax=100,
        xgap=2,
        ygap=2,
        showscale=False,
    )
    for at_y, row in zip(y, z, strict=True):
        for at_x, value in zip(heads.values(), row, strict=True):
            if value is None:
                drawing.note(x=at_x, y=at_y, text=theme.MISSING, opacity=0.6)
    drawing.x(tickangle=-35, showgrid=False, type="category")
    drawing.y(autorange="reversed", showgrid=False, type="category")
    height = 140 + 26 * len(several) * max(len(frame), 2)
    return drawing.figure(title, mark, height=height, legend=False)
