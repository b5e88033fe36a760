"""A run's answers as rows with their texts, and a run that came from elsewhere written whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from sqlalchemy import and_, delete, or_, select

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import planned_rows
from opbench.study import Configuration, Study
from opbench.types import Benchmark, Instance

ANSWERS = [
    "model",
    "memory",
    "mitigation",
    "instance",
    "benchmark",
    "user",
    "subtype",
    "question",
    "status",
    "response",
    "context",
    "error",
    "retrieval_ms",
    "post_ms",
    "response_ms",
    "score",
    "reason",
]


def configurations_of(store: Store, run_id: str) -> list[Configuration]:
    """The run's configurations in its order."""
    c = s.configurations.c
    query = select(c.model, c.memory, c.mitigation).where(c.run_id == run_id).order_by(c.id)
    with store.begin() as connection:
        return [Configuration(*row) for row in connection.execute(query)]


def answers(
    store: Store,
    run_id: str,
    configuration: Configuration,
    judge: str,
    metrics: Mapping[Benchmark, str],
    benchmark: Benchmark | None = None,
) -> pd.DataFrame:
    """What a configuration did with every planned instance, in the slice's order; columns as in `ANSWERS`.

    `score` is of `judge`, by the metric that `metrics` names for the instance's benchmark; `status` is null where no
    record was made.
    """
    i, r, g, c = s.instances.c, s.records.c, s.scores.c, s.configurations.c
    judged = or_(*(and_(i.benchmark == name, g.metric == metric) for name, metric in metrics.items()))
    query = (
        select(
            c.model,
            c.memory,
            c.mitigation,
            i.instance_id,
            i.benchmark,
            i.user_id,
            i.subtype,
            i.question,
            *(r[name] for name in ("status", "response", "context", "error", "retrieval_ms", "post_ms", "response_ms")),
            g.value,
            g.reason,
        )
        .select_from(s.configurations)
        .join(s.instances, i.run_id == c.run_id)
        .outerjoin(s.records, and_(r.configuration_id == c.id, r.instance_id == i.instance_id))
        .outerjoin(s.scores, and_(g.record_id == r.id, g.judge == judge, judged))
        .where(c.run_id == run_id, c.model == configuration.model, c.memory == configuration.memory)
        .where(c.mitigation == configuration.mitigation)
        .order_by(i.ordinal)
    )
    if benchmark is not None:
        query = query.where(i.benchmark == benchmark)
    with store.begin() as connection:
        frame = pd.DataFrame(connection.execute(query).all(), columns=ANSWERS)
    return frame.astype(dict.fromkeys(("retrieval_ms", "post_ms", "response_ms", "score"), "float64"))


def user_scores_of(
    store: Store, run_id: str, configuration: Configuration
) -> dict[str, tuple[float | None, int, str | None]]:
    """Repetition by user id: value (0 to 1, None when missing), answers it rests on, reason when it is missing."""
    c, u = s.configurations.c, s.user_scores.c
    query = (
        select(u.user_id, u.value, u.n, u.reason)
        .join(s.configurations, c.id == u.configuration_id)
        .where(c.run_id == run_id, c.model == configuration.model, c.memory == configuration.memory)
        .where(c.mitigation == configuration.mitigation, u.metric == "repetition")
        .order_by(u.user_id)
    )
    with store.begin() as connection:
        return {user: (value, n, reason) for user, value, n, reason in connection.execute(query)}


def save_recorded(
    store: Store,
    run_id: str,
    study: Study,
    digest: str,
    provenance: dict[str, Any],
    instances: Sequence[Instance],
    results: Mapping[Configuration, tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]],
) -> None:
    """Write a run that was made elsewhere, in one transaction; one of the same id is replaced.

    `results` holds, by configuration, its records and its users' scores: columns of `schema.records` and
    `schema.user_scores` beyond the keys; a record's `score` is a row of `schema.scores` beyond its key, or None.
    """
    run = {
        "id": run_id,
        "name": study.name,
        "study_hash": digest,
        "study": study.model_dump(mode="json"),
        "provenance": provenance,
        "created_at": time.time(),
        "request": "stop",
        "recorded": True,
        "text_left_out": False,
    }
    with store.begin() as connection:
        connection.execute(delete(s.runs).where(s.runs.c.id == run_id))
        connection.execute(s.runs.insert().values(**run))
        connection.execute(s.instances.insert(), planned_rows(run_id, instances))
        for configuration, (records, users) in results.items():
            key = connection.scalar(
                s.configurations.insert()
                .values(
                    run_id=run_id,
                    model=configuration.model,
                    memory=configuration.memory,
                    mitigation=configuration.mitigation,
                )
                .returning(s.configurations.c.id)
            )
            rows = [
                {"run_id": run_id, "configuration_id": key, **{k: v for k, v in record.items() if k != "score"}}
                for record in records
            ]
            inserted = s.records.insert().returning(s.records.c.id, sort_by_parameter_order=True)
            ids = connection.scalars(inserted, rows).all() if rows else []
            scores = [
                {"record_id": record_id, **record["score"]}
                for record_id, record in zip(ids, records, strict=True)
                if record["score"] is not None
            ]
            if scores:
                connection.execute(s.scores.insert(), scores)
            if users:
                connection.execute(s.user_scores.insert(), [{"configuration_id": key, **user} for user in users])
