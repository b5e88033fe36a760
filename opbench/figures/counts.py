"""What a benchmark holds: instances by subtype, and by user and subtype."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from opbench.figures import theme

_BENCHMARKS = {"op": "OP-Bench", "locomo": "LoCoMo"}


def counts_by_subtype(frame: pd.DataFrame, title: str = "Instances by subtype") -> go.Figure:
    """A panel a benchmark, a bar a subtype. `frame`: benchmark, category, subtype, count, published (NaN: not told).

    A count that isn't the published one has the published one beside it.
    """
    benchmarks = [name for name in _BENCHMARKS if name in set(frame["benchmark"])]
    rows = [int((frame["benchmark"] == name).sum()) for name in benchmarks]
    height = 96 + sum(30 * n + 40 for n in rows)
    figure = make_subplots(
        rows=len(benchmarks),
        cols=1,
        row_heights=rows,
        vertical_spacing=60 / height,
        subplot_titles=[f"<b>{_BENCHMARKS[name]}</b>" for name in benchmarks],
    )
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    categories = list(dict.fromkeys(frame["category"]))
    colours = {name: theme.PALETTE[place % len(theme.PALETTE)] for place, name in enumerate(categories)}
    for row, benchmark in enumerate(benchmarks, start=1):
        cells: list[dict[Any, Any]] = frame[frame["benchmark"] == benchmark].to_dict("records")
        figure.add_trace(
            go.Bar(
                x=[cell["count"] for cell in cells],
                y=[theme.label(str(cell["subtype"])) for cell in cells],
                orientation="h",
                marker_color=[colours[cell["category"]] if benchmark == "op" else theme.GREY for cell in cells],
                text=[_written(cell) for cell in cells],
                textposition="outside",
                cliponaxis=False,
                customdata=[theme.escape(cell["category"]) for cell in cells],
                hovertemplate="<b>%{y}</b> (%{customdata})<br>%{text} instances<extra></extra>",
                showlegend=False,
            ),
            row=row,
            col=1,
        )
        figure.update_xaxes(range=[0, 1.25 * max(1, *(cell["count"] for cell in cells))], row=row, col=1)
    theme.finish(figure, title, height=height, legend=False)
    figure.update_xaxes(title_text="instances", title_font_size=12, row=len(benchmarks), col=1)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def counts_by_user(frame: pd.DataFrame, title: str = "Instances by user and subtype") -> go.Figure:
    """A heatmap, a row a user and a column a subtype: `frame` has the user's name in its first column."""
    first, *subtypes = [str(column) for column in frame.columns]
    numbers = frame[subtypes].to_numpy(dtype=int)
    figure = go.Figure(
        go.Heatmap(
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
    )
    theme.finish(figure, title, height=150 + 26 * max(len(frame), 2), legend=False)
    figure.update_xaxes(tickangle=-35, showgrid=False, type="category")
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    return figure


def _written(cell: dict[Any, Any]) -> str:
    written = f"{int(cell['count']):,}"
    if pd.isna(cell["published"]) or cell["published"] == cell["count"]:
        return written
    return f"{written} (published: {int(cell['published']):,})"
