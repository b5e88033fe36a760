"""What a configuration spends: tokens by stage, and dollars per 1,000 queries."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing, Part
from opbench.figures.latency import COLOURS, Cell, bar_height, configurations, row_names, stacked

_PALE = "80"  # half opaque, as the last two digits of a colour
#: Column of `opbench.analysis.latency.spending`, its name, its colour.
_PARTS = (
    ("post_prompt_per_query", "post-processing, in", COLOURS["post"] + _PALE),
    ("post_completion_per_query", "post-processing, out", COLOURS["post"]),
    ("response_prompt_per_query", "response, in", COLOURS["response"] + _PALE),
    ("response_completion_per_query", "response, out", COLOURS["response"]),
)


def token_bars(frame: pd.DataFrame, mark: str = "", title: str = "Tokens per query, by stage") -> go.Figure:
    """Stacked bars of the mean tokens of a query, by stage, prompt (in, pale) and completion (out).

    `frame` is `opbench.analysis.latency.spending`. What isn't known has no part; a bar's end tells the known sum.
    """
    rows = configurations(frame)
    names = row_names(rows)
    cells: list[Cell] = frame.to_dict("records")
    drawing = Drawing()
    for column, head, colour in _PARTS:
        drawing.add(
            "bar",
            y=names,
            x=[None if pd.isna(cell[column]) else float(cell[column]) for cell in cells],
            orientation="h",
            name=head,
            marker={"color": colour},
            customdata=[_tokens(cell, column) for cell in cells],
            hovertemplate=f"<b>%{{y}}</b><br>{head}<br>%{{customdata}}<extra></extra>",
        )
    known = [[float(cell[column]) for column, *_ in _PARTS if not pd.isna(cell[column])] for cell in cells]
    texts = [f"{sum(parts):,.0f}" if parts else theme.MISSING for parts in known]
    drawing.add("scatter", **_ends(names, [sum(parts) for parts in known], texts))
    longest = max((sum(parts) for parts in known), default=0.0)
    return stacked(drawing, rows, longest, "tokens per query, mean", title, mark, bar_height(rows))


def cost_bars(frame: pd.DataFrame, mark: str = "", title: str = "Cost of 1,000 queries") -> go.Figure:
    """A bar a configuration: US dollars for 1,000 queries (post-processing and response, by list price).

    `frame` is `opbench.analysis.latency.spending`. A configuration without a known price has no bar and says so.
    """
    rows = configurations(frame)
    names = row_names(rows)
    cells: list[Cell] = frame.to_dict("records")
    costs: list[float | None] = [
        None if pd.isna(cell["cost_usd_per_1000"]) else float(cell["cost_usd_per_1000"]) for cell in cells
    ]
    texts = ["price unknown" if cost is None else dollars(cost) for cost in costs]
    drawing = Drawing()
    drawing.add(
        "bar",
        y=names,
        x=costs,
        orientation="h",
        marker={"color": theme.PALETTE[0]},
        showlegend=False,
        customdata=[_priced(cell) for cell in cells],
        hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
    )
    drawing.add("scatter", **_ends(names, [cost or 0.0 for cost in costs], texts))
    longest = max((cost for cost in costs if cost), default=0.0)
    height = bar_height(rows) - 40
    return stacked(drawing, rows, longest, "US dollars per 1,000 queries", title, mark, height, tickprefix="$")


def dollars(amount: float) -> str:
    """`$12.30`, `$0.0042`; `unknown` when it is missing."""
    if pd.isna(amount):
        return "unknown"
    return f"${amount:,.2f}" if amount == 0 or amount >= 0.1 else f"${amount:.2g}"


def _ends(names: list[str], lengths: list[float], texts: list[str]) -> Part:
    """The text behind each bar."""
    return {
        "y": names,
        "x": lengths,
        "mode": "text",
        "text": texts,
        "texttemplate": "\u2002%{text}",
        "textposition": "middle right",
        "cliponaxis": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _tokens(cell: Cell, column: str) -> str:
    if pd.isna(cell[column]):
        return "none, or not told"
    total = cell[column.replace("_per_query", "_tokens")]
    over = cell["n_done"] if column.startswith("post") else cell["n_counted"]
    return f"{cell[column]:,.1f} a query<br>{theme.count(total)} in all, n = {theme.count(over)}"


def _priced(cell: Cell) -> str:
    if pd.isna(cell["cost_usd_per_1000"]):
        return f"no price is known (0 of {theme.count(cell['n_done'])} records)"
    priced = theme.scored(cell["n_priced"], cell["n_done"])
    return f"{dollars(cell['cost_usd_per_1000'])} for 1,000 queries<br>{dollars(cell['cost_usd'])} in all, n = {priced}"
