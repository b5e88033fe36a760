"""How far a study's grid is: models · memory systems × post-processors, each cell the share of its records done."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing

#: More columns than these have slanted names; with so many records planned, a narrow one has no room for the counts.
_STRAIGHT = 3
_LONG = 1000
_NO_CELL = "not in the study: BASE has no memories that a post-processor could work on"


def progress_grid(frame: pd.DataFrame, title: str = "Records done", mark: str = "") -> go.Figure:
    """A heatmap of one row a model and memory system, in the frame's order.

    `frame` has model, memory, mitigation, planned, done, errors, and may have rate (records a second) and kinds (the
    errors by kind), which go into the hover. A cell says how many of its records are done, below them how many
    failed (with a cross, so that colour isn't all that tells it); a cell that the grid doesn't have is empty. In many
    narrow columns thousands are told as percent, with the counts in the hover.
    """
    several = frame["model"].nunique() > 1
    rows = list(dict.fromkeys(zip(frame["model"], frame["memory"], strict=True)))
    columns = list(dict.fromkeys(frame["mitigation"]))
    cells = {(row["model"], row["memory"], row["mitigation"]): row for row in frame.to_dict("records")}
    slanted = len(columns) > _STRAIGHT
    short = slanted and bool((frame["planned"] >= _LONG).any())
    found = [[cells.get((*row, column)) for column in columns] for row in rows]
    names = [
        f"{theme.label(memory)}<br><sub>{theme.escape(model)}</sub>" if several else theme.label(memory)
        for model, memory in rows
    ]
    drawing = Drawing()
    drawing.add(
        "heatmap",
        z=[[_share(cell) for cell in line] for line in found],
        x=[theme.label(name) if slanted else _wrapped(theme.label(name)) for name in columns],
        y=names,
        text=[[_text(cell, short) for cell in line] for line in found],
        texttemplate="%{text}",
        textfont={"color": theme.CELL_TEXT, "size": 11},
        customdata=[
            [_hover(cell, *row, column) for cell, column in zip(line, columns, strict=True)]
            for row, line in zip(rows, found, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=True,
        colorscale=theme.SEQUENTIAL,
        zmin=0,
        zmax=1,
        showscale=False,
        xgap=2,
        ygap=2,
    )
    lines = 2 if short else 3
    tall = 20 + 13 * (lines if (frame["errors"] > 0).any() else lines - 1)
    drawing.x(title="post-processor", showgrid=False, type="category")
    drawing.x(tickangle=-35 if slanted else 0, tickfont={"size": 11})
    heading = "memory system · model" if several else "memory system"
    drawing.y(title=heading, autorange="reversed", showgrid=False, type="category")
    height = (230 if slanted else 165) + tall * max(len(rows), 2)
    return drawing.figure(title, mark, height=height, legend=False)


def _wrapped(name: str) -> str:
    """A long name on two lines, so that the columns stay wide on a narrow page."""
    return name.replace(" ", "<br>", 1) if len(name) > 14 else name


def _share(cell: dict[Any, Any] | None) -> float | None:
    return None if cell is None or not cell["planned"] else cell["done"] / cell["planned"]


def _text(cell: dict[Any, Any] | None, short: bool) -> str:
    if cell is None:
        return ""
    failed = f"<br>✗ {cell['errors']:,}" if cell["errors"] else ""
    share = _share(cell)
    said = theme.share(share) if short and share is not None else f"{cell['done']:,}<br>of {cell['planned']:,}"
    return said + failed


def _hover(cell: dict[Any, Any] | None, model: str, memory: str, mitigation: str) -> str:
    head = f"<b>{theme.label(memory)} · {theme.label(mitigation)}</b><br>{theme.escape(model)}"
    if cell is None:
        return f"{head}<br>{_NO_CELL if memory == 'base' else 'not in the study'}"
    waiting = cell["planned"] - cell["done"] - cell["errors"]
    share = _share(cell)
    lines = [
        head,
        f"n = {theme.scored(cell['done'], cell['planned'])} done"
        + ("" if share is None else f" ({theme.share(share)})"),
        f"{waiting:,} waiting",
    ]
    if cell["errors"]:
        kinds = cell.get("kinds")
        lines.append(f"{cell['errors']:,} failed" + (f": {theme.escape(kinds)}" if kinds else ""))
    rate = cell.get("rate")
    if rate is not None and not pd.isna(rate):
        lines.append(f"{60 * rate:.1f} records a minute")
    return "<br>".join(lines)
