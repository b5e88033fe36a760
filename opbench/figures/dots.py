"""Dots with their intervals, one row each: what means, areas, odds and changes are drawn as."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opbench.figures import theme
from opbench.figures.drawing import Drawing


@dataclass(frozen=True, slots=True)
class Dot:
    """A number in a row; `low` and `high` NaN: no interval, and the dot is hollow. Names and hover are escaped."""

    name: str
    value: float
    low: float
    high: float
    hover: str
    colour: str = theme.PALETTE[0]
    group: str = ""
    """Dots of one group are in the legend together."""
    symbol: str = "circle"


ROW = 26
"""Pixels that a row needs."""


def add_dots(drawing: Drawing, dots: Sequence[Dot], row: int = 1, *, legend: bool = True) -> None:
    """Draw dots, the first at the top; several of one name share its row. One without a value has words instead."""
    groups = list(dict.fromkeys((dot.group, dot.colour, dot.symbol) for dot in dots))
    for group, colour, symbol in groups:
        mine = [dot for dot in dots if (dot.group, dot.colour, dot.symbol) == (group, colour, symbol)]
        known = [dot for dot in mine if not math.isnan(dot.value)]
        told = [not math.isnan(dot.low) for dot in known]
        drawing.add(
            "scatter",
            row,
            x=[dot.value for dot in known],
            y=[dot.name for dot in known],
            mode="markers",
            name=group,
            legendgroup=group,
            showlegend=legend and bool(group),
            marker={
                "size": 10,
                "color": [colour if there else "rgba(0,0,0,0)" for there in told],
                "symbol": symbol,
                "line": {"width": 2, "color": colour},
            },
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [dot.high - dot.value if there else 0.0 for dot, there in zip(known, told, strict=True)],
                "arrayminus": [dot.value - dot.low if there else 0.0 for dot, there in zip(known, told, strict=True)],
                "color": colour,
                "thickness": 1.5,
                "width": 4,
            },
            customdata=[dot.hover for dot in known],
            hovertemplate="%{customdata}<extra></extra>",
        )
        for dot in mine:
            if math.isnan(dot.value):
                drawing.note(
                    row, x=0.01, xref="paper", xanchor="left", y=dot.name, text=theme.MISSING, hovertext=dot.hover
                )
    names = list(dict.fromkeys(dot.name for dot in dots))
    look: dict[str, Any] = {"type": "category", "categoryorder": "array", "categoryarray": names[::-1]}
    drawing.y(row, **look, range=[-0.6, max(len(names), 1) - 0.4], showgrid=False)


def cosine(value: float) -> str:
    """A cosine or an area, e.g. `0.31`."""
    return theme.MISSING if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def between(low: float, high: float, reason: str = "") -> str:
    """`0.28 to 0.34 (95 %)`, or why there is no interval."""
    if math.isnan(low):
        return f"no interval: {reason}" if reason else "no interval"
    return f"{cosine(low)} to {cosine(high)} (95 %)"
