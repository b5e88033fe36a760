"""A process at work on a build: it holds the build, shows signs of life, and stops when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from opbench.construction.asking import Asked
from opbench.errors import ModelError, StoreError
from opbench.running.calls import CallStore
from opbench.store.builds import Candidate, Unit, beat, claim_build, new_worker, release_build, save_unit
from opbench.store.database import Store

N = TypeVar("N", int, float)
#: Seconds between two signs of life.
BEAT_S = 1.0


class AtWork:
    """What a process may do with a build that it holds. Belongs to one event loop."""

    def __init__(self, store: Store, build_id: str, worker: str, reason_to_halt: Callable[[], str | None]) -> None:
        self.store = store
        self.build_id = build_id
        self.worker = worker
        self.halted: str | None = None
        """Why it ends before its work is done: a sentence."""
        self.lost: StoreError | None = None
        """The build isn't this process's any more, or the store can't be written."""
        self._reason_to_halt = reason_to_halt
        self._asked_to_stop = False

    @property
    def stopping(self) -> bool:
        """Whether nothing new may be begun; what is in hand is finished. Asks whether it makes sense to go on."""
        if not self._asked_to_stop and (why := self._reason_to_halt()) is not None:
            self.stop(why)
        return self._asked_to_stop

    @property
    def asked_to_stop(self) -> bool:
        """As `stopping`, as far as is known."""
        return self._asked_to_stop

    def stop(self, why: str) -> None:
        """Begin nothing new; `why` is told with the build."""
        if not self._asked_to_stop:
            self.halted = why
        self._asked_to_stop = True

    async def save(self, unit: Unit, candidates: Sequence[Candidate], calls: CallStore) -> None:
        """Keep a unit with its candidates, and those of its calls that aren't in the store yet.

        Raises:
            LeaseLost: another start has taken the build; the calls are kept.
            StoreError: the store can't be written.
        """
        rows = calls.unwritten(unit.calls)
        try:
            await self.store.in_thread(save_unit, self.store, self.build_id, unit, candidates, rows, worker=self.worker)
        except StoreError as error:
            self._lose(error)
            raise
        calls.written(unit.calls)

    async def watch(self) -> None:
        """Show signs of life, and look whether to stop, until cancelled."""
        while True:
            try:
                asked = await self.store.in_thread(beat, self.store, self.build_id, self.worker)
            except StoreError as error:
                self._lose(error)
                return
            if asked == "stop":
                self.stop("Stopped on request. The next start goes on.")
            await asyncio.sleep(BEAT_S)

    def _lose(self, error: StoreError) -> None:
        if self.lost is None:
            self.lost = error
        self._asked_to_stop = True


@asynccontextmanager
async def at_work(
    store: Store,
    build_id: str,
    *,
    reason_to_halt: Callable[[], str | None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
    keep_request: bool = False,
) -> AsyncIterator[AtWork]:
    """Hold a build while the block lasts. The first Ctrl-C (or SIGTERM) stops, the second leaves at once.

    `reason_to_halt` gives a sentence when it makes no sense to go on; it is asked before anything new is begun.
    `keep_request`: a stop that was asked for while this process started counts.

    Raises:
        UsageError: no such build, or another process is at work on it.
        LeaseLost: another start took the build meanwhile.
        StoreError: the store can't be written; what was committed stays.
    """
    worker = new_worker()
    await store.in_thread(claim_build, store, build_id, worker, keep_request=keep_request)
    work = AtWork(store, build_id, worker, reason_to_halt)
    watching = asyncio.create_task(work.watch())

    def interrupted() -> None:
        if work.asked_to_stop:
            os._exit(130)
        work.stop("Interrupted. The next start goes on.")
        on_stop()

    try:
        with _signals(interrupted):
            yield work
    except BaseException as error:
        if work.halted is None:
            # Errors of ours are sentences; of others the kind says enough, and holds no key.
            said = str(error) if isinstance(error, StoreError | ModelError) else f"{type(error).__name__}."
            work.halted = f"Ended by an error: {said}"
        raise
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        with contextlib.suppress(StoreError):
            await store.in_thread(release_build, store, build_id, worker, work.halted)
    if work.lost is not None:
        raise work.lost


@contextlib.contextmanager
def _signals(interrupted: Callable[[], None]) -> Iterator[None]:
    """Only the main thread's loop hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def unit_of(
    asked: Asked[Any],
    *,
    unit: str,
    stage: str,
    user_id: str,
    role: str,
    model: str,
    prompt_sha256: str,
    output: Any,
    reason: str | None = None,
) -> Unit:
    """The unit that came of asking; it failed when nothing usable came."""
    failed = asked.value is None
    return Unit(
        unit=unit,
        stage=stage,
        user_id=user_id,
        status="failed" if failed else "done",
        reason=asked.fault if failed else reason,
        output={"retriable": asked.retriable} if failed else output,
        role=role,
        model=model,
        prompt_sha256=prompt_sha256,
        calls=asked.keys,
        repaired=asked.repaired,
        prompt_tokens=_sum([row.prompt_tokens for row in asked.rows]),
        completion_tokens=_sum([row.completion_tokens for row in asked.rows]),
        cost_usd=_sum([row.cost_usd for row in asked.rows]),
        duration_ms=sum(row.duration_ms for row in asked.rows) if asked.rows else None,
        made_at=time.time(),
    )


def _sum(values: list[N | None]) -> N | None:
    """None when one is unknown, or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
