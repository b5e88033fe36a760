"""What a benchmark holds: instances by subtype, and by user and subtype."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing

_BENCHMARKS = {"op": "OP-Bench", "locomo": "LoCoMo"}


def counts_by_subtype(frame: pd.DataFrame, title: str = "Instances by subtype") -> go.Figure:
    """A panel a benchmark, a bar a subtype. `frame`: benchmark, category, subtype, count, published (NaN: not told).

    A count that isn't the published one has the published one beside it.
    """
    benchmarks = [name for name in _BENCHMARKS if name in set(frame["benchmark"])]
    rows = [int((frame["benchmark"] == name).sum()) for name in benchmarks]
    height = 96 + sum(30 * n + 40 for n in rows)
    drawing = Drawing(
        [f"<b>{_BENCHMARKS[name]}</b>" for name in benchmarks],
        rows=len(benchmarks),
        heights=rows,
        spacing=60 / height,
        head={"x": 0, "xanchor": "left", "font": {"size": 13}},
    )
    categories = list(dict.fromkeys(frame["category"]))
    colours = {name: theme.PALETTE[place % len(theme.PALETTE)] for place, name in enumerate(categories)}
    for row, benchmark in enumerate(benchmarks, start=1):
        cells: list[dict[Any, Any]] = frame[frame["benchmark"] == benchmark].to_dict("records")
        drawing.add(
            "bar",
            row,
            x=[cell["count"] for cell in cells],
            y=[theme.label(str(cell["subtype"])) for cell in cells],
            orientation="h",
            marker={"color": [colours[cell["category"]] if benchmark == "op" else theme.GREY for cell in cells]},
            text=[_written(cell) for cell in cells],
            textposition="outside",
            cliponaxis=False,
            customdata=[theme.escape(cell["category"]) for cell in cells],
            hovertemplate="<b>%{y}</b> (%{customdata})<br>%{text} instances<extra></extra>",
            showlegend=False,
        )
        drawing.x(row, range=[0, 1.25 * max(1, *(cell["count"] for cell in cells))])
    drawing.x(len(benchmarks), title="instances")
    drawing.y(autorange="reversed", type="category", showgrid=False)
    return drawing.figure(title, height=height, legend=False)


def counts_by_user(frame: pd.DataFrame, title: str = "Instances by user and subtype") -> go.Figure:
    """A heatmap, a row a user and a column a subtype: `frame` has the user's name in its first column."""
    first, *subtypes = [str(column) for column in frame.columns]
    numbers = frame[subtypes].to_numpy(dtype=int)
    drawing = Drawing()
    drawing.add(
        "heatmap",
        z=numbers.tolist(),
        x=[theme.label(subtype) for subtype in subtypes],
        y=[theme.escape(user) for user in frame[first]],
        text=numbers.astype(str).tolist(),
        texttemplate="%{text}",
        textfont={"color": theme.CELL_TEXT},
        hovertemplate="<b>%{y}</b><br>%{x}: %{text} instances<extra></extra>",
        colorscale=theme.SEQUENTIAL,
        zmin=0,
        xgap=2,
        ygap=2,
        showscale=False,
    )
    drawing.x(tickangle=-35, showgrid=False, type="category")
    drawing.y(autorange="reversed", showgrid=False, type="category")
    return drawing.figure(title, height=150 + 26 * max(len(frame), 2), legend=False)


def _written(cell: dict[Any, Any]) -> str:
    written = f"{int(cell['count']):,}"
    if pd.isna(cell["published"]) or cell["published"] == cell["count"]:
        return written
    return f"{written} (published: {int(cell['published']):,})"
