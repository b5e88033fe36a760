"""What several commands share: lists, the store, tables on the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from opbench.benchmarks import exclusions
from opbench.settings import settings
from opbench.sharing.visible import visible
from opbench.store.database import PATIENCE_S, Store, open_store
from opbench.store.rundata import RunData

Exclude = Annotated[str | None, typer.Option(help="Leave out lists of instances, a,b: see 'opbench data exclusions'.")]

#: Characters of the widest table that is printed in one piece.
_WIDEST = 1000


def words(value: str | None) -> tuple[str, ...] | None:
    """`a,b` as ("a", "b"); None when the flag wasn't given."""
    return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())


def leave_out(data: RunData, names: Sequence[str]) -> RunData:
    """The run without the instances of the named lists.

    Raises:
        UsageError, DataError: no such list, or one that can't be left out.
    """
    return data.without(exclusions.listed(names)) if names else data


def the_store(*, patience_s: float = PATIENCE_S) -> Store:
    return open_store(settings().store_url, patience_s=patience_s)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that may come from models, files or people: what would steer the terminal is written out as signs."""
    typer.echo(visible(text), err=err, nl=nl)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON values: what is missing is null, never NaN."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=10))
    return rows


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(frame: pd.DataFrame, columns: Mapping[str, str], *, title: str = "", notes: Sequence[str] = ()) -> None:
    """A table for people; `columns` maps the frame's columns to headings. A missing number is a dash."""
    console = Console()
    table = Table(title=Text(visible(title)) if title else None, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for name, heading in columns.items():
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=name != "detail")
    for row in frame[list(columns)].itertuples(index=False):
        table.add_row(*(Text(_cell(value)) for value in row))
    # A narrow terminal wraps the lines; squeezed columns would drop the names.
    console.width = max(
        console.width, Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    )
    console.print(table)
    for note in notes:
        console.print(visible(note), markup=False, highlight=False)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else visible(str(value))
