"""Tables of a sheet outside the page: cells as they are shown, CSV, and JSON values in full precision."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from opbench.figures.theme import MISSING
from opbench.sharing.sheet import Data, Sheet
from opbench.sharing.visible import visible

#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: An interval (`+17.0 to +23.0`) or a change (`+0.1 points`), which is no formula.
_RANGE = re.compile(r"[+-]\d[\d.,]*( to [+\u2212-]?\d[\d.,]*| points)")
#: Streamlit's names of number formats, as functions; others are printf's.
_FORMATS = {
    "plain": lambda number: f"{number:g}",
    "localized": lambda number: f"{number:,}",
    "percent": lambda number: f"{number:.2%}",
    "dollar": lambda number: f"${number:,.2f}",
    "euro": lambda number: f"€{number:,.2f}",
    "compact": lambda number: f"{number:,.3g}",
    "scientific": lambda number: f"{number:.3e}",
}


def no_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before every text that a spreadsheet would take for the beginning of a formula."""

    def safe(value: Any) -> Any:
        risky = isinstance(value, str) and value.startswith(_FORMULA) and not _RANGE.fullmatch(value)
        return f"'{value}" if risky else value

    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(**{name: frame[name].map(safe) for name in texts})


def csv_bytes(frame: pd.DataFrame, marks: Sequence[str] = ()) -> bytes:
    """A table as CSV in UTF-8, without formulas in cells and heads.

    `marks` (`published`, `not comparable with the paper`, …) stand in a last column: a file goes on alone, and rows of
    several files are put together.
    """
    if marks:
        frame = frame.assign(marks="; ".join(dict.fromkeys(marks)))
    heads = no_formulas(pd.DataFrame({"head": [str(name) for name in frame.columns]}))["head"]
    return no_formulas(frame).set_axis(list(heads), axis=1).to_csv(index=False).encode()


def without_texts(table: Data) -> Data:
    """The table without the columns that may hold sentences of the benchmark, of memories or of responses."""
    hidden = set(table.texts)
    return Data(
        table.name,
        table.shown.drop(columns=hidden & set(table.shown.columns)),
        {name: column for name, column in table.columns.items() if name not in hidden},
        table.whole.drop(columns=hidden & set(table.whole.columns)),
    )


def tables_of(sheet: Sheet, with_texts: bool) -> list[Data]:
    """The sheet's tables in order, with or without their texts."""
    tables = [block for block in sheet.blocks if isinstance(block, Data)]
    return tables if with_texts else [without_texts(table) for table in tables]


def csv_files(tables: Sequence[Data], marks: Sequence[str] = ()) -> tuple[str, bytes]:
    """File name and contents: the one table as CSV, or several in a zip; `marks` as in `csv_bytes`."""
    if len(tables) == 1:
        return f"{tables[0].name}.csv", csv_bytes(tables[0].whole, marks)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for table in tables:
            archive.writestr(f"{table.name}.csv", csv_bytes(table.whole, marks))
    return "tables.zip", packed.getvalue()


def cell(value: object, form: str | None = None) -> str:
    """A cell as text; `form` is a printf format or one of Streamlit's names. What is missing says so."""
    plain = json_value(value)
    if plain is None:
        return MISSING
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, int | float):
        return _number(plain, form)
    if isinstance(plain, list):
        return ", ".join(cell(part) for part in plain)
    return visible(str(plain))


def _number(number: float, form: str | None) -> str:
    if form in _FORMATS:
        return _FORMATS[form](number)
    if form and "%" in form:
        try:
            return form % number
        except (TypeError, ValueError):
            pass  # a date format, or one that only the browser knows
    return str(number) if isinstance(number, int) else f"{number:.6g}"


def json_value(value: object) -> Any:
    """A cell as a JSON value in full precision; what is missing, or no finite number, is None."""
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, list | tuple | set | np.ndarray):
        return [json_value(part) for part in value]
    if isinstance(value, dict):
        return {str(key): json_value(part) for key, part in value.items()}
    return value.isoformat() if isinstance(value, date) else str(value)


def json_table(frame: pd.DataFrame) -> dict[str, Any]:
    """`{"columns": [...], "rows": [[...], ...]}`."""
    columns = [[json_value(value) for value in frame.iloc[:, place].tolist()] for place in range(frame.shape[1])]
    return {"columns": [str(name) for name in frame.columns], "rows": [list(row) for row in zip(*columns, strict=True)]}
