"""Latency by stage (the paper's table 11) as stacked bars."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme

STAGES = {"retrieval": "memory retrieval", "post": "post-processing", "response": "model response"}
COLOURS = dict(zip(STAGES, theme.PALETTE, strict=False))


def latency_bars(frame: pd.DataFrame, mark: str = "", title: str = "Latency by stage") -> go.Figure:
    """One bar a configuration, stacked by stage with the stages' means (seconds), the mean total at its end.

    `frame` is `opbench.analysis.latency.latency` or the published one. The spread (std, median, p95), n, reused calls
    and concurrency are in the hover. A stage that never happened has no part; a configuration without any is `n/a`.
    """
    rows = list(dict.fromkeys(zip(frame["model"], frame["memory"], frame["mitigation"], strict=True)))
    varying = [len({row[level] for row in rows}) > 1 for level in range(3)]
    names = [_name(row, varying) for row in rows]
    cells = {(row["model"], row["memory"], row["mitigation"], row["stage"]): row for row in frame.to_dict("records")}
    figure = go.Figure()
    for stage, head in STAGES.items():
        found = [cells.get((*row, stage)) for row in rows]
        figure.add_trace(
            go.Bar(
                y=names,
                x=[_seconds(cell) for cell in found],
                orientation="h",
                name=head,
                marker_color=COLOURS[stage],
                customdata=[_hover(cell) for cell in found],
                hovertemplate=f"<b>%{{y}}</b><br>{head}<br>%{{customdata}}<extra></extra>",
            )
        )
    totals = [cells.get((*row, "total")) for row in rows]
    figure.add_trace(
        go.Scatter(
            y=names,
            x=[sum(_seconds(cells.get((*row, stage))) or 0.0 for stage in STAGES) for row in rows],
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
    )
    theme.finish(figure, title, mark, height=150 + 40 * max(len(rows), 3))
    longest = max((sum(_seconds(cells.get((*row, stage))) or 0.0 for stage in STAGES) for row in rows), default=0.0)
    figure.update_layout(barmode="stack", bargap=0.25, legend_traceorder="normal", legend_y=-0.3)
    figure.update_xaxes(title_text="seconds, mean", title_font_size=12, range=[0, longest * 1.22 or 1.0])
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def _name(row: tuple[str, str, str], varying: list[bool]) -> str:
    """What tells this configuration from the others, one part a line; the post-processor when nothing does."""
    parts = [theme.label(part) for part, differs in zip(row, varying, strict=True) if differs and part]
    return "<br>".join(parts) if parts else theme.label(row[2])


def _seconds(cell: dict[Any, Any] | None) -> float | None:
    if cell is None or pd.isna(cell["mean_ms"]):
        return None
    return float(cell["mean_ms"]) / 1000.0


def _hover(cell: dict[Any, Any] | None) -> str:
    if cell is None or pd.isna(cell["mean_ms"]):
        return "didn't happen"
    lines = [
        f"mean {theme.milliseconds(cell['mean_ms'])} ± {theme.milliseconds(cell['std_ms'])}",
        f"median {theme.milliseconds(cell['median_ms'])}, p95 {theme.milliseconds(cell['p95_ms'])}",
    ]
    n = f"n = {theme.count(cell['n'])}"
    if not pd.isna(cell["n_reused"]):
        n += f", {theme.count(cell['n_reused'])} of them reused"
    lines.append(n)
    lines.append(f"concurrency {theme.escape(cell['concurrency'] or 'not told')}")
    return "<br>".join(lines)
