"""How far reviewers agree: as it grows, by subtype, and pair by pair; figures of frames of `analysis.reviewing`."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.dots import ROW, Dot, add_dots
from opbench.figures.drawing import Drawing

_COEFFICIENTS = {
    "kappa": ("Cohen's kappa", theme.PALETTE[0], "circle"),
    "alpha": ("Krippendorff's alpha, verdicts", theme.PALETTE[1], "square"),
    "score_alpha": ("Krippendorff's alpha, scores", theme.PALETTE[2], "diamond"),
}
#: More reviewers' names than that don't fit beside a matrix's cells on a phone.
_MOST_WRITTEN = 8


def agreement_growth(frame: pd.DataFrame, mark: str = "", title: str = "Agreement as answers come in") -> go.Figure:
    """Krippendorff's alpha of verdicts with its 95 % band, and percent below it, over the answers there were.

    `frame`: `reviewing.growth`.
    """
    drawing = Drawing(
        ["Krippendorff's alpha", "percent of items alike"],
        rows=2,
        spacing=0.16,
        shared_x=True,
        head={"x": 0, "xanchor": "left", "font": {"size": 13}},
    )
    told = frame.dropna(subset=["alpha_low"])
    if len(told):
        answers = told["answers"].tolist()
        drawing.add(
            "scatter",
            x=answers + answers[::-1],
            y=told["alpha_high"].tolist() + told["alpha_low"].tolist()[::-1],
            fill="toself",
            fillcolor="rgba(0,114,178,0.2)",
            mode="none",
            hoverinfo="skip",
            name="95 % by item",
        )
    cells: list[dict[Any, Any]] = frame.to_dict("records")
    for row, column, colour in ((1, "alpha", theme.PALETTE[0]), (2, "percent", theme.PALETTE[1])):
        drawing.add(
            "scatter",
            row,
            x=frame["answers"].tolist(),
            y=[_none(value) for value in frame[column]],
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6, "color": colour},
            customdata=[_growth_hover(cell) for cell in cells],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    drawing.level(0.0, {"color": theme.GREY, "dash": "dot", "width": 1.5})
    drawing.x(2, title="answers", rangemode="tozero")
    drawing.y(1, title="1 is full, 0 is chance", range=[min(-0.1, _lowest(frame)), 1.05])
    drawing.y(2, title="%", range=[0, 105])
    return drawing.figure(title, mark, height=460, legend={"y": -0.16})


def agreement_by(frame: pd.DataFrame, mark: str = "", title: str = "Agreement by subtype") -> go.Figure:
    """Kappa and both alphas of each group with their 95 % intervals; hollow where there is none.

    `frame`: `reviewing.agreement` by subtype or user.
    """
    dots = []
    for row in frame.to_dict("records"):
        for column, (name, colour, symbol) in _COEFFICIENTS.items():
            n = row["score_units"] if column == "score_alpha" else row["doubly"]
            what = "responses with two scores" if column == "score_alpha" else "items with two answers"
            group = theme.label(str(row["group"]))
            between = interval_words(row[f"{column}_low"], row[f"{column}_high"])
            why = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
            value = f"{coefficient(row[column])}, {between}"
            dots.append(
                Dot(
                    f"{group}<br><sub>{name}</sub>",
                    row[column],
                    row[f"{column}_low"],
                    row[f"{column}_high"],
                    f"<b>{group}</b>: {name}<br>{value}<br>n = {theme.count(n)} {what}{why}",
                    colour,
                    name,
                    symbol,
                )
            )
    drawing = Drawing()
    add_dots(drawing, dots, legend=False)
    drawing.upright(0.0, {"color": theme.GREY, "dash": "dot", "width": 1.5})
    drawing.x(title="1 is full agreement, 0 is chance", range=[min(-0.25, _lowest_of(dots)), 1.05])
    return drawing.figure(title, mark, height=130 + (ROW + 8) * max(len(dots), 3), legend=False)


def pair_matrix(frame: pd.DataFrame, mark: str = "", title: str = "Cohen's kappa of each two reviewers") -> go.Figure:
    """A cell a pair: kappa from −1 to 1; empty where they share no item. `frame`: `reviewing.pair_table`."""
    names = sorted({*frame["first"], *frame["second"]})
    at = {name: place for place, name in enumerate(names)}
    z: list[list[float | None]] = [[None] * len(names) for _ in names]
    text = [[""] * len(names) for _ in names]
    hover = [["no item of both"] * len(names) for _ in names]
    for row in frame.to_dict("records"):
        for first, second in ((row["first"], row["second"]), (row["second"], row["first"])):
            z[at[first]][at[second]] = _none(row["kappa"])
            text[at[first]][at[second]] = coefficient(row["kappa"])
            why = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
            hover[at[first]][at[second]] = (
                f"kappa {coefficient(row['kappa'])}, {interval_words(row['kappa_low'], row['kappa_high'])}<br>"
                f"{theme.points(row['percent'])} % alike<br>n = {theme.count(row['n'])} items{why}"
            )
    shown = [theme.escape(name) for name in names]
    drawing = Drawing()
    drawing.add(
        "heatmap",
        x=shown,
        y=shown,
        z=z,
        text=text,
        texttemplate="%{text}" if len(names) <= _MOST_WRITTEN else "",
        textfont={"color": theme.CELL_TEXT},
        customdata=hover,
        hovertemplate="<b>%{y} and %{x}</b><br>%{customdata}<extra></extra>",
        colorscale=theme.DIVERGING,
        zmin=-1,
        zmax=1,
        xgap=2,
        ygap=2,
        colorbar={"title": {"text": "kappa", "side": "top"}, "orientation": "h", "y": -0.3, "thickness": 12},
    )
    drawing.x(type="category", tickangle=-35, showgrid=False)
    drawing.y(type="category", autorange="reversed", showgrid=False)
    return drawing.figure(title, mark, height=250 + 34 * max(len(names), 2), legend=False)


def coefficient(value: float) -> str:
    """A coefficient, e.g. `0.74`, `−0.05`; `n/a` when it isn't defined."""
    return theme.MISSING if math.isnan(value) else f"{value:.2f}".replace("-", "−").replace("−0.00", "0.00")


def interval_words(low: float, high: float) -> str:
    """`0.61 to 0.84 (95 %)`, or that there is none."""
    return "no interval" if math.isnan(low) else f"{coefficient(low)} to {coefficient(high)} (95 %)"


def _growth_hover(cell: dict[Any, Any]) -> str:
    moment = datetime.fromtimestamp(cell["made_at"], UTC)
    return (
        f"<b>{theme.count(cell['answers'])} answers</b>, {moment:%Y-%m-%d %H:%M} UTC<br>"
        f"alpha {coefficient(cell['alpha'])}, {interval_words(cell['alpha_low'], cell['alpha_high'])}<br>"
        f"{theme.points(cell['percent'])} % alike<br>n = {theme.count(cell['doubly'])} items with two answers"
    )


def _lowest(frame: pd.DataFrame) -> float:
    values = frame[["alpha", "alpha_low"]].to_numpy(dtype=np.float64)
    known = values[~np.isnan(values)]
    return float(known.min()) - 0.05 if len(known) else 0.0


def _lowest_of(dots: list[Dot]) -> float:
    known = [each for dot in dots for each in (dot.value, dot.low) if not math.isnan(each)]
    return min(known, default=0.0) - 0.05


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
