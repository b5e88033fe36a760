"""A build as words of the command line, and back: flags are the spec's fields, those of `counts` and `filters` too."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opbench.construction.spec import BuildSpec, Counts, Filters
from opbench.errors import UsageError

_PARTS: dict[str, type[Counts] | type[Filters]] = {"counts": Counts, "filters": Filters}


def make_spec(fields: Mapping[str, Any], where: str) -> BuildSpec:
    """A checked spec of plain values; fields of `counts` and `filters` may stand beside the others.

    Raises:
        UsageError: naming `where`, the key and the mend.
    """
    values = {name: value for name, value in fields.items() if value is not None}
    for part, kind in _PARTS.items():
        own = {name: values.pop(name) for name in kind.model_fields if name in values}
        if own:
            values[part] = {**dict(values.get(part, {})), **own}
    try:
        return BuildSpec.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(each) for each in first["loc"] if not isinstance(each, int)) or "build"
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{where}: no key '{key}'. Known keys: {', '.join(_known())}.") from None
        raise UsageError(f"{where}: {key}: {first['msg'].removeprefix('Value error, ')}.") from None


def read_spec(file: Path) -> dict[str, Any]:
    """The fields of a spec in TOML, unchecked.

    Raises:
        UsageError: the file can't be read as TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror}). Name a file in TOML.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: isn't UTF-8 text. Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: isn't TOML: {error}.") from error


def command(spec: BuildSpec, conversations: str = "auto") -> str:
    """The shell command that makes such a build."""
    words = ["opbench", "build", "run"]
    if conversations != "auto":
        words += ["--conversations", conversations]
    given = spec.model_dump(mode="json", exclude_defaults=True)
    for part in _PARTS:
        given |= given.pop(part, {})
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def _known() -> list[str]:
    return [
        name
        for field in BuildSpec.model_fields
        for name in ((_PARTS[field].model_fields) if field in _PARTS else [field])
    ]
