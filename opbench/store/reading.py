"""Reading from the store: runs, their status, and all that analysis needs of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from sqlalchemy import func, literal, select

from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.claims import worker_alive
from opbench.store.database import Store, store_time
from opbench.store.frames import CONFIGURATION, FrameReader, frame_of
from opbench.store.rundata import RunData
from opbench.store.runs import EMBEDDER_FAILED
from opbench.study import Study


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How far a run is, computed from its records. `done` + `errors` + `waiting` = `planned`."""

    run_id: str
    name: str
    created_at: float
    recorded: bool
    text_left_out: bool
    planned: int
    done: int
    errors: int
    unscored: int
    """Done records that lack a score of the run's judge (repetition is scored by user and not counted)."""
    retriable: int
    """Scores that are missing for a passing reason (the judge or the embedder failed): the next start tries again."""
    error_kinds: dict[str, int]
    missing_reasons: dict[str, int]
    by_configuration: pd.DataFrame
    """model, memory, mitigation, planned, done, errors."""
    request: str
    working: bool
    """Whether a live process is at work on it."""
    worker: dict[str, Any] = field(default_factory=dict)
    """The live worker's row: pid, host, concurrency, started_at, stats. Of several the leader's: its stats are those of
    all together."""
    recent_rate: float | None = None
    """Records per second over the last minute, or since the worker started if that is shorter."""
    halted: str | None = None
    """Why the last execution ended before its work did, as a sentence: its budget, or that it was a pilot."""
    bundle_sha256: str = ""
    """Of the bundle's contents that a recorded run came from."""

    @property
    def members(self) -> list[dict[str, Any]]:
        """The processes that share the run, when several do: number, state (starting, at work, ended), host, pid,
        concurrency, done, errors, replaced."""
        found: list[dict[str, Any]] = self.worker.get("stats", {}).get("workers", [])
        return found

    @property
    def waiting(self) -> int:
        return self.planned - self.done - self.errors

    @property
    def complete(self) -> bool:
        """Whether every record is done and no score is missing for a passing reason."""
        return self.done == self.planned and not self.retriable

    @property
    def seconds_left(self) -> float | None:
        return self.waiting / self.recent_rate if self.working and self.recent_rate else None

    def to_dict(self) -> dict[str, Any]:
        """For `opbench status --json`."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "by_configuration"}
        return {
            **plain,
            "waiting": self.waiting,
            "complete": self.complete,
            "seconds_left": self.seconds_left,
            "by_configuration": self.by_configuration.to_dict("records"),
        }


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as lists name it."""

    run_id: str
    name: str
    created_at: float
    recorded: bool


def run_list(store: Store) -> list[RunRow]:
    """All runs, newest first."""
    columns = (s.runs.c.id, s.runs.c.name, s.runs.c.created_at, s.runs.c.recorded)
    with store.begin() as connection:
        rows = connection.execute(
            select(*columns).where(s.SHOWN).order_by(s.runs.c.created_at.desc(), s.runs.c.id)
        ).all()
    return [RunRow(*row) for row in rows]


def run_ids(store: Store) -> list[str]:
    """All runs, newest first."""
    with store.begin() as connection:
        return list(
            connection.scalars(select(s.runs.c.id).where(s.SHOWN).order_by(s.runs.c.created_at.desc(), s.runs.c.id))
        )


def find_run(store: Store, wanted: str | None) -> str:
    """The run whose id begins with, or whose name is, `wanted`; the newest when None.

    Raises:
        UsageError: none, or more than one.
    """
    with store.begin() as connection:
        rows = connection.execute(
            select(s.runs.c.id, s.runs.c.name, s.runs.c.recorded)
            .where(s.SHOWN)
            .order_by(s.runs.c.created_at.desc(), s.runs.c.id)
        ).all()
    if not rows:
        raise UsageError("there is no run in this store yet. Start one with 'opbench run'.")
    if wanted is None:
        return str(rows[0].id)
    fitting = [row for row in rows if row.id == wanted] or [
        row for row in rows if row.id.startswith(wanted) or row.name == wanted
    ]
    # A run made here is meant before its bundle that came back.
    hits = [row.id for row in fitting if not row.recorded] or [row.id for row in fitting]
    if len(hits) == 1:
        return str(hits[0])
    if not hits:
        raise UsageError(f"no run '{wanted}'. There are: {', '.join(row.id for row in rows[:10])}.")
    raise UsageError(f"'{wanted}' fits {len(hits)} runs: {', '.join(hits[:10])}. Give more of the id.")


def run_status(store: Store, run_id: str) -> RunStatus:
    """Status of a run, counted in SQL: pages ask for it every few seconds, whatever the run's size."""
    now = time.time()
    with store.begin() as connection:
        run = connection.execute(select(s.runs).where(s.runs.c.id == run_id)).one()
        slice_size = connection.scalar(select(func.count()).where(s.instances.c.run_id == run_id)) or 0
        plan = connection.execute(
            select(s.configurations.c.id, *CONFIGURATION)
            .where(s.configurations.c.run_id == run_id)
            .order_by(s.configurations.c.id)
        ).all()
        rows = connection.execute(select(s.workers).where(s.workers.c.run_id == run_id)).all()
        by_its_clock = store_time(connection)
        alive = [row for row in rows if worker_alive(row.host, row.pid, row.heartbeat_at, by_its_clock)]
        # Its leader speaks for a team; members whose leader was killed speak for themselves until they end.
        alive.sort(key=lambda row: (row.leader is not None, row.started_at))
        span = max(1.0, min(60.0, now - min(row.started_at for row in alive))) if alive else 0.0
        counted = connection.execute(
            select(
                s.records.c.configuration_id,
                s.records.c.status,
                func.count(),
                func.count().filter(s.records.c.finished_at >= now - span) if alive else literal(0),
            )
            .where(s.records.c.run_id == run_id)
            .group_by(s.records.c.configuration_id, s.records.c.status)
        ).all()
        counts = {(configuration, status): count for configuration, status, count, _ in counted}
        kinds: Sequence[Any] = []
        if any(status == "error" for _, status in counts):
            kinds = connection.execute(
                select(s.records.c.error_kind, func.count())
                .where(s.records.c.run_id == run_id, s.records.c.status == "error")
                .group_by(s.records.c.error_kind)
            ).all()
        missing = connection.execute(
            select(s.scores.c.record_id, s.scores.c.reason, s.scores.c.retriable)
            .join(s.records, s.records.c.id == s.scores.c.record_id)
            .where(s.records.c.run_id == run_id, s.scores.c.value.is_(None))
        ).all()
        users = connection.execute(
            select(s.user_scores.c.reason, func.count())
            .join(s.configurations, s.configurations.c.id == s.user_scores.c.configuration_id)
            .where(s.configurations.c.run_id == run_id, s.user_scores.c.value.is_(None))
            .group_by(s.user_scores.c.reason)
        ).all()
    by_configuration = pd.DataFrame(
        [
            {
                "model": row.model,
                "memory": row.memory,
                "mitigation": row.mitigation,
                "planned": slice_size,
                "done": counts.get((row.id, "done"), 0),
                "errors": counts.get((row.id, "error"), 0),
            }
            for row in plan
        ],
        columns=["model", "memory", "mitigation", "planned", "done", "errors"],
    )
    # A record may lack several scores for one reason: that is one record.
    reasons = Counter(reason for _, reason in {(row.record_id, row.reason) for row in missing})
    return RunStatus(
        run_id=run_id,
        name=run.name,
        created_at=run.created_at,
        recorded=run.recorded,
        text_left_out=run.text_left_out,
        planned=slice_size * len(plan),
        done=int(by_configuration["done"].sum()),
        errors=int(by_configuration["errors"].sum()),
        unscored=len({row.record_id for row in missing}),
        retriable=sum(row.retriable for row in missing)
        + sum(count for reason, count in users if str(reason).startswith(EMBEDDER_FAILED)),
        error_kinds={str(kind): count for kind, count in kinds},
        missing_reasons={str(reason): count for reason, count in [*reasons.most_common(), *users]},
        by_configuration=by_configuration,
        request=run.request,
        working=bool(alive),
        worker=dict(alive[0]._mapping) if alive else {},
        recent_rate=sum(recent for *_, recent in counted) / span if alive else None,
        halted=run.halted,
        bundle_sha256=str(run.provenance.get("bundle_sha256", "")),
    )


def read_run(store: Store, run_id: str) -> RunData:
    """All of a run that analysis needs; texts stay in the store, and each frame until somebody looks at it."""
    with store.begin() as connection:
        run = connection.execute(select(s.runs).where(s.runs.c.id == run_id)).one()
    study = Study.model_validate(run.study)
    reader = FrameReader(store, run_id)
    return RunData(
        run_id=run_id,
        name=run.name,
        study=study,
        provenance=run.provenance,
        recorded=run.recorded,
        text_left_out=run.text_left_out,
        comparable=bool(run.provenance.get("comparable")),
        instances=reader.instances,
        configurations=reader.configurations,
        records=reader.records,
        scores=reader.scores,
        user_scores=reader.user_scores,
        vectors=None if run.text_left_out else lambda: reader.vectors(study.embedder),
    )


def failures(store: Store, run_id: str) -> pd.DataFrame:
    """Records without a response and scores that are missing: model, memory, mitigation, instance, kind, reason."""
    errors = (
        select(*CONFIGURATION, s.records.c.instance_id.label("instance"), s.records.c.error_kind, s.records.c.error)
        .join(s.configurations, s.configurations.c.id == s.records.c.configuration_id)
        .where(s.records.c.run_id == run_id, s.records.c.status == "error")
    )
    missing = (
        select(*CONFIGURATION, s.records.c.instance_id.label("instance"), s.scores.c.metric, s.scores.c.reason)
        .select_from(s.scores)
        .join(s.records, s.records.c.id == s.scores.c.record_id)
        .join(s.configurations, s.configurations.c.id == s.records.c.configuration_id)
        .where(s.records.c.run_id == run_id, s.scores.c.value.is_(None))
    )
    columns = ["model", "memory", "mitigation", "instance", "kind", "reason"]
    parts = [frame_of(store, errors).set_axis(columns, axis=1), frame_of(store, missing).set_axis(columns, axis=1)]
    found = pd.concat([part for part in parts if len(part)] or [parts[0]], ignore_index=True)
    return found.fillna({"kind": "not told", "reason": "not told"})
