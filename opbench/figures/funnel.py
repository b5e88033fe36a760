"""The funnel of a build: candidates left after each step, and what each step dropped (paper, A.3.1)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing

#: By column: what the part of a bar means, its colour, and its pattern, so that it is told without colour as well.
_PARTS = {
    "n": ("left", theme.PALETTE[0], ""),
    "undecided": ("waiting", theme.PALETTE[4], "."),
    "dropped": ("dropped by this step", theme.PALETTE[1], "/"),
}


def funnel(frame: pd.DataFrame, title: str = "What becomes of the candidates", mark: str = "") -> go.Figure:
    """A bar a step: what is left, what waits, and what the step dropped; together what the step before left.

    `frame` has `opbench.analysis.funnel.COLUMNS`.
    """
    cells: list[dict[Any, Any]] = frame.to_dict("records")
    names = [theme.escape(cell["label"]) for cell in cells]
    most = max([1, *(int(cell["n"]) + int(cell["dropped"]) + int(cell["undecided"]) for cell in cells)])
    drawing = Drawing()
    for column, (label, colour, pattern) in _PARTS.items():
        drawing.add(
            "bar",
            x=[int(cell[column]) for cell in cells],
            y=names,
            orientation="h",
            name=label,
            marker={"color": colour, "pattern": {"shape": pattern}},
            customdata=[_hover(cell) for cell in cells],
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        )
    drawing.add(
        "scatter",
        x=[1.02 * most] * len(cells),
        y=names,
        mode="text",
        text=[_written(cell) for cell in cells],
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    drawing.x(title="candidates", range=[0, 1.45 * most])
    drawing.y(autorange="reversed", type="category", showgrid=False)
    height = 150 + 34 * max(len(cells), 1)
    return drawing.figure(title, mark, height=height, barmode="stack", legend={"y": -90 / height})


def _written(cell: dict[Any, Any]) -> str:
    written = f"{int(cell['n']):,}"
    return f"{written}  −{int(cell['dropped']):,}" if cell["dropped"] else written


def _hover(cell: dict[Any, Any]) -> str:
    lines = [f"{int(cell['n']):,} left, {theme.share(cell['share'])} of all generated"]
    if cell["dropped"]:
        before = int(cell["n"]) + int(cell["dropped"]) + int(cell["undecided"])
        lines.append(f"{int(cell['dropped']):,} of {before:,} dropped ({theme.share(cell['dropped'] / before)})")
    if cell["undecided"]:
        lines.append(f"{int(cell['undecided']):,} waiting")
    if cell["note"]:
        lines.append(theme.escape(cell["note"]))
    return "<br>".join(lines)
