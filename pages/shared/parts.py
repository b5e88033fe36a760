"""Elements that look the same on all pages. Text of runs, models and files goes through `plain`, or is no Markdown."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

OFFLINE_MARK = "not comparable with the paper"


def plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def csv(frame: pd.DataFrame) -> bytes:
    """A table as CSV; text that a spreadsheet would take for a formula gets an apostrophe before it."""

    def safe(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

    return frame.map(safe).to_csv(index=False).encode()


def table(frame: pd.DataFrame, columns: dict[str, Any], name: str, *, source: pd.DataFrame | None = None) -> None:
    """A table with its download: all columns of `source` (or of `frame`), unrounded."""
    st.dataframe(
        frame,
        hide_index=True,
        column_order=list(columns),
        column_config=columns,
        placeholder="n/a",
        alt=f"{name} as a table",
    )
    st.download_button(
        "Download CSV",
        csv(frame if source is None else source),
        file_name=f"{name}.csv",
        mime="text/csv",
        icon=":material/download:",
        key=f"csv-{name}",
        on_click="ignore",
    )


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """A figure as wide as its place. Dragging scrolls the page instead of zooming, which a finger can't undo."""
    figure.update_layout(dragmode=False)
    st.plotly_chart(
        figure,
        key=key,
        alt=alt,
        config={
            "displaylogo": False,
            "modeBarButtonsToRemove": ["zoom", "pan", "select", "lasso", "zoomIn", "zoomOut", "autoScale", "resetScale"],
            "toImageButtonOptions": {"filename": key, "scale": 2},
        },
    )
