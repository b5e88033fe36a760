"""Entries of a registry file: TOML tables as checked values, with errors that name file, key and mend in one line."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from opbench.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

S = TypeVar("S", bound=BaseModel)


def nearest(word: str, words: Iterable[Any]) -> str | None:
    """The word most like `word`, whatever the case; None when none is like it."""
    lowered = {str(w).lower(): str(w) for w in words}
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.5)
    return lowered[found[0]] if found else None


def read_groups(file: Path, groups: Collection[str]) -> dict[str, dict[str, Any]]:
    """The file's tables by group and then by entry name; a group that isn't there is empty.

    Raises:
        UsageError: the file can't be read, or holds another group.
    """
    content = _read(file)
    for key in content:
        if key not in groups:
            near = nearest(key, groups)
            mend = f"Did you mean {near}?" if near else f"Write {' or '.join(f'[{group}.NAME]' for group in groups)}."
            raise UsageError(f"{file}: unknown table [{key}]. {mend}")
    for group, table in content.items():
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {group} must be tables. Write [{group}.NAME].")
    return {group: content.get(group, {}) for group in groups}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror}). Check the path and its rights.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: isn't UTF-8 (byte {error.start}). Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: no valid TOML: {error}. Mend that line.") from error


def place(file: Path, group: str, name: str) -> str:
    """How an error names an entry: the file and the entry's heading."""
    return f"{file}: [{group}.{name if '.' not in name else json.dumps(name)}]"


def entry(file: Path, group: str, name: str, value: Any, spec: type[S]) -> S:
    """The entry as a `spec`, whose field `name` is the entry's name.

    Raises:
        UsageError: a wrong name, key or value.
    """
    where = place(file, group, name)
    if not isinstance(value, dict):
        raise UsageError(f"{where} must be a table. Write [{group}.{name}] and its fields below.")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a name is made of letters, digits, dots, dashes and underscores. Rename it.")
    if any(isinstance(field, dict) and not _is_table(spec, key) for key, field in value.items()):
        raise UsageError(f'{where} holds another table. A name with a dot needs quotes: [{group}."{name}.…"].')
    if "name" in value:
        raise UsageError(f"{where}: unknown key name. The entry's name is in its heading; for people, set label.")
    # TOML writes 60 where Python would write 60.0.
    numbers = {k: float(v) if type(v) is int and _is_float(spec, k) else v for k, v in value.items()}
    try:
        return spec.model_validate({"name": name, **numbers})
    except ValidationError as error:
        raise UsageError(f"{where}: {_explain(error, value, spec)}") from error


def _is_table(spec: type[BaseModel], key: str) -> bool:
    field = spec.model_fields.get(key)
    return field is not None and get_origin(field.annotation) is dict


def _is_float(spec: type[BaseModel], key: str) -> bool:
    field = spec.model_fields.get(key)
    return field is not None and field.annotation in (float, float | None)


def _explain(error: ValidationError, value: dict[str, Any], spec: type[BaseModel]) -> str:
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        near = nearest(key, [f for f in spec.model_fields if f != "name"])
        mend = f"Did you mean {near}?" if near else f"Known: {', '.join(f for f in spec.model_fields if f != 'name')}."
        return f"unknown key {key}. {mend}"
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return f"{message}."
    given = value.get(key)
    # An address may hold a password, and what should name a variable may be the key itself.
    secret = key.endswith("url") or key in ("key_env", "replicas")
    shown = "" if secret or given is None or (isinstance(given, float) and math.isnan(given)) else f" = {given!r}"
    return f"{key}{shown}: {message}."
