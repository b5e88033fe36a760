"""What a view shows, as values: the page draws it, an export writes it, and both hold the same numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd
import plotly.graph_objects as go


@dataclass(frozen=True)
class Chart:
    """A figure. `name` is its file name's stem and unique on the sheet; `alt` says in a sentence what it shows."""

    name: str
    figure: go.Figure
    alt: str


@dataclass(frozen=True)
class Column:
    """How a column of a table is shown: its head, a printf format (`%.1f`) for numbers, and what it means."""

    head: str
    format: str | None = None
    help: str | None = None


@dataclass(frozen=True)
class Data:
    """A table. `shown` has the columns of `columns`, as on the page; `whole` has all, unrounded, for the download.

    `texts` names columns that may hold sentences of the benchmark, of memories or of responses: an export leaves them
    out unless they are asked for.
    """

    name: str
    shown: pd.DataFrame
    columns: dict[str, Column]
    whole: pd.DataFrame
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    """Plain text (never Markdown or HTML): a remark, or a heading."""

    text: str
    heading: bool = False


@dataclass(frozen=True)
class Words:
    """Plain text that may hold sentences of the benchmark or of responses; left out of an export unless asked for."""

    title: str
    text: str


Block = Chart | Data | Text | Words


@dataclass
class Sheet:
    """One view: its question, the marks that its numbers carry, its blocks in order, and what they rest on."""

    page: str
    """The page's url path, e.g. `trade-off`."""
    title: str = ""
    """The question that the view answers."""
    marks: list[str] = field(default_factory=list)
    """Short facts: `published`, `not comparable with the paper`, `rule: task-mean`, …"""
    blocks: list[Block] = field(default_factory=list)
    provenance: dict[str, object] = field(default_factory=dict)
    """JSON values."""
