"""Which memory did it: what changes when each memory of an answer is left out."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing, Part

#: Better, worse, other: told apart by side of the axis too.
_RAISED, _LOWERED, _CHANGED = theme.PALETTE[0], theme.PALETTE[5], theme.PALETTE[3]
_PANELS = (
    ("score_change", "Change in score", "score without it − score with it (0 to 1)"),
    ("response_change", "Change in response", "1 − cosine of the two responses"),
)


def ablation_bars(frame: pd.DataFrame, mark: str = "", title: str = "Each memory left out in turn") -> go.Figure:
    """Two panels of bars, a row a memory: the change in score above, the change in response below.

    `frame` is `opbench.cases.telling.ablation_table`. What isn't known has no bar and says so; the control (nothing
    left out, drawn again) is hatched grey. No text of a memory is in it: a figure may be passed on.
    """
    names = [theme.escape(name) for name in frame["left_out"]]
    head: Part = {"font": {"size": 13}, "x": 0.0, "xanchor": "left"}
    drawing = Drawing([panel[1] for panel in _PANELS], rows=2, spacing=0.2, head=head)
    for row, (column, _, axis) in enumerate(_PANELS, 1):
        values = [None if pd.isna(value) else float(value) for value in frame[column]]
        drawing.add(
            "bar",
            row,
            y=names,
            x=values,
            orientation="h",
            marker={
                "color": [_colour(column, *each) for each in zip(frame["number"], values, strict=True)],
                "pattern": {"shape": ["" if number else "/" for number in frame["number"]]},
            },
            text=[_text(column, value) for value in values],
            textposition="outside",
            cliponaxis=False,
            customdata=[_hover(cell) for cell in frame.to_dict("records")],
            hovertemplate="<b>without %{y}</b><br>%{customdata}<extra></extra>",
            showlegend=False,
        )
        for name, value in zip(names, values, strict=True):
            if value is None:
                drawing.note(row, x=0, y=name, text=theme.MISSING, xanchor="left", xshift=4, font={"size": 11})
        reach = max((abs(value) for value in values if value is not None), default=0.0)
        drawing.x(row, title=axis, range=_range(column, values, reach))
        drawing.y(row, autorange="reversed", type="category", tickfont={"size": 12})
    height = 190 + 2 * 30 * max(len(frame), 2)
    return drawing.figure(title, mark, height=height, legend=False)


def _range(column: str, values: list[float | None], reach: float) -> list[float]:
    """Room for the numbers behind the bars; never so close that a change of nothing fills the panel."""
    room = 1.35 * max(reach, 0.2)
    below = any(value is not None and value < 0 for value in values)
    return [-room if below and column == "score_change" else -0.02 * room, room]


def _colour(column: str, number: int, value: float | None) -> str:
    if not number:
        return theme.GREY
    if column == "response_change":
        return _CHANGED
    return _LOWERED if value is not None and value < 0 else _RAISED


def _text(column: str, value: float | None) -> str:
    if value is None:
        return ""
    if column == "response_change":
        return f"{value:.2f}"
    return "0.00" if round(value, 2) == 0 else f"{value:+.2f}".replace("-", "−")


def _hover(cell: dict[Any, Any]) -> str:
    said = [
        f"score with it: {_number(cell['score_with'])}, without: {_number(cell['score_without'])}",
        f"cosine of the responses: {_number(cell['similarity'])}",
        "the same text" if cell["same"] else "",
        f"not compared: {theme.escape(cell['missing'])}" if cell["missing"] else "",
        "n = 1 answer without, 1 with",
    ]
    return "<br>".join(part for part in said if part)


def _number(value: float) -> str:
    return theme.MISSING if pd.isna(value) else f"{value:.2f}"
