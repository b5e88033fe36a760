"""Latency by stage (the paper's table 11) as stacked bars, and how figures about waiting name configurations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing, Part

STAGES = {"retrieval": "memory retrieval", "post": "post-processing", "response": "model response"}
COLOURS = dict(zip(STAGES, theme.PALETTE, strict=False)) | {"total": theme.PALETTE[3]}
_LEVELS = ("model", "memory", "mitigation", "source")

Row = tuple[str, ...]
Cell = dict[Hashable, Any]


def latency_bars(frame: pd.DataFrame, mark: str = "", title: str = "Latency by stage") -> go.Figure:
    """One bar a configuration, stacked by stage with the stages' means (seconds), the mean total at its end.

    `frame` is `opbench.analysis.latency.latency` or the published one; a column `source` (how the times were taken)
    gives each of its values a bar of its own. The spread (std, median, p95), n, reused calls and concurrency are in
    the hover. A stage that never happened has no part; a configuration without any is `n/a`.
    """
    rows = configurations(frame)
    names = row_names(rows)
    cells: dict[Row, Cell] = {(*_row(cell), str(cell["stage"])): cell for cell in frame.to_dict("records")}
    drawing = Drawing()
    for stage, head in STAGES.items():
        found = [cells.get((*row, stage)) for row in rows]
        drawing.add(
            "bar",
            y=names,
            x=[_seconds(cell) for cell in found],
            orientation="h",
            name=head,
            marker={"color": COLOURS[stage]},
            customdata=[_hover(cell) for cell in found],
            hovertemplate=f"<b>%{{y}}</b><br>{head}<br>%{{customdata}}<extra></extra>",
        )
    totals = [cells.get((*row, "total")) for row in rows]
    lengths = [sum(_seconds(cells.get((*row, stage))) or 0.0 for stage in STAGES) for row in rows]
    drawing.add(
        "scatter",
        y=names,
        x=lengths,
        mode="text",
        text=[theme.milliseconds(float("nan") if cell is None else cell["mean_ms"]) for cell in totals],
        texttemplate="\u2002%{text}",
        textposition="middle right",
        cliponaxis=False,
        name="total",
        showlegend=False,
        customdata=[_hover(cell) for cell in totals],
        hovertemplate="<b>%{y}</b><br>total<br>%{customdata}<extra></extra>",
    )
    return stacked(drawing, rows, max(lengths, default=0.0), "seconds, mean", title, mark, bar_height(rows))


def stacked(
    drawing: Drawing, rows: list[Row], longest: float, unit: str, title: str, mark: str, height: int, **x: Any
) -> go.Figure:
    """Lay out stacked bars of configurations: first on top, room for the text behind the longest. `x`: more of its
    axis."""
    drawing.x(title=unit, range=[0, longest * 1.22 or 1.0], **x)
    drawing.y(autorange="reversed", type="category", showgrid=False)
    legend = legend_below(bar_height(rows)) | {"traceorder": "normal"}
    return drawing.figure(title, mark, height=height, legend=legend, barmode="stack", bargap=0.25)


def legend_below(height: int, gap: float = 62.0) -> Part:
    """The legend `gap` pixels under the plot of a figure that is `height` pixels high."""
    return {"y": -gap / max(height - 150, 100)}


def bar_height(rows: list[Row]) -> int:
    """Pixels for one bar a row; names of several lines need more room."""
    varying = sum(len({row[level] for row in rows}) > 1 for level in range(len(rows[0]))) if rows else 1
    return 160 + max(len(rows), 3) * (22 + 14 * max(varying, 1))


def configurations(frame: pd.DataFrame) -> list[Row]:
    """The configurations (and sources, where there are several) of a frame, in its order."""
    levels = [level for level in _LEVELS if level in frame]
    return [tuple(map(str, row)) for row in frame[levels].drop_duplicates().itertuples(index=False)]


def row_names(rows: list[Row]) -> list[str]:
    """What tells each configuration from the others, one part a line; the post-processor when nothing does."""
    varying = [len({row[level] for row in rows}) > 1 for level in range(len(rows[0]) if rows else 0)]
    names = []
    for row in rows:
        parts = [theme.label(part) for part, differs in zip(row, varying, strict=True) if differs and part]
        names.append("<br>".join(parts) if parts else theme.label(row[2]))
    return names


def _row(cell: Cell) -> Row:
    return tuple(str(cell[level]) for level in _LEVELS if level in cell)


def _seconds(cell: Cell | None) -> float | None:
    if cell is None or pd.isna(cell["mean_ms"]):
        return None
    return float(cell["mean_ms"]) / 1000.0


def _hover(cell: Cell | None) -> str:
    if cell is None or pd.isna(cell["mean_ms"]):
        return "didn't happen"
    lines = [
        f"mean {theme.milliseconds(cell['mean_ms'])} ± {theme.milliseconds(cell['std_ms'])}",
        f"median {theme.milliseconds(cell['median_ms'])}, p95 {theme.milliseconds(cell['p95_ms'])}",
    ]
    return "<br>".join([*lines, *counted(cell)])


def counted(cell: Cell) -> list[str]:
    """What a time rests on: n, reused calls, concurrency."""
    n = f"n = {theme.count(cell['n'])}"
    if not pd.isna(cell["n_reused"]):
        n += f", {theme.count(cell['n_reused'])} of them reused"
    return [n, f"concurrency {theme.escape(cell['concurrency'] or 'not told')}"]
