"""Finding the benchmark files and reading them from disk."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from opbench.benchmarks.shape import Node, printable
from opbench.errors import DataError
from opbench.settings import settings

OP_FILE = "opbench/locomo10_overpersonalized.json"
LOCOMO_FILE = "locomo/locomo10.json"
SAMPLE = Path(__file__).parent / "sample"

Source = Literal["data", "cache", "sample", "build"]


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The two files of a data folder, both there."""

    source: Source
    op: Path
    locomo: Path


def find(where: Path | Literal["sample"] | None = None) -> DataFiles:
    """The benchmark files to use.

    `where` is a data folder, `"sample"`, or None: then OPBENCH_DATA if it is set, else what `opbench data fetch`
    downloaded if that is whole, else the sample. In each of the folders `opbench/` and `locomo/` the public file's
    name is taken, or the only .json file.

    Raises:
        DataError: a file isn't in the folder that was asked for (never the sample instead of it).
    """
    if where == "sample":
        return _in_folder(SAMPLE, "sample", "the installation is damaged; install the package again")
    if where is not None:
        built = settings().builds in where.parents
        source: Source = "build" if built else "cache" if where == settings().fetched else "data"
        return _in_folder(where, source, "name a folder that holds opbench/ and locomo/, or run `opbench data fetch`")
    if (data := settings().data) is not None:
        return _in_folder(data, "data", "correct OPBENCH_DATA, or unset it to use fetched data or the sample")
    fetched = settings().fetched
    if (fetched / OP_FILE).is_file() and (fetched / LOCOMO_FILE).is_file():
        return _in_folder(fetched, "cache", "run `opbench data fetch` again")
    return find("sample")


def _in_folder(folder: Path, source: Source, mend: str) -> DataFiles:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such data folder; {mend}")
    return DataFiles(source, _the_file(folder, OP_FILE, mend), _the_file(folder, LOCOMO_FILE, mend))


def _the_file(folder: Path, public: str, mend: str) -> Path:
    if (path := folder / public).exists():
        return path
    candidates = sorted(path.parent.glob("*.json"))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(candidate.name for candidate in candidates)
        raise DataError(
            f"{path.parent}: several .json files and none is {path.name} ({names}); leave one of them there"
        )
    raise DataError(f"{folder}: {public} is not there; {mend}")


def read_bytes(path: Path) -> bytes:
    """The file's bytes. Raises DataError when it can't be read."""
    try:
        return path.read_bytes()
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder, not a file; put the JSON file in its place") from error
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror}); check that it is there and may be read") from error


def sha256(data: bytes) -> str:
    """Digest of a file's bytes, as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def parse_json(data: bytes, path: Path, again: str = "get it again with `opbench data fetch`") -> Node:
    """A file's bytes as JSON; `path` is for the messages, and so is `again`: how one gets a whole file.

    Raises:
        DataError: empty, not UTF-8, a web page, cut off, not JSON, or an object that has a key twice.
    """
    if not data.strip():
        raise DataError(f"{path}: the file is empty; {again}")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data[:4]:
        raise DataError(f"{path}: line 1, column 1: UTF-16 or UTF-32 text; save it as UTF-8, or {again}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise DataError(f"{path}: line {line}, byte {column}: not UTF-8; save it as UTF-8, or {again}") from error
    if text.lstrip().startswith("<"):
        raise DataError(f"{path}: line 1, column 1: a web page, not JSON; {again}")
    try:
        value = json.loads(text, object_pairs_hook=partial(_unique_keys, path), parse_constant=partial(_refuse, path))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        # An unterminated string is reported at its start, so being near the end isn't the only sign of a cut.
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise DataError(f"{path}: {place}: the file ends too early; {again}") from error
        raise DataError(f"{path}: {place}: not JSON ({error.msg}); correct it there, or {again}") from error
    except RecursionError as error:
        raise DataError(f"{path}: nested too deeply to be a benchmark file; {again}") from error
    except ValueError as error:  # Python refuses to read a number of more than 4,300 digits.
        raise DataError(f"{path}: a number that is too long to be one ({error}); {again}") from error
    return Node(path, value)


def _unique_keys(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f'{path}: an object has the key "{printable(twice)}" twice; leave one of them')
    return found


def _refuse(path: Path, constant: str) -> None:
    raise DataError(f"{path}: {constant} is no JSON value; put a number or null in its place")
