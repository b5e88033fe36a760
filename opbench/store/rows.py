"""Rows from files that anybody may have written: every value is of its column's type, or one line says which isn't."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sqlalchemy import JSON, Boolean, Column, Float, Integer, LargeBinary, String, Table

from opbench.errors import DataError
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES

#: PostgreSQL's INTEGER.
_LARGEST = 2**31 - 1
#: NUL and halves of surrogate pairs, which no database keeps.
_NOT_KEPT = re.compile("[\x00\ud800-\udfff]")
_JSON = json.JSONEncoder(ensure_ascii=False)
_CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("instances", "benchmark"): ("op", "locomo"),
    ("instances", "subtype"): (*OP_SUBTYPES, *LOCOMO_CATEGORIES.values()),
    ("records", "status"): ("done", "error"),
}


def checked(table: Table, row: object, place: str) -> dict[str, Any]:
    """The row with all of the table's columns, as the database takes them; `place` is for the message.

    Binary columns are base64 in the file. A column that the row lacks is null.

    Raises:
        DataError: not an object, an unknown column, a value missing, of the wrong type or out of range.
    """
    if not isinstance(row, dict):
        raise DataError(f"{place}: isn't a row. Export it again.")
    readers = _readers(table)
    if not row.keys() <= readers.keys():
        unknown = min(str(name) for name in row if name not in readers)
        raise DataError(f"{place}: no column {unknown[:40]!r}. Export it again.")
    values: dict[str, Any] = {}
    for name, (nullable, read) in readers.items():
        value = row.get(name)
        try:
            if value is not None:
                value = read(value)
            elif not nullable:
                raise _Wrong("there")
        except _Wrong as wrong:
            raise DataError(f"{place}: {name} isn't {wrong}. Export it again.") from None
        values[name] = value
    return values


class _Wrong(Exception):
    """What a value should have been."""


@lru_cache
def _readers(table: Table) -> dict[str, tuple[bool, Callable[[Any], Any]]]:
    """By column: whether it may be null, and what makes the database's value of the file's."""
    return {column.name: (bool(column.nullable), _reader(table.name, column)) for column in table.columns}


def _reader(table: str, column: Column[Any]) -> Callable[[Any], Any]:
    kind = column.type
    if isinstance(kind, JSON):
        if column.name in ("retrieved", "context"):
            return _memories
        return _object if column.name in ("study", "provenance", "counts") else _storable
    if isinstance(kind, LargeBinary):
        return _vector
    if isinstance(kind, Boolean):
        return _truth
    if isinstance(kind, Integer):
        return _whole
    if isinstance(kind, Float):
        return _finite
    longest = kind.length if isinstance(kind, String) else None
    return partial(_text, longest, _CHOICES.get((table, column.name)))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("true or false")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise _Wrong("a whole number")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Wrong("a number")
    return float(value)


def _text(longest: int | None, choices: tuple[str, ...] | None, value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("text")
    if _NOT_KEPT.search(value):
        raise _Wrong("text that can be stored")
    if longest is not None and len(value) > longest:
        raise _Wrong(f"at most {longest} signs")
    if choices is not None and value not in choices:
        raise _Wrong(f"one of {', '.join(choices)}")
    return value


def _storable(value: Any) -> Any:
    try:
        _JSON.encode(value).encode()
    except UnicodeEncodeError:
        raise _Wrong("text that can be stored") from None
    return value


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise _Wrong("an object")
    return _storable(value)


def _memories(value: Any) -> Any:
    if not isinstance(value, list) or not all(
        isinstance(memory, dict) and isinstance(memory.get("text"), str) for memory in value
    ):
        raise _Wrong("a list of memories")
    return _storable(value)


def _vector(value: Any) -> bytes:
    """float32, little endian, L2-normalised."""
    wrong = _Wrong("a vector of length 1")
    try:
        packed = base64.b64decode(value, validate=True)
        vector = np.frombuffer(packed, dtype="<f4").astype(np.float64)
    except (binascii.Error, ValueError, TypeError):
        raise wrong from None
    if not vector.size or not math.isclose(float(vector @ vector), 1.0, abs_tol=1e-3):
        raise wrong
    return packed
