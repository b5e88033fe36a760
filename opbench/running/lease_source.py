"""Sources of an engine's jobs: a plan, all of which is one process's, and shards that are leased in the store."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from opbench.errors import StoreError
from opbench.running.jobs import Job
from opbench.running.plan import Plan, plan_of
from opbench.running.shards import cut
from opbench.store import leases
from opbench.store.database import Store
from opbench.study import Configuration
from opbench.types import Instance

_AT_ONCE = 256
#: Seconds between two looks at whether a shard that another holds has come free.
_LOOK_S = 0.5
#: Jobs that a lease is to bring, as a multiple of what is done at a time: few leases when shards are small.
_AHEAD = 4

T = TypeVar("T")


class PlanSource:
    """All of a plan's jobs, for the sole process at work on a run."""

    def __init__(self, plan: Plan, worker_id: str | None = None) -> None:
        """`worker_id` is the process's row in `schema.workers`: it writes only while that is there."""
        self._worker_id = worker_id
        self._jobs = plan.jobs
        self._given = 0
        self.planned = plan.planned
        self.finished = plan.finished
        self.to_do = len(plan.jobs)

    async def take(self) -> Sequence[Job]:
        jobs = self._jobs[self._given : self._given + _AT_ONCE]
        self._given += len(jobs)
        return jobs

    def held(self, connection: Connection, jobs: Sequence[Job]) -> None:
        """Whoever takes the run, of a process that was silent for long, takes all of its jobs."""
        if self._worker_id is not None:
            leases.hold(connection, self._worker_id)

    async def committed(self, jobs: Sequence[Job]) -> None:
        """Nothing is to be given back."""

    async def aclose(self) -> None:
        """Nothing is to be given back."""


class NoJobs(PlanSource):
    """A plan that others do: whoever leads them has no job itself."""

    async def take(self) -> Sequence[Job]:
        return ()


class LeaseSource:
    """The jobs of shards that this member leases, some at a time, until none is left to take or to wait for."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        worker_id: str,
        leader: str,
        configuration_ids: Mapping[Configuration, int],
        instances: Sequence[Instance],
        *,
        number: int,
        of: int,
        concurrency: int,
    ) -> None:
        """`worker_id` and `leader` are ids of rows in `schema.workers`; this is member `number` (from 0) `of` so many,
        and does `concurrency` jobs at a time."""
        self._store = store
        self._run_id = run_id
        self._worker_id = worker_id
        self._leader = leader
        self._configuration_ids = configuration_ids
        self._instances = instances
        self._of = of
        self._wanted = _AHEAD * concurrency
        self._shards = cut(instances)
        self._shard_of = {instances[index].id: n for n, shard in enumerate(self._shards) for index in shard}
        first = number * len(self._shards) // of
        # Each member begins at a place of its own and goes round, so that one user's prompts come to one member.
        self._round = [*range(first, len(self._shards)), *range(first)]
        self._open: Counter[int] = Counter()
        self._leasing: asyncio.Future[tuple[list[Job], int]] | None = None
        self.planned = len(configuration_ids) * len(instances)
        self.finished = 0
        """What is done is found out shard by shard."""
        self.to_do = self.planned

    async def take(self) -> Sequence[Job]:
        while True:
            # Not given up when the engine stops meanwhile: what was leased is then given back.
            self._leasing = asyncio.ensure_future(self._store.in_thread(self._lease))
            jobs, others = await asyncio.shield(self._leasing)
            self._open.update(self._shard_of[job.instance.id] for job in jobs)
            if jobs or not others:
                return jobs
            await asyncio.sleep(_LOOK_S)

    def held(self, connection: Connection, jobs: Sequence[Job]) -> None:
        leases.hold(connection, self._worker_id)

    async def committed(self, jobs: Sequence[Job]) -> None:
        met = Counter(self._shard_of[job.instance.id] for job in jobs)
        self._open.subtract(met)
        done = [shard for shard in met if not self._open[shard]]
        if done:
            await self._store.in_thread(self._set_done, done)

    async def aclose(self) -> None:
        if self._leasing is not None:
            with contextlib.suppress(StoreError):
                await self._leasing
        with contextlib.suppress(StoreError):
            await self._store.in_thread(leases.give_back, self._store, self._run_id, self._worker_id)

    def _lease(self) -> tuple[list[Job], int]:
        """Jobs of shards that are free now; and how many shards others hold, when there are none.

        What is to do of a shard is told by the records: a worker that died may have done some of it.
        """
        while True:
            with self._store.begin() as connection:
                leases.hold(connection, self._worker_id)
                leased = leases.lease(connection, self._run_id, self._worker_id, self._leader, self._choose)
                instances = [self._instances[index] for shard in leased.shards for index in self._shards[shard]]
                jobs: list[Job] = []
                if instances:
                    jobs = list(plan_of(connection, self._run_id, self._configuration_ids, instances, part=True).jobs)
                counts = Counter(self._shard_of[job.instance.id] for job in jobs)
                empty = [shard for shard in leased.shards if not counts[shard]]
                if empty:
                    leases.set_done(connection, self._run_id, self._worker_id, self._leader, empty)
            if jobs or not leased.shards:
                return jobs, leased.others

    def _choose(self, held: Collection[int]) -> list[int]:
        free = [shard for shard in self._round if shard not in held]
        size = len(self._configuration_ids) * len(self._instances) / max(1, len(self._shards))
        # Never so many that others would soon have none.
        most = max(1, len(free) // (2 * self._of))
        return free[: min(most, math.ceil(self._wanted / max(1.0, size)))]

    def _set_done(self, shards: Sequence[int]) -> None:
        with self._store.begin() as connection:
            leases.hold(connection, self._worker_id)
            leases.set_done(connection, self._run_id, self._worker_id, self._leader, shards)
