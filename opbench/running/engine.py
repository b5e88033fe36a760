"""The engine: runs a plan with bounded concurrency and writes every record when it is finished.

Killing the process at any moment loses at most the instances in flight (design rule 2): a record counts as done
only after the transaction that holds it, its calls and its scores is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import select

from mitigations.base import Memory
from opbench.errors import ModelError, StoreError
from opbench.judges.text import strip_thinking
from opbench.running.ingestion import Standing
from opbench.running.jobs import Job
from opbench.running.pipeline import Pipeline
from opbench.running.plan import Plan
from opbench.running.repetition import Embed, embed_missing, score_users
from opbench.running.trace import Trace
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import FinishedRecord, beat, forget_worker, save_records, save_scores, set_halted

BEAT_SECONDS = 2.0
_BATCH = 200


@dataclass(slots=True)
class Progress:
    """How far an execution is. `done` counts committed records, of which `errors` are errors."""

    planned: int
    finished_before: int
    to_do: int
    done: int = 0
    errors: int = 0
    error_kinds: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)
    ingesting: Sequence[Standing] = ()
    """Histories that memory systems take in before the first record."""

    @property
    def rate(self) -> float:
        """Records per second since the start."""
        return self.done / max(1e-9, time.monotonic() - self.started)

    @property
    def seconds_left(self) -> float | None:
        return (self.to_do - self.done) / self.rate if self.done else None


class Engine:
    """One execution of a run by one process."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        pipeline: Pipeline,
        *,
        embedder: str,
        embed: Embed,
        on_progress: Callable[[Progress], None],
        stats: Callable[[], dict[str, Any]],
        worker: dict[str, Any],
        reason_to_halt: Callable[[], str | None] = lambda: None,
        halted_after: str | None = None,
        before: Callable[[Progress], Awaitable[None]] | None = None,
    ) -> None:
        """`worker` is this process's row (`schema.workers`).

        `stats` gives the model client's counts (requests, retries by kind), shown beside the progress.
        `reason_to_halt` is asked before each record is taken up; a sentence ends the run like a stop.
        `halted_after` is said when the plan is done and yet was only a part of what is to do.
        `before` is done before the first record, when there are any to do; it asks `may_go_on` between its parts.
        """
        self._store = store
        self._run_id = run_id
        self._pipeline = pipeline
        self._embedder = embedder
        self._embed = embed
        self._on_progress = on_progress
        self._client_stats = stats
        self._concurrency = pipeline.tools.concurrency
        self._finished: asyncio.Queue[FinishedRecord | None] = asyncio.Queue(maxsize=_BATCH * 2)
        self._go = asyncio.Event()
        self._go.set()
        self.stopping = False
        self.halted: str | None = None
        """The reason for which nothing more was taken up."""
        self._reason_to_halt = reason_to_halt
        self._halted_after = halted_after
        self._before = before
        self._touched: set[tuple[int, str]] = set()
        self._repetition: dict[str, str] = {}
        self._scoring = asyncio.Lock()
        self._worker = worker

    def stop(self) -> None:
        """Take up nothing new; what is in flight is finished and written."""
        self.stopping = True
        self._go.set()

    async def run(self, plan: Plan) -> Progress:
        """Do the plan's jobs.

        Raises:
            StoreError: the store could not be written; everything committed before stays.
        """
        progress = Progress(plan.planned, plan.finished, len(plan.jobs))
        self._repetition = {
            job.instance.id: job.instance.user.id for job in plan.jobs if job.instance.subtype == "repetition"
        }
        jobs = iter(plan.jobs)
        await self._beat(progress)
        beating = asyncio.create_task(self._keep_beating(progress))
        writing = asyncio.create_task(self._write(progress))
        workers: list[asyncio.Task[None]] = []
        try:
            if self._before is not None and plan.jobs:
                workers = [asyncio.ensure_future(self._before(progress))]
                await _all_or_first_error(workers, guard=[writing, beating])
                progress.started = time.monotonic()
            workers = [
                asyncio.create_task(self._work(jobs, progress)) for _ in range(min(self._concurrency, len(plan.jobs)))
            ]
            await _all_or_first_error([*workers], guard=[writing, beating])
            await self._finished.put(None)
            await writing
            reason = await embed_missing(self._store, self._run_id, self._embedder, self._embed)
            async with self._scoring:
                await asyncio.to_thread(score_users, self._store, self._run_id, self._embedder, None, reason)
            if progress.done == progress.to_do:
                self.halted = self._halted_after
            elif self.halted is not None:
                # Said anew, with what was in flight.
                self.halted = self._reason_to_halt() or self.halted
            await asyncio.to_thread(set_halted, self._store, self._run_id, self.halted)
        finally:
            for task in (*workers, writing, beating):
                task.cancel()
            await asyncio.gather(*workers, writing, beating, return_exceptions=True)
            with contextlib.suppress(StoreError):
                await asyncio.to_thread(forget_worker, self._store, self._worker["id"])
        self._on_progress(progress)
        return progress

    async def may_go_on(self) -> bool:
        """Wait while the run is paused; whether something new may be taken up then."""
        await self._go.wait()
        if self.stopping:
            return False
        if self.halted is None:
            self.halted = self._reason_to_halt()
        return self.halted is None

    async def _work(self, jobs: Iterator[Job], progress: Progress) -> None:
        for job in jobs:
            if not await self.may_go_on():
                return
            if job.record_id is not None:
                await self._judge_again(job, job.record_id, progress)
                continue
            record = await self._pipeline.record(job.configuration_id, job.configuration, job.instance)
            if job.instance.id in self._repetition and record.values["status"] == "done":
                # Without a vector the record is done all the same: the end of the run tries once more.
                with contextlib.suppress(ModelError):
                    record.embedding = await self._embedding(record.values["response"])
            await self._finished.put(record)

    async def _embedding(self, response: str) -> tuple[str, np.ndarray] | None:
        """The vector of what a reader sees of the response; hidden thoughts are no repetition."""
        answer = strip_thinking(response)
        if not answer.strip():
            return None
        vectors = await self._embed([answer])
        return self._embedder, np.asarray(vectors[0], dtype=np.float32)

    async def _judge_again(self, job: Job, record_id: int, progress: Progress) -> None:
        row = await asyncio.to_thread(self._stored, record_id)
        trace = Trace(
            retrieved=[Memory(**memory) for memory in row["retrieved"] or []],
            context=[Memory(line["text"], line["date"]) for line in row["context"] or []],
            finish_reason=row["finish_reason"],
        )
        scores, uses = await self._pipeline.judge(job.instance, row["response"], trace)
        calls = self._pipeline.tools.calls
        keys = [use.key for use in uses]
        await asyncio.to_thread(
            save_scores, self._store, record_id, self._pipeline.tools.judge.name, scores, calls.unwritten(keys), uses
        )
        calls.written(keys)
        progress.done += 1
        self._on_progress(progress)

    def _stored(self, record_id: int) -> dict[str, Any]:
        with self._store.begin() as connection:
            return dict(connection.execute(select(s.records).where(s.records.c.id == record_id)).mappings().one())

    async def _write(self, progress: Progress) -> None:
        closing = False
        while not closing:
            batch = [await self._finished.get()]
            while not self._finished.empty() and len(batch) < _BATCH:
                batch.append(self._finished.get_nowait())
            closing = None in batch
            records = [record for record in batch if record is not None]
            await asyncio.to_thread(save_records, self._store, self._run_id, records)
            for record in records:
                self._pipeline.tools.calls.written([call.key for call in record.calls])
                progress.done += 1
                if record.values["status"] == "error":
                    progress.errors += 1
                    progress.error_kinds[str(record.values["error_kind"])] += 1
                user = self._repetition.get(record.instance_id)
                if user is not None:
                    self._touched.add((record.configuration_id, user))
            self._on_progress(progress)

    async def _keep_beating(self, progress: Progress) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self._beat(progress)
            # One at a time: an older result must not be written over a newer one.
            async with self._scoring:
                touched, self._touched = self._touched, set()
                await asyncio.to_thread(score_users, self._store, self._run_id, self._embedder, touched)

    async def _beat(self, progress: Progress) -> None:
        calls = self._pipeline.tools.calls.stats
        asked = await asyncio.to_thread(
            beat,
            self._store,
            self._worker
            | {
                "heartbeat_at": time.time(),
                "stats": {
                    "done": progress.done,
                    "to_do": progress.to_do,
                    "errors": progress.errors,
                    "error_kinds": dict(progress.error_kinds),
                    "calls_made": calls.made,
                    "calls_reused": calls.reused,
                    "calls_failed": calls.failed,
                    **self._client_stats(),
                },
            },
        )
        if asked == "stop":
            self.stop()
        elif asked == "pause" and not self.stopping:
            self._go.clear()
        else:
            self._go.set()
        self._on_progress(progress)


async def _all_or_first_error(tasks: list[asyncio.Task[None]], guard: list[asyncio.Task[None]]) -> None:
    """Wait until all tasks are done; the first error of a task or a guard is raised at once."""
    waiting = set(tasks)
    while waiting:
        done, _ = await asyncio.wait(waiting | set(guard), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        waiting -= done
