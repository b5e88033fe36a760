"""Keeping the users' repetition scores in step with the records (paper, section 3.2.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, select

from opbench.errors import ModelError
from opbench.judges.repetition import repetition_score
from opbench.judges.text import strip_thinking
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.runs import EMBEDDER_FAILED
from opbench.store.writing import insert_ignore, save_user_scores

#: Responses in one request for vectors.
_AT_ONCE = 64
#: Instances in one query: below SQLite's limit on bound values.
_KEYS = 500
Embed = Callable[[Sequence[str]], Awaitable[np.ndarray]]


async def embed_missing(store: Store, run_id: str, embedder: str, embed: Embed) -> str | None:
    """Embed the responses of done repetition records that have no vector yet; the reason when that failed.

    Raises:
        StoreError: the store can't be read or written.
    """
    missing = await store.in_thread(_without_vector, store, run_id, embedder)
    for start in range(0, len(missing), _AT_ONCE):
        answers = await store.in_thread(_answers, store, missing[start : start + _AT_ONCE])
        if not answers:
            continue
        try:
            vectors = await embed([answer for _, answer in answers])
        except ModelError as error:
            return f"{EMBEDDER_FAILED}{embedder}: {error}"
        rows = [
            {"record_id": record_id, "embedder": embedder, "vector": vector.astype("<f4").tobytes()}
            for (record_id, _), vector in zip(answers, vectors, strict=True)
        ]
        await store.in_thread(_keep, store, rows)
    return None


def score_users(
    store: Store, run_id: str, embedder: str, pairs: Iterable[tuple[int, str]] | None = None, reason: str | None = None
) -> None:
    """Compute repetition for (configuration id, user id) pairs, or for all of the run, from the stored vectors.

    A pair with fewer than two answers has no score; `reason` says what kept vectors from being made.

    Raises:
        StoreError: the store can't be read or written.
    """
    users = _instances(store, run_id)
    if pairs is None:
        everybody = set(users.values())
        wanted = dict.fromkeys(_configurations(store, run_id), everybody)
    else:
        wanted = {}
        for configuration_id, user_id in pairs:
            wanted.setdefault(configuration_id, set()).add(user_id)
    rows = []
    for configuration_id, of in wanted.items():
        for user_id, vectors in _vectors(store, configuration_id, users, of, embedder).items():
            value = repetition_score(np.stack(vectors)) if len(vectors) > 1 else None
            few = f"{len(vectors)} answered, two are needed for a similarity"
            rows.append(
                {
                    "configuration_id": configuration_id,
                    "user_id": user_id,
                    "metric": "repetition",
                    "judge": embedder,
                    "value": value,
                    "n": len(vectors),
                    "reason": None if value is not None else reason or few,
                }
            )
    save_user_scores(store, rows)


def _instances(store: Store, run_id: str) -> dict[str, str]:
    """The users of a run's repetition questions, by instance."""
    query = select(s.instances.c.instance_id, s.instances.c.user_id).where(
        s.instances.c.run_id == run_id, s.instances.c.subtype == "repetition"
    )
    with store.begin() as connection:
        return {row.instance_id: row.user_id for row in connection.execute(query)}


def _configurations(store: Store, run_id: str) -> list[int]:
    with store.begin() as connection:
        query = select(s.configurations.c.id).where(s.configurations.c.run_id == run_id)
        return list(connection.scalars(query.order_by(s.configurations.c.id)))


def newest_vectors(store: Store, run_id: str, embedder: str, limit: int) -> list[tuple[str, np.ndarray]]:
    """(what a reader sees of the response, its vector) of the run's last records that have one, oldest first.

    Raises:
        StoreError: the store can't be read.
    """
    query = (
        select(s.records.c.response, s.embeddings.c.vector)
        .join(s.embeddings, s.embeddings.c.record_id == s.records.c.id)
        .where(s.records.c.run_id == run_id, s.embeddings.c.embedder == embedder)
        .order_by(s.records.c.id.desc())
        .limit(limit)
    )
    with store.begin() as connection:
        rows = connection.execute(query).all()
    return [(strip_thinking(row.response), np.frombuffer(row.vector, dtype="<f4")) for row in reversed(rows)]


def _without_vector(store: Store, run_id: str, embedder: str) -> list[int]:
    """Ids of the records that are done and have no vector."""
    of_questions = list(_instances(store, run_id))
    missing: list[int] = []
    with store.begin() as connection:
        for configuration_id in _configurations(store, run_id):
            for start in range(0, len(of_questions), _KEYS):
                query = _records(configuration_id, of_questions[start : start + _KEYS], embedder, s.records.c.id)
                query = query.where(s.records.c.status == "done", s.embeddings.c.record_id.is_(None))
                missing += connection.scalars(query)
    return missing


def _vectors(
    store: Store, configuration_id: int, users: Mapping[str, str], wanted: Collection[str], embedder: str
) -> dict[str, list[np.ndarray]]:
    """The vectors of a configuration's records by user; a user with records and no vector has an empty list.

    One configuration at a time: all of a large study's vectors would fill the memory.
    """
    asked = [instance_id for instance_id, user_id in users.items() if user_id in wanted]
    found: dict[str, list[np.ndarray]] = {}
    columns = s.records.c.instance_id, s.embeddings.c.vector
    with store.begin() as connection:
        for start in range(0, len(asked), _KEYS):
            query = _records(configuration_id, asked[start : start + _KEYS], embedder, *columns)
            for instance_id, vector in connection.execute(query):
                of_user = found.setdefault(users[instance_id], [])
                if vector is not None:
                    of_user.append(np.frombuffer(vector, dtype="<f4"))
    return found


def _records(configuration_id: int, instances: Sequence[str], embedder: str, *columns: ColumnElement[Any]) -> Any:
    """Records of a configuration with their vectors, found through the unique key and not by a look at all."""
    mine = (s.embeddings.c.record_id == s.records.c.id) & (s.embeddings.c.embedder == embedder)
    return (
        select(*columns)
        .select_from(s.records.outerjoin(s.embeddings, mine))
        .where(s.records.c.configuration_id == configuration_id, s.records.c.instance_id.in_(instances))
    )


def _answers(store: Store, record_ids: Sequence[int]) -> list[tuple[int, str]]:
    """What a reader sees of these records' responses, where it is something."""
    query = select(s.records.c.id, s.records.c.response).where(s.records.c.id.in_(record_ids))
    with store.begin() as connection:
        rows = connection.execute(query.order_by(s.records.c.id)).all()
    return [(row.id, answer) for row in rows if (answer := strip_thinking(row.response)).strip()]


def _keep(store: Store, rows: Sequence[dict[str, Any]]) -> None:
    with store.begin() as connection:
        insert_ignore(connection, s.embeddings, rows)
