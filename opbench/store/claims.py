"""Who is at work on a run: one process at a time, with the members that it leads, and none that died."""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any

from sqlalchemy import Connection, delete, select, update

from opbench.errors import UsageError
from opbench.store.database import Store, store_time
from opbench.store.schema import leases, runs, workers

#: How long a worker may be silent, by the store's clock, before it counts as dead: on this host, where its process is
#: there, and elsewhere.
_SILENT_HERE = 60.0
_SILENT_ELSEWHERE = 30.0


def new_worker(run_id: str, concurrency: int, leader: str | None = None) -> dict[str, Any]:
    """This process as a row of `schema.workers`; `leader` is the id of the row of whom it is a member."""
    now = time.time()
    return {
        "id": uuid.uuid4().hex,
        "run_id": run_id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started_at": now,
        "heartbeat_at": now,
        "concurrency": concurrency,
        "stats": {},
        "leader": leader,
    }


def claim(store: Store, run_id: str, worker: dict[str, Any]) -> None:
    """Take the run for this worker; rows of workers that died are forgotten.

    One transaction, which first locks the run: of two that start at once the second waits, looks, and is refused.

    Raises:
        UsageError: another process is at work on the run; says which.
    """
    with store.begin() as connection:
        connection.execute(update(runs).where(runs.c.id == run_id).values(request=runs.c.request))
        rows = connection.execute(select(workers).where(workers.c.run_id == run_id)).all()
        now = store_time(connection)
        # A leader is named before its members.
        for row in sorted(rows, key=lambda row: row.leader is not None):
            if _is(row, worker):
                continue
            if worker_alive(row.host, row.pid, row.heartbeat_at, now):
                raise UsageError(
                    f"run {run_id} is being worked on by process {row.pid} on {row.host}. "
                    "Watch it with 'opbench status', or stop it first."
                )
        connection.execute(delete(workers).where(workers.c.run_id == run_id))
        connection.execute(delete(leases).where(leases.c.run_id == run_id))
        connection.execute(workers.insert().values(**worker | {"heartbeat_at": now}))


def orphans(store: Store, run_id: str) -> list[str]:
    """Members at work on a run whose leader is gone, as `process 12 on host`: they end after what they have in hand."""
    with store.begin() as connection:
        rows = connection.execute(select(workers).where(workers.c.run_id == run_id)).all()
        now = store_time(connection)
    alive = [row for row in rows if worker_alive(row.host, row.pid, row.heartbeat_at, now)]
    if any(row.leader is None for row in alive):
        return []
    return [f"process {row.pid} on {row.host}" for row in alive]


def is_led(connection: Connection, leader: str) -> bool:
    """Whether the worker of that id, a leader, is alive."""
    w = workers.c
    row = connection.execute(select(w.host, w.pid, w.heartbeat_at).where(w.id == leader)).first()
    return row is not None and worker_alive(*row, store_time(connection))


def announce(store: Store, run_id: str, pid: int, concurrency: int) -> bool:
    """Let a process that was just started here count as at work until it claims the run itself, so that whoever looks
    at the run sees that it starts. False when another was first: of two that are announced each would refuse for the
    other's sake."""
    worker = new_worker(run_id, concurrency) | {"pid": pid, "stats": {"starting": True}}
    with store.begin() as connection:
        connection.execute(update(runs).where(runs.c.id == run_id).values(request=runs.c.request))
        rows = connection.execute(select(workers).where(workers.c.run_id == run_id)).all()
        if any((row.host, row.pid) == (worker["host"], worker["pid"]) for row in rows):
            return True
        now = store_time(connection)
        if any(worker_alive(row.host, row.pid, row.heartbeat_at, now) for row in rows):
            return False
        connection.execute(workers.insert().values(**worker | {"heartbeat_at": now}))
        return True


def _is(row: Any, worker: dict[str, Any]) -> bool:
    """Whether a row is this worker's own, or the announcement of its process."""
    announced = row.stats.get("starting") and (row.host, row.pid) == (worker["host"], worker["pid"])
    return bool(row.id == worker["id"] or announced)


def worker_alive(host: str, pid: int, heartbeat_at: float, now: float) -> bool:
    """Whether a worker still runs: asked of the process here, judged by its heartbeat elsewhere. `now` is
    `store_time`."""
    silent = now - heartbeat_at
    if host != socket.gethostname():
        return silent < _SILENT_ELSEWHERE
    # A dead worker's number may have been given to another process, which writes no heartbeat.
    return _is_there(pid) and silent < _SILENT_HERE


class Pulse:
    """Whether a worker is alive, for one who looks at it again and again: by its heartbeat's changing, since two
    machines' clocks differ, and one's may be set anew."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._changed = time.monotonic()

    def alive(self, host: str, pid: int, heartbeat_at: float) -> bool:
        now = time.monotonic()
        if heartbeat_at != self._last:
            self._last, self._changed = heartbeat_at, now
        if host == socket.gethostname() and not _is_there(pid):
            return False
        return now - self._changed < _SILENT_HERE


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, as another user's
    return True
