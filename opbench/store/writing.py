"""Writing to the store: runs, finished records with their calls, worker heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import JSON, Connection, Table, bindparam, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.study import Configuration, Study
from opbench.types import Instance, Score


@dataclass(frozen=True, slots=True)
class CallRow:
    """One answer for the call store; fields as in `schema.calls`."""

    key: str
    kind: str
    model: str
    request: Any
    response: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    duration_ms: float
    attempts: int
    made_at: float
    concurrency: int | None = None

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CallUse:
    """That a record rests on a call, at a stage; `reused` when it was made for another record."""

    key: str
    stage: str
    reused: bool


@dataclass(slots=True)
class FinishedRecord:
    """A record with all that is written with it in one transaction."""

    configuration_id: int
    instance_id: str
    values: dict[str, Any]
    """Columns of `schema.records` beyond the keys."""
    calls: list[CallRow] = field(default_factory=list)
    """Calls that aren't in the store yet."""
    uses: list[CallUse] = field(default_factory=list)
    judge: str = ""
    scores: list[Score] = field(default_factory=list)
    embedding: tuple[str, np.ndarray] | None = None
    """Embedder and L2-normalised vector of the response, for repetition questions."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's new scores of a record that is in the store already."""

    record_id: int
    judge: str
    scores: list[Score]
    calls: list[CallRow]
    """Calls that aren't in the store yet."""
    uses: list[CallUse]


def insert_ignore(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert the rows that aren't there yet, by primary key or unique constraint. All rows have the same columns."""
    if rows:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        # One compiled statement for all of them; a statement with all rows in it would be compiled for each number.
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))


def create_run(
    store: Store, run_id: str, study: Study, digest: str, provenance: dict[str, Any], instances: Iterable[Instance]
) -> dict[Configuration, int]:
    """Make the run with its plan, or find it made; returns the ids of its configurations."""
    with store.begin() as connection:
        insert_ignore(
            connection,
            s.runs,
            [
                {
                    "id": run_id,
                    "name": study.name,
                    "study_hash": digest,
                    "study": study.model_dump(mode="json"),
                    "provenance": provenance,
                    "created_at": time.time(),
                    "request": "go",
                    "recorded": False,
                    "text_left_out": False,
                }
            ],
        )
        insert_ignore(
            connection,
            s.configurations,
            [
                {"run_id": run_id, "model": c.model, "memory": c.memory, "mitigation": c.mitigation}
                for c in study.configurations()
            ],
        )
        insert_ignore(connection, s.instances, planned_rows(run_id, instances))
        if study.name:
            connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(name=study.name))
        rows = connection.execute(select(s.configurations).where(s.configurations.c.run_id == run_id)).all()
    return {Configuration(r.model, r.memory, r.mitigation): r.id for r in rows}


def planned_rows(run_id: str, instances: Iterable[Instance]) -> list[dict[str, Any]]:
    """The slice of a run in its order, as rows of `schema.instances`."""
    return [
        {
            "run_id": run_id,
            "instance_id": instance.id,
            "ordinal": ordinal,
            "benchmark": instance.benchmark,
            "user_id": instance.user.id,
            "first_speaker": instance.user.first,
            "subtype": instance.subtype,
            "question": instance.question,
            "answer": instance.answer,
        }
        for ordinal, instance in enumerate(instances)
    ]


Held = Callable[[Connection], None]
"""Makes sure, in a transaction that is to write, that what is written is this process's to write; raises `LeaseLost`
when it isn't any more, and nothing is written."""


def save_records(store: Store, run_id: str, records: Sequence[FinishedRecord], held: Held | None = None) -> None:
    """Write finished records, their calls, scores and embeddings in one transaction; an earlier try is replaced.

    Raises:
        StoreError: the store can't be written; nothing of it is.
        LeaseLost: `held` says that the records are another worker's by now.
    """
    if not records:
        return
    # Of a record that comes twice the last counts, as if it had come later.
    latest = {(record.configuration_id, record.instance_id): record for record in records}
    with _writing(store, held) as connection:
        first = _next_id(connection)
        insert_calls(connection, (call for record in records for call in record.calls))
        connection.execute(_FORGET, [{"configuration": key[0], "instance": key[1]} for key in latest])
        kept = _insert_records(connection, run_id, list(latest.values()), first)
        uses = [row for record_id, record in kept for row in _use_rows(record_id, record.uses)]
        scores = [_score_row(record_id, record.judge, score) for record_id, record in kept for score in record.scores]
        embeddings = [
            {
                "record_id": record_id,
                "embedder": record.embedding[0],
                "vector": record.embedding[1].astype("<f4").tobytes(),
            }
            for record_id, record in kept
            if record.embedding is not None
        ]
        for table, rows in ((s.record_calls, uses), (s.scores, scores), (s.embeddings, embeddings)):
            if rows:
                connection.execute(table.insert(), rows)


def insert_calls(connection: Connection, calls: Iterable[CallRow]) -> None:
    """In the order of their keys: of two processes that keep the same calls in different orders each would wait for
    the other in PostgreSQL."""
    by_key = {call.key: call for call in calls}
    insert_ignore(connection, s.calls, [by_key[key].values() for key in sorted(by_key)])


@contextmanager
def _writing(store: Store, held: Held | None) -> Iterator[Connection]:
    """A transaction that nobody else writes between the beginning and the end of, in SQLite."""
    with store.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if held is not None:
            held(connection)
        yield connection


def _next_id(connection: Connection) -> int | None:
    """The id of the next record in SQLite, which would give the last one's id again once that is replaced: whoever
    reads a run would take the new record for the old one. PostgreSQL gives no id twice."""
    if connection.dialect.name != "sqlite":
        return None
    return 1 + (connection.scalar(_LAST_ID) or 0)


_LAST_ID = select(func.max(s.records.c.id))
_FORGET = delete(s.records).where(
    s.records.c.configuration_id == bindparam("configuration"), s.records.c.instance_id == bindparam("instance")
)
#: A record's columns where nothing is told. A JSON column's None would be kept as JSON's null, which is no NULL.
_UNTOLD: dict[str, Any] = {
    column.name: None for column in s.records.columns if column.name != "id" and not isinstance(column.type, JSON)
}


def _insert_records(
    connection: Connection, run_id: str, records: Sequence[FinishedRecord], first: int | None
) -> list[tuple[int, FinishedRecord]]:
    """Insert and return with ids, which count from `first` or are the store's. A statement takes rows of the same
    columns: what a record leaves out stays null."""
    alike: dict[frozenset[str], list[tuple[dict[str, Any], FinishedRecord]]] = {}
    for number, record in enumerate(records):
        row = _UNTOLD | record.values
        row |= {"run_id": run_id, "configuration_id": record.configuration_id, "instance_id": record.instance_id}
        if first is not None:
            row["id"] = first + number
        alike.setdefault(frozenset(row), []).append((row, record))
    kept: list[tuple[int, FinishedRecord]] = []
    for group in alike.values():
        rows = [row for row, _ in group]
        if first is not None:
            connection.execute(s.records.insert(), rows)
            ids: Iterable[int] = (row["id"] for row in rows)
        else:
            insert = s.records.insert().returning(s.records.c.id, sort_by_parameter_order=True)
            ids = connection.scalars(insert, rows).all()
        kept += zip(ids, (record for _, record in group), strict=True)
    return kept


def _score_row(record_id: int, judge: str, score: Score) -> dict[str, Any]:
    return {
        "record_id": record_id,
        "judge": judge,
        "metric": score.metric,
        "value": score.value,
        "reason": score.reason,
        "raw": score.raw,
        "retriable": bool(score.details.get("transport")),
    }


def _use_rows(record_id: int, uses: Sequence[CallUse], first: int = 0) -> list[dict[str, Any]]:
    return [
        {"record_id": record_id, "ordinal": ordinal, "call_key": use.key, "stage": use.stage, "reused": use.reused}
        for ordinal, use in enumerate(uses, first)
    ]


def save_calls(store: Store, calls: Sequence[CallRow]) -> None:
    """Keep calls that belong to no record."""
    with store.begin() as connection:
        insert_calls(connection, calls)


def save_judgements(store: Store, judgements: Sequence[Judgement], held: Held | None = None) -> None:
    """Replace a judge's scores of records that were done already, with the judge's calls, in one transaction.

    Raises:
        StoreError, LeaseLost: as `save_records`.
    """
    if not judgements:
        return
    with _writing(store, held) as connection:
        insert_calls(connection, (call for each in judgements for call in each.calls))
        for each in judgements:
            _replace_scores(connection, each)


def _replace_scores(connection: Connection, judgement: Judgement) -> None:
    record_id, judge = judgement.record_id, judgement.judge
    connection.execute(delete(s.scores).where(s.scores.c.record_id == record_id, s.scores.c.judge == judge))
    if judgement.scores:
        connection.execute(s.scores.insert(), [_score_row(record_id, judge, score) for score in judgement.scores])
    known = connection.execute(
        select(s.record_calls.c.ordinal, s.record_calls.c.stage).where(s.record_calls.c.record_id == record_id)
    ).all()
    connection.execute(
        delete(s.record_calls).where(s.record_calls.c.record_id == record_id, s.record_calls.c.stage == "judge")
    )
    first = 1 + max((row.ordinal for row in known if row.stage != "judge"), default=-1)
    if judgement.uses:
        connection.execute(s.record_calls.insert(), _use_rows(record_id, judgement.uses, first))


def save_user_scores(store: Store, rows: Sequence[dict[str, Any]]) -> None:
    """Replace scores of users (columns of `schema.user_scores`)."""
    key = ("configuration_id", "user_id", "metric", "judge")
    with store.begin() as connection:
        if rows:
            same = delete(s.user_scores).where(*(s.user_scores.c[name] == bindparam(f"its_{name}") for name in key))
            connection.execute(same, [{f"its_{name}": row[name] for name in key} for row in rows])
            connection.execute(s.user_scores.insert(), list(rows))


def add_execution(store: Store, run_id: str, execution: dict[str, Any]) -> None:
    """Keep in the provenance what went on with the run: commit, version and time of every execution."""
    with _provenance(store, run_id) as provenance:
        provenance["executions"] = [*provenance.get("executions", []), execution]


def add_to_execution(store: Store, run_id: str, facts: dict[str, Any]) -> None:
    """Add to what is kept of the run's last execution."""
    with _provenance(store, run_id) as provenance:
        *earlier, last = provenance["executions"]
        provenance["executions"] = [*earlier, last | facts]


def keep_ingestion(store: Store, run_id: str, execution: dict[str, Any], ingestions: list[dict[str, Any]]) -> None:
    """Keep in the provenance how the run's ingestions stand, each by `system` and `user`; those of earlier executions
    that aren't told stay. `execution` is added to what is kept of the last execution."""
    with _provenance(store, run_id) as provenance:
        *earlier, last = provenance["executions"]
        provenance["executions"] = [*earlier, last | execution]
        known = {(row["system"], row["user"]): row for row in [*provenance.get("ingestion", []), *ingestions]}
        provenance["ingestion"] = [known[key] for key in sorted(known)]


def add_answered_as(store: Store, run_id: str, answered_as: dict[str, set[str]]) -> None:
    """Keep in the provenance under which names the models answered: another name may be another model."""
    with _provenance(store, run_id) as provenance:
        known = provenance.get("answered_as", {})
        provenance["answered_as"] = {
            name: sorted(answered_as.get(name, set()) | set(known.get(name, [])))
            for name in sorted({*answered_as, *known})
        }


@contextmanager
def _provenance(store: Store, run_id: str) -> Iterator[dict[str, Any]]:
    """The run's provenance, to be changed in place; written back in the same transaction."""
    with store.begin() as connection:
        provenance = dict(connection.execute(select(s.runs.c.provenance).where(s.runs.c.id == run_id)).scalar_one())
        yield provenance
        connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(provenance=provenance))


def set_request(store: Store, run_id: str, request: str) -> None:
    """Ask the run's worker to `go`, `pause` or `stop`."""
    with store.begin() as connection:
        connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(request=request))


def set_halted(store: Store, run_id: str, reason: str | None) -> None:
    """Say why the run's execution ended before its work did; None when it goes on."""
    with store.begin() as connection:
        connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(halted=reason))


def beat(store: Store, worker: dict[str, Any]) -> str:
    """Write a worker's heartbeat (columns of `schema.workers`; its time is the store's) and return what is asked of its
    run: `stop` when another process has taken the run, or a member's part, as it may when this one was silent for
    long."""
    with store.begin() as connection:
        worker = worker | {"heartbeat_at": store_time(connection)}
        # Changed and not made anew: on PostgreSQL a row that is made anew looks gone to whoever waits for it (`hold`).
        if not connection.execute(update(s.workers).where(s.workers.c.id == worker["id"]).values(**worker)).rowcount:
            others = select(s.workers.c.id).where(s.workers.c.run_id == worker["run_id"]).limit(1)
            if worker.get("leader") is not None or connection.scalar(others):
                return "stop"
            connection.execute(s.workers.insert().values(**worker))
        return str(connection.execute(select(s.runs.c.request).where(s.runs.c.id == worker["run_id"])).scalar_one())


def forget_worker(store: Store, worker_id: str) -> None:
    with store.begin() as connection:
        connection.execute(delete(s.workers).where(s.workers.c.id == worker_id))
