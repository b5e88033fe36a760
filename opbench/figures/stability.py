"""Whether the order of configurations survives the choice of judge, prompt and averaging rule: figures of the frames of
`opbench.analysis.stability`."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.agreement import coefficient, interval_words
from opbench.figures.drawing import Drawing
from opbench.study import BASE

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "pentagon", "cross", "hexagon")
_DASHES = ("solid", "dash", "dot", "dashdot")


def places(frame: pd.DataFrame, names: list[str], mark: str = "", title: str = "Places by judge and rule") -> go.Figure:
    """A row a view, a line a configuration that leads through its places, the best on the left: lines that cross are
    configurations that change their order.

    `frame`: `stability.order_table`; `names` of its configurations, in its order. Configurations with equal averages
    share a place and are drawn beside each other.
    """
    drawing = Drawing()
    views = list(dict.fromkeys(zip(frame["label"], frame["rule"], frame["control"], strict=True)))
    rows = [_row_name(label, rule, control) for label, rule, control in views]
    drawn_at: list[list[int]] = [[] for _ in names]
    cells: list[list[dict[Any, Any]]] = [[] for _ in names]
    for label, rule, _ in views:
        view: list[dict[Any, Any]] = frame[(frame["label"] == label) & (frame["rule"] == rule)].to_dict("records")
        order = sorted(range(len(view)), key=lambda at, view=view: (view[at]["place"], at))  # type: ignore[misc]
        for place, at in enumerate(order, start=1):
            drawn_at[at].append(place)
        for at, cell in enumerate(view):
            shared = sum(each["place"] == cell["place"] for each in view) > 1
            cells[at].append(cell | {"shared": shared})
    others = 0
    for at, name in enumerate(names):
        colour = theme.GREY if cells[at][0]["memory"] == BASE else theme.PALETTE[others % len(theme.PALETTE)]
        others += colour != theme.GREY
        drawing.add(
            "scatter",
            x=drawn_at[at],
            y=rows,
            mode="lines+markers",
            name=theme.escape(name),
            line={"color": colour, "width": 2.5, "dash": _DASHES[others // (len(theme.PALETTE) + 1) % len(_DASHES)]},
            marker={"color": colour, "size": 11, "symbol": _SYMBOLS[at % len(_SYMBOLS)]},
            customdata=[_place_hover(cell) for cell in cells[at]],
            hovertemplate=f"<b>{theme.escape(name)}</b><br>%{{y}}<br>%{{customdata}}<extra></extra>",
        )
    drawing.x(title="place, 1 is the best", dtick=1, range=[0.6, len(names) + 0.4])
    drawing.y(type="category", autorange="reversed", tickfont={"size": 11})
    height = 190 + 48 * max(len(rows), 2) + 20 * len(names)
    return drawing.figure(title, mark, height=height, legend={"y": -60 / height})


def correlations(
    frame: pd.DataFrame, label: str, rule: str, mark: str = "", title: str = "How alike the orders are (Kendall's tau)"
) -> go.Figure:
    """Two panels: each two judges by one rule (`rule`), and each two rules under one judge (`label`).

    `frame`: `stability.correlation_table`. Violet is the same order, orange the reverse, white none.
    """
    judges = _sides(frame[(frame["first_rule"] == rule) & (frame["second_rule"] == rule)], "label")
    rules = _sides(frame[(frame["first_label"] == label) & (frame["second_label"] == label)], "rule")
    panels = [(f"judges, by {rule}", *judges), (f"rules, under {label}", *rules)]
    panels = [panel for panel in panels if panel[1]]
    sizes = [len(names) for _, names, _ in panels] or [1]
    height = 150 + sum(40 * size + 60 for size in sizes)
    drawing = Drawing(
        [f"<b>{theme.escape(head)}</b>" for head, _, _ in panels],
        rows=max(len(panels), 1),
        heights=sizes,
        spacing=90 / height if len(panels) > 1 else 0.0,
        head={"x": 0, "xanchor": "left", "font": {"size": 13}},
    )
    for row, (_, names, cells) in enumerate(panels, start=1):
        # Numbers across: names wouldn't fit on a phone.
        shown = [f"{theme.escape(name)}  {place}" for place, name in enumerate(names, start=1)]
        grid = [[cells.get((one, other)) for other in names] for one in names]
        drawing.add(
            "heatmap",
            row,
            x=[str(place) for place in range(1, len(names) + 1)],
            y=shown,
            z=[[None if cell is None or pd.isna(cell["tau"]) else cell["tau"] for cell in line] for line in grid],
            text=[["" if cell is None else coefficient(cell["tau"]) for cell in line] for line in grid],
            texttemplate="%{text}",
            textfont={"color": theme.CELL_TEXT},
            customdata=[
                [_tau_hover(one, other, cell) for other, cell in zip(names, line, strict=True)]
                for one, line in zip(names, grid, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
            colorscale=theme.DIVERGING,
            zmin=-1,
            zmax=1,
            xgap=2,
            ygap=2,
            showscale=False,
        )
    drawing.x(type="category", showgrid=False, tickfont={"size": 11})
    drawing.y(type="category", autorange="reversed", showgrid=False, tickfont={"size": 11})
    return drawing.figure(title, mark, height=height, legend=False)


def _sides(frame: pd.DataFrame, what: str) -> tuple[list[str], dict[tuple[str, str], dict[Any, Any]]]:
    """The names on both sides of a matrix, and its cells by both orders of names."""
    names = list(dict.fromkeys([*frame[f"first_{what}"], *frame[f"second_{what}"]]))
    cells: dict[tuple[str, str], dict[Any, Any]] = {}
    for cell in frame.to_dict("records"):
        one, other = cell[f"first_{what}"], cell[f"second_{what}"]
        cells[one, other] = cells[other, one] = cell
    return names, cells


def _row_name(label: str, rule: str, control: bool) -> str:
    """In lines, so that places keep their room on a phone."""
    judge, _, prompts = label.partition(" · ")
    lines = [f"{theme.escape(judge)}{' (control)' if control else ''}", *([theme.escape(prompts)] if prompts else [])]
    return "<br>".join([*lines, f"<sub>{theme.escape(rule)}</sub>"])


def _place_hover(cell: dict[Any, Any]) -> str:
    shared = " (shared)" if cell["shared"] else ""
    return (
        f"place {cell['place']}{shared}, {theme.points(cell['op'])} points<br>"
        f"n = {theme.count(cell['n'])} instances of {theme.users(cell['users'])}"
    )


def _tau_hover(one: str, other: str, cell: dict[Any, Any] | None) -> str:
    if cell is None:
        return f"<b>{theme.escape(one)}</b>"
    why = f"<br>{theme.escape(cell['note'])}" if cell["note"] else ""
    return (
        f"<b>{theme.escape(one)}</b> and <b>{theme.escape(other)}</b><br>"
        f"tau {coefficient(cell['tau'])}, {interval_words(cell['tau_low'], cell['tau_high'])}<br>"
        f"Spearman's rho {coefficient(cell['spearman'])}, "
        f"{interval_words(cell['spearman_low'], cell['spearman_high'])}<br>"
        f"n = {theme.count(cell['kept'])} of {theme.count(cell['pairs'])} pairs in the same order{why}"
    )
