"""A member of a team: a process that leases shards of a run and does them with the engine, as a sole process its plan.

Its last numbers stay in its row of `schema.workers` until its leader has read them and forgets it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from sqlalchemy import select

from opbench.errors import LeaseLost, StoreError, UsageError
from opbench.running.budget import Meter
from opbench.running.crew import Part
from opbench.running.engine import Engine
from opbench.running.ingestion import Failures, failures_of
from opbench.running.lease_source import LeaseSource
from opbench.running.pipeline import Pipeline
from opbench.running.prepare import Prepared
from opbench.running.silent import silent_of
from opbench.running.worker import make_tools
from opbench.store import leases
from opbench.store import schema as s
from opbench.store.claims import Pulse, new_worker
from opbench.store.database import Store
from opbench.study import Configuration

#: Seconds between two looks at whether the leader is there.
_LOOK_S = 2.0


async def work(store: Store, prepared: Prepared, part: Part, *, stop: asyncio.Event | None = None) -> None:
    """Do shards of the run until none is left, the part's budget is spent, or the run is stopped; what is in flight
    then is finished and written. The same holds when `stop` is set or the leader is gone.

    `prepared` is the run's study, made with `share=part.of`. The memory systems have taken in what they could before.

    Raises:
        UsageError: this isn't the run's study as it is here, or its leader is gone already.
        LeaseLost: this member was silent for so long that its part was given to another.
        StoreError: the store can't be written; what was committed stays.
    """
    if prepared.run_id != part.run_id:
        raise UsageError(
            f"here the study is run {prepared.run_id}, and its leader does run {part.run_id}: the data, the registry, "
            "the plugins or the version of the workbench are others here. Make them the same."
        )
    worker = new_worker(part.run_id, part.concurrency, part.leader)
    # With its number from the first moment on: the leader knows it by that.
    worker["stats"] = {"member": part.number}
    leases.join(store, worker)
    configuration_ids, concurrency, failures = _of_the_run(store, prepared, part)
    tools = make_tools(store, prepared, concurrency, failures, of=part.of)
    meter = Meter(prepared, tools.calls.stats, 0.0)
    budget = part.budget_usd
    silent = silent_of(prepared)

    def stats() -> dict[str, Any]:
        client = prepared.client.stats
        return {
            "member": part.number,
            **client.shown(),
            "spent_usd": meter.spent_usd,
            "embeddings_usd": meter.embeddings_usd,
            "answered_as": {name: sorted(names) for name, names in client.answered_as.items()},
            "halted": engine.halted,
            "unpriced": next(iter(tools.calls.stats.unpriced), None),
            "in_vain": silent.reason_to_halt(),
            "passed_over": {name: silent.models()[name] for name in engine.passed_over},
        }

    engine = Engine(
        store,
        part.run_id,
        Pipeline(tools),
        embedder=prepared.study.embedder,
        embed=prepared.embedder.embed,
        on_progress=lambda progress: None,
        stats=stats,
        worker=worker,
        reason_to_halt=lambda: (budget and meter.reason_to_halt(budget)) or silent.reason_to_halt(),
        silent=silent,
        scores_users=False,
        concurrency=part.concurrency,
    )
    source = LeaseSource(
        store,
        part.run_id,
        worker["id"],
        part.leader,
        configuration_ids,
        prepared.instances,
        number=part.number,
        of=part.of,
        concurrency=part.concurrency,
    )
    watching = [asyncio.create_task(_stop_without_leader(engine, store, part.leader))]
    if stop is not None:
        watching.append(asyncio.create_task(_stop_when_asked(engine, stop)))
    try:
        await engine.run(source)
    finally:
        for task in watching:
            task.cancel()


async def _stop_when_asked(engine: Engine, stop: asyncio.Event) -> None:
    await stop.wait()
    engine.stop()


async def _stop_without_leader(engine: Engine, store: Store, leader: str) -> None:
    pulse = Pulse()
    w = s.workers.c

    def there() -> bool:
        with store.begin() as connection:
            row = connection.execute(select(w.host, w.pid, w.heartbeat_at).where(w.id == leader)).first()
        return row is not None and pulse.alive(*row)

    while True:
        await asyncio.sleep(_LOOK_S)
        # A store that can't be read ends the engine by itself.
        with contextlib.suppress(StoreError):
            if not await asyncio.to_thread(there):
                engine.stop()
                return


def _of_the_run(store: Store, prepared: Prepared, part: Part) -> tuple[dict[Configuration, int], int, Failures]:
    """The ids of the run's configurations, its concurrency as a whole, and why ingestions failed."""
    with store.begin() as connection:
        c = s.configurations.c
        rows = connection.execute(select(c.id, c.model, c.memory, c.mitigation).where(c.run_id == part.run_id)).all()
        w = s.workers.c
        leader = connection.execute(select(w.concurrency, w.stats).where(w.id == part.leader)).first()
    if leader is None:
        raise LeaseLost("whoever started this worker isn't at work any more.")
    ids = {Configuration(row.model, row.memory, row.mitigation): row.id for row in rows}
    failures = failures_of(leader.stats.get("failures", []))
    return {each: ids[each] for each in prepared.study.configurations()}, leader.concurrency, failures
