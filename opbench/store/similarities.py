"""The table `similarities`: what there is to measure in a run, what was measured, and writing it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from sqlalchemy import ScalarSelect, Subquery, and_, delete, func, or_, select

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.frames import frame_of
from opbench.store.texts import need_texts
from opbench.store.writing import insert_ignore
from opbench.study import BASE

CONTROL = "random"
#: Ids in one query: below SQLite's limit on bound values.
_IDS = 500


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What a memory system retrieved for an instance: the same whatever the post-processor."""

    record_id: int
    memory: str
    instance: str
    user: str
    finished_at: float
    """When that record was finished, Unix seconds: what was measured before is of a record that is there no more."""


def retrieved_by(store: Store, run_id: str) -> list[Retrieved]:
    """All retrievals of a run that some record of was done, in the slice's order. One is told by its first record.

    Raises:
        UsageError: the run's texts were left out.
    """
    r, i = s.records.c, s.instances.c
    first = _first_records(run_id)
    query = (
        select(r.id, first.c.memory, r.instance_id, i.user_id, r.finished_at)
        .select_from(first)
        .join(s.records, r.id == first.c.record_id)
        .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
        .order_by(i.ordinal, first.c.memory)
    )
    with store.begin() as connection:
        need_texts(connection, run_id)
        return [Retrieved(*row) for row in connection.execute(query)]


def _first_records(run_id: str) -> Subquery:
    """By memory system and instance of a run (memory, instance_id): record_id, the first of its done records."""
    r, c = s.records.c, s.configurations.c
    return (
        select(c.memory, r.instance_id, func.min(r.id).label("record_id"))
        .select_from(s.records)
        .join(s.configurations, c.id == r.configuration_id)
        .where(r.run_id == run_id, r.status == "done", c.memory != BASE)
        .group_by(c.memory, r.instance_id)
        .subquery()
    )


def _latest(run_id: str, embedder: str) -> ScalarSelect[str]:
    """The identity of the embedder that measured something of the run under this name last: numbers of another, which
    had the name before, are never among its own."""
    t = s.similarities.alias().c
    query = select(t.identity).where(t.run_id == run_id, t.embedder == embedder)
    return query.order_by(t.made_at.desc()).limit(1).scalar_subquery()


def waiting(store: Store, run_id: str, embedder: str, identity: str | None = None) -> list[Retrieved]:
    """Of `retrieved_by`, those that weren't measured by this embedder, or before their record was made again.

    `identity` tells embedders of one name apart; None is the one that measured last.

    Raises:
        UsageError: the run's texts were left out.
    """
    t = s.similarities.c
    query = select(t.memory, t.instance_id, t.made_at).where(
        t.run_id == run_id,
        t.embedder == embedder,
        t.identity == (_latest(run_id, embedder) if identity is None else identity),
    )
    with store.begin() as connection:
        made = {(row.memory, row.instance_id): row.made_at for row in connection.execute(query)}
    return [
        each for each in retrieved_by(store, run_id) if made.get((each.memory, each.instance), 0.0) < each.finished_at
    ]


def waiting_similarities(store: Store, run_id: str, embedder: str) -> int:
    """Retrievals that aren't measured by this embedder yet; 0 when nothing is left to do.

    Raises:
        UsageError: the run's texts were left out.
    """
    return len(waiting(store, run_id, embedder))


def retrieved_texts(store: Store, record_ids: Sequence[int]) -> dict[int, tuple[str, tuple[str, ...]]]:
    """By record: the question, and the texts of the retrieved memories in rank order."""
    r, i = s.records.c, s.instances.c
    found: dict[int, tuple[str, tuple[str, ...]]] = {}
    with store.begin() as connection:
        for start in range(0, len(record_ids), _IDS):
            query = (
                select(r.id, i.question, r.retrieved)
                .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
                .where(r.id.in_(list(record_ids[start : start + _IDS])))
            )
            for row in connection.execute(query):
                found[row.id] = (row.question or "", tuple(str(each["text"]) for each in row.retrieved or ()))
    return found


def measured_instances(store: Store, run_id: str, memory: str, embedder: str, identity: str) -> set[str]:
    """The instances whose retrieval by `memory` was measured by that very embedder."""
    t = s.similarities.c
    query = select(t.instance_id).where(
        t.run_id == run_id, t.memory == memory, t.embedder == embedder, t.identity == identity
    )
    with store.begin() as connection:
        return set(connection.scalars(query))


def save_similarities(
    store: Store,
    run_id: str,
    embedder: str,
    rows: Sequence[tuple[str, str, Sequence[float | None]]],
    read_at: float | None = None,
    *,
    identity: str = "",
) -> None:
    """Write (memory system, instance, cosines in rank order), in place of what was there. None: a blank memory.

    `read_at` (Unix seconds; default now) is when the memories were read: of a record that is made again meanwhile
    these aren't the cosines. `identity` is the head of a digest of all that determines the embedder's vectors.
    """
    t = s.similarities.c
    made_at = time.time() if read_at is None else read_at
    with store.begin() as connection:
        for memory in {row[0] for row in rows}:
            names = [row[1] for row in rows if row[0] == memory]
            mine = and_(t.run_id == run_id, t.memory == memory, t.embedder == embedder, t.instance_id.in_(names))
            connection.execute(delete(s.similarities).where(mine))
        insert_ignore(
            connection,
            s.similarities,
            [
                {
                    "run_id": run_id,
                    "memory": memory,
                    "instance_id": instance,
                    "embedder": embedder,
                    "identity": identity,
                    "cosines": list(cosines),
                    "made_at": made_at,
                }
                for memory, instance, cosines in rows
            ],
        )


def last_measured(store: Store, run_id: str, embedder: str) -> tuple[int, float]:
    """How many lists of cosines there are and when the last was made: changes whenever something was measured."""
    t = s.similarities.c
    query = select(func.count(), func.coalesce(func.max(t.made_at), 0.0))
    with store.begin() as connection:
        count, made_at = connection.execute(query.where(t.run_id == run_id, t.embedder == embedder)).one()
        return int(count), float(made_at)


def measured_embedders(store: Store, run_id: str) -> list[str]:
    """The embedders that measured something of the run, by name."""
    t = s.similarities.c
    with store.begin() as connection:
        return list(connection.scalars(select(t.embedder).where(t.run_id == run_id).distinct().order_by(t.embedder)))


def read_similarities(store: Store, run_id: str, embedder: str) -> pd.DataFrame:
    """memory, instance and cosines (a list in rank order, None for a blank memory; empty for an empty retrieval).

    What was measured before its record was made again is left out, as it isn't of what is there now.
    """
    t, r, c = s.similarities.c, s.records.c, s.configurations.c
    first = _first_records(run_id)
    of_run = select(c.memory).where(c.run_id == run_id)
    query = (
        select(t.memory, t.instance_id.label("instance"), t.cosines)
        .select_from(s.similarities)
        .outerjoin(first, and_(first.c.memory == t.memory, first.c.instance_id == t.instance_id))
        .outerjoin(s.records, r.id == first.c.record_id)
        .where(t.run_id == run_id, t.embedder == embedder, t.identity == _latest(run_id, embedder))
        # A control that was drawn for the measurement has no records.
        .where(or_(r.finished_at <= t.made_at, t.memory.not_in(of_run)))
        .order_by(t.memory, t.instance_id)
    )
    return frame_of(store, query)
