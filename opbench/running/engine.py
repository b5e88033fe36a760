"""The engine: does jobs with bounded concurrency and writes every record when it is finished.

Killing the process at any moment loses at most the instances in flight (design rule 2), those that are worked on and
as many that wait to be written: a record counts as done only after the transaction that holds it, its calls and its
scores is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np
from sqlalchemy import select

from mitigations.base import Memory
from opbench.errors import LeaseLost, ModelError, StoreError
from opbench.judges.text import strip_thinking
from opbench.running.ingestion import Standing
from opbench.running.interpreter import collecting_seldom
from opbench.running.jobs import Job, JobSource
from opbench.running.pipeline import Pipeline
from opbench.running.repetition import Embed, embed_missing, newest_vectors, score_users
from opbench.running.silent import Silent, left_out
from opbench.running.trace import Trace
from opbench.running.vectors import KEPT, SharedVectors
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import (
    FinishedRecord,
    Held,
    Judgement,
    beat,
    forget_worker,
    save_judgements,
    save_records,
    set_halted,
)

P = ParamSpec("P")
T = TypeVar("T")
BEAT_SECONDS = 2.0
_BATCH = 200
#: Seconds that a finished record waits for others to be written with, while there are places for them.
_GATHERS_S = 0.05


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


@dataclass(frozen=True, slots=True)
class _Finished:
    """What came of a job, to be written: a record, or the new judgement of one."""

    job: Job
    record: FinishedRecord | None = None
    judgement: Judgement | None = None


class _Jobs:
    """A source's jobs, one by one to all who work."""

    def __init__(self, source: JobSource, stop: asyncio.Event) -> None:
        self._source = source
        self._stop = stop
        self._at_hand: deque[Job] = deque()
        self._taking = asyncio.Lock()
        self._exhausted = False

    async def next(self) -> Job | None:
        """None when there are no more, or the engine stops."""
        if not self._at_hand and not self._exhausted:
            async with self._taking:
                if not self._at_hand and not self._exhausted:
                    self._at_hand.extend(await self._take())
                    self._exhausted = not self._at_hand
        return self._at_hand.popleft() if self._at_hand else None

    async def leave(self, job: Job) -> None:
        """One that isn't done by this execution."""
        await self._source.committed([job])
        # Many may be left one after the other.
        await asyncio.sleep(0)

    async def _take(self) -> Sequence[Job]:
        taking = asyncio.ensure_future(self._source.take())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((taking, stopped), return_when=asyncio.FIRST_COMPLETED)
            return taking.result() if taking.done() else ()
        finally:
            for task in (taking, stopped):
                task.cancel()
            await asyncio.gather(taking, stopped, return_exceptions=True)


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
        silent: Silent | None = None,
        halted_after: str | None = None,
        scores_users: bool = True,
        before: Callable[[Progress], Awaitable[None]] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """`worker` is this process's row (`schema.workers`).

        `stats` gives the model client's counts (requests, retries by kind), shown beside the progress.
        `reason_to_halt` is asked before each record is taken up; a sentence ends the run like a stop.
        `silent`: jobs that it passes over are left for another start, while the others are done; the run ends like one
        that was halted then. `passed_over` counts them by model.
        `halted_after` is said when the plan is done and yet was only a part of what is to do.
        `scores_users`: False for a member of a team, whose leader gives the users their scores and says why the run
        ended; the member's row stays then, with its last numbers, until its leader forgets it.
        `before` is done before the first record, when there are any to do; it asks `may_go_on` between its parts.
        `concurrency`: jobs at a time, where it isn't the whole run's.
        """
        self._store = store
        self._run_id = run_id
        self._pipeline = pipeline
        self._embedder = embedder
        self._embed = embed
        self._vectors = SharedVectors(embed)
        self._on_progress = on_progress
        self._client_stats = stats
        self._concurrency = concurrency or pipeline.tools.concurrency
        self._finished: asyncio.Queue[_Finished | None] = asyncio.Queue()
        # As many may wait to be written as are worked on, so that a slow or locked store doesn't pile up answers which
        # a killed process would lose.
        self._waiting = asyncio.Semaphore(self._concurrency)
        self._enough = self._concurrency // 2
        self._pressing = asyncio.Event()
        self._go = asyncio.Event()
        self._go.set()
        self._stop = asyncio.Event()
        self.halted: str | None = None
        """The reason for which nothing more was taken up."""
        self._reason_to_halt = reason_to_halt
        self._silent = silent
        self.passed_over: Counter[str] = Counter()
        self._halted_after = halted_after
        self._before = before
        self._scores_users = scores_users
        self._touched: set[tuple[int, str]] = set()
        self._scoring = asyncio.Lock()
        self._worker = worker
        # One thread writes: two would only wait for each other's locks.
        self._writer = ThreadPoolExecutor(1, "opbench-store")

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Take up nothing new; what is in flight is finished and written."""
        self._stop.set()
        self._go.set()

    async def run(self, source: JobSource) -> Progress:
        """Do the jobs of a source, which is closed then.

        Raises:
            StoreError: the store could not be written; everything committed before stays.
            LeaseLost: others have taken this process's jobs; the calls that it made are kept.
        """
        with collecting_seldom():
            return await self._run(source)

    async def _run(self, source: JobSource) -> Progress:
        progress = Progress(source.planned, source.finished, source.to_do)
        await self.beat(progress)
        beating = asyncio.create_task(self._keep_beating(progress))
        writing = asyncio.create_task(self._write(source, progress))
        workers: list[asyncio.Task[None]] = []
        try:
            if self._before is not None and source.to_do:
                workers = [asyncio.ensure_future(self._before(progress))]
                await _all_or_first_error(workers, guard=[writing, beating])
                if not progress.done:  # else a team has done its work by now
                    progress.started = time.monotonic()
            if source.finished:
                self._vectors.know(
                    partial(self._store.in_thread, newest_vectors, self._store, self._run_id, self._embedder, KEPT)
                )
            queue = _Jobs(source, self._stop)
            workers = [asyncio.create_task(self._work(queue)) for _ in range(min(self._concurrency, source.to_do))]
            await _all_or_first_error([*workers], guard=[writing, beating])
            self._finished.put_nowait(None)
            self._pressing.set()
            await writing
            if progress.done == progress.to_do:
                self.halted = self._halted_after
            elif self.halted is not None:
                # Said anew, with what was in flight.
                self.halted = self._reason_to_halt() or self.halted
            elif self._silent is not None and self._scores_users and not self.stopping:
                self.halted = left_out(self._silent.models(), self.passed_over)
            if self._scores_users:
                reason = await embed_missing(self._store, self._run_id, self._embedder, self._embed)
                async with self._scoring:
                    await self._store.in_thread(score_users, self._store, self._run_id, self._embedder, None, reason)
                await self._in_writer(set_halted, self._store, self._run_id, self.halted)
        except LeaseLost:
            # Whoever does these jobs now needn't pay for the calls again, nor for those that are under way.
            for task in workers:
                task.cancel()
            await self._pipeline.tools.calls.settle()
            with contextlib.suppress(StoreError):
                await self._pipeline.tools.calls.keep_all()
            raise
        finally:
            for task in (*workers, writing, beating):
                task.cancel()
            await asyncio.gather(*workers, writing, beating, return_exceptions=True)
            await source.aclose()
            with contextlib.suppress(StoreError):
                if self._scores_users:
                    await self._in_writer(forget_worker, self._store, self._worker["id"])
                else:
                    await self.beat(progress)
            # Not waited for: a writing that hangs mustn't keep a second Ctrl-C from being heard.
            self._writer.shutdown(wait=False)
        self._on_progress(progress)
        return progress

    async def _in_writer(self, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._writer, partial(self._store.patiently, write, *args, **kwargs)
        )

    async def may_go_on(self) -> bool:
        """Wait while the run is paused; whether something new may be taken up then."""
        await self._go.wait()
        if self.stopping:
            return False
        if self.halted is None:
            self.halted = self._reason_to_halt()
        return self.halted is None

    async def _work(self, queue: _Jobs) -> None:
        # Asked again once there is a job: others' shards may be long in coming.
        while await self.may_go_on() and (job := await queue.next()) is not None and await self.may_go_on():
            if self._silent is not None and self._silent.passes_over(job):
                self.passed_over[job.configuration.model] += 1
                await queue.leave(job)
                continue
            if job.record_id is not None:
                await self._hand_over(await self._judge_again(job, job.record_id))
                continue
            record = await self._pipeline.record(job.configuration_id, job.configuration, job.instance)
            if job.instance.subtype == "repetition" and record.values["status"] == "done":
                # Without a vector the record is done all the same: the end of the run tries once more.
                with contextlib.suppress(ModelError):
                    record.embedding = await self._embedding(record.values["response"])
            await self._hand_over(_Finished(job, record))

    async def _hand_over(self, finished: _Finished) -> None:
        await self._waiting.acquire()
        self._finished.put_nowait(finished)
        if self._finished.qsize() >= self._enough:
            self._pressing.set()

    async def _embedding(self, response: str) -> tuple[str, np.ndarray] | None:
        """The vector of what a reader sees of the response; hidden thoughts are no repetition."""
        answer = strip_thinking(response)
        if not answer.strip():
            return None
        return self._embedder, await self._vectors.of(answer)

    async def _judge_again(self, job: Job, record_id: int) -> _Finished:
        row = await self._store.in_thread(self._stored, record_id)
        trace = Trace(
            retrieved=[Memory(**memory) for memory in row["retrieved"] or []],
            context=[Memory(line["text"], line["date"]) for line in row["context"] or []],
            finish_reason=row["finish_reason"],
        )
        scores, uses = await self._pipeline.judge(job.instance, row["response"], trace)
        tools = self._pipeline.tools
        made = tools.calls.unwritten([use.key for use in uses])
        return _Finished(job, judgement=Judgement(record_id, tools.judge.name, scores, made, uses))

    def _stored(self, record_id: int) -> dict[str, Any]:
        with self._store.begin() as connection:
            return dict(connection.execute(select(s.records).where(s.records.c.id == record_id)).mappings().one())

    async def _write(self, source: JobSource, progress: Progress) -> None:
        closing = False
        while not closing:
            batch = [await self._finished.get()]
            if batch[0] is not None and self._enough > 1:
                await self._gather()
            while not self._finished.empty() and len(batch) < _BATCH:
                batch.append(self._finished.get_nowait())
            closing = None in batch
            finished = [each for each in batch if each is not None]
            if not finished:
                return
            jobs = [each.job for each in finished]
            await self._in_writer(self._save, finished, partial(source.held, jobs=jobs))
            for each in finished:
                self._waiting.release()
                self._book(each, progress)
            await source.committed(jobs)
            self._on_progress(progress)

    async def _gather(self) -> None:
        """Let some records come together: a transaction takes about as long for one as for ten."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GATHERS_S):
                await self._pressing.wait()
        self._pressing.clear()

    def _save(self, finished: Sequence[_Finished], held: Held) -> None:
        save_records(self._store, self._run_id, [each.record for each in finished if each.record], held)
        save_judgements(self._store, [each.judgement for each in finished if each.judgement], held)

    def _book(self, finished: _Finished, progress: Progress) -> None:
        calls, record = self._pipeline.tools.calls, finished.record
        for of in (record, finished.judgement):
            if of is not None:
                calls.written([call.key for call in of.calls])
        progress.done += 1
        if record is None:
            return
        if record.values["status"] == "error":
            progress.errors += 1
            progress.error_kinds[str(record.values["error_kind"])] += 1
        if self._scores_users and finished.job.instance.subtype == "repetition":
            self._touched.add((record.configuration_id, finished.job.instance.user.id))

    async def _keep_beating(self, progress: Progress) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.beat(progress)
            if self._scores_users:
                # One at a time: an older result must not be written over a newer one.
                async with self._scoring:
                    touched, self._touched = self._touched, set()
                    await self._store.in_thread(score_users, self._store, self._run_id, self._embedder, touched)

    async def beat(self, progress: Progress) -> None:
        """Show in the store that this process is alive and how far it is, and learn what is asked of the run."""
        calls = self._pipeline.tools.calls.stats
        asked = await self._store.in_thread(
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
