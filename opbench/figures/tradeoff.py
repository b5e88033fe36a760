"""The trade-off heatmap (the paper's figure 6): memory systems × post-processors, OP-Bench over LoCoMo."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from opbench.figures import theme

PANELS = (("op", "OP-Bench change"), ("locomo", "LoCoMo change"))


def tradeoff_heatmap(frame: pd.DataFrame, unit: str, mark: str = "", title: str = "Trade-off") -> go.Figure:
    """Two heatmaps, one over the other, from `opbench.analysis.tradeoff.tradeoff` (or the published one).

    Rows are memory systems (with the model when there are several), columns post-processors, both in the frame's
    order; colours are centred on zero and shared by both panels. `unit` names the changes' unit, `mark` where the
    figures come from. A missing cell is empty, says `n/a` and, on hover, why.
    """
    several = frame["model"].nunique() > 1
    rows = list(dict.fromkeys(zip(frame["model"], frame["memory"], strict=True)))
    columns = list(dict.fromkeys(frame["mitigation"]))
    cells = {(row["model"], row["memory"], row["mitigation"]): row for row in frame.to_dict("records")}
    y = [
        f"{theme.label(memory)}<br>{theme.escape(model)}" if several else theme.label(memory) for model, memory in rows
    ]
    x = [theme.label(name) for name in columns]
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.12,
        subplot_titles=[f"{name} ({theme.escape(unit)})" for _, name in PANELS],
    )
    for place, (benchmark, name) in enumerate(PANELS, start=1):
        found = [[cells.get((*row, column)) for column in columns] for row in rows]
        z = [[_value(cell, f"{benchmark}_change") for cell in line] for line in found]
        figure.add_trace(
            go.Heatmap(
                z=z,
                x=x,
                y=y,
                text=[[theme.change(_number(value)) for value in line] for line in z],
                texttemplate="%{text}",
                textfont={"color": theme.CELL_TEXT},
                customdata=[[_hover(cell, benchmark, unit) for cell in line] for line in found],
                hovertemplate=f"<b>%{{y}} · %{{x}}</b><br>{name}: %{{customdata}}<extra></extra>",
                hoverongaps=True,
                coloraxis="coloraxis",
                xgap=2,
                ygap=2,
                name=name,
            ),
            row=place,
            col=1,
        )
        for at_y, line in zip(y, z, strict=True):
            for at_x, value in zip(x, line, strict=True):
                if value is None:
                    figure.add_annotation(
                        x=at_x, y=at_y, text=theme.MISSING, showarrow=False, opacity=0.6, row=place, col=1
                    )
    reach = max(frame[["op_change", "locomo_change"]].abs().max().max(), 1.0) if len(frame) else 1.0
    reach = 1.0 if pd.isna(reach) else float(reach)
    cells_height = 2 * 46 * max(len(rows), 2)
    theme.finish(figure, title, mark, height=210 + cells_height, legend=False)
    bar = {
        "orientation": "h",
        "thickness": 10,
        "x": 0.5,
        "y": -70 / cells_height,
        "yanchor": "top",
        "len": 0.9,
        "title": {"text": f"worse ← {theme.escape(unit)} → better", "side": "top", "font": {"size": 11}},
    }
    figure.update_layout(
        coloraxis={"colorscale": theme.DIVERGING, "cmin": -reach, "cmax": reach, "cmid": 0, "colorbar": bar}
    )
    figure.update_xaxes(tickangle=-35, showgrid=False, type="category")
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_annotations(font_size=12)
    return figure


def _value(cell: dict[Any, Any] | None, column: str) -> float | None:
    """The number of a cell, None when it is missing: never 0."""
    if cell is None or pd.isna(cell[column]):
        return None
    return float(cell[column])


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _hover(cell: dict[Any, Any] | None, benchmark: str, unit: str) -> str:
    if cell is None:
        return f"{theme.MISSING}<br>not in the study"
    value = _value(cell, f"{benchmark}_change")
    text = theme.change(_number(value)) + ("" if value is None else f" ({theme.escape(unit)})")
    lines = [text, f"n = {theme.scored(cell[f'{benchmark}_n'], cell[f'{benchmark}_n_planned'])}"]
    if benchmark == "locomo":
        lines.append(f"metric: {theme.escape(cell['locomo_metric'])}")
    note = cell[f"{benchmark}_note"]
    if note:
        lines.append(theme.escape(note))
    return "<br>".join(lines)
