"""The trade-off heatmap (the paper's figure 6): memory systems × post-processors, OP-Bench over LoCoMo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing
from opbench.types import Benchmark

PANELS: dict[Benchmark, str] = {"op": "OP-Bench change", "locomo": "LoCoMo change"}
#: In a cell whose change isn't distinguishable from none.
LIKE_NONE = "≈ 0"


def tradeoff_heatmap(
    frame: pd.DataFrame,
    unit: str,
    mark: str = "",
    title: str = "Trade-off",
    benchmarks: Sequence[Benchmark] = ("op", "locomo"),
) -> go.Figure:
    """A heatmap for each of `benchmarks`, one over the other, from `opbench.analysis.tradeoff.tradeoff` (or the
    published one).

    Rows are memory systems (with the model when there are several), columns post-processors, both in the frame's
    order; colours are centred on zero and shared by the panels. `unit` names the changes' unit, `mark` where the
    figures come from. A missing cell is empty, says `n/a` and, on hover, why; `≈ 0` marks a change that isn't
    distinguishable from none.
    """
    several = frame["model"].nunique() > 1
    rows = list(dict.fromkeys(zip(frame["model"], frame["memory"], strict=True)))
    columns = list(dict.fromkeys(frame["mitigation"]))
    cells = {(row["model"], row["memory"], row["mitigation"]): row for row in frame.to_dict("records")}
    y = [
        f"{theme.label(memory)}<br>{theme.escape(model)}" if several else theme.label(memory) for model, memory in rows
    ]
    x = [theme.label(name) for name in columns]
    drawing = Drawing(
        [f"{PANELS[each]} ({theme.escape(unit)})" for each in benchmarks],
        rows=len(benchmarks),
        spacing=0.12,
        shared_x=True,
        head={"font": {"size": 12}},
    )
    for place, benchmark in enumerate(benchmarks, start=1):
        name = PANELS[benchmark]
        found = [[cells.get((*row, column)) for column in columns] for row in rows]
        z = [[_value(cell, f"{benchmark}_change") for cell in line] for line in found]
        drawing.add(
            "heatmap",
            place,
            z=z,
            x=x,
            y=y,
            text=[[_text(cell, benchmark) for cell in line] for line in found],
            texttemplate="%{text}",
            textfont={"color": theme.CELL_TEXT},
            customdata=[[hover(cell, benchmark, unit) for cell in line] for line in found],
            hovertemplate=f"<b>%{{y}} · %{{x}}</b><br>{name}: %{{customdata}}<extra></extra>",
            hoverongaps=True,
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
            name=name,
        )
        for at_y, line in zip(y, z, strict=True):
            for at_x, value in zip(x, line, strict=True):
                if value is None:
                    drawing.note(place, x=at_x, y=at_y, text=theme.MISSING, opacity=0.6, font={"size": 12})
    reach = max(frame[[f"{each}_change" for each in benchmarks]].abs().max().max(), 1.0) if len(frame) else 1.0
    reach = 1.0 if pd.isna(reach) else float(reach)
    cells_height = len(benchmarks) * 46 * max(len(rows), 2)
    bar = {
        "orientation": "h",
        "thickness": 10,
        "x": 0.5,
        "y": -70 / cells_height,
        "yanchor": "top",
        "len": 0.9,
        "title": {"text": f"worse ← {theme.escape(unit)} → better", "side": "top", "font": {"size": 11}},
    }
    drawing.x(tickangle=-35, showgrid=False, type="category")
    drawing.y(autorange="reversed", showgrid=False, type="category")
    return drawing.figure(
        title,
        mark,
        height=210 + cells_height,
        legend=False,
        coloraxis={"colorscale": theme.DIVERGING, "cmin": -reach, "cmax": reach, "cmid": 0, "colorbar": bar},
    )


def hover(cell: dict[Any, Any] | None, benchmark: Benchmark, unit: str) -> str:
    """A change as hover text: number and unit, interval, verdict, n, metric, remark."""
    if cell is None:
        return f"{theme.MISSING}<br>not in the study"
    value = _value(cell, f"{benchmark}_change")
    lines = [theme.change(_number(value)) + ("" if value is None else f" ({theme.escape(unit)})")]
    if not pd.isna(cell[f"{benchmark}_low"]):
        lines.append(f"95 %: {theme.span(cell[f'{benchmark}_low'], cell[f'{benchmark}_high'])}")
    if not pd.isna(cell[f"{benchmark}_p_holm"]):
        p = theme.escape(theme.chance(cell[f"{benchmark}_p_holm"]))
        lines.append(f"{cell[f'{benchmark}_verdict']}, {p} (Holm)")
    if cell[f"{benchmark}_interval_note"]:
        lines.append(theme.escape(f"no interval: {cell[f'{benchmark}_interval_note']}"))
    users = cell[f"{benchmark}_users"]
    of_users = "" if pd.isna(users) or not users else f", {theme.users(users)}"
    lines.append(f"n = {theme.scored(cell[f'{benchmark}_n'], cell[f'{benchmark}_n_planned'])}{of_users}")
    if benchmark == "locomo":
        lines.append(f"metric: {theme.escape(cell['locomo_metric'])}")
    note = cell[f"{benchmark}_note"]
    if note:
        lines.append(theme.escape(note))
    return "<br>".join(lines)


def _text(cell: dict[Any, Any] | None, benchmark: Benchmark) -> str:
    value = theme.change(_number(_value(cell, f"{benchmark}_change")))
    alike = cell is not None and cell[f"{benchmark}_verdict"] == "not distinguishable"
    return f"{value}<br>{LIKE_NONE}" if alike else value


def _value(cell: dict[Any, Any] | None, column: str) -> float | None:
    """The number of a cell, None when it is missing: never 0."""
    if cell is None or pd.isna(cell[column]):
        return None
    return float(cell[column])


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
