"""Several workers on one run: who leads, who is a member, and which shards each of them holds.

A lease is a row of `schema.leases`. A shard that is done for this execution stays there in its leader's name, so that
nobody takes it again: what failed in it is tried by the next execution, not by the next member. All of a run's leases
go when another leader claims the run.

A member may write only while its row in `schema.workers` is there: `hold` locks it in each writing transaction, and
whoever takes the leases away deletes it first. So of two that believe to hold a shard one can't write. A process that
does a run alone keeps to the same: whoever claims the run deletes its row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, text, update

from opbench.errors import LeaseLost, UsageError
from opbench.store import schema as s
from opbench.store.claims import is_led
from opbench.store.database import Store, store_time
from opbench.store.writing import insert_ignore

#: How long a writing transaction of a member may stand still.
_FROZEN_MS = 30_000


@dataclass(frozen=True, slots=True)
class Leased:
    """What came of asking for shards."""

    shards: list[int]
    """Those that are the asker's now."""
    others: int
    """Shards that other members hold."""


def join(store: Store, worker: dict[str, Any]) -> None:
    """Make a member's row (`schema.workers`, with its `leader`).

    Raises:
        UsageError: its leader isn't at work any more.
    """
    with store.begin() as connection:
        _lock_run(connection, worker["run_id"])
        if not is_led(connection, worker["leader"]):
            raise UsageError(f"run {worker['run_id']}: whoever started this worker isn't at work any more.")
        connection.execute(s.workers.insert().values(**worker | {"heartbeat_at": store_time(connection)}))


def hold(connection: Connection, worker_id: str) -> None:
    """Make sure, until the transaction ends, that nobody takes this member's leases away.

    Raises:
        LeaseLost: somebody has.
    """
    if connection.dialect.name == "postgresql":
        # A process that freezes here would hold its row, and with it whoever takes its leases away, for ever.
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {_FROZEN_MS}"))
    mine = s.workers.c.id == worker_id
    # Changes nothing, and locks the row.
    if not connection.execute(update(s.workers).where(mine).values(pid=s.workers.c.pid)).rowcount:
        raise LeaseLost(
            "this worker was silent for so long that its part of the run was given to another. What it had in hand "
            "isn't written; its calls are kept."
        )


def lease(
    connection: Connection, run_id: str, worker_id: str, leader: str, choose: Callable[[Collection[int]], Sequence[int]]
) -> Leased:
    """Take the shards that `choose` names, given those that are held or done; somebody else may be faster."""
    held = _held(connection, run_id)
    wanted = list(choose(held))
    if wanted:
        _insert(connection, run_id, worker_id, wanted)
        held = _held(connection, run_id)
    others = sum(holder not in (worker_id, leader) for holder in held.values())
    return Leased([shard for shard in wanted if held.get(shard) == worker_id], others)


def set_done(connection: Connection, run_id: str, worker_id: str, leader: str, shards: Iterable[int]) -> None:
    """These shards of the worker are done, as far as this execution goes."""
    row = s.leases.c
    mine = (row.run_id == run_id, row.worker_id == worker_id, row.shard.in_(list(shards)))
    connection.execute(update(s.leases).where(*mine).values(worker_id=leader))


def give_back(store: Store, run_id: str, worker_id: str) -> None:
    """All that the worker holds comes free."""
    with store.begin() as connection:
        _free(connection, run_id, worker_id)


def begin(store: Store, run_id: str, leader: str, done: Iterable[int]) -> None:
    """A new execution: no shard is held, and in these nothing is to do."""
    with store.begin() as connection:
        connection.execute(delete(s.leases).where(s.leases.c.run_id == run_id))
        _insert(connection, run_id, leader, list(done))


def end(store: Store, run_id: str, leader: str) -> None:
    """The leader's execution is over: forget who held what.

    Raises:
        LeaseLost: another leads the run by now, and what is held is its members'.
    """
    with store.begin() as connection:
        hold(connection, leader)
        connection.execute(delete(s.leases).where(s.leases.c.run_id == run_id))


def take_away(store: Store, run_id: str, worker_id: str) -> None:
    """Forget a member that ended or is silent: what it holds comes free, and it can't write any more."""
    with store.begin() as connection:
        connection.execute(delete(s.workers).where(s.workers.c.id == worker_id))
        _free(connection, run_id, worker_id)


def undone(store: Store, run_id: str, leader: str, shards: int) -> int:
    """How many of so many shards aren't done, as far as this execution goes."""
    with store.begin() as connection:
        return shards - sum(holder == leader for holder in _held(connection, run_id).values())


def members(store: Store, leader: str) -> list[Any]:
    """The rows of a leader's members."""
    with store.begin() as connection:
        return list(connection.execute(select(s.workers).where(s.workers.c.leader == leader)))


def _lock_run(connection: Connection, run_id: str) -> None:
    connection.execute(update(s.runs).where(s.runs.c.id == run_id).values(request=s.runs.c.request))


def _held(connection: Connection, run_id: str) -> dict[int, str]:
    row = s.leases.c
    found = connection.execute(select(row.shard, row.worker_id).where(row.run_id == run_id)).all()
    return {each.shard: each.worker_id for each in found}


def _insert(connection: Connection, run_id: str, worker_id: str, shards: Sequence[int]) -> None:
    at = time.time()
    rows = [{"run_id": run_id, "shard": shard, "worker_id": worker_id, "taken_at": at} for shard in shards]
    insert_ignore(connection, s.leases, rows)


def _free(connection: Connection, run_id: str, worker_id: str) -> None:
    row = s.leases.c
    connection.execute(delete(s.leases).where(row.run_id == run_id, row.worker_id == worker_id))
