"""A run whose rows come in from a file: written in many short transactions, so that a run at work gets its turn, under
an id that nobody is shown, and put in its place at the end. What a process that died left of one goes with the next.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, select, update

from opbench.errors import StoreError
from opbench.store import schema as s
from opbench.store.claims import new_worker, worker_alive
from opbench.store.database import Store, store_time


class Incoming:
    """A run that comes in; made by `coming_in`."""

    def __init__(self, store: Store) -> None:
        self.run_id = f"{s.INCOMING}{uuid.uuid4().hex}"
        self._store = store
        self._worker = new_worker(self.run_id, 1)

    def begin(self, run: dict[str, Any]) -> None:
        with self._store.begin() as connection:
            connection.execute(s.runs.insert().values(**run | {"id": self.run_id}))
            connection.execute(s.workers.insert().values(**self._worker | {"heartbeat_at": store_time(connection)}))

    @contextmanager
    def batch(self) -> Iterator[Connection]:
        """A transaction for some of its rows."""
        with self._store.begin() as connection:
            mine = s.workers.c.id == self._worker["id"]
            connection.execute(update(s.workers).where(mine).values(heartbeat_at=store_time(connection)))
            yield connection

    def settle(self, run: dict[str, Any], keep: Callable[[Connection], Callable[[], None]]) -> None:
        """Make it the run of the id in `run`, in one transaction; an earlier one of that id is replaced.

        `keep` takes what has to stay of the earlier one; what it returns writes that again.
        """
        with self._store.begin() as connection:
            # Takes the place first: of two files of one run the later waits here, and replaces the earlier.
            connection.execute(update(s.runs).where(s.runs.c.id == run["id"]).values(request=s.runs.c.request))
            write_again = keep(connection)
            connection.execute(delete(s.runs).where(s.runs.c.id == run["id"]))
            connection.execute(s.runs.insert().values(**run))
            for table in (s.configurations, s.instances, s.records, s.human_scores, s.similarities):
                mine = table.c.run_id == self.run_id
                connection.execute(update(table).where(mine).values(run_id=run["id"]))
            connection.execute(delete(s.runs).where(s.runs.c.id == self.run_id))
            write_again()


@contextmanager
def coming_in(store: Store, run: dict[str, Any]) -> Iterator[Incoming]:
    """A run for a block that writes and settles it; whatever goes wrong in the block, nothing of it stays.

    Raises:
        StoreError: the store can't be written.
    """
    sweep(store)
    incoming = Incoming(store)
    try:
        incoming.begin(run)
        yield incoming
    except BaseException:
        # Where the store is full or gone, the next one sweeps it.
        with contextlib.suppress(StoreError):
            _drop(store, incoming.run_id)
        raise


def sweep(store: Store) -> None:
    """Delete what processes that died left of runs that came in."""
    with store.begin() as connection:
        left = set(connection.scalars(select(s.runs.c.id).where(~s.SHOWN)))
        for row in connection.execute(select(s.workers).where(s.workers.c.run_id.in_(left))):
            if worker_alive(row.host, row.pid, row.heartbeat_at, store_time(connection)):
                left.discard(row.run_id)
    for run_id in sorted(left):
        _drop(store, run_id)


def _drop(store: Store, run_id: str) -> None:
    """Delete a run that isn't shown, a configuration at a time."""
    c = s.configurations.c
    with store.begin() as connection:
        ids = connection.scalars(select(c.id).where(c.run_id == run_id)).all()
    for configuration_id in ids:
        with store.begin() as connection:
            connection.execute(delete(s.configurations).where(c.id == configuration_id))
    with store.begin() as connection:
        connection.execute(delete(s.runs).where(s.runs.c.id == run_id))
