"""Running a prepared study in this process: the engine with its parts, signals and claims."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import cache

from opbench import __version__
from opbench.errors import StoreError
from opbench.models import cost
from opbench.running.calls import CallStore
from opbench.running.engine import Engine, Progress
from opbench.running.pipeline import Pipeline, Tools
from opbench.running.plan import make_plan
from opbench.running.prepare import Prepared, git_commit
from opbench.store.claims import claim, new_worker
from opbench.store.database import Store
from opbench.store.writing import add_answered_as, add_execution


async def execute(
    store: Store,
    prepared: Prepared,
    *,
    concurrency: int,
    on_progress: Callable[[Progress], None],
    on_stop: Callable[[], None] = lambda: None,
) -> Progress:
    """Do what is missing of the study. The first Ctrl-C finishes what is in flight, the second leaves at once.

    `on_stop` is called at the first Ctrl-C.

    Raises:
        UsageError: another process is at work on this run.
        StoreError: the store can't be written; what was committed stays.
    """
    if prepared.study.latency_probe:
        concurrency = 1
    configuration_ids = prepared.register(store)
    worker = new_worker(prepared.run_id, concurrency)
    claim(store, prepared.run_id, worker)
    add_execution(
        store,
        prepared.run_id,
        {"at": time.time(), "workbench": __version__, "git_commit": git_commit(), "concurrency": concurrency},
    )
    plan = make_plan(store, prepared.run_id, configuration_ids, prepared.instances)
    tools = make_tools(store, prepared, concurrency)
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
        },
        worker=worker,
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
        return await engine.run(plan)
    finally:
        with contextlib.suppress(StoreError):
            add_answered_as(store, prepared.run_id, prepared.client.stats.answered_as)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def make_tools(store: Store, prepared: Prepared, concurrency: int) -> Tools:
    """The pipeline's tools, with the call store in front of the model client."""
    registry = prepared.registry
    calls = CallStore(
        store,
        prepared.client.complete,
        # Once a model: an identity asks files and packages, and every call's key holds one.
        cache(lambda name: registry.model(name).identity()),
        lambda name, tokens_in, tokens_out: cost(registry.model(name), tokens_in, tokens_out),
        lambda name: prepared.at_a_time(name, concurrency),
    )
    return Tools(
        prepared.study,
        prepared.corpus,
        calls,
        prepared.memories,
        prepared.mitigations,
        prepared.judge,
        prepared.history_sha256,
        concurrency,
        prepared.run_id,
    )
