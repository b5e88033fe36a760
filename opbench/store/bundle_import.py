"""Reading a bundle into the store: looked through first, then written whole or not at all, with bounded memory, and
beside runs at work, which get their turn between its rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, select, tuple_
from sqlalchemy.exc import DataError as DatabaseDataError
from sqlalchemy.exc import IntegrityError

from opbench.errors import DataError, StoreError
from opbench.store import schema as s
from opbench.store.archive import LIMITS, Archive, Limits, open_archive, parse
from opbench.store.attention import unlike_itself
from opbench.store.database import Store
from opbench.store.incoming import Incoming, coming_in
from opbench.store.rows import checked
from opbench.study import Study
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES

FORMAT = 3
"""Written now; 1 and 2 are still read."""
MANIFEST = "manifest.json"
RECORDED = "rec-"
"""How the ids of imported runs begin."""
_FIRST = ("configurations", "instances", "records", "scores", "user_scores", "embeddings")
#: Tables by format, in the order in which they refer to each other.
MEMBERS: dict[int, tuple[str, ...]] = {
    1: _FIRST,
    2: (*_FIRST, "human_scores"),
    3: (*_FIRST, "human_scores", "similarities", "attention"),
}
_SUBTYPES = {"op": OP_SUBTYPES, "locomo": tuple(LOCOMO_CATEGORIES.values())}
_ROWS = 500
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,60}")


class _Execution(BaseModel):
    """What is read of an execution in a run's provenance."""

    model_config = ConfigDict(strict=True)

    concurrency: int | None = Field(None, ge=1)
    budget_usd: float | None = Field(None, ge=0)
    pilot_records: int | None = Field(None, ge=1)
    embeddings_usd: float | None = Field(None, ge=0)
    ingestion_usd: float | None = Field(None, ge=0)


class _Provenance(BaseModel):
    """What is read of a run's provenance; all else is shown as it is."""

    model_config = ConfigDict(strict=True)

    data: dict[str, Any] = Field(default_factory=dict)
    plugins: dict[str, Any] = Field(default_factory=dict)
    executions: list[_Execution] = Field(default_factory=list)


def digest_of(manifest: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over all of a manifest but its own digest."""
    rest = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    return hashlib.sha256(json.dumps(rest, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def import_run(store: Store, file: Path | BinaryIO, *, label: str = "", limits: Limits = LIMITS) -> str:
    """Read a bundle into the store, whole or not at all; returns the run's id here.

    `label` names the file in messages (a file that was uploaded has no path). Reading the same bundle again changes
    nothing; another bundle of the same run replaces it, but for what people scored here.

    Raises:
        DataError: not a bundle, damaged, changed, of a newer format or too large; one line that says which.
    """
    label = label or str(file)
    if isinstance(file, Path):
        try:
            with file.open("rb") as opened:
                return import_run(store, opened, label=label, limits=limits)
        except OSError as error:
            raise DataError(f"{label}: can't be read ({error.strerror}).") from error
    known = {MANIFEST, *(f"{name}.jsonl" for name in MEMBERS[FORMAT])}
    with open_archive(file, label, known, limits) as archive:
        manifest = _manifest(archive)
        run = _run(manifest, label)
        with store.begin() as connection:
            before = connection.scalar(select(s.runs.c.provenance).where(s.runs.c.id == run["id"])) or {}
        if before.get("bundle_sha256") == run["provenance"]["bundle_sha256"]:
            return str(run["id"])
        _look_through(archive, manifest)
        try:
            with coming_in(store, run) as incoming:
                _Import(incoming, archive, manifest).write(run)
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError | DatabaseDataError):
                raise DataError(f"{label}: its tables don't fit together. Export it again.") from error
            raise
    return str(run["id"])


def _manifest(archive: Archive) -> dict[str, Any]:
    manifest = archive.manifest(MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise DataError(f"{archive.label}: {MANIFEST} isn't one of ours. Export it again.")
    if manifest["format"] not in MEMBERS:
        raise DataError(
            f"{archive.label}: format {manifest['format']}, this version reads {FORMAT} and older. Update first."
        )
    members = {f"{name}.jsonl" for name in MEMBERS[manifest["format"]]}
    if missing := sorted(members - archive.names()):
        raise DataError(f"{archive.label}: {missing[0]} is missing. Export it again.")
    if not isinstance(manifest.get("sha256"), dict) or not isinstance(manifest.get("run"), dict):
        raise DataError(f"{archive.label}: {MANIFEST} isn't whole. Export it again.")
    if manifest["format"] > 1 and manifest.get("manifest_sha256") != digest_of(manifest):
        raise DataError(
            f"{archive.label}: {MANIFEST} was changed after the export. Get the bundle again from its maker."
        )
    return manifest


def _run(manifest: dict[str, Any], label: str) -> dict[str, Any]:
    """The run's row as it is written here."""
    run = checked(s.runs, manifest["run"], f"{label}: {MANIFEST}: run")
    if not _RUN_ID.fullmatch(run["id"]):
        raise DataError(f"{label}: {run['id'][:60]!r} can't be a run's id. Export it again.")
    try:
        Study.model_validate(run["study"])
    except ValidationError as error:
        raise DataError(
            f"{label}: its study isn't one of ours ({error.errors()[0]['msg']}). Export it again."
        ) from None
    try:
        _Provenance.model_validate(run["provenance"])
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))[:80]
        raise DataError(
            f"{label}: its provenance isn't one of ours ({place}: {wrong['msg']}). Export it again."
        ) from None
    # Of format 1 as it always was: a bundle that is here already stays as it is.
    contents = (
        hashlib.sha256(json.dumps(manifest["sha256"], sort_keys=True).encode()).hexdigest()
        if manifest["format"] == 1
        else manifest["manifest_sha256"]
    )
    return run | {
        "id": run["id"] if run["id"].startswith(RECORDED) else f"{RECORDED}{run['id']}",
        "recorded": True,
        "request": "stop",
        "provenance": {**run["provenance"], "bundle_sha256": contents},
    }


def _look_through(archive: Archive, manifest: dict[str, Any]) -> None:
    """Read every member once before the store is touched: digests, lengths of lines, number of rows."""
    rows = 0
    for name in MEMBERS[manifest["format"]]:
        for _ in archive.lines(f"{name}.jsonl", manifest["sha256"].get(name)):
            rows += 1
            if rows > archive.limits.rows:
                raise DataError(f"{archive.label}: more than {archive.limits.rows:,} rows. That is no bundle of ours.")


class _Import:
    """One import: old ids to new ones, and the tables in order."""

    def __init__(self, incoming: Incoming, archive: Archive, manifest: dict[str, Any]) -> None:
        self._incoming = incoming
        self._archive = archive
        self._manifest = manifest
        self._run_id = incoming.run_id
        self._configurations: dict[int, int] = {}
        self._instances: set[str] = set()
        self._records: dict[int, int] = {}
        self._sizes: dict[str, int] = {}

    def write(self, run: dict[str, Any]) -> None:
        for name in MEMBERS[self._manifest["format"]]:
            # Read and checked before the transaction begins, so that the store is locked for moments only.
            for rows in self._batches(name):
                with self._incoming.batch() as connection:
                    self._insert(connection, name, rows)
        if not (self._configurations and self._instances):
            raise DataError(f"{self._archive.label}: holds no configuration or no instance. Export it again.")
        self._incoming.settle(run, partial(self._keep_scored_here, run["id"]))

    def _insert(self, connection: Connection, name: str, rows: list[dict[str, Any]]) -> None:
        if name == "configurations":
            self._insert_configurations(connection, rows)
        elif name == "records":
            self._insert_records(connection, rows)
        else:
            connection.execute(s.metadata.tables[name].insert(), rows)

    def _batches(self, name: str) -> Iterator[list[dict[str, Any]]]:
        rows = self._rows(name)
        while batch := list(islice(rows, _ROWS)):
            yield batch

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        member, table = f"{name}.jsonl", s.metadata.tables[name]
        for number, line in enumerate(self._archive.lines(member, self._manifest["sha256"].get(name)), start=1):
            place = f"{self._archive.label}: {member}, line {number}"
            row = checked(table, parse(line), place)
            if "run_id" in row:
                row["run_id"] = self._run_id
            if "configuration_id" in row:
                row["configuration_id"] = _known(self._configurations, row["configuration_id"], place, "configuration")
            if "record_id" in row:
                row["record_id"] = _known(self._records, row["record_id"], place, "record")
            if name == "instances":
                if row["subtype"] not in _SUBTYPES[row["benchmark"]]:
                    raise DataError(f"{place}: {row['benchmark']} has no {row['subtype']}. Export it again.")
                self._instances.add(row["instance_id"])
            elif "instance_id" in row and row["instance_id"] not in self._instances:
                raise DataError(f"{place}: no instance {row['instance_id'][:60]!r}. Export it again.")
            if name == "embeddings" and len(row["vector"]) != self._sizes.setdefault(
                row["embedder"], len(row["vector"])
            ):
                raise DataError(f"{place}: its vector has another length than the others. Export it again.")
            if name == "attention" and (wrong := unlike_itself(row)) is not None:
                raise DataError(f"{place}: {wrong}. Export it again.")
            if name == "human_scores":
                del row["id"]
            yield row

    def _insert_configurations(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            old = row.pop("id")
            inserted = s.configurations.insert().values(**row).returning(s.configurations.c.id)
            self._configurations[old] = connection.execute(inserted).scalar_one()

    def _insert_records(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        """Insert all at once, and look the new numbers up: one statement a record takes four times as long."""
        r = s.records.c
        old = {(row["configuration_id"], row["instance_id"]): row.pop("id") for row in rows}
        connection.execute(s.records.insert(), rows)
        new = select(r.id, r.configuration_id, r.instance_id).where(tuple_(r.configuration_id, r.instance_id).in_(old))
        for record_id, *key in connection.execute(new):
            self._records[old[key[0], key[1]]] = record_id

    def _keep_scored_here(self, run_id: str, connection: Connection) -> Callable[[], None]:
        """Take what people scored in the run that is replaced, by the names that outlast its numbers; what is returned
        writes it where the new one has the configuration and instance, and not the score itself."""
        c, h = s.configurations.c, s.human_scores.c
        query = (
            select(c.model, c.memory, c.mitigation, s.human_scores)
            .join(s.human_scores, h.configuration_id == c.id)
            .where(c.run_id == run_id)
            .order_by(h.id)
        )
        scored = [dict(row) for row in connection.execute(query).mappings()]

        def write() -> None:
            ids = {
                (row.model, row.memory, row.mitigation): row.id
                for row in connection.execute(select(s.configurations).where(c.run_id == run_id))
            }
            known = select(h.configuration_id, h.instance_id, h.rater, h.made_at).where(h.run_id == run_id)
            there = {tuple(row) for row in connection.execute(known)}
            kept = []
            for row in scored:
                configuration = ids.get((row.pop("model"), row.pop("memory"), row.pop("mitigation")))
                del row["id"]
                key = (configuration, row["instance_id"], row["rater"], row["made_at"])
                if configuration is not None and row["instance_id"] in self._instances and key not in there:
                    kept.append(row | {"configuration_id": configuration})
            if kept:
                connection.execute(s.human_scores.insert(), kept)

        return write


def _known(numbers: Mapping[int, int], old: int, place: str, what: str) -> int:
    if old not in numbers:
        raise DataError(f"{place}: no {what} {old}. Export it again.")
    return numbers[old]
