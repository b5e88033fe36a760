"""Repetition drawn (the paper's figure 17): the map of response embeddings, its dispersion, and memories that recur;
figures of `opbench.analysis.response_map` and `.recurring`."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.dots import ROW, Dot, add_dots
from opbench.figures.drawing import Drawing
from opbench.figures.overview import SYMBOLS

#: Signs in a line of a memory beside its bars.
_LINE = 24


def map_figure(
    points: pd.DataFrame, explained: tuple[float, float], mark: str = "", title: str = "Map of the responses"
) -> go.Figure:
    """`ResponseMap.points`, a colour and a symbol a configuration. Of each point, `customdata` is [instance, user,
    model, memory, mitigation]: what a click tells."""
    several = points["model"].nunique() > 1
    drawing = Drawing()
    for place, ((model, memory, mitigation), part) in enumerate(
        points.groupby(["model", "memory", "mitigation"], sort=False)
    ):
        label = configuration_label(str(model), str(memory), str(mitigation), with_model=several)
        base = memory == "base"
        drawing.add(
            "scatter",
            x=part["x"].tolist(),
            y=part["y"].tolist(),
            mode="markers",
            name=label,
            marker={
                "color": theme.GREY if base else theme.PALETTE[place % len(theme.PALETTE)],
                "symbol": SYMBOLS[place % len(SYMBOLS)],
                "size": 9,
                "opacity": 0.8,
            },
            customdata=part[["instance", "user", "model", "memory", "mitigation"]].to_numpy().tolist(),
            text=[f"{theme.escape(row.instance)}<br>{theme.escape(row.user)}" for row in part.itertuples()],
            hovertemplate=f"<b>{label}</b><br>%{{text}}<extra></extra>",
        )
    for axis, share, change in zip(("first", "second"), explained, (drawing.x, drawing.y), strict=True):
        told = "no variance" if math.isnan(share) else f"{theme.share(share)} of variance"
        change(title=f"{axis} component ({told})", zeroline=False)
    # One unit is as long on both axes: distances are what the map is for.
    drawing.y(scaleanchor="x", scaleratio=1)
    return drawing.figure(title, mark, height=560, legend={"y": -0.14}, clickmode="event+select")


def dispersion_figure(
    changes: pd.DataFrame, mark: str = "", title: str = "Change of the mean cosine distance"
) -> go.Figure:
    """Changes of `dispersion_changes` with their 95 % intervals, points; left of 0: the responses lie closer."""
    several = changes["model"].nunique() > 1
    drawing = Drawing()
    dots = []
    for cell in changes.to_dict("records"):
        label = configuration_label(cell["model"], cell["memory"], cell["mitigation"], with_model=several)
        against = configuration_label("", cell["against_memory"], cell["against_mitigation"], with_model=False)
        dots.append(
            Dot(
                f"{label}<br>against {against}",
                cell["change"],
                cell["low"],
                cell["high"],
                f"<b>{label} against {against}</b><br>"
                f"{theme.points(cell['dispersion'])} − {theme.points(cell['against'])}"
                f" = {theme.change(cell['change'])} points<br>{interval_words(cell)}<br>closer for {cell['closer']} of "
                f"{theme.users(cell['users'])}, {cell['responses']} responses",
                theme.GREY if cell["memory"] == "random" else theme.PALETTE[0],
            )
        )
    add_dots(drawing, dots, legend=False)
    drawing.upright(0.0, {"color": theme.GREY, "width": 1.5})
    drawing.x(title="change, points; left: closer together")
    return drawing.figure(title, mark, height=150 + 2 * ROW * max(len(dots), 1), legend=False)


def recurring_figure(
    frame: pd.DataFrame, most: int = 12, mark: str = "", title: str = "Memories that come back"
) -> go.Figure:
    """The first `most` memories of `recurring`: for how many of the user's questions each was retrieved, went on, and
    shows in the response."""
    part = frame.head(most)
    drawing = Drawing()
    # Equal heads must not share a row.
    names = [f"{place}. {_short(text)}" for place, text in enumerate(part["memory"], start=1)]
    columns = (("retrieved", "retrieved", theme.GREY), ("went_on", "seen by the model", theme.PALETTE[4]))
    for column, label, colour in (*columns, ("shows", "shares wording with the response", theme.PALETTE[5])):
        drawing.add(
            "bar",
            x=part[column].tolist(),
            y=names,
            orientation="h",
            name=label,
            marker={"color": colour},
            customdata=[
                f"{row.retrieved} retrieved, {row.went_on} seen, {row.shows} show<br>of {row.questions} questions"
                for row in part.itertuples()
            ],
            hovertemplate=f"<b>%{{y}}</b><br>{label}<br>%{{customdata}}<extra></extra>",
        )
    height = 170 + 46 * max(len(part), 1)
    # Of few questions Plotly would mark halves.
    few = {"dtick": 1} if part["questions"].max() <= 10 else {}
    drawing.x(title="questions of the user", rangemode="tozero", tickformat="d", **few)
    drawing.y(type="category", categoryorder="array", categoryarray=names[::-1], showgrid=False)
    return drawing.figure(title, mark, height=height, legend={"y": -70 / height}, barmode="group")


def configuration_label(model: str, memory: str, mitigation: str, *, with_model: bool) -> str:
    """A configuration as people write it, escaped."""
    parts = [model] if with_model else []
    parts += [theme.name(memory)] + ([] if memory == "base" or mitigation == "none" else [theme.name(mitigation)])
    return theme.escape(" · ".join(parts))


def interval_words(cell: dict[Any, Any]) -> str:
    """`−0.4 to +7.2 (95 %), p = 0.03`, or why there is none."""
    if math.isnan(cell["low"]):
        return f"no interval: {cell['reason']}"
    return f"{theme.span(cell['low'], cell['high'])} (95 %), {theme.chance(cell['p'])}"


def _short(text: object) -> str:
    """The beginning of a text in two lines, escaped."""
    lines = textwrap.wrap(" ".join(str(text).split()), _LINE, max_lines=2, placeholder=" …")
    return "<br>".join(theme.escape(line) for line in lines)
