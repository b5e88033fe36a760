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
        named = False
        for told in (True, False):
            alike = [dot for dot in known if math.isnan(dot.low) != told]
            if not alike:
                continue
            face: dict[str, Any] = {"color": colour if told else "rgba(0,0,0,0)", "line": {"width": 2, "color": colour}}
            drawing.add(
                "scatter",
                row,
                x=[dot.value for dot in alike],
                y=[dot.name for dot in alike],
                mode="markers",
                name=group,
                legendgroup=group,
                showlegend=legend and bool(group) and not named,
                marker={"size": 10, "symbol": symbol} | face,
                customdata=[dot.hover for dot in alike],
                hovertemplate="%{customdata}<extra></extra>",
                **(_intervals(alike, colour) if told else {}),
            )
            named = True
        for dot in mine:
            if math.isnan(dot.value):
                drawing.note(
                    row, x=0.01, xref="paper", xanchor="left", y=dot.name, text=theme.MISSING, hovertext=dot.hover
                )
    names = list(dict.fromkeys(dot.name for dot in dots))
    look: dict[str, Any] = {"type": "category", "categoryorder": "array", "categoryarray": names[::-1]}
    drawing.y(row, **look, range=[-0.6, max(len(names), 1) - 0.4], showgrid=False)


def _intervals(dots: Sequence[Dot], colour: str) -> dict[str, Any]:
    ends = {"array": [dot.high - dot.value for dot in dots], "arrayminus": [dot.value - dot.low for dot in dots]}
    return {"error_x": {"type": "data", "symmetric": False, "color": colour, "thickness": 1.5, "width": 4, **ends}}


def cosine(value: float) -> str:
    """A cosine or an area, e.g. `0.31`."""
    return theme.MISSING if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def between(low: float, high: float, reason: str = "") -> str:
    """`0.28 to 0.34 (95 %)`, or why there is no interval."""
    if math.isnan(low):
        return f"no interval: {reason}" if reason else "no interval"
    return f"{cosine(low)} to {cosine(high)} (95 %)"
