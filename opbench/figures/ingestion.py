"""What taking in a history gave and took: by memory system, and session by session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing
from opbench.figures.latency import legend_below

_OPEN = "circle-open"


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of `opbench.analysis.ingestions.by_session`, and how its mean a session is written."""

    column: str
    axis: str
    format: str
    prefix: str = ""
    suffix: str = ""

    def written(self, value: float) -> str:
        return theme.MISSING if pd.isna(value) else f"{self.prefix}{value:{self.format}}{self.suffix}"


MEASURES = {
    "memories": Measure("memories", "memories a session, mean", ",.1f"),
    "calls": Measure("calls", "model calls a session, mean", ",.1f"),
    "tokens": Measure("tokens", "tokens a session, in and out, mean", ",.0f"),
    "time": Measure("seconds", "seconds a session, mean", ",.1f", suffix=" s"),
    "cost": Measure("cost_usd", "US dollars a session by list price, mean", ",.4f", prefix="$"),
}


def session_means(
    frame: pd.DataFrame, measure: str, title: str = "A session, by memory system", mark: str = ""
) -> go.Figure:
    """A bar an ingestion's name: the mean over all its sessions; a ring for each user's own mean.

    `frame` is `opbench.analysis.ingestions.by_session`; its column `name` tells ingestions apart. `measure` is one of
    MEASURES. A name for which it isn't known anywhere has no bar and says so.
    """
    chosen = MEASURES[measure]
    names = list(dict.fromkeys(frame["name"]))
    means = [float(frame.loc[frame["name"] == name, chosen.column].mean()) for name in names]
    rings = frame.groupby(["name", "user"], sort=False)[chosen.column].agg(["mean", "count"]).reset_index()
    drawing = Drawing()
    drawing.add(
        "bar",
        y=[theme.escape(name) for name in names],
        x=[None if pd.isna(mean) else mean for mean in means],
        orientation="h",
        marker={"color": theme.PALETTE[0]},
        customdata=[_counted(frame, name, chosen, mean) for name, mean in zip(names, means, strict=True)],
        hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        name="mean of all sessions",
    )
    drawing.add(
        "scatter",
        y=[theme.escape(name) for name in rings["name"]],
        x=[None if pd.isna(mean) else float(mean) for mean in rings["mean"]],
        mode="markers",
        marker={"symbol": _OPEN, "size": 9, "color": theme.PALETTE[1], "line": {"width": 2}},
        customdata=[
            f"{theme.escape(row['user'])}<br>{chosen.written(row['mean'])}<br>n = {_sessions(row['count'])}"
            for row in rings.to_dict("records")
        ],
        hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        name="a user's mean",
    )
    longest = max((float(each) for each in [*rings["mean"], *means] if not pd.isna(each)), default=0.0)
    drawing.x(title=chosen.axis, range=[0, longest * 1.3 or 1.0], tickprefix=chosen.prefix)
    drawing.y(autorange="reversed", type="category", showgrid=False)
    for name, mean in zip(names, means, strict=True):
        at = max([mean, *rings.loc[rings["name"] == name, "mean"].dropna()]) if not pd.isna(mean) else 0.0
        drawing.note(
            x=at, y=theme.escape(name), text=f"\u2002{chosen.written(mean)}", xanchor="left", font={"size": 12}
        )
    height = 180 + 44 * max(len(names), 2)
    return drawing.figure(title, mark, height=height, legend=legend_below(height), bargap=0.35)


def memories_by_session(frame: pd.DataFrame, title: str = "Memories, session by session", mark: str = "") -> go.Figure:
    """A line an ingestion of one user: memories kept after each session; a ring where a session gave none.

    `frame` is `opbench.analysis.ingestions.by_session` of one user.
    """
    names = list(dict.fromkeys(frame["name"]))
    drawing = Drawing()
    for place, name in enumerate(names):
        mine = frame[frame["name"] == name].sort_values("session")
        kept = mine["total"]
        drawing.add(
            "scatter",
            x=[int(each) for each in mine["session"]],
            y=[int(each) for each in kept],
            mode="lines+markers",
            name=theme.escape(name),
            line={"color": theme.PALETTE[place % len(theme.PALETTE)], "width": 2},
            marker={"size": 8, "symbol": ["circle" if each else _OPEN for each in mine["memories"]]},
            customdata=[_session(row, total) for row, total in zip(mine.to_dict("records"), kept, strict=True)],
            hovertemplate=f"<b>{theme.escape(name)}</b><br>%{{customdata}}<extra></extra>",
            showlegend=True,
        )
    drawing.x(title="session of the conversation", dtick=1 if frame["session"].nunique() < 12 else None)
    drawing.y(title="memories kept, in all", rangemode="tozero")
    return drawing.figure(title, mark, height=380, legend=legend_below(380))


def _session(row: dict[Any, Any], total: int) -> str:
    lines = [
        f"session {int(row['session'])}, {theme.escape(row['day'])}",
        f"{int(row['memories']):,} memories, {int(total):,} in all",
        f"{int(row['calls']):,} calls, {int(row['reused']):,} of them reused",
    ]
    if row["empty"]:
        lines.append(f"{int(row['empty']):,} of {int(row['extractions']):,} extractions gave none")
    return "<br>".join(lines)


def _counted(frame: pd.DataFrame, name: str, measure: Measure, mean: float) -> str:
    mine = frame[frame["name"] == name]
    n = int(mine[measure.column].notna().sum())
    return f"{measure.written(mean)}<br>n = {_sessions(n)} of {theme.users(mine['user'].nunique())}"


def _sessions(n: int) -> str:
    return "1 session" if n == 1 else f"{n:,} sessions"
