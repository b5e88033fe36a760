"""How far a judge may be trusted: against people, against itself, against traps; figures of `opbench.calibration`'s
frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.agreement import coefficient, interval_words
from opbench.figures.dots import ROW, Dot, add_dots
from opbench.figures.drawing import Drawing
from opbench.types import OP_SUBTYPES

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "pentagon", "cross", "hexagon")
_ZERO = {"color": theme.GREY, "dash": "dot", "width": 1.5}
_CORRELATIONS = {"spearman": ("Spearman's rho", "circle"), "pearson": ("Pearson's r", "square")}
_ERRORS = {"error": ("mean error (judge − people)", "circle"), "absolute_error": ("mean absolute error", "square")}


def correlations(frame: pd.DataFrame, mark: str = "", title: str = "Agreement with people") -> go.Figure:
    """Spearman's and Pearson's correlation of each judge with people, with 95 % intervals (paper, table 5).

    `frame`: `statistics.agreement_with_people`.
    """
    drawing = Drawing()
    dots = _of_judges(frame, _CORRELATIONS)
    add_dots(drawing, dots)
    drawing.upright(0.0, _ZERO)
    drawing.x(title="correlation with people's scores", range=[-1.05, 1.05])
    return drawing.figure(title, mark, height=_height(dots), legend=_legend(dots))


def errors(frame: pd.DataFrame, mark: str = "", title: str = "Error against people") -> go.Figure:
    """Mean and mean absolute error of each judge, 0 to 1, with 95 % intervals. `frame` as for `correlations`."""
    drawing = Drawing()
    dots = _of_judges(frame, _ERRORS)
    add_dots(drawing, dots)
    drawing.upright(0.0, _ZERO)
    drawing.x(title="score, 0 to 1 (right of 0: kinder than people)", range=[-1.05, 1.05])
    return drawing.figure(title, mark, height=_height(dots), legend=_legend(dots))


def people_and_judge(pairs: pd.DataFrame, mark: str = "", title: str = "People's scores and the judge's") -> go.Figure:
    """A dot a response of one judging: people's mean score across, the judge's up; on the dotted line they are equal.

    `pairs`: rows of `pairs.paired`. Dots that fall on one another are moved apart by at most 0.012.
    """
    told = pairs.dropna(subset=["people", "value"])
    drawing = Drawing()
    drawing.add("scatter", x=[0, 1], y=[0, 1], mode="lines", line=_ZERO, hoverinfo="skip", showlegend=False)
    apart = _apart(told[["people", "value"]].round(3).apply(tuple, axis=1).tolist() if len(told) else [])
    told = told.assign(across=apart[:, 0], up=apart[:, 1])
    for subtype, mine in _by_subtype(told):
        colour, symbol = _look(subtype)
        drawing.add(
            "scatter",
            x=(mine["people"] + mine["across"]).tolist(),
            y=(mine["value"] + mine["up"]).tolist(),
            mode="markers",
            name=theme.label(subtype),
            marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 0.5, "color": theme.GREY}},
            customdata=[_pair_hover(row) for row in mine.to_dict("records")],
            hovertemplate="%{customdata}<extra></extra>",
        )
    drawing.x(title="people's score", range=[-0.04, 1.04])
    drawing.y(title="judge's score", range=[-0.04, 1.04])
    return drawing.figure(title, mark, height=470, legend={"y": -0.2})


def residuals(
    pairs: pd.DataFrame, means: pd.DataFrame, mark: str = "", title: str = "Where the judge differs from people"
) -> go.Figure:
    """Judge − people by subtype: a small dot a response, the large one the mean with its 95 % interval.

    `pairs`: rows of `pairs.paired` of one judging; `means`: `agreement_with_people` of it by subtype.
    """
    told = pairs.dropna(subset=["residual"])
    of_subtype = {row["group"]: row for row in means.to_dict("records")}
    groups = _by_subtype(told)
    drawing = Drawing()
    for at, (subtype, mine) in enumerate(groups):
        colour, symbol = _look(subtype)
        spread = np.linspace(-0.28, 0.28, len(mine)) if len(mine) > 1 else np.zeros(1)
        drawing.add(
            "scatter",
            x=mine["residual"].tolist(),
            y=(at + spread).tolist(),
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.65},
            customdata=[_pair_hover(row) for row in mine.to_dict("records")],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
        row = of_subtype.get(subtype)
        if row is None or math.isnan(row["error"]):
            continue
        whole, rim = not math.isnan(row["error_low"]), theme.GREY
        ends = {"array": [row["error_high"] - row["error"]], "arrayminus": [row["error"] - row["error_low"]]}
        note = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
        drawing.add(
            "scatter",
            x=[row["error"]],
            y=[at],
            mode="markers",
            marker={"color": colour if whole else "rgba(0,0,0,0)", "size": 13, "line": {"width": 2, "color": rim}},
            error_x={"type": "data", "symmetric": False, "color": rim, "thickness": 2, **ends} if whole else None,
            customdata=[
                f"<b>{theme.label(subtype)}</b><br>mean {_signed(row['error'])}, "
                f"{interval_words(row['error_low'], row['error_high'])}<br>n = {theme.count(row['n'])}{note}"
            ],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    drawing.upright(0.0, _ZERO)
    drawing.x(title="judge − people (right of 0: kinder than people)", range=[-1.05, 1.05])
    drawing.y(
        tickvals=list(range(len(groups))),
        ticktext=[theme.label(subtype) for subtype, _ in groups],
        range=[max(len(groups), 1) - 0.4, -0.6],
        showgrid=False,
        zeroline=False,
    )
    return drawing.figure(title, mark, height=150 + 62 * max(len(groups), 2), legend=False)


def acceptance(frame: pd.DataFrame, mark: str = "", title: str = "Answers that the judge accepts") -> go.Figure:
    """Percent accepted by kind of answer, with Wilson's 95 % interval: all kinds but the right one should be at 0.

    `frame`: `traps.acceptance`.
    """
    dots = []
    for row in frame.to_dict("records"):
        note = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
        wrong = "wrong on purpose" if row["wrong"] else "right"
        told = f"{theme.points(row['rate'])} % accepted, {_percent_interval(row)}"
        colour, symbol = _judge_look(frame, row["label"])
        dots.append(
            Dot(
                theme.escape(row["kind"]),
                row["rate"],
                row["low"],
                row["high"],
                f"<b>{theme.escape(row['label'])}</b><br>{theme.escape(row['kind'])} ({wrong})<br>"
                f"{told}<br>n = {theme.count(row['n'])}{note}",
                colour,
                theme.escape(row["label"]),
                symbol,
            )
        )
    drawing = Drawing()
    add_dots(drawing, dots)
    drawing.x(title="accepted, %", range=[-4, 104])
    return drawing.figure(title, mark, height=_height(dots), legend=_legend(dots))


def bias(frame: pd.DataFrame, mark: str = "", title: str = "Does the judge mind place and length?") -> go.Figure:
    """Points of acceptance that a shape adds, for right and for wrong answers, with 95 % intervals: 0 is no bias.

    `frame`: `position.bias`.
    """
    dots = []
    for row in frame.to_dict("records"):
        note = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
        colour, symbol = _judge_look(frame, row["label"])
        words = f"{theme.change(row['difference'])} points, {_change_interval(row)}"
        dots.append(
            Dot(
                f"{theme.escape(row['effect'])}<br><sub>{theme.escape(row['answers'])} answers</sub>",
                row["difference"],
                row["low"],
                row["high"],
                f"<b>{theme.escape(row['label'])}</b><br>{theme.escape(row['effect'])}, {row['answers']} answers<br>"
                f"{words}<br>{theme.points(row['without'])} % → {theme.points(row['with_it'])} %<br>"
                f"n = {theme.count(row['n'])} questions{note}",
                colour,
                theme.escape(row["label"]),
                symbol,
            )
        )
    drawing = Drawing()
    add_dots(drawing, dots)
    drawing.upright(0.0, _ZERO)
    known = [abs(each) for dot in dots for each in (dot.value, dot.low, dot.high) if not math.isnan(each)]
    reach = max(10.0, 1.1 * max(known, default=0.0))
    drawing.x(title="points of acceptance against the plain answer", range=[-reach, reach])
    names = len({dot.name for dot in dots})
    return drawing.figure(title, mark, height=140 + 42 * max(names, 3), legend=_legend(dots))


def consistency(frame: pd.DataFrame, mark: str = "", title: str = "Asked again: the same score?") -> go.Figure:
    """Percent of responses whose scores are all equal over repeats, with Wilson's 95 % interval.

    `frame`: `selfconsistency.self_consistency`.
    """
    dots = []
    for row in frame.to_dict("records"):
        note = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
        label = theme.escape(row["label"])
        dots.append(
            Dot(
                label,
                row["same"],
                row["same_low"],
                row["same_high"],
                f"<b>{label}</b><br>{theme.points(row['same'])} % the same over {theme.count(row['repeats'])} repeats"
                f"<br>spread {coefficient(row['spread'])}, largest difference {coefficient(row['largest'])}<br>"
                f"n = {theme.count(row['n'])} responses{note}",
            )
        )
    drawing = Drawing()
    add_dots(drawing, dots)
    drawing.x(title="responses with the same score every time, %", range=[-4, 104])
    return drawing.figure(title, mark, height=_height(dots), legend=False)


def ceiling(frame: pd.DataFrame, mark: str = "", title: str = "What wrong gold answers leave of LoCoMo") -> go.Figure:
    """The highest accuracy that the gold answers allow, by category; the hollow mark counts debatable faults as right.

    `frame`: `ceiling.ceiling`.
    """
    drawing = Drawing()
    names = [theme.escape(row) for row in frame["category"]]
    hover = [
        f"{theme.points(row['ceiling'])} % at most<br>{theme.count(row['wrong_gold'])} wrong of "
        f"n = {theme.count(row['questions'])} questions<br>{theme.escape(row['kinds'])}"
        for row in frame.to_dict("records")
    ]
    for column, name, symbol in (
        ("ceiling", "ceiling", "circle"),
        ("without_debatable", "debatable faults counted as right", "diamond-open"),
    ):
        drawing.add(
            "scatter",
            x=frame[column].tolist(),
            y=names,
            mode="markers",
            name=name,
            marker={"size": 11, "symbol": symbol, "color": theme.PALETTE[0], "line": {"width": 2}},
            customdata=hover,
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        )
    low = 5.0 * math.floor(min([90.0, *frame["ceiling"]]) / 5.0) - 2.0
    drawing.x(title="accuracy that can be reached, %", range=[low, 101])
    drawing.y(type="category", autorange="reversed", showgrid=False)
    return drawing.figure(title, mark, height=180 + 34 * max(len(frame), 2), legend={"y": -0.3})


def _of_judges(frame: pd.DataFrame, columns: dict[str, tuple[str, str]]) -> list[Dot]:
    dots = []
    for row in frame.to_dict("records"):
        note = f"<br>{theme.escape(row['note'])}" if row["note"] else ""
        label = theme.escape(row["label"])
        for at, (column, (name, symbol)) in enumerate(columns.items()):
            low, high = row[f"{column}_low"], row[f"{column}_high"]
            dots.append(
                Dot(
                    label,
                    row[column],
                    low,
                    high,
                    f"<b>{label}</b><br>{name} {coefficient(row[column])}, {interval_words(low, high)}<br>"
                    f"n = {theme.count(row['n'])} responses to {theme.count(row['clusters'])} questions, "
                    f"{theme.count(row['missing'])} without a score{note}",
                    theme.PALETTE[at],
                    name,
                    symbol,
                )
            )
    return dots


def _by_subtype(pairs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    known = [*OP_SUBTYPES, *sorted(set(pairs["subtype"]) - set(OP_SUBTYPES))]
    return [(name, mine) for name in known if len(mine := pairs[pairs["subtype"] == name])]


def _look(subtype: str) -> tuple[str, str]:
    at = OP_SUBTYPES.index(subtype) if subtype in OP_SUBTYPES else len(OP_SUBTYPES)
    return theme.PALETTE[at % len(theme.PALETTE)], _SYMBOLS[at % len(_SYMBOLS)]


def _judge_look(frame: pd.DataFrame, label: str) -> tuple[str, str]:
    at = list(dict.fromkeys(frame["label"])).index(label)
    return theme.PALETTE[at % len(theme.PALETTE)], _SYMBOLS[at % len(_SYMBOLS)]


def _pair_hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{theme.label(row['subtype'])}</b><br>{theme.escape(row['item'])}<br>"
        f"people {coefficient(row['people'])} (n = {theme.count(row['raters'])}), judge {coefficient(row['value'])}, "
        f"{_signed(row['residual'])}"
    )


def _apart(places: Sequence[tuple[float, float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How far each of several dots on one place is moved, on a small ring."""
    moved = np.zeros((len(places), 2))
    for place in set(places):
        here = [at for at, each in enumerate(places) if each == place]
        if len(here) > 1:
            angles = np.linspace(0, 2 * math.pi, len(here), endpoint=False)
            moved[here] = 0.012 * np.column_stack([np.cos(angles), np.sin(angles)])
    return moved


def _signed(value: float) -> str:
    return theme.MISSING if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def _percent_interval(row: dict[Any, Any]) -> str:
    if math.isnan(row["low"]):
        return "no interval"
    return f"{theme.points(row['low'])} to {theme.points(row['high'])} (95 %)"


def _change_interval(row: dict[Any, Any]) -> str:
    return "no interval" if math.isnan(row["low"]) else f"{theme.span(row['low'], row['high'])} (95 %)"


def _height(dots: Sequence[Dot]) -> int:
    return 150 + (ROW + 8) * max(len({dot.name for dot in dots}), 3)


def _legend(dots: Sequence[Dot]) -> dict[str, Any]:
    return {"y": -110 / _height(dots)}
