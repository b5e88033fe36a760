"""How the ranking by drop changes when one rule makes all the published averages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing

#: Blue and a grey that shows on both themes; told apart by marker too.
_PRINTED, _RECOMPUTED = theme.GREY, theme.PALETTE[0]


def drop_ranking(frame: pd.DataFrame, rule: str, mark: str = "", title: str = "Drop below BASE") -> go.Figure:
    """A line a row, ordered by the recomputed drop: a hollow diamond as printed, a filled circle by the rule.

    `frame` is `opbench.analysis.audit.ranking`; drops in percent, greatest first. Behind each line stands how many
    places it went up (▲) or down (▼).
    """
    names = [f"{theme.escape(row.model)}<br>{theme.label(str(row.memory))}" for row in frame.itertuples()]
    cells: list[dict[Any, Any]] = frame.to_dict("records")
    drawing = Drawing()
    line_x: list[float | None] = []
    line_y: list[str | None] = []
    for name, cell in zip(names, cells, strict=True):
        line_x += [cell["published_drop"], cell["drop"], None]
        line_y += [name, name, None]
    drawing.add(
        "scatter",
        x=line_x,
        y=line_y,
        mode="lines",
        line={"color": _PRINTED, "width": 2},
        hoverinfo="skip",
        showlegend=False,
    )
    hover = [_hover(cell) for cell in cells]
    for column, label, marker in (
        (
            "published_drop",
            "as printed",
            {"symbol": "diamond-open", "color": _PRINTED, "size": 11, "line": {"width": 2}},
        ),
        ("drop", f"recomputed: {rule}", {"symbol": "circle", "color": _RECOMPUTED, "size": 11}),
    ):
        drawing.add(
            "scatter",
            x=frame[column].tolist(),
            y=names,
            mode="markers",
            name=theme.escape(label),
            marker=marker,
            customdata=hover,
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        )
    low = 5 * int(min(frame["published_drop"].min(), frame["drop"].min()) // 5)
    high = 5 * int(max(frame["published_drop"].max(), frame["drop"].max()) // 5 + 1)
    room = 0.16 * (high - low)
    for name, cell in zip(names, cells, strict=True):
        drawing.note(x=high + room, y=name, text=moved(cell["moved"]), xanchor="right")
    drawing.x(title="% below BASE of the same model", range=[low, high + room])
    drawing.y(autorange="reversed", type="category", tickfont={"size": 11})
    return drawing.figure(title, mark, height=130 + 36 * max(len(frame), 2), legend={"y": -0.1})


def moved(places: int) -> str:
    """Places up or down, e.g. `▲ 2`, `▼ 1`, `same`."""
    if not places:
        return "same"
    return f"▲ {places}" if places > 0 else f"▼ {-places}"


def _hover(cell: dict[Any, Any]) -> str:
    return (
        f"as printed: {cell['published_drop']:.1f} % (place {cell['published_place']})<br>"
        f"recomputed: {cell['drop']:.1f} % (place {cell['place']})<br>"
        f"in another order against {cell['swaps']} of 15 rows"
    )
