"""A case being asked: its columns at work, as far as they have come. Safe to use from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from pydantic import SecretStr

from mitigations.base import Memory
from opbench.cases.ablating import Ablating, check
from opbench.cases.answering import Answering
from opbench.cases.kit import Kit, make_kit
from opbench.cases.outcome import Ablation, At, Outcome
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import ModelErrorKind, OpbenchError, StoreError, UsageError
from opbench.running.pipeline import Pipeline
from opbench.running.trace import Trace
from opbench.running.watching import Watch
from opbench.store.database import Store
from opbench.study import BASE

log = logging.getLogger(__name__)
_KEEP_S = 1.0


class Session:
    """One asking of a case; made by `Desk.open`. Nothing here waits but `wait`."""

    def __init__(
        self,
        id: str,
        spec: CaseSpec,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        keys: Mapping[str, SecretStr] | None = None,
        on_text: Callable[[], None] = lambda: None,
    ) -> None:
        """`loop` runs in a thread of the desk's; `on_text` is told there of the first text, or the end without one."""
        self.id = id
        """Random hex digits."""
        self.spec = spec
        self.started_at = time.time()
        """Unix seconds."""
        self._started = time.perf_counter()
        self._store = store
        self._loop = loop
        self._keys = dict(keys or {})
        self._on_text = on_text
        self._outcomes = [Outcome() for _ in spec.columns]
        self._traces: dict[int, Trace] = {}
        self._answering: dict[int, Answering] = {}
        self._error: str | None = None
        self._unkept: str | None = None
        self._provenance: dict[str, Any] = {}
        self._ablations: dict[tuple[int, At], Ablation] = {}
        self._tasks: dict[tuple[int, At] | None, asyncio.Task[None]] = {}
        """What is at work in the loop's thread: the columns under None, leave-one-outs by column and place."""
        self._lock = threading.Condition()
        self._at_work: set[tuple[int, At] | None] = set()
        self._cancelled: set[tuple[int, At] | None] = set()
        self._begin(None, self._answer())

    # --- from any thread -------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing more comes of the columns: each is done, failed or cancelled, or the case can't be asked."""
        with self._lock:
            return None not in self._at_work

    @property
    def busy(self) -> bool:
        """Whether anything is at work: columns or leave-one-outs."""
        with self._lock:
            return bool(self._at_work)

    @property
    def error(self) -> str | None:
        """Why the case as a whole can't be asked, with the mend (an unknown user, damaged data); None otherwise. What
        is wrong with one column is that column's error."""
        return self._error

    @property
    def unkept(self) -> str | None:
        """Why finished calls couldn't be written to the call store; None where they were. The answers are there."""
        return self._unkept

    @property
    def provenance(self) -> dict[str, Any]:
        """What the answers rest on, JSON values: data, models, prompts, judge, embedder, versions, commit. Empty until
        the case is `over`."""
        return dict(self._provenance)

    def outcomes(self) -> tuple[Outcome, ...]:
        """A snapshot, one by column in the spec's order."""
        return tuple(self._outcomes)

    def cancel(self) -> None:
        """Stop all that is at work, leave-one-outs included: connections close, what was finished is kept. Columns
        that weren't over become `cancelled`. Returns at once; `wait` for the end."""
        with self._lock:
            keys = list(self._at_work)
        for key in keys:
            self._cancel(key)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is at work (columns and leave-one-outs); False when the time is up before."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._at_work, timeout_s)

    def leave_one_out(self, column: int, at: At = "retrieval") -> None:
        """Ask the column without each of its memories in turn; see `ablations`. `column` is 0-based. Does nothing
        while that is at work; when it is over it is asked again (what was finished is reused).

        Raises:
            UsageError: no such column, it isn't done, or there is nothing to leave out.
        """
        key = (column, at)
        with self._lock:
            if key in self._at_work:
                return
        if not 0 <= column < len(self.spec.columns):
            raise UsageError(f"there is no column {column + 1}: the case has {len(self.spec.columns)}.")
        outcome, trace = self._outcomes[column], self._traces.get(column)
        if outcome.state != "done" or trace is None:
            raise UsageError(f"column {column + 1} isn't done, so nothing can be left out of it: ask it first.")
        check(self.spec.columns[column], trace, at)
        work = Ablating(self.spec, column, at, outcome, trace, partial(self._ablations.__setitem__, key))
        self._ablations[key] = work.ablation
        self._begin(key, self._ablate(key, work))

    def ablations(self) -> dict[tuple[int, At], Ablation]:
        """A snapshot of the leave-one-outs by (column, where), in the order in which they were asked for."""
        return dict(self._ablations)

    def cancel_ablation(self, column: int, at: At = "retrieval") -> None:
        """Stop one leave-one-out: what isn't over becomes `cancelled`. Does nothing where none is at work."""
        self._cancel((column, at))

    # --- in the loop's thread --------------------------------------------------------------------------------------

    def _begin(self, key: tuple[int, At] | None, work: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            self._at_work.add(key)
            self._cancelled.discard(key)

        def start() -> None:
            task = self._loop.create_task(work)
            self._tasks[key] = task
            task.add_done_callback(partial(self._ended, key))
            if key in self._cancelled:
                task.cancel()

        try:
            self._loop.call_soon_threadsafe(start)
        except RuntimeError:
            work.close()
            with self._lock:
                self._at_work.discard(key)
            raise UsageError("this case's desk is closed: ask it again.") from None

    def _cancel(self, key: tuple[int, At] | None) -> None:
        def stop() -> None:
            self._cancelled.add(key)
            if (task := self._tasks.get(key)) is not None:
                task.cancel()

        with self._lock:
            if key not in self._at_work:
                return
        self._loop.call_soon_threadsafe(stop)

    def _ended(self, key: tuple[int, At] | None, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if key is None:
            # It may have been stopped before any column began.
            for number, outcome in enumerate(self._outcomes):
                if not outcome.over:
                    self._show(number, outcome.model_copy(update={"state": "cancelled"}))
            self._on_text()
        with self._lock:
            self._at_work.discard(key)
            self._lock.notify_all()

    def _show(self, number: int, outcome: Outcome) -> None:
        self._outcomes[number] = outcome
        if outcome.response or outcome.over:
            self._on_text()

    async def _answer(self) -> None:
        try:
            async with self._kit(self._retried) as kit:
                await self._columns(kit)
        except Exception as error:
            if not isinstance(error, OpbenchError):
                log.exception("case %s", self.id)
            self._error = str(error) if isinstance(error, OpbenchError) else f"{type(error).__name__}: {error}"
            for number, outcome in enumerate(self._outcomes):
                if not outcome.over:
                    kind = "usage" if isinstance(error, OpbenchError) else "internal"
                    failed = {"state": "failed", "error_kind": kind, "error": self._error}
                    self._show(number, outcome.model_copy(update=failed))

    @asynccontextmanager
    async def _kit(self, on_retry: Callable[[str, ModelErrorKind, float], None]) -> AsyncIterator[Kit]:
        """A kit that keeps what it has asked, also when the work is cancelled."""
        kit = await asyncio.to_thread(make_kit, self._store, self.spec, self._keys, on_retry)
        keeping = asyncio.ensure_future(self._keep_on(kit))
        try:
            yield kit
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            # Calls under way are stopped first: one that ends just now is kept too.
            await kit.calls.aclose()
            await self._keep(kit)
            await kit.aclose()

    async def _keep_on(self, kit: Kit) -> None:
        """Keep calls soon after they are finished: a process may be killed, and what was paid is paid."""
        while True:
            await asyncio.sleep(_KEEP_S)
            await self._keep(kit)

    async def _keep(self, kit: Kit) -> None:
        try:
            await kit.calls.keep_all()
        except StoreError as error:
            self._unkept = f"the answers couldn't be kept, and are asked for again next time: {error}"
        else:
            self._unkept = None

    async def _columns(self, kit: Kit) -> None:
        places = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(1))
        for model in {column.model for column in self.spec.columns}:
            places[model] = asyncio.Semaphore(kit.at_a_time(model))
        # A place is given in the order of asking, so BASE comes first.
        order = sorted(range(len(self.spec.columns)), key=lambda number: self.spec.columns[number].memory != BASE)
        tasks = [asyncio.ensure_future(self._column(kit, number, places)) for number in order]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if any(outcome.state == "done" for outcome in self._outcomes):
                self._provenance = await asyncio.to_thread(self._rests_on, kit)

    async def _column(self, kit: Kit, number: int, places: Mapping[str, asyncio.Semaphore]) -> None:
        column = self.spec.columns[number]
        answering = Answering(kit, column, self._started, partial(self._show, number))
        self._answering[number] = answering
        await answering.run(partial(respond, kit, column), places[column.model])
        self._traces[number] = answering.trace
        await self._keep(kit)

    async def _ablate(self, key: tuple[int, At], work: Ablating) -> None:
        try:
            async with self._kit(work.retried) as kit:
                await work.run(kit)
        except OpbenchError as error:
            work.failed(str(error))
        except Exception as error:
            log.exception("case %s", self.id)
            work.failed(f"{type(error).__name__}: {error}")
        finally:
            work.end()

    def _retried(self, model: str, kind: ModelErrorKind, wait_s: float) -> None:
        for answering in self._answering.values():
            answering.waits(model, kind, wait_s)

    def _rests_on(self, kit: Kit) -> dict[str, Any]:
        with contextlib.suppress(OpbenchError):
            return {**kit.provenance(), "asked_at": self.started_at}
        return {}


async def respond(kit: Kit, column: Column, pipeline: Pipeline, trace: Trace, watch: Watch) -> None:
    """The column's response, as the column says."""
    given = None if column.given is None else [Memory(each.text, each.date, each.score) for each in column.given]
    await pipeline.respond(
        kit.configuration(column),
        kit.instance,
        trace,
        watch,
        given=given,
        without=column.without,
        repeat=column.repeat,
    )
