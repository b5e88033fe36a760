"""A run as one file: written here, read elsewhere.

A bundle is a zip of JSON Lines, one member a table, with a manifest that holds each member's SHA-256 and its own. It
carries the records, scores, user scores and people's scores of a run, but no calls: a call store that took answers from
strangers would pay for a call with a file that anybody can edit. An imported run is marked as recorded and can't be
resumed; its id begins with `rec-`, so it never mixes with a run of the same study made here.

What was measured of its records goes with it: similarities and attention. Formats 1 and 2 have none of that; format 1
has no people's scores either, and its manifest no digest of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, select

from opbench import __version__
from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.archive import LIMITS
from opbench.store.bundle_import import FORMAT, MANIFEST, MEMBERS, digest_of, import_run
from opbench.store.database import Store

__all__ = ["SUFFIX", "export_run", "import_run"]

SUFFIX = ".opbench.zip"

#: Columns that may hold sentences of the benchmark, of memories or of responses.
_TEXTS: dict[str, tuple[str, ...]] = {
    "instances": ("question", "answer"),
    "records": ("response", "draft", "critique", "retrieved", "context", "state_reason"),
    "scores": ("raw",),
    "human_scores": ("note",),
    "attention": ("words",),
}
_ROWS = 500


def export_run(store: Store, run_id: str, file: Path, *, texts: bool = True) -> Path:
    """Write a run to `file`, as it is at this moment. Without `texts`: ids, scores, latencies and tokens only, and no
    embeddings.

    Raises:
        UsageError: the file can't be written, or would be larger than what is read.
    """
    part = file.with_name(file.name + ".part")
    try:
        with _snapshot(store) as connection:
            _write(connection, run_id, part, texts)
        part.replace(file)
    except OSError as error:
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
    finally:
        part.unlink(missing_ok=True)
    return file


@contextmanager
def _snapshot(store: Store) -> Iterator[Connection]:
    """A connection to which the store stands still: a run at work goes on, and its bundle still fits together."""
    with store.begin() as connection:
        lite = connection.dialect.name == "sqlite"
        connection.exec_driver_sql("BEGIN" if lite else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield connection


def _write(connection: Connection, run_id: str, file: Path, texts: bool) -> None:
    run = dict(connection.execute(select(s.runs).where(s.runs.c.id == run_id)).mappings().one())
    texts = texts and not run["text_left_out"]
    run["text_left_out"] = not texts
    digests: dict[str, str] = {}
    unpacked = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in MEMBERS[FORMAT]:
            digest = hashlib.sha256()
            with archive.open(_member(f"{name}.jsonl"), "w", force_zip64=True) as member:
                for row in _rows(connection, run_id, name, texts):
                    line = (json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n").encode()
                    unpacked += len(line)
                    if unpacked > LIMITS.unpacked:
                        mend = "Leave the texts out (--no-texts)." if texts else "Give a smaller run."
                        raise UsageError(f"run {run_id}: a bundle of more than {LIMITS.unpacked:,} bytes. {mend}")
                    digest.update(line)
                    member.write(line)
            digests[name] = digest.hexdigest()
        manifest = {"format": FORMAT, "workbench": __version__, "run": run, "sha256": digests}
        manifest["manifest_sha256"] = digest_of(manifest)
        archive.writestr(_member(MANIFEST), json.dumps(manifest, ensure_ascii=False, sort_keys=True))


def _member(name: str) -> zipfile.ZipInfo:
    # A fixed date: the same run gives the same bytes.
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _rows(connection: Connection, run_id: str, name: str, texts: bool) -> Iterator[dict[str, Any]]:
    table: Table = s.metadata.tables[name]
    if name == "embeddings" and not texts:
        return
    query = select(table)
    if name in ("scores", "embeddings", "attention"):
        query = query.join(s.records, s.records.c.id == table.c.record_id).where(s.records.c.run_id == run_id)
    elif name == "user_scores":
        query = query.join(s.configurations, s.configurations.c.id == table.c.configuration_id)
        query = query.where(s.configurations.c.run_id == run_id)
    else:
        query = query.where(table.c.run_id == run_id)
    query = query.order_by(*table.primary_key.columns)
    hidden = () if texts else _TEXTS.get(name, ())
    for row in connection.execute(query, execution_options={"yield_per": _ROWS}).mappings():
        values = dict(row)
        for column in hidden:
            values[column] = None if table.c[column].nullable else ""
        if not texts and name == "scores" and values["value"] is not None:
            values["reason"] = None
        for column, value in row.items():
            if isinstance(value, bytes | memoryview):
                values[column] = base64.b64encode(value).decode()
        yield values
