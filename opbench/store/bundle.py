"""A run as one file: written here, read elsewhere.

A bundle is a zip of JSON Lines, one member a table, with a manifest that holds each member's SHA-256. It carries the
records, scores and user scores of a run, but no calls: a call store that took answers from strangers would pay for a
call with a file that anybody can edit. An imported run is marked as recorded and can't be resumed; its id begins
with `rec-`, so it never mixes with a run of the same study made here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Table, delete, select
from sqlalchemy.exc import SQLAlchemyError

from opbench import __version__
from opbench.errors import DataError, UsageError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Study

FORMAT = 1
SUFFIX = ".opbench.zip"
MAX_BYTES = 2 << 30
"""Largest unpacked bundle that is read, in bytes."""

#: Columns that may hold sentences of the benchmark, of memories or of responses.
_TEXTS: dict[str, tuple[str, ...]] = {
    "instances": ("question", "answer"),
    "records": ("response", "draft", "critique", "retrieved", "context", "state_reason"),
    "scores": ("raw",),
}
_MEMBERS = ("configurations", "instances", "records", "scores", "user_scores", "embeddings")


#: What a damaged or made-up zip can raise.
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    ValidationError,
)


def export_run(store: Store, run_id: str, file: Path, *, texts: bool = True) -> Path:
    """Write a run to `file`. Without `texts`: ids, scores, latencies and tokens only, and no embeddings.

    Raises:
        UsageError: the file can't be written.
    """
    with store.begin() as connection:
        run = dict(connection.execute(select(s.runs).where(s.runs.c.id == run_id)).mappings().one())
    texts = texts and not run["text_left_out"]
    run["text_left_out"] = not texts
    digests: dict[str, str] = {}
    part = file.with_name(file.name + ".part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in _MEMBERS:
                digest = hashlib.sha256()
                with archive.open(_member(f"{name}.jsonl"), "w", force_zip64=True) as member:
                    for row in _rows(store, run_id, name, texts):
                        line = (json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n").encode()
                        digest.update(line)
                        member.write(line)
                digests[name] = digest.hexdigest()
            manifest = {"format": FORMAT, "workbench": __version__, "run": run, "sha256": digests}
            archive.writestr(_member("manifest.json"), json.dumps(manifest, ensure_ascii=False, sort_keys=True))
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
    return file


def _member(name: str) -> zipfile.ZipInfo:
    # A fixed date: the same run gives the same bytes.
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _rows(store: Store, run_id: str, name: str, texts: bool) -> Iterator[dict[str, Any]]:
    table: Table = s.metadata.tables[name]
    if name == "embeddings" and not texts:
        return
    query = select(table)
    if name in ("scores", "embeddings"):
        query = query.join(s.records, s.records.c.id == table.c.record_id).where(s.records.c.run_id == run_id)
        query = query.order_by(table.c.record_id)
    elif name == "user_scores":
        query = query.join(s.configurations, s.configurations.c.id == table.c.configuration_id)
        query = query.where(s.configurations.c.run_id == run_id).order_by(*table.primary_key.columns)
    else:
        query = query.where(table.c.run_id == run_id).order_by(*table.primary_key.columns)
    hidden = () if texts else _TEXTS.get(name, ())
    with store.begin() as connection:
        for row in connection.execute(query).mappings():
            values = {column: None if column in hidden else value for column, value in row.items()}
            if not texts and name == "scores" and values["value"] is not None:
                values["reason"] = None
            if name == "embeddings":
                values["vector"] = base64.b64encode(row["vector"]).decode()
            yield values


def import_run(store: Store, file: Path) -> str:
    """Read a bundle into the store, whole or not at all; returns the run's id here.

    Reading the same bundle again changes nothing; another bundle of the same run replaces it.

    Raises:
        DataError: not a bundle, damaged, changed, of a newer format or too large; one line that says which.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_BYTES:
                raise DataError(f"{file}: unpacks to more than {MAX_BYTES >> 30} GiB. That is no bundle of ours.")
            manifest = json.loads(archive.read("manifest.json"))
            if manifest.get("format") != FORMAT:
                raise DataError(f"{file}: format {manifest.get('format')}, this version reads {FORMAT}. Update first.")
            tables = {name: _read(archive, name, manifest["sha256"][name], file) for name in _MEMBERS}
        run = manifest["run"]
        Study.model_validate(run["study"])
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}).") from error
    except _DAMAGES as error:
        raise DataError(f"{file}: isn't a whole bundle ({type(error).__name__}: {error}). Export it again.") from error
    run_id = run["id"] if str(run["id"]).startswith("rec-") else f"rec-{run['id']}"
    contents = hashlib.sha256(json.dumps(manifest["sha256"], sort_keys=True).encode()).hexdigest()
    with store.begin() as connection:
        provenance = connection.scalar(select(s.runs.c.provenance).where(s.runs.c.id == run_id)) or {}
    if provenance.get("bundle_sha256") == contents:
        return run_id
    run["provenance"] = {**run["provenance"], "bundle_sha256": contents}
    try:
        _insert(store, run, run_id, tables)
    except (SQLAlchemyError, KeyError, TypeError) as error:
        raise DataError(f"{file}: its tables don't fit together ({type(error).__name__}). Export it again.") from error
    return run_id


def _read(archive: zipfile.ZipFile, name: str, expected: str, file: Path) -> list[dict[str, Any]]:
    content = archive.read(f"{name}.jsonl")
    if hashlib.sha256(content).hexdigest() != expected:
        raise DataError(f"{file}: {name}.jsonl was changed after the export. Get the bundle again from its maker.")
    return [json.loads(line) for line in content.splitlines()]


def _insert(store: Store, run: dict[str, Any], run_id: str, tables: dict[str, list[dict[str, Any]]]) -> None:
    with store.begin() as connection:
        connection.execute(delete(s.runs).where(s.runs.c.id == run_id))
        connection.execute(s.runs.insert().values(**run | {"id": run_id, "recorded": True, "request": "stop"}))
        configuration_ids: dict[int, int] = {}
        for row in tables["configurations"]:
            old = row.pop("id")
            configuration_ids[old] = connection.execute(
                s.configurations.insert().values(**row | {"run_id": run_id}).returning(s.configurations.c.id)
            ).scalar_one()
        if tables["instances"]:
            connection.execute(s.instances.insert(), [row | {"run_id": run_id} for row in tables["instances"]])
        record_ids: dict[int, int] = {}
        for row in tables["records"]:
            old = row.pop("id")
            row |= {"run_id": run_id, "configuration_id": configuration_ids[row["configuration_id"]]}
            record_ids[old] = connection.execute(
                s.records.insert().values(**row).returning(s.records.c.id)
            ).scalar_one()
        for name in ("scores", "embeddings"):
            rows = [row | {"record_id": record_ids[row["record_id"]]} for row in tables[name]]
            if name == "embeddings":
                rows = [row | {"vector": base64.b64decode(row["vector"])} for row in rows]
            if rows:
                connection.execute(s.metadata.tables[name].insert(), rows)
        rows = [row | {"configuration_id": configuration_ids[row["configuration_id"]]} for row in tables["user_scores"]]
        if rows:
            connection.execute(s.user_scores.insert(), rows)
