"""Responses to a build's questions: the kept ones as a data set that the engine runs, BASE beside a memory system.

A run's data are a copy that never changes (`OPBENCH_HOME/builds/<id>/data/<digest>`), which its study names; so a run
goes on later with the same questions, whatever filters and reviewers have decided meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opbench.benchmarks import built, load
from opbench.construction.export import Which, export
from opbench.errors import DataError
from opbench.store.database import Store
from opbench.study import BASE, Study, make_study


def data_of(store: Store, build_id: str, which: Which = "kept") -> str:
    """Write a build's questions as a data set for runs, and tell what a study says of it (`Study.data`).

    The same questions of the same conversations give the same: what is there already is taken.

    Raises:
        UsageError: no candidate is kept (or accepted).
        DataError: the conversations aren't here, or the folder can't be written.
    """
    folder = built.folder_of_build(build_id) / "data"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix="part-", dir=folder))
        try:
            made = part / "data"
            export(store, build_id, made, which)
            digests = json.dumps(load(made).sha256, sort_keys=True)
            data = built.name(build_id, hashlib.sha256(digests.encode()).hexdigest())
            there = built.folder(data)
            if not there.exists():
                made.rename(there)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: can't be written ({error.strerror}). Mend that, or set OPBENCH_HOME to "
            "another folder."
        ) from error
    return data


def response_study(data: str, *, models: Sequence[str], memories: Sequence[str], **further: Any) -> Study:
    """The study that has BASE and memory systems respond to a build's questions; `further`: fields of `Study`.

    Raises:
        UsageError: what is named makes no study.
    """
    fields = {"benchmarks": ["op"], **{name: value for name, value in further.items() if value is not None}}
    return make_study(
        {**fields, "models": list(models), "memories": [BASE, *memories], "data": data}, where="opbench build respond"
    )


def forget_data(build_id: str) -> None:
    """Remove the data sets that runs of a build read: those runs can be read on, but not go on."""
    shutil.rmtree(built.folder_of_build(build_id), ignore_errors=True)
