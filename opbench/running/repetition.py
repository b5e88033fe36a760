"""Keeping the users' repetition scores in step with the records (paper, section 3.2.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import numpy as np
from sqlalchemy import select

from opbench.errors import ModelError
from opbench.judges.repetition import repetition_score
from opbench.judges.text import strip_thinking
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.reading import EMBEDDER_FAILED
from opbench.store.writing import insert_ignore, save_user_scores

Embed = Callable[[Sequence[str]], Awaitable[np.ndarray]]


async def embed_missing(store: Store, run_id: str, embedder: str, embed: Embed) -> str | None:
    """Embed the responses of done repetition records that have no vector yet; the reason when that failed."""
    with store.begin() as connection:
        rows = connection.execute(
            select(s.records.c.id, s.records.c.response)
            .join(
                s.instances,
                (s.instances.c.run_id == s.records.c.run_id) & (s.instances.c.instance_id == s.records.c.instance_id),
            )
            .outerjoin(
                s.embeddings, (s.embeddings.c.record_id == s.records.c.id) & (s.embeddings.c.embedder == embedder)
            )
            .where(
                s.records.c.run_id == run_id,
                s.records.c.status == "done",
                s.instances.c.subtype == "repetition",
                s.embeddings.c.record_id.is_(None),
            )
        ).all()
    answers = [(row.id, answer) for row in rows if (answer := strip_thinking(row.response)).strip()]
    for start in range(0, len(answers), 64):
        part = answers[start : start + 64]
        try:
            vectors = await embed([answer for _, answer in part])
        except ModelError as error:
            return f"{EMBEDDER_FAILED}{embedder}: {error}"
        with store.begin() as connection:
            insert_ignore(
                connection,
                s.embeddings,
                [
                    {"record_id": record_id, "embedder": embedder, "vector": vector.astype("<f4").tobytes()}
                    for (record_id, _), vector in zip(part, vectors, strict=True)
                ],
            )
    return None


def score_users(
    store: Store, run_id: str, embedder: str, pairs: Iterable[tuple[int, str]] | None = None, reason: str | None = None
) -> None:
    """Compute repetition for (configuration id, user id) pairs, or for all of the run, from the stored vectors.

    A pair with fewer than two answers has no score; `reason` says what kept vectors from being made.
    """
    query = (
        select(s.records.c.configuration_id, s.instances.c.user_id, s.embeddings.c.vector)
        .select_from(s.records)
        .join(
            s.instances,
            (s.instances.c.run_id == s.records.c.run_id) & (s.instances.c.instance_id == s.records.c.instance_id),
        )
        .outerjoin(s.embeddings, (s.embeddings.c.record_id == s.records.c.id) & (s.embeddings.c.embedder == embedder))
        .where(s.records.c.run_id == run_id, s.instances.c.subtype == "repetition")
    )
    wanted = None if pairs is None else set(pairs)
    if wanted is not None:
        if not wanted:
            return
        query = query.where(
            s.records.c.configuration_id.in_({configuration for configuration, _ in wanted}),
            s.instances.c.user_id.in_({user for _, user in wanted}),
        )
    groups: dict[tuple[int, str], list[np.ndarray]] = {}
    with store.begin() as connection:
        for configuration_id, user_id, vector in connection.execute(query):
            if wanted is None or (configuration_id, user_id) in wanted:
                group = groups.setdefault((configuration_id, user_id), [])
                if vector is not None:
                    group.append(np.frombuffer(vector, dtype="<f4"))
    rows = []
    for (configuration_id, user_id), vectors in groups.items():
        value = repetition_score(np.stack(vectors)) if len(vectors) > 1 else None
        rows.append(
            {
                "configuration_id": configuration_id,
                "user_id": user_id,
                "metric": "repetition",
                "judge": embedder,
                "value": value,
                "n": len(vectors),
                "reason": None
                if value is not None
                else reason or f"{len(vectors)} answered, two are needed for a similarity",
            }
        )
    save_user_scores(store, rows)
