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
#: Seconds from 1970 to the year 9000, which dates can be made of.
_TIME = (0.0, 2.2e11)
_MILLISECONDS, _COUNT, _SHARE = (0.0, 1e12), (0, _LARGEST), (-1e-6, 1 + 1e-6)
#: From and to, by column, or by table and column.
_RANGES: dict[str, tuple[float, float]] = {
    "created_at": _TIME,
    "finished_at": _TIME,
    "made_at": _TIME,
    "retrieval_ms": _MILLISECONDS,
    "post_ms": _MILLISECONDS,
    "response_ms": _MILLISECONDS,
    "post_prompt_tokens": _COUNT,
    "post_completion_tokens": _COUNT,
    "response_prompt_tokens": _COUNT,
    "response_completion_tokens": _COUNT,
    "concurrency": (1, _LARGEST),
    "cost_usd": (0.0, 1e9),
    "ordinal": _COUNT,
    "n": _COUNT,
    "scores.value": _SHARE,
    "human_scores.value": _SHARE,
    # 1 less a cosine similarity, or such a similarity.
    "user_scores.value": (-1 - 1e-6, 2 + 1e-6),
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
    if (own := _OF_MEASUREMENTS.get((table, column.name))) is not None:
        return own
    kind = column.type
    low, high = _RANGES.get(f"{table}.{column.name}", _RANGES.get(column.name, (-_LARGEST, _LARGEST)))
    if isinstance(kind, JSON):
        if column.name in ("retrieved", "context"):
            return _memories
        return _object if column.name in ("study", "provenance", "counts") else _storable
    if isinstance(kind, LargeBinary):
        return _vector
    if isinstance(kind, Boolean):
        return _truth
    if isinstance(kind, Integer):
        return partial(_number, "a whole number", (int,), low, high)
    if isinstance(kind, Float):
        return partial(_number, "a number", (int, float), low, high)
    longest = kind.length if isinstance(kind, String) else None
    return partial(_text, longest, _CHOICES.get((table, column.name)))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("true or false")
    return value


def _number(what: str, kinds: tuple[type[int] | type[float], ...], low: float, high: float, value: Any) -> Any:
    if (
        isinstance(value, bool)
        or not isinstance(value, kinds)
        or not abs(value) <= (_LARGEST if kinds == (int,) else 1e300)
    ):
        raise _Wrong(what)
    if not low <= value <= high:
        raise _Wrong(f"from {round(low, 3) + 0:.10g} to {round(high, 3):.10g}")
    return value if kinds == (int,) else float(value)


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


def _shares(value: Any) -> bytes:
    """float32, little endian: shares of attention."""
    wrong = _Wrong("shares from 0 to 1")
    try:
        packed = base64.b64decode(value, validate=True)
        shares = np.frombuffer(packed, dtype="<f4")
    except (binascii.Error, ValueError, TypeError):
        raise wrong from None
    if not shares.size or not bool(np.all((shares >= -1e-3) & (shares <= 1 + 1e-3))):
        raise wrong
    return packed


def _cosines(value: Any) -> Any:
    if not isinstance(value, list):
        raise _Wrong("a list of cosines")
    return [_number("a list of cosines", (int, float), -1 - 1e-3, 1 + 1e-3, each) for each in value]


def _counts(value: Any) -> Any:
    if not isinstance(value, list):
        raise _Wrong("a list of counts")
    return [_number("a list of counts", (int,), 0, _LARGEST, each) for each in value]


def _names(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _Wrong("a list of names")
    return _storable(value)


def _words(value: Any) -> Any:
    if not isinstance(value, list):
        raise _Wrong("a list of words with their segments")
    for each in value:
        if not isinstance(each, list) or len(each) != 2 or not all(isinstance(part, str) for part in each):
            raise _Wrong("a list of words with their segments")
    return _storable(value)


_OF_MEASUREMENTS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("similarities", "cosines"): _cosines,
    ("attention", "segments"): _names,
    ("attention", "tokens"): _counts,
    ("attention", "masses"): _shares,
    ("attention", "words"): _words,
    ("attention", "weights"): _shares,
    ("attention", "layers"): partial(_number, "a whole number", (int,), 1, 10_000),
    ("attention", "heads"): partial(_number, "a whole number", (int,), 1, 10_000),
}
