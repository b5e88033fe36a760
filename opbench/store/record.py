"""One record with all that is known of it: what was asked, remembered, kept, said, judged, and which calls it took."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, select

from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.database import Store

Key = tuple[str, str, str]
"""model, memory, mitigation."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One number of a judge for the record; `value` is None when it is missing, and `reason` says why."""

    judge: str
    metric: str
    value: float | None
    reason: str | None
    raw: str | None


@dataclass(frozen=True, slots=True)
class CallOfRecord:
    """A call that the record rests on; `reused` when it was made for another record or in an earlier run."""

    stage: str
    model: str
    reused: bool
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    duration_ms: float
    attempts: int
    made_at: float


@dataclass(frozen=True, slots=True)
class Record:
    """What one configuration did with one instance of a run. Texts are None where the run came without them."""

    run_id: str
    key: Key
    instance: str
    benchmark: str
    user: str
    subtype: str
    question: str | None
    answer: str | None
    """LoCoMo's gold answer."""
    values: dict[str, Any]
    """The columns of `schema.records` beyond the keys; empty when the record isn't made yet."""
    judgements: tuple[Judgement, ...]
    user_score: Judgement | None
    """For repetition questions: the score of all of the user's responses."""
    user_n: int
    """Responses that `user_score` rests on."""
    calls: tuple[CallOfRecord, ...]
    text_left_out: bool

    @property
    def made(self) -> bool:
        return bool(self.values)

    @property
    def response(self) -> str | None:
        response: str | None = self.values.get("response")
        return response


def sha256_of(response: str) -> str:
    """SHA-256 (hex) of a response: the thing that a person's score is about. Lone surrogates count as they are."""
    return hashlib.sha256(response.encode("utf-8", "surrogatepass")).hexdigest()


def configuration_id(connection: Connection, run_id: str, key: Key) -> int:
    """The id of a run's configuration.

    Raises:
        UsageError: the run has no such configuration.
    """
    c = s.configurations.c
    fits = and_(c.run_id == run_id, c.model == key[0], c.memory == key[1], c.mitigation == key[2])
    found = connection.scalar(select(c.id).where(fits))
    if found is None:
        raise UsageError(f"run {run_id} has no configuration {' · '.join(key)}.")
    return int(found)


def read_record(store: Store, run_id: str, key: Key, instance_id: str) -> Record:
    """A record by what identifies it: run, configuration and instance. One that isn't made yet has no `values`.

    Raises:
        UsageError: the run has no such configuration or instance.
    """
    i, r = s.instances.c, s.records.c
    with store.begin() as connection:
        of = configuration_id(connection, run_id, key)
        left_out = bool(connection.scalar(select(s.runs.c.text_left_out).where(s.runs.c.id == run_id)))
        instance = connection.execute(
            select(s.instances).where(i.run_id == run_id, i.instance_id == instance_id)
        ).first()
        if instance is None:
            raise UsageError(f"run {run_id} has no instance '{instance_id[:80]}'. 'opbench instances' lists them.")
        row = (
            connection.execute(select(s.records).where(r.configuration_id == of, r.instance_id == instance_id))
            .mappings()
            .first()
        )
        values = {} if row is None else dict(row)
        judgements, calls = _of_record(connection, values.get("id"))
        of_user, n = _of_user(connection, of, instance.user_id) if instance.subtype == "repetition" else (None, 0)
    keys = ("id", "run_id", "configuration_id", "instance_id")
    return Record(
        run_id,
        key,
        instance_id,
        instance.benchmark,
        instance.user_id,
        instance.subtype,
        instance.question,
        instance.answer,
        {name: value for name, value in values.items() if name not in keys},
        judgements,
        of_user,
        n,
        calls,
        left_out,
    )


def _of_record(connection: Connection, record_id: int | None) -> tuple[tuple[Judgement, ...], tuple[CallOfRecord, ...]]:
    if record_id is None:
        return (), ()
    g, u, c = s.scores.c, s.record_calls.c, s.calls.c
    given = select(g.judge, g.metric, g.value, g.reason, g.raw).where(g.record_id == record_id)
    used = (
        select(
            u.stage,
            c.model,
            u.reused,
            c.finish_reason,
            c.prompt_tokens,
            c.completion_tokens,
            c.cost_usd,
            c.duration_ms,
            c.attempts,
            c.made_at,
        )
        .join(s.calls, c.key == u.call_key)
        .where(u.record_id == record_id)
        .order_by(u.ordinal)
    )
    return (
        tuple(Judgement(*row) for row in connection.execute(given.order_by(g.judge, g.metric))),
        tuple(CallOfRecord(**row) for row in connection.execute(used).mappings()),
    )


def _of_user(connection: Connection, of: int, user: str) -> tuple[Judgement | None, int]:
    g = s.user_scores.c
    query = select(g.judge, g.metric, g.value, g.reason, g.n).where(
        g.configuration_id == of, g.user_id == user, g.metric == "repetition"
    )
    row = connection.execute(query.order_by(g.judge)).first()
    return (None, 0) if row is None else (Judgement(row.judge, row.metric, row.value, row.reason, None), row.n)
