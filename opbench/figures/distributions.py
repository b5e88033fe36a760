"""How times are spread, from percentiles alone: boxes, or the share of records that were ready by then."""

from __future__ import annotations

import math
import re

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing, Part
from opbench.figures.latency import (
    COLOURS,
    STAGES,
    Cell,
    bar_height,
    configurations,
    counted,
    legend_below,
    row_names,
)

#: From this ratio of the longest to the shortest time drawn, the axis is logarithmic.
LONG_TAIL = 30.0
_PERCENTILE = re.compile(r"p(\d+)_ms")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def spread_boxes(frame: pd.DataFrame, stage: str, mark: str = "", title: str = "") -> go.Figure:
    """A box a configuration for one stage of `opbench.analysis.latency.spread`, in seconds.

    Box: quartiles and median; whiskers: 5th and 95th percentile; diamond: mean; circle: the longest. The axis is
    logarithmic where the longest is more than `LONG_TAIL` times the shortest. A stage that never happened has no box.
    """
    part = frame[frame["stage"] == stage]
    rows = configurations(part)
    names = row_names(rows)
    cells: list[Cell] = part.to_dict("records")
    happened = [(name, cell) for name, cell in zip(names, cells, strict=True) if cell["n"]]
    y = [name for name, _ in happened]
    seconds = {
        column: [float(cell[column]) / 1000.0 for _, cell in happened]
        for column in ("p0_ms", "p5_ms", "p25_ms", "p50_ms", "p75_ms", "p95_ms", "p100_ms", "mean_ms")
    }
    hover: Part = {
        "customdata": [_hover(cell) for _, cell in happened],
        "hovertemplate": "<b>%{y}</b><br>%{customdata}<extra></extra>",
    }
    drawing = Drawing()
    drawing.add(
        "box",
        y=y,
        lowerfence=seconds["p5_ms"],
        q1=seconds["p25_ms"],
        median=seconds["p50_ms"],
        q3=seconds["p75_ms"],
        upperfence=seconds["p95_ms"],
        orientation="h",
        marker={"color": COLOURS[stage]},
        line={"width": 1.5},
        hoverinfo="skip",
        showlegend=False,
    )
    looks: tuple[tuple[str, str, Part], ...] = (
        ("p50_ms", "median", {"opacity": 0, "showlegend": False}),
        ("mean_ms", "mean", {"marker": _diamond(stage)}),
        ("p100_ms", "longest", {"marker": {"symbol": "circle-open", "color": theme.GREY}}),
    )
    for column, name, look in looks:
        drawing.add("scatter", y=y, x=seconds[column], mode="markers", name=name, **look, **hover)
    for missing in (name for name, cell in zip(names, cells, strict=True) if not cell["n"]):
        drawing.note(x=0.01, xref="paper", xanchor="left", y=missing, text="didn't happen", opacity=0.7)
    _time_axis(drawing, min(seconds["p5_ms"], default=0.0), max(seconds["p100_ms"], default=0.0))
    drawing.y(
        type="category",
        categoryorder="array",
        categoryarray=names[::-1],
        range=[-0.6, len(names) - 0.4],
        showgrid=False,
    )
    height = bar_height(rows)
    return drawing.figure(title or f"Spread: {_head(stage)}", mark, height=height, legend=legend_below(height))


def spread_curves(frame: pd.DataFrame, stage: str, mark: str = "", title: str = "") -> go.Figure:
    """For one stage of `spread`: the share of a configuration's records (percent) that took at most so many seconds.

    Colour tells the post-processor, dashes the memory system (and model).
    """
    part = frame[frame["stage"] == stage]
    rows = configurations(part)
    colours = theme.palette(list(dict.fromkeys(row[2] for row in rows)))
    kinds = list(dict.fromkeys((row[0], row[1]) for row in rows))
    percentiles = {name: int(match[1]) for name in part if (match := _PERCENTILE.fullmatch(str(name)))}
    drawing = Drawing()
    shortest, longest = [], []
    cells: list[Cell] = part.to_dict("records")
    for row, name, cell in zip(rows, row_names(rows), cells, strict=True):
        if not cell["n"]:
            continue
        seconds = [float(cell[column]) / 1000.0 for column in percentiles]
        shortest.append(seconds[0])
        longest.append(seconds[-1])
        label = name.replace("<br>", " · ")
        drawing.add(
            "scatter",
            x=seconds,
            y=list(percentiles.values()),
            mode="lines",
            name=label,
            line={"color": colours[row[2]], "dash": _DASHES[kinds.index((row[0], row[1])) % len(_DASHES)]},
            customdata=[theme.milliseconds(1000.0 * value) for value in seconds],
            hovertemplate=f"<b>{label}</b><br>%{{y}} % took at most %{{customdata}}<br>"
            f"{'<br>'.join(counted(cell))}<extra></extra>",
        )
    _time_axis(drawing, min(shortest, default=0.0), max(longest, default=0.0))
    drawing.y(title="records, %", range=[0, 101])
    height = 440 + 12 * len(rows)
    return drawing.figure(title or f"Ready by then: {_head(stage)}", mark, height=height, legend=legend_below(height))


def _diamond(stage: str) -> Part:
    return {"symbol": "diamond", "size": 9, "color": COLOURS[stage], "line": {"color": "#ffffff", "width": 1.5}}


def _time_axis(drawing: Drawing, shortest: float, longest: float) -> None:
    if shortest > 0 and longest > LONG_TAIL * shortest:
        ticks = _decimal_ticks(shortest, longest)
        names = [f"{tick:g}" for tick in ticks]
        drawing.x(title="seconds, logarithmic", type="log", rangemode="normal", tickvals=ticks, ticktext=names)
    else:
        drawing.x(title="seconds", rangemode="tozero")


def _decimal_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around low to high, with 2 and 5 between them where that isn't crowded on a phone."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first < 4 else (1,)
    return [digit * 10.0**power for power in range(first, last + 1) for digit in digits]


def _head(stage: str) -> str:
    return STAGES.get(stage, stage)


def _hover(cell: Cell) -> str:
    def of(column: str) -> str:
        return theme.milliseconds(cell[column])

    lines = [
        f"median {of('p50_ms')}, mean {of('mean_ms')}",
        f"half of them {of('p25_ms')} to {of('p75_ms')}",
        f"90 of 100 {of('p5_ms')} to {of('p95_ms')}",
        f"longest {of('p100_ms')}",
    ]
    return "<br>".join([*lines, *counted(cell)])
