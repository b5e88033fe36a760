"""Running a prepared study in this process: the engine with its parts, signals and claims."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from opbench import __version__
from opbench.errors import MemoryFault, ModelError, StoreError
from opbench.running.budget import Meter, register, spent_before
from opbench.running.crew import Crew
from opbench.running.engine import Engine, Progress
from opbench.running.ingestion import Ingestion, pairs_of, summary, told
from opbench.running.lease_source import NoJobs, PlanSource
from opbench.running.pipeline import Pipeline, Tools
from opbench.running.plan import Plan, make_plan, pilot
from opbench.running.prepare import Prepared, connect, git_commit
from opbench.running.retrieval import Retrieval
from opbench.running.silent import silent_of
from opbench.running.team import Team
from opbench.store.claims import claim, new_worker, orphans
from opbench.store.database import Store
from opbench.store.writing import add_answered_as, add_execution, add_to_execution, keep_ingestion, set_halted

#: Seconds between two looks at whether members of an earlier leader are gone.
_ORPHANS_EVERY_S = 0.5


async def execute(
    store: Store,
    prepared: Prepared,
    *,
    concurrency: int,
    on_progress: Callable[[Progress], None],
    on_stop: Callable[[], None] = lambda: None,
    on_news: Callable[[str], None] = lambda line: None,
    budget_usd: float | None = None,
    pilot_records: int | None = None,
    crew: Crew | None = None,
) -> Progress:
    """Do what is missing of the study: first the histories that its memory systems haven't taken in, then the records.

    The first Ctrl-C finishes what is in flight, the second leaves at once.

    `on_stop` is called at the first Ctrl-C. With a budget nothing is taken up once the run's own calls have cost as
    much, earlier executions included; what is in flight then is finished. With `pilot_records` only so many records
    are done. Either way the run says in `halted` that it ended early.

    With a `crew` its members do the records, and this process leads them; `concurrency` is that of all together.
    `on_news` is told in sentences what happens to them. A pilot and a latency probe are one process's, without a crew.

    Raises:
        UsageError: another process is at work on this run, the budget can't be kept, or no member can be started.
        LeaseLost: this process was silent for so long that another start took the run; its calls are kept.
        StoreError: the store can't be written; what was committed stays.
    """
    if prepared.study.latency_probe:
        concurrency = 1
    configuration_ids = register(store, prepared, budget_usd)
    await _wait_for_orphans(store, prepared.run_id, on_news)
    before = spent_before(store, prepared.run_id)
    worker = new_worker(prepared.run_id, concurrency)
    claim(store, prepared.run_id, worker)
    set_halted(store, prepared.run_id, None)
    execution = {"at": time.time(), "workbench": __version__, "git_commit": git_commit(), "concurrency": concurrency}
    limits = {"budget_usd": budget_usd, "pilot_records": pilot_records}
    workers = {"workers": min(crew.size, concurrency)} if crew is not None else {}
    kept = {name: limit for name, limit in limits.items() if limit}
    add_execution(store, prepared.run_id, execution | kept | workers)
    plan = whole = make_plan(store, prepared.run_id, configuration_ids, prepared.instances)
    if pilot_records is not None:
        plan = pilot(whole, prepared.instances, pilot_records)
    ingestion = make_ingestion(prepared, plan, concurrency)
    tools = make_tools(store, prepared, concurrency, ingestion.failures)
    meter = Meter(prepared, tools.calls.stats, before)
    silent = silent_of(prepared)
    team: Team | None = None
    if crew is not None:
        team = Team(
            store,
            prepared.run_id,
            plan,
            crew,
            leader=worker["id"],
            concurrency=concurrency,
            embedder=prepared.study.embedder,
            budget_usd=budget_usd,
            spent=lambda: meter.spent_usd,
            on_news=on_news,
        )

    async def ingest(progress: Progress) -> None:
        progress.ingesting = list(ingestion.standings.values())
        booking = asyncio.Lock()

        async def book() -> None:
            # After every session, not at the end: what a process spent that is killed counts too.
            async with booking:
                spent = {"ingestion_usd": tools.calls.stats.spent_usd, "embeddings_usd": meter.embeddings_usd}
                await store.in_thread(keep_ingestion, store, prepared.run_id, spent, summary(ingestion))
            on_progress(progress)

        try:
            await ingestion.run(engine.may_go_on, book)
        finally:
            await book()

    async def first(progress: Progress) -> None:
        if ingestion.standings:
            await ingest(progress)
        if team is not None and await engine.may_go_on():
            # Members read in this process's row why ingestions failed.
            await engine.beat(progress)
            await team.run(progress, lambda: engine.stopping)

    def stats() -> dict[str, Any]:
        counted = tools.calls.stats
        own = {
            "calls_made": counted.made,
            "calls_reused": counted.reused,
            "calls_failed": counted.failed,
            **prepared.client.stats.shown(),
            "spent_usd": meter.spent_usd,
            **limits,
            **({"ingesting": ingestion.to_list()} if ingestion.standings else {}),
        }
        return own if team is None else team.stats(own) | {"failures": told(ingestion.failures)}

    def reason_to_halt() -> str | None:
        if team is not None and team.reason is not None:
            return team.reason
        spent = None if budget_usd is None else meter.reason_to_halt(budget_usd)
        return spent or silent.reason_to_halt()

    engine = Engine(
        store,
        prepared.run_id,
        Pipeline(tools),
        embedder=prepared.study.embedder,
        embed=prepared.embedder.embed,
        on_progress=on_progress,
        stats=stats,
        worker=worker,
        reason_to_halt=reason_to_halt,
        silent=silent,
        halted_after=f"The pilot of {len(plan.jobs):,} records is done; the rest of the study waits."
        if len(plan.jobs) < len(whole.jobs)
        else None,
        before=first if ingestion.standings or team is not None else None,
    )

    def interrupted() -> None:
        if engine.stopping:
            if team is not None:
                team.close()
            os._exit(130)
        engine.stop()
        on_stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        return await engine.run(PlanSource(plan, worker["id"]) if team is None else NoJobs(plan))
    finally:
        if team is not None:
            team.close()
        with contextlib.suppress(StoreError):
            _book(store, prepared, meter, team)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _wait_for_orphans(store: Store, run_id: str, on_news: Callable[[str], None]) -> None:
    """Let the members of a leader that was killed finish what they have in hand: it is paid for."""
    said = False
    while left := await store.in_thread(orphans, store, run_id):
        if not said:
            on_news(f"waiting for workers of an earlier start to finish what they have in hand: {', '.join(left)}")
            said = True
        await asyncio.sleep(_ORPHANS_EVERY_S)


def _book(store: Store, prepared: Prepared, meter: Meter, team: Team | None) -> None:
    """Keep in the provenance what the execution's embeddings cost, and under which names models answered."""
    answered = {name: set(names) for name, names in prepared.client.stats.answered_as.items()}
    embeddings = meter.embeddings_usd
    if team is not None:
        for name, names in team.answered_as.items():
            answered.setdefault(name, set()).update(names)
        embeddings += team.embeddings_usd
    add_answered_as(store, prepared.run_id, answered)
    add_to_execution(store, prepared.run_id, {"embeddings_usd": embeddings})


def make_tools(
    store: Store,
    prepared: Prepared,
    concurrency: int,
    failures: Mapping[tuple[str, str], ModelError | MemoryFault],
    *,
    of: int = 1,
) -> Tools:
    """The pipeline's tools, with the call store in front of the model client; `failures` as in `Ingestion`.

    `concurrency` is the whole run's, of which this process is one `of` so many.
    """
    return Tools(
        prepared.study,
        prepared.corpus,
        connect(store, prepared, concurrency, of=of),
        Retrieval(prepared.study, prepared.corpus, prepared.memories, prepared.history_sha256, failures),
        prepared.mitigations,
        prepared.judge,
        concurrency,
        prepared.run_id,
    )


def make_ingestion(prepared: Prepared, plan: Plan, concurrency: int) -> Ingestion:
    """What the plan's records need ingested; those that only want judging need nothing."""
    memories = prepared.ingesting
    return Ingestion(memories, prepared.corpus, pairs_of(memories, plan.jobs.unanswered()), concurrency=concurrency)
