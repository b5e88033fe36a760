"""Benchmarks that were made here (`opbench build`): how a study names one, and where its files are."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from opbench.benchmarks.loading import load
from opbench.errors import DataError
from opbench.settings import settings
from opbench.types import Corpus

#: Hex digits of a data set's digest that name it.
DIGEST_LENGTH = 12
_KIND = "build:"


def name(build_id: str, digest: str) -> str:
    """What a study's `data` says of a build's questions; `digest` tells which of its exports."""
    return f"{_KIND}{build_id}:{digest[:DIGEST_LENGTH]}"


def build_of(data: str) -> str | None:
    """The id of the build that a study's `data` names; None when it names none."""
    return data.removeprefix(_KIND).partition(":")[0] if data.startswith(_KIND) else None


def folder_of_build(build_id: str) -> Path:
    """Where files of a build are kept, below OPBENCH_HOME."""
    return settings().builds / build_id


def folder(data: str) -> Path:
    """The data folder that a study's `data` names: `opbench/` and `locomo/` are in it. It never changes."""
    build_id, _, digest = data.removeprefix(_KIND).partition(":")
    return folder_of_build(build_id) / "data" / digest


def exported() -> list[str]:
    """The `data` of all that was exported here for runs, newest first."""
    found = [path for path in settings().builds.glob("*/data/*") if len(path.name) == DIGEST_LENGTH and path.is_dir()]
    newest = sorted(found, key=lambda path: (-path.stat().st_mtime, path))
    return [name(path.parent.parent.name, path.name) for path in newest]


def corpus_of(data: str) -> Corpus:
    """The corpus that a study's `data` names: `auto`, `sample` or `build:<id>:<digest>`.

    Raises:
        DataError: its files aren't here, or are damaged.
    """
    if build_of(data) is None:
        where: Literal["sample"] | None = "sample" if data == "sample" else None
        return load(where)
    there = folder(data)
    if not there.is_dir():
        raise DataError(
            f"{there}: the questions of build {build_of(data)} that this study is of aren't here. Its data were "
            "deleted, or it was run with another OPBENCH_HOME: set that one, or copy the folder here."
        )
    return load(there)
