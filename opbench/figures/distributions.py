"""How times are spread, from percentiles alone: boxes, or the share of records that were ready by then."""

from __future__ import annotations

import math
import re

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
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
    hover = {
        "customdata": [_hover(cell) for _, cell in happened],
        "hovertemplate": "<b>%{y}</b><br>%{customdata}<extra></extra>",
    }
    figure = go.Figure(
        [
            go.Box(
                y=y,
                lowerfence=seconds["p5_ms"],
                q1=seconds["p25_ms"],
                median=seconds["p50_ms"],
                q3=seconds["p75_ms"],
                upperfence=seconds["p95_ms"],
                orientation="h",
                marker_color=COLOURS[stage],
                line_width=1.5,
                hoverinfo="skip",
                showlegend=False,
            ),
            _marks(y, seconds["p50_ms"], "median", opacity=0, showlegend=False, **hover),
            _marks(y, seconds["mean_ms"], "mean", marker=_diamond(stage), **hover),
            _marks(
                y,
                seconds["p100_ms"],
                "longest",
                marker={"symbol": "circle-open", "color": theme.GREY},
                **hover,
            ),
        ]
    )
    for missing in (name for name, cell in zip(names, cells, strict=True) if not cell["n"]):
        figure.add_annotation(
            x=0.01, xref="paper", xanchor="left", y=missing, text="didn't happen", showarrow=False, opacity=0.7
        )
    theme.finish(figure, title or f"Spread: {_head(stage)}", mark, height=bar_height(rows))
    _time_axis(figure, min(seconds["p5_ms"], default=0.0), max(seconds["p100_ms"], default=0.0))
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=names[::-1],
        range=[-0.6, len(names) - 0.4],
        showgrid=False,
    )
    legend_below(figure)
    return figure


def spread_curves(frame: pd.DataFrame, stage: str, mark: str = "", title: str = "") -> go.Figure:
    """For one stage of `spread`: the share of a configuration's records (percent) that took at most so many seconds.

    Colour tells the post-processor, dashes the memory system (and model).
    """
    part = frame[frame["stage"] == stage]
    rows = configurations(part)
    colours = theme.palette(list(dict.fromkeys(row[2] for row in rows)))
    kinds = list(dict.fromkeys((row[0], row[1]) for row in rows))
    percentiles = {name: int(match[1]) for name in part if (match := _PERCENTILE.fullmatch(str(name)))}
    figure = go.Figure()
    shortest, longest = [], []
    cells: list[Cell] = part.to_dict("records")
    for row, name, cell in zip(rows, row_names(rows), cells, strict=True):
        if not cell["n"]:
            continue
        seconds = [float(cell[column]) / 1000.0 for column in percentiles]
        shortest.append(seconds[0])
        longest.append(seconds[-1])
        label = name.replace("<br>", " · ")
        figure.add_trace(
            go.Scatter(
                x=seconds,
                y=list(percentiles.values()),
                mode="lines",
                name=label,
                line={"color": colours[row[2]], "dash": _DASHES[kinds.index((row[0], row[1])) % len(_DASHES)]},
                customdata=[theme.milliseconds(1000.0 * value) for value in seconds],
                hovertemplate=f"<b>{label}</b><br>%{{y}} % took at most %{{customdata}}<br>"
                f"{'<br>'.join(counted(cell))}<extra></extra>",
            )
        )
    theme.finish(figure, title or f"Ready by then: {_head(stage)}", mark, height=440 + 12 * len(rows))
    _time_axis(figure, min(shortest, default=0.0), max(longest, default=0.0))
    figure.update_yaxes(title_text="records, %", title_font_size=12, range=[0, 101])
    legend_below(figure)
    return figure


def _marks(y: list[str], x: list[float], name: str, **more: object) -> go.Scatter:
    return go.Scatter(y=y, x=x, mode="markers", name=name, **more)


def _diamond(stage: str) -> dict[str, object]:
    return {"symbol": "diamond", "size": 9, "color": COLOURS[stage], "line": {"color": "#ffffff", "width": 1.5}}


def _time_axis(figure: go.Figure, shortest: float, longest: float) -> None:
    figure.update_xaxes(title_text="seconds", title_font_size=12, rangemode="tozero")
    if shortest > 0 and longest > LONG_TAIL * shortest:
        ticks = _decimal_ticks(shortest, longest)
        figure.update_xaxes(
            type="log",
            title_text="seconds, logarithmic",
            rangemode="normal",
            tickvals=ticks,
            ticktext=[f"{tick:g}" for tick in ticks],
        )


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
