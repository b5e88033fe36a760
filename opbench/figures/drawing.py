"""A figure put together as plain values and checked once, when it is whole.

Plotly checks at every call that changes a figure, and lays out anew what it has: 5 to 30 ms for each `update_layout`,
`add_vline` or `make_subplots`. Checking a whole figure once takes 3 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from opbench.figures import theme

Part = dict[str, Any]
"""A trace, axis, shape or annotation as Plotly's schema has it."""
_GRID = {"automargin": True, "gridcolor": "rgba(138,138,138,0.25)", "zerolinecolor": theme.GREY}


class Drawing:
    """Panels one under the other, counted from 1 at the top."""

    def __init__(
        self,
        heads: Sequence[str] = (),
        *,
        rows: int = 1,
        heights: Sequence[float] = (),
        spacing: float = 0.0,
        shared_x: bool = False,
        head: Part | None = None,
    ) -> None:
        """`heads` are the panels' titles (escaped), with the look `head`; `heights` their relative heights, equal by
        default; `spacing` the share of the figure between two; `shared_x`: one x axis for all, labelled at the
        bottom."""
        self.rows = rows
        self.traces: list[Part] = []
        self.shapes: list[Part] = []
        self.notes: list[Part] = []
        self._x: list[Part] = [dict(_GRID) for _ in range(rows)]
        self._y: list[Part] = [dict(_GRID) for _ in range(rows)]
        room = 1.0 - spacing * (rows - 1)
        shares = list(heights) or [1.0] * rows
        top = 1.0
        for row in range(rows):
            bottom = max(top - room * shares[row] / sum(shares), 0.0)
            self._x[row] |= {"anchor": f"y{_number(row + 1)}", "domain": [0.0, 1.0]}
            self._y[row] |= {"anchor": f"x{_number(row + 1)}", "domain": [bottom, top]}
            if shared_x and row + 1 < rows:
                self._x[row] |= {"matches": f"x{_number(rows)}", "showticklabels": False}
            if row < len(heads):
                place = {"x": 0.5, "xanchor": "center", "xref": "paper", "y": top, "yanchor": "bottom", "yref": "paper"}
                look = {"showarrow": False, "font": {"size": 16}} | (head or {})
                self.notes.append({"text": heads[row], **place, **look})
            top = bottom - spacing

    def add(self, kind: str, row: int = 1, **trace: Any) -> None:
        """Add a trace of Plotly's `kind` to a panel."""
        self.traces.append({"type": kind, "xaxis": f"x{_number(row)}", "yaxis": f"y{_number(row)}", **trace})

    def note(self, row: int = 1, **annotation: Any) -> None:
        """Add words without an arrow, placed by the panel's axes unless it says otherwise."""
        place = {"xref": f"x{_number(row)}", "yref": f"y{_number(row)}"}
        self.notes.append({"showarrow": False, **place, **annotation})

    def upright(self, level: float, line: Part, row: int = 1) -> None:
        """Draw a line over the panel's height at `level` of its x axis."""
        ends = {"x0": level, "x1": level, "y0": 0, "y1": 1}
        refs = {"xref": f"x{_number(row)}", "yref": f"y{_number(row)} domain"}
        self.shapes.append({"type": "line", "line": line, **ends, **refs})

    def level(self, level: float, line: Part, row: int = 1) -> None:
        """Draw a line over the panel's width at `level` of its y axis."""
        ends = {"x0": 0, "x1": 1, "y0": level, "y1": level}
        refs = {"xref": f"x{_number(row)} domain", "yref": f"y{_number(row)}"}
        self.shapes.append({"type": "line", "line": line, **ends, **refs})

    def x(self, row: int | None = None, *, title: str | None = None, **look: Any) -> None:
        """Change the x axis of a panel, or of all."""
        _change(self._x, row, title, look)

    def y(self, row: int | None = None, *, title: str | None = None, **look: Any) -> None:
        """Change the y axis of a panel, or of all."""
        _change(self._y, row, title, look)

    def figure(
        self, title: str, mark: str = "", *, height: int = 420, legend: bool | Part = True, **layout: Any
    ) -> go.Figure:
        """The whole, laid out by `theme.layout`; `layout` adds to that.

        Raises:
            ValueError: Plotly has no such property, or not with such a value.
        """
        whole = theme.layout(title, mark, height, legend) | {"annotations": self.notes, "shapes": self.shapes}
        for row in range(self.rows):
            whole |= {f"xaxis{_number(row + 1)}": self._x[row], f"yaxis{_number(row + 1)}": self._y[row]}
        return go.Figure(data=self.traces, layout=whole | layout)


def _number(row: int) -> str:
    return "" if row == 1 else str(row)


def _change(axes: list[Part], row: int | None, title: str | None, look: Part) -> None:
    for axis in axes if row is None else [axes[row - 1]]:
        axis |= look
        if title is not None:
            axis["title"] = {"text": title, "font": {"size": 12}}
