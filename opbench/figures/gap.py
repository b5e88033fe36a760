"""The oracle gap (the paper's figure 7): how near each post-processor brings a memory system to BASE."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from opbench.figures import theme

ORACLE = "oracle (BASE)"
BAR_GAP = 0.2


def oracle_gap(frame: pd.DataFrame, mark: str = "", title: str = "Oracle gap") -> go.Figure:
    """Bars by memory system, one a post-processor, with BASE of the model as a line; one panel a model.

    `frame` has model, memory, mitigation, op (points), gap_closed (share), gap_n, gap_reason, n_scored, n_planned:
    `opbench.analysis.op.op_table`, or `opbench.analysis.published.oracle_gap`. A row without an average has no bar,
    and says so on hover of `n/a`.
    """
    models = list(dict.fromkeys(frame["model"])) or [""]
    heads = [theme.escape(model) for model in models] if len(models) > 1 else None
    figure = make_subplots(rows=len(models), cols=1, shared_xaxes=True, vertical_spacing=0.1, subplot_titles=heads)
    systems = frame[frame["memory"] != "base"]
    memories = list(dict.fromkeys(systems["memory"]))
    mitigations = list(dict.fromkeys(systems["mitigation"]))
    colours = theme.palette(mitigations)
    for row, model in enumerate(models, start=1):
        of_model = systems[systems["model"] == model]
        for group, mitigation in enumerate(mitigations):
            cells = {cell["memory"]: cell for cell in of_model[of_model["mitigation"] == mitigation].to_dict("records")}
            found = [cells.get(memory) for memory in memories]
            figure.add_trace(
                go.Bar(
                    x=[theme.label(memory) for memory in memories],
                    y=[None if cell is None or pd.isna(cell["op"]) else float(cell["op"]) for cell in found],
                    name=theme.label(mitigation),
                    legendgroup=mitigation,
                    showlegend=row == 1,
                    marker_color=colours[mitigation],
                    customdata=[_hover(cell) for cell in found],
                    hovertemplate="<b>%{x} · %{fullData.name}</b><br>%{customdata}<extra></extra>",
                ),
                row=row,
                col=1,
            )
            for place, cell in enumerate(found):
                if cell is not None and pd.isna(cell["op"]):
                    # A category axis counts its categories from 0; the bars of a group share 1 − bargap.
                    offset = (group - (len(mitigations) - 1) / 2) * (1 - BAR_GAP) / len(mitigations)
                    figure.add_annotation(
                        x=place + offset,
                        y=0,
                        yanchor="bottom",
                        text=theme.MISSING,
                        hovertext=f"{theme.label(mitigation)}: {theme.escape(cell.get('missing', ''))}",
                        textangle=-90,
                        showarrow=False,
                        row=row,
                        col=1,
                    )
        _add_oracle(figure, frame[(frame["model"] == model) & (frame["memory"] == "base")], memories, row)
    theme.finish(figure, title, mark, height=90 + 320 * len(models))
    figure.update_layout(barmode="group", bargap=BAR_GAP, bargroupgap=0.05)
    figure.update_yaxes(title_text="OP-Bench, points", range=[0, 100], title_font_size=12)
    return figure


def _add_oracle(figure: go.Figure, base: pd.DataFrame, memories: list[str], row: int) -> None:
    """A line across the panel at BASE's average, with a marker over each memory system to hover at."""
    known = base[base["op"].notna()]
    if known.empty:
        return
    cell: dict[Any, Any] = known.to_dict("records")[0]
    level = float(cell["op"])
    figure.add_hline(y=level, line={"color": theme.GREY, "dash": "dash", "width": 2}, row=row, col=1)
    text = f"{theme.points(level)} points<br>n = {theme.scored(cell['n_scored'], cell['n_planned'])}"
    figure.add_trace(
        go.Scatter(
            x=[theme.label(memory) for memory in memories],
            y=[level] * len(memories),
            mode="markers",
            name=ORACLE,
            legendgroup=ORACLE,
            showlegend=row == 1,
            marker={"symbol": "line-ew", "size": 16, "line": {"width": 3, "color": theme.GREY}},
            hovertemplate=f"<b>{ORACLE}</b><br>{text}<extra></extra>",
        ),
        row=row,
        col=1,
    )


def _hover(cell: dict[Any, Any] | None) -> str:
    if cell is None:
        return f"{theme.MISSING}: not in the study"
    lines = [
        f"{theme.points(cell['op'])} points, n = {theme.scored(cell['n_scored'], cell['n_planned'])}",
    ]
    if cell["gap_reason"] != "reference":
        closed = theme.share(cell["gap_closed"])
        lines.append(f"gap closed: {closed}, paired n = {theme.count(cell['gap_n'])}")
        if cell["gap_reason"]:
            lines.append(theme.escape(cell["gap_reason"]))
    return "<br>".join(lines)
