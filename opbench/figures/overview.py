"""OP-Bench by model and memory system, with each system's drop below BASE (the paper's table 2 as a figure)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing

#: Each memory system's colour, dash and marker, in this order; told apart without colour as well.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
#: Where what is written about each bar begins, in points.
_COLUMN = 102
_KNOWN = ("base", "rag", "mem0", "memu", "memos", "rag-observations")


def styles(memories: list[str]) -> dict[str, dict[str, str]]:
    """Colour, dash and symbol of each memory system: known ones always the same, BASE grey."""
    order = [*_KNOWN, *(memory for memory in memories if memory not in _KNOWN)]
    found = {}
    for place, memory in enumerate(order):
        colour = theme.GREY if memory == "base" else theme.PALETTE[(place - 1) % len(theme.PALETTE)]
        found[memory] = {
            "color": colour,
            "dash": DASHES[place % len(DASHES)],
            "symbol": SYMBOLS[place % len(SYMBOLS)],
        }
    return {memory: found[memory] for memory in memories}


def op_by_memory(frame: pd.DataFrame, mark: str = "", title: str = "OP-Bench average") -> go.Figure:
    """A panel a model, a bar a memory system, 0 to 100 points, with score and drop below BASE written beside it.

    `frame` has `opbench.analysis.overview.STUDY_COLUMNS`. A row without an average has no bar and says `n/a`.
    """
    models = list(dict.fromkeys(frame["model"])) or [""]
    memories = list(dict.fromkeys(frame["memory"]))
    look = styles(memories)
    counts = [int((frame["model"] == model).sum()) or 1 for model in models]
    heads = [f"<b>{theme.escape(model)}</b>" for model in models]
    height = 100 + sum(26 * count + 34 for count in counts)
    drawing = Drawing(
        heads,
        rows=len(models),
        heights=counts,
        spacing=34 / height,
        shared_x=True,
        head={"x": 0, "xanchor": "left", "font": {"size": 13}},
    )
    for row, model in enumerate(models, start=1):
        cells: list[dict[Any, Any]] = frame[frame["model"] == model].to_dict("records")
        known = [not pd.isna(cell["op"]) for cell in cells]
        names = [theme.label(str(cell["memory"])) for cell in cells]
        drawing.add(
            "bar",
            row,
            x=[float(cell["op"]) if there else 0.0 for cell, there in zip(cells, known, strict=True)],
            y=names,
            orientation="h",
            marker={"color": [look[cell["memory"]]["color"] for cell in cells]},
            customdata=[_hover(cell) for cell in cells],
            hovertemplate=f"<b>{theme.escape(model)} · %{{y}}</b><br>%{{customdata}}<extra></extra>",
            showlegend=False,
        )
        # In a column of their own: at the bars' ends they would cross the line of BASE.
        drawing.add(
            "scatter",
            row,
            x=[_COLUMN] * len(cells),
            y=names,
            mode="text",
            text=[_written(cell) for cell in cells],
            textposition="middle right",
            cliponaxis=False,
            hoverinfo="skip",
            showlegend=False,
        )
        base = [
            float(cell["op"]) for cell, there in zip(cells, known, strict=True) if there and cell["memory"] == "base"
        ]
        if base:
            drawing.upright(base[0], {"color": theme.GREY, "dash": "dash", "width": 1.5}, row)
    drawing.x(range=[0, _COLUMN + 42], tickvals=[0, 25, 50, 75, 100])
    drawing.x(len(models), title="points, higher is less over-personalised")
    drawing.y(autorange="reversed", type="category", showgrid=False)
    return drawing.figure(title, mark, height=height, legend=False)


def _written(cell: dict[Any, Any]) -> str:
    score = theme.points(cell["op"])
    if cell["memory"] == "base" or pd.isna(cell["drop"]) or pd.isna(cell["op"]):
        return score
    return f"{score}  {theme.change(-cell['drop'])} %"


def _hover(cell: dict[Any, Any]) -> str:
    lines = [f"{theme.points(cell['op'])} points, n = {theme.scored(cell['n_scored'], cell['n_planned'])}"]
    if cell["missing"]:
        lines.append(theme.escape(cell["missing"]))
    if cell["memory"] != "base":
        drop = theme.MISSING if pd.isna(cell["drop"]) else f"{theme.change(-cell['drop'])} %"
        lines.append(f"against BASE: {drop}" + (f" ({theme.escape(cell['drop_note'])})" if cell["drop_note"] else ""))
    lines.append(f"rule: {theme.escape(cell['rule'])}")
    return "<br>".join(lines)
