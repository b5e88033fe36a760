"""Attention on memory and query: ratios by task, layer and head, shares by segment, paired changes as factors.

Ratios stand on logarithmic axes, on which twice and half as much are as far from 1. Frames are those of
`opbench.analysis.attention` and `attention_changes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.analysis.grids import KEY, Key
from opbench.analysis.tradeoff import RANDOM
from opbench.figures import theme
from opbench.figures.drawing import Drawing
from opbench.figures.latency import legend_below
from opbench.store.attention import SEGMENTS
from opbench.study import BASE, NO_MITIGATION

RATIO_AXIS = "attention per token, memory against query (log scale)"
EVEN = "1: a memory token gets as much as a query token"
_EVEN_LINE = {"color": theme.GREY, "dash": "dash", "width": 2}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "triangle-up", "pentagon", "star", "cross")
#: Segments that mean the same in every figure; further ones take the colours that are left.
_SEGMENTS = {"memory": theme.PALETTE[1], "query": theme.PALETTE[0]}
#: Decades to each side of 1 that an axis of ratios shows at least.
_LEAST_REACH = 0.12


def configuration_name(model: str, memory: str, mitigation: str, *, several_models: bool = False) -> str:
    """A configuration in one line, e.g. `RAG + Few-Shot-CoT`, `BASE`; with the model's name where there are several."""
    name = theme.name(memory) if mitigation == NO_MITIGATION else f"{theme.name(memory)} + {theme.name(mitigation)}"
    return f"{name} · {model}" if several_models else name


def ratio_by_task(frame: pd.DataFrame, mark: str = "", title: str = "Attention per token, by task") -> go.Figure:
    """A point for each configuration and subtype, with its interval where there is one.

    `frame` is `attention.ratios` by subtype. Random memories are open and grey. What has no ratio has no point.
    """
    known = frame[frame["value"].notna()]
    keys, subtypes = _keys(known), list(dict.fromkeys(known["subtype"]))
    several = known["model"].nunique() > 1
    drawing = Drawing()
    for place, key in enumerate(keys):
        rows = [row for row in known.to_dict("records") if _key(row) == key]
        offset = 0.6 * ((place + 0.5) / len(keys) - 0.5)
        name = theme.escape(configuration_name(*key, several_models=several))
        drawing.add(
            "scatter",
            x=[row["value"] for row in rows],
            y=[subtypes.index(row["subtype"]) + offset for row in rows],
            mode="markers",
            name=name,
            marker=_marker(key, place),
            error_x=_bars(rows, _colour(key, place)),
            customdata=[_hover(row, f"<b>{name}</b><br>{theme.label(row['subtype'])}") for row in rows],
            hovertemplate="%{customdata}<extra></extra>",
        )
    drawing.upright(1.0, _EVEN_LINE)
    drawing.x(title=RATIO_AXIS, **_log_axis(known))
    ticks: dict[str, Any] = {
        "tickvals": list(range(len(subtypes))),
        "ticktext": [theme.label(each) for each in subtypes],
    }
    drawing.y(range=[len(subtypes) - 0.5, -0.5], zeroline=False, **ticks)
    height = 170 + max(2, len(subtypes)) * (26 + 12 * len(keys))
    return drawing.figure(title, mark, height=height, legend=legend_below(height))


def ratio_by_layer(frame: pd.DataFrame, mark: str = "", title: str = "Attention per token, by layer") -> go.Figure:
    """A line for each configuration over the layers, with a band for its interval. `frame`: `ratios_by_layer`."""
    known = frame[frame["value"].notna()]
    keys = _keys(known)
    several = known["model"].nunique() > 1
    drawing = Drawing()
    for place, key in enumerate(keys):
        rows = [row for row in known.to_dict("records") if _key(row) == key]
        layers, colour = [row["layer"] for row in rows], _colour(key, place)
        name = theme.escape(configuration_name(*key, several_models=several))
        if not any(pd.isna(row["low"]) for row in rows):
            drawing.add(
                "scatter",
                x=[*layers, *reversed(layers)],
                y=[*(row["low"] for row in rows), *(row["high"] for row in reversed(rows))],
                mode="lines",
                line={"width": 0},
                fill="toself",
                fillcolor=_faint(colour),
                legendgroup=name,
                showlegend=False,
                hoverinfo="skip",
            )
        drawing.add(
            "scatter",
            x=layers,
            y=[row["value"] for row in rows],
            mode="lines+markers",
            name=name,
            legendgroup=name,
            line={"color": colour, "dash": _DASHES[place % len(_DASHES)], "width": 2},
            marker={"size": 6, "color": colour},
            customdata=[_hover(row, f"<b>{name}</b><br>layer {row['layer']}") for row in rows],
            hovertemplate="%{customdata}<extra></extra>",
        )
    drawing.level(1.0, _EVEN_LINE)
    drawing.x(title="layer, 1 is the first", zeroline=False)
    drawing.y(title="memory against query, per token", **_log_axis(known))
    return drawing.figure(title, mark, height=440, legend=legend_below(440))


def ratio_by_head(frame: pd.DataFrame, mark: str = "", title: str = "Attention per token, by head") -> go.Figure:
    """Layers (down) by heads (across): violet is more on a memory token, orange more on a query token, both in steps of
    doubling; the same reach to both sides. `frame`: `ratios_by_head`."""
    table = frame.pivot_table(index="layer", columns="head", values="ratio", dropna=False)
    counts = frame.pivot_table(index="layer", columns="head", values="n", dropna=False).to_numpy()
    doublings = np.log2(table.to_numpy(dtype=np.float64))
    known = np.abs(doublings[np.isfinite(doublings)])
    # The outermost heads would wash out all others.
    reach = max(1.0, float(np.ceil(np.quantile(known, 0.98)))) if len(known) else 1.0
    ticks = np.linspace(-reach, reach, 5)
    drawing = Drawing()
    drawing.add(
        "heatmap",
        x=[str(head) for head in table.columns],
        y=[str(layer) for layer in table.index],
        z=[[float(each) if np.isfinite(each) else None for each in row] for row in doublings],
        colorscale=theme.DIVERGING,
        zmin=-reach,
        zmax=reach,
        xgap=1,
        ygap=1,
        customdata=[
            [f"{times(value)}<br>n = {theme.count(n)}" for value, n in zip(values, of, strict=True)]
            for values, of in zip(table.to_numpy(), counts, strict=True)
        ],
        hovertemplate="layer %{y}, head %{x}<br>%{customdata}<extra></extra>",
        colorbar={
            "title": {"text": "memory against<br>query, per token", "side": "top"},
            "tickvals": ticks.tolist(),
            "ticktext": [times(float(2.0**tick)) for tick in ticks],
            "orientation": "h",
            "y": -0.16,
            "yanchor": "top",
            "thickness": 12,
        },
    )
    drawing.x(title="head", type="category", showgrid=False)
    drawing.y(title="layer, 1 is the first", type="category", autorange="reversed", showgrid=False)
    return drawing.figure(title, mark, height=230 + 15 * max(8, len(table)), legend=False)


def segment_shares(
    frame: pd.DataFrame, mark: str = "", title: str = "Where the attention goes", unit: str = "share of attention"
) -> go.Figure:
    """One bar a configuration, stacked by segment in the prompt's order. `frame`: `attention.shares`; BASE has no
    memory to show."""
    keys = _keys(frame)
    segments = sorted(dict.fromkeys(frame["segment"]), key=lambda each: [*SEGMENTS, each].index(each))
    several = frame["model"].nunique() > 1
    cells = {(*_key(row), row["segment"]): row for row in frame.to_dict("records")}
    spare = iter([colour for colour in (*theme.PALETTE[2:], theme.GREY) if colour not in _SEGMENTS.values()])
    colours = {segment: _SEGMENTS.get(segment) or next(spare, theme.GREY) for segment in segments}
    names = [theme.escape(configuration_name(*key, several_models=several)).replace(" + ", "<br>+ ") for key in keys]
    drawing = Drawing()
    for segment in segments:
        found = [cells.get((*key, segment)) for key in keys]
        drawing.add(
            "bar",
            y=names,
            x=[None if cell is None else 100 * cell["value"] for cell in found],
            orientation="h",
            name=theme.escape(segment),
            marker={"color": colours[segment], "line": {"color": theme.GREY, "width": 0.5}},
            customdata=["" if cell is None else _share_hover(cell) for cell in found],
            hovertemplate=f"<b>%{{y}}</b><br>{theme.escape(segment)}: %{{customdata}}<extra></extra>",
        )
    drawing.x(title=unit, ticksuffix=" %", rangemode="tozero")
    drawing.y(autorange="reversed", type="category", showgrid=False)
    height = 170 + 46 * max(2, len(keys))
    legend = legend_below(height) | {"traceorder": "normal"}
    return drawing.figure(title, mark, height=height, legend=legend, barmode="stack", bargap=0.3)


def change_factors(frame: pd.DataFrame, mark: str = "", title: str = "Changes, as factors") -> go.Figure:
    """Paired changes that are factors, with their intervals: 1 is no change; hollow: no interval.

    `frame` is `attention_changes.changes`; its differences of shares stand in the table alone.
    """
    rows = [row for row in frame.to_dict("records") if row["factor"] and not pd.isna(row["value"])]
    several = frame["model"].nunique() > 1
    drawing = Drawing()
    names = [change_name(row, several_models=several) for row in rows]
    drawing.add(
        "scatter",
        x=[row["value"] for row in rows],
        y=list(range(len(rows))),
        mode="markers",
        marker={
            "size": 11,
            "color": theme.PALETTE[0],
            "symbol": ["circle-open" if pd.isna(row["low"]) else "circle" for row in rows],
        },
        error_x=_bars(rows, theme.PALETTE[0]),
        customdata=[_hover(row, f"<b>{theme.escape(name)}</b>") for row, name in zip(rows, names, strict=True)],
        hovertemplate="%{customdata}<extra></extra>",
    )
    drawing.upright(1.0, _EVEN_LINE)
    drawing.x(title="factor, 1 is no change (log scale)", **_log_axis(pd.DataFrame(rows, columns=frame.columns)))
    words = [theme.escape(name).replace(": ", ":<br>", 1) for name in names]
    ticks: dict[str, Any] = {"tickvals": list(range(len(rows))), "ticktext": words}
    drawing.y(range=[max(len(rows), 2) - 0.5, -0.5], zeroline=False, **ticks)
    return drawing.figure(title, mark, height=150 + 48 * max(2, len(rows)), legend=False)


MEASURE_NAMES = {
    "ratio": "ratio memory to query",
    "query per token": "attention per query token",
    "query share": "query's share",
    "memory share": "memory's share",
}


def change_name(row: dict[Any, Any], *, several_models: bool = False) -> str:
    """What is compared with what, e.g. `RAG against BASE: attention per query token`."""
    after = configuration_name(row["model"], row["memory"], row["mitigation"], several_models=several_models)
    before = configuration_name(row["model"], row["before_memory"], row["before_mitigation"])
    return f"{after} against {before}: {MEASURE_NAMES[row['measure']]}"


def times(value: float) -> str:
    """A factor, e.g. `2.4×`, `0.083×`: two digits that count at least."""
    if pd.isna(value):
        return theme.MISSING
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}×" if value >= 0.095 else f"{value:.2g}×"


def _keys(frame: pd.DataFrame) -> list[Key]:
    return [(str(a), str(b), str(c)) for a, b, c in frame[KEY].drop_duplicates().itertuples(index=False, name=None)]


def _key(row: dict[Any, Any]) -> Key:
    return str(row["model"]), str(row["memory"]), str(row["mitigation"])


def _colour(key: Key, place: int) -> str:
    return theme.GREY if key[1] in (RANDOM, BASE) else theme.PALETTE[place % len(theme.PALETTE)]


def _marker(key: Key, place: int) -> dict[str, Any]:
    symbol = f"{_SYMBOLS[place % len(_SYMBOLS)]}{'-open' if key[1] == RANDOM else ''}"
    return {"size": 10, "color": _colour(key, place), "symbol": symbol}


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _bars(rows: Sequence[dict[Any, Any]], colour: str) -> dict[str, Any]:
    return {
        "array": [None if pd.isna(row["high"]) else row["high"] - row["value"] for row in rows],
        "arrayminus": [None if pd.isna(row["low"]) else row["value"] - row["low"] for row in rows],
        "color": colour,
        "thickness": 1.5,
        "width": 4,
    }


def _log_axis(frame: pd.DataFrame) -> dict[str, Any]:
    """A logarithmic axis that shows 1 and all of the frame's numbers, with ticks that people read."""
    told = frame[["value", "low", "high"]].to_numpy(dtype=np.float64)
    ends = np.log10(told[~np.isnan(told) & (told > 0)])
    low, high = (float(end(np.append(ends, sign * _LEAST_REACH))) for end, sign in ((np.min, -1), (np.max, 1)))
    room = 0.06 * (high - low)
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [step * 10.0**power for power in range(int(np.floor(low)) - 1, int(np.ceil(high)) + 1) for step in steps]
    if high - low < 0.8:
        ticks = [round(0.1 * each, 1) for each in (*range(1, 10), *range(10, 20, 2), *range(20, 100, 10))]
    shown = [tick for tick in ticks if low - room <= np.log10(tick) <= high + room]
    return {
        "type": "log",
        "range": [low - room, high + room],
        "tickvals": shown,
        "ticktext": [f"{tick:g}×" for tick in shown],
    }


def _hover(row: dict[Any, Any], head: str) -> str:
    lines = [head, times(row["value"])]
    if not pd.isna(row["low"]):
        lines.append(f"95 %: {times(row['low'])} to {times(row['high'])}")
    elif row["reason"]:
        lines.append(f"no interval: {theme.escape(row['reason'])}")
    return "<br>".join([*lines, f"n = {theme.count(row['n'])}, {theme.users(row['n_users'])}"])


def _share_hover(cell: dict[Any, Any]) -> str:
    lines = [f"{100 * cell['value']:.1f} %"]
    if not pd.isna(cell["low"]):
        lines.append(f"95 %: {100 * cell['low']:.1f} to {100 * cell['high']:.1f} %")
    elif cell["reason"]:
        lines.append(f"no interval: {theme.escape(cell['reason'])}")
    lines.append(f"{cell['tokens']:.0f} tokens on average")
    return "<br>".join([*lines, f"n = {theme.count(cell['n'])}, {theme.users(cell['n_users'])}"])
