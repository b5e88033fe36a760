"""The table `similarities`: what there is to measure in a run, what was measured, and writing it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from sqlalchemy import and_, delete, func, select

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
    newest: float
    """When the last record that rests on it was finished, Unix seconds."""


def retrieved_by(store: Store, run_id: str) -> list[Retrieved]:
    """All retrievals of a run that some record of was done, in the slice's order. One is told by its first record.

    Raises:
        UsageError: the run's texts were left out.
    """
    r, c, i = s.records.c, s.configurations.c, s.instances.c
    first = func.min(r.id).label("record_id")
    query = (
        select(first, c.memory, r.instance_id, i.user_id, func.max(r.finished_at))
        .select_from(s.records)
        .join(s.configurations, c.id == r.configuration_id)
        .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
        .where(r.run_id == run_id, r.status == "done", c.memory != BASE)
        .group_by(c.memory, r.instance_id, i.user_id, i.ordinal)
        .order_by(i.ordinal, c.memory)
    )
    with store.begin() as connection:
        need_texts(connection, run_id)
        return [Retrieved(*row) for row in connection.execute(query)]


def waiting(store: Store, run_id: str, embedder: str) -> list[Retrieved]:
    """Of `retrieved_by`, those that weren't measured by this embedder, or before a record was made again.

    Raises:
        UsageError: the run's texts were left out.
    """
    t = s.similarities.c
    query = select(t.memory, t.instance_id, t.made_at).where(t.run_id == run_id, t.embedder == embedder)
    with store.begin() as connection:
        made = {(row.memory, row.instance_id): row.made_at for row in connection.execute(query)}
    return [each for each in retrieved_by(store, run_id) if made.get((each.memory, each.instance), 0.0) < each.newest]


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


def measured_instances(store: Store, run_id: str, memory: str, embedder: str) -> set[str]:
    """The instances whose retrieval by `memory` was measured."""
    t = s.similarities.c
    query = select(t.instance_id).where(t.run_id == run_id, t.memory == memory, t.embedder == embedder)
    with store.begin() as connection:
        return set(connection.scalars(query))


def save_similarities(
    store: Store, run_id: str, embedder: str, rows: Sequence[tuple[str, str, Sequence[float | None]]]
) -> None:
    """Write (memory system, instance, cosines in rank order), in place of what was there. None: a blank memory."""
    t = s.similarities.c
    now = time.time()
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
                    "cosines": list(cosines),
                    "made_at": now,
                }
                for memory, instance, cosines in rows
            ],
        )


def measured_embedders(store: Store, run_id: str) -> list[str]:
    """The embedders that measured something of the run, by name."""
    t = s.similarities.c
    with store.begin() as connection:
        return list(connection.scalars(select(t.embedder).where(t.run_id == run_id).distinct().order_by(t.embedder)))


def read_similarities(store: Store, run_id: str, embedder: str) -> pd.DataFrame:
    """memory, instance and cosines (a list in rank order, None for a blank memory; empty for an empty retrieval)."""
    t = s.similarities.c
    query = (
        select(t.memory, t.instance_id.label("instance"), t.cosines)
        .where(t.run_id == run_id, t.embedder == embedder)
        .order_by(t.memory, t.instance_id)
    )
    return frame_of(store, query)
