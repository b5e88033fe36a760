"""Running a prepared study in this process: the engine with its parts, signals and claims."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping

from opbench import __version__
from opbench.errors import MemoryFault, ModelError, StoreError
from opbench.running.budget import Meter, register, spent_before
from opbench.running.engine import Engine, Progress
from opbench.running.ingestion import Ingestion, pairs_of, summary
from opbench.running.lease_source import PlanSource
from opbench.running.pipeline import Pipeline, Tools
from opbench.running.plan import Plan, make_plan, pilot
from opbench.running.prepare import Prepared, connect, git_commit
from opbench.running.retrieval import Retrieval
from opbench.store.claims import claim, new_worker
from opbench.store.database import Store
from opbench.store.writing import add_answered_as, add_execution, add_to_execution, keep_ingestion, set_halted


async def execute(
    store: Store,
    prepared: Prepared,
    *,
    concurrency: int,
    on_progress: Callable[[Progress], None],
    on_stop: Callable[[], None] = lambda: None,
    budget_usd: float | None = None,
    pilot_records: int | None = None,
) -> Progress:
    """Do what is missing of the study: first the histories that its memory systems haven't taken in, then the records.

    The first Ctrl-C finishes what is in flight, the second leaves at once.

    `on_stop` is called at the first Ctrl-C. With a budget nothing is taken up once the run's own calls have cost as
    much, earlier executions included; what is in flight then is finished. With `pilot_records` only so many records
    are done. Either way the run says in `halted` that it ended early.

    Raises:
        UsageError: another process is at work on this run, or the budget can't be kept.
        StoreError: the store can't be written; what was committed stays.
    """
    if prepared.study.latency_probe:
        concurrency = 1
    configuration_ids = register(store, prepared, budget_usd)
    before = spent_before(store, prepared.run_id)
    worker = new_worker(prepared.run_id, concurrency)
    claim(store, prepared.run_id, worker)
    set_halted(store, prepared.run_id, None)
    execution = {"at": time.time(), "workbench": __version__, "git_commit": git_commit(), "concurrency": concurrency}
    limits = {"budget_usd": budget_usd, "pilot_records": pilot_records}
    add_execution(store, prepared.run_id, execution | {name: limit for name, limit in limits.items() if limit})
    plan = whole = make_plan(store, prepared.run_id, configuration_ids, prepared.instances)
    if pilot_records is not None:
        plan = pilot(whole, prepared.instances, pilot_records)
    ingestion = make_ingestion(prepared, plan, concurrency)
    tools = make_tools(store, prepared, concurrency, ingestion.failures)
    meter = Meter(prepared, tools.calls.stats, before)

    async def ingest(progress: Progress) -> None:
        progress.ingesting = list(ingestion.standings.values())
        booking = asyncio.Lock()

        async def book() -> None:
            # After every session, not at the end: what a process spent that is killed counts too.
            async with booking:
                spent = {"ingestion_usd": tools.calls.stats.spent_usd, "embeddings_usd": meter.embeddings_usd}
                await asyncio.to_thread(keep_ingestion, store, prepared.run_id, spent, summary(ingestion))
            on_progress(progress)

        try:
            await ingestion.run(engine.may_go_on, book)
        finally:
            await book()

    engine = Engine(
        store,
        prepared.run_id,
        Pipeline(tools),
        embedder=prepared.study.embedder,
        embed=prepared.embedder.embed,
        on_progress=on_progress,
        stats=lambda: {
            "requests": prepared.client.stats.requests,
            "retries": dict(prepared.client.stats.retries),
            "waited_s": round(prepared.client.stats.waited_s, 1),
            "spent_usd": meter.spent_usd,
            **limits,
            **({"ingesting": ingestion.to_list()} if ingestion.standings else {}),
        },
        worker=worker,
        reason_to_halt=lambda: None if budget_usd is None else meter.reason_to_halt(budget_usd),
        halted_after=f"The pilot of {len(plan.jobs):,} records is done; the rest of the study waits."
        if len(plan.jobs) < len(whole.jobs)
        else None,
        before=ingest if ingestion.standings else None,
    )

    def interrupted() -> None:
        if engine.stopping:
            os._exit(130)
        engine.stop()
        on_stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        return await engine.run(PlanSource(plan))
    finally:
        with contextlib.suppress(StoreError):
            add_answered_as(store, prepared.run_id, prepared.client.stats.answered_as)
            add_to_execution(store, prepared.run_id, {"embeddings_usd": meter.embeddings_usd})
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def make_tools(
    store: Store, prepared: Prepared, concurrency: int, failures: Mapping[tuple[str, str], ModelError | MemoryFault]
) -> Tools:
    """The pipeline's tools, with the call store in front of the model client; `failures` as in `Ingestion`."""
    return Tools(
        prepared.study,
        prepared.corpus,
        connect(store, prepared, concurrency),
        Retrieval(prepared.study, prepared.corpus, prepared.memories, prepared.history_sha256, failures),
        prepared.mitigations,
        prepared.judge,
        concurrency,
        prepared.run_id,
    )


def make_ingestion(prepared: Prepared, plan: Plan, concurrency: int) -> Ingestion:
    """What the plan's records need ingested; those that only want judging need nothing."""
    needing = [(job.configuration.memory, job.instance) for job in plan.jobs if job.record_id is None]
    memories = prepared.ingesting
    return Ingestion(memories, prepared.corpus, pairs_of(memories, needing), concurrency=concurrency)
