"""Runs as things that come and go: the list of all, a new name, the end of one."""

from __future__ import annotations

import pandas as pd
from sqlalchemy import delete, func, select, update

from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.claims import worker_alive
from opbench.store.database import Store, store_time
from opbench.study import Study

COLUMNS = [
    "run",
    "name",
    "begun",
    "planned",
    "done",
    "errors",
    "working",
    "judge",
    "comparable",
    "recorded",
    "texts",
    "configurations",
]
LONGEST_NAME = 120


def study_list(store: Store) -> pd.DataFrame:
    """All runs, newest first, without reading a record: columns as in `COLUMNS`.

    `begun` is Unix seconds; `planned`, `done` and `errors` count records; `working` says whether a live process is at
    work; `texts` whether questions, memories and responses are there.
    """
    r = s.runs.c
    slices = select(s.instances.c.run_id, func.count().label("n")).group_by(s.instances.c.run_id).subquery()
    grids = select(s.configurations.c.run_id, func.count().label("n")).group_by(s.configurations.c.run_id).subquery()
    query = (
        select(r.id, r.name, r.created_at, r.study, r.provenance, r.recorded, r.text_left_out, slices.c.n, grids.c.n)
        .outerjoin(slices, slices.c.run_id == r.id)
        .outerjoin(grids, grids.c.run_id == r.id)
        .where(s.SHOWN)
        .order_by(r.created_at.desc(), r.id)
    )
    counted = select(s.records.c.run_id, s.records.c.status, func.count()).group_by(
        s.records.c.run_id, s.records.c.status
    )
    with store.begin() as connection:
        runs = connection.execute(query).all()
        counts = {(run, status): n for run, status, n in connection.execute(counted)}
        workers = connection.execute(select(s.workers)).all()
        now = store_time(connection)
    working = {row.run_id for row in workers if worker_alive(row.host, row.pid, row.heartbeat_at, now)}
    rows = [
        (
            run_id,
            name,
            created_at,
            (instances or 0) * (configurations or 0),
            counts.get((run_id, "done"), 0),
            counts.get((run_id, "error"), 0),
            run_id in working,
            Study.model_validate(study).judge,
            bool(provenance.get("comparable")),
            recorded,
            not left_out,
            configurations or 0,
        )
        for run_id, name, created_at, study, provenance, recorded, left_out, instances, configurations in runs
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def rename_run(store: Store, run_id: str, name: str) -> None:
    """Give a run another name, on one line. Its id, which is its study's hash, stays.

    Raises:
        UsageError: no such run, or the name is too long.
    """
    line = " ".join(name.split())
    if len(line) > LONGEST_NAME:
        raise UsageError(f"the name has {len(line)} signs; at most {LONGEST_NAME}.")
    with store.begin() as connection:
        study = connection.scalar(select(s.runs.c.study).where(s.runs.c.id == run_id))
        if study is None:
            raise UsageError(f"no run '{run_id}'. It was deleted meanwhile.")
        connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(name=line, study={**study, "name": line}))


def delete_run(store: Store, run_id: str) -> int:
    """Delete a run with its records and scores; returns how many records went.

    The call store keeps every answer that was paid for: starting the same study again asks only what isn't there.

    Raises:
        UsageError: no such run, or a process is at work on it.
    """
    with store.begin() as connection:
        # As `claims.claim` does: a starter that comes at once waits for this transaction, or this one for it.
        found = connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(request=s.runs.c.request))
        if not found.rowcount:
            raise UsageError(f"no run '{run_id}'. It was deleted meanwhile.")
        for row in connection.execute(select(s.workers).where(s.workers.c.run_id == run_id)):
            if worker_alive(row.host, row.pid, row.heartbeat_at, store_time(connection)):
                raise UsageError(f"run {run_id} is being worked on by process {row.pid} on {row.host}. Stop it first.")
        records = connection.scalar(select(func.count()).where(s.records.c.run_id == run_id)) or 0
        connection.execute(delete(s.runs).where(s.runs.c.id == run_id))
    return records


def texts_left_out(store: Store, run_id: str) -> bool:
    """Whether a run has no questions, memories and responses."""
    with store.begin() as connection:
        return bool(connection.scalar(select(s.runs.c.text_left_out).where(s.runs.c.id == run_id)))
