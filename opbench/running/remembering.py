"""Searching and reading memories that are kept, for a page: in a thread and an event loop of its own.

A page's own thread only waits. What was opened stays open for a while, since opening copies a store and may start a
process (MemOS), and is closed when nobody has asked for some time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from mitigations.base import Memory
from opbench.errors import MemoryFault, OpbenchError, UsageError

#: How long something stays open after its last use, and how long one question may take, opening included.
IDLE_S = 300.0
TIMEOUT_S = 60.0
_CLOSING_S = 10.0


class OpenStore(Protocol):
    """One user's memories in one system, open for reading."""

    async def search(self, query: str, k: int) -> list[Memory]: ...

    async def memories(self) -> list[Memory]: ...

    async def aclose(self) -> None: ...


Place = TypeVar("Place")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """What one system found, or the sentence that says why it found nothing."""

    memories: list[Memory]
    milliseconds: float
    """Of the search alone, without opening."""
    problem: str = ""


@dataclass(slots=True)
class _Entry:
    store: OpenStore
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)


class Remembering(Generic[Place]):
    """Opens what `opener` opens, keeps it open for `idle_s`, and answers from any thread.

    `Place` names what is opened, and is hashable. `on_empty` is called in the loop when the last one was closed.
    """

    def __init__(
        self,
        opener: Callable[[Place], Awaitable[OpenStore]],
        *,
        on_empty: Callable[[], Awaitable[None]] | None = None,
        idle_s: float = IDLE_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._opener = opener
        self._on_empty = on_empty
        self._idle_s = idle_s
        self._timeout_s = timeout_s
        self._open: dict[Place, _Entry] = {}
        self._locks: dict[Place, asyncio.Lock] = {}
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._janitor: asyncio.Task[None] | None = None

    def search(self, places: Sequence[Place], query: str, k: int) -> list[Found]:
        """The same question to all `places` at once, in their order; what fails in one is no matter to the others."""

        async def all_of_them() -> list[Found]:
            return list(await asyncio.gather(*(self._search(place, query, k) for place in places)))

        return self._wait(all_of_them(), self._timeout_s + _CLOSING_S)

    def memories(self, place: Place) -> list[Memory]:
        """All memories in the order of their sessions.

        Raises:
            UsageError, MemoryFault, ModelError: they can't be read; says why and what mends it.
        """

        async def read(store: OpenStore) -> list[Memory]:
            return await store.memories()

        return self._wait(self._in_time(place, read), self._timeout_s + _CLOSING_S)

    def places(self) -> list[Place]:
        """What is open."""
        return list(self._open)

    def forget(self, place: Place) -> None:
        """Close what is open of `place`: it is being replaced."""
        if self._loop is not None:
            self._wait(self._close([place]), _CLOSING_S)

    def close(self) -> None:
        """Close all and end the thread."""
        loop = self._loop
        if loop is None:
            return
        with contextlib.suppress(OpbenchError):
            self._wait(self._close_all(), _CLOSING_S)
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)

    async def _search(self, place: Place, query: str, k: int) -> Found:
        async def ask(store: OpenStore) -> Found:
            began = time.perf_counter()
            return Found(await store.search(query, k), 1000 * (time.perf_counter() - began))

        try:
            return await self._in_time(place, ask)
        except OpbenchError as error:
            return Found([], 0.0, str(error))

    async def _in_time(self, place: Place, use: Callable[[OpenStore], Awaitable[T]]) -> T:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await self._with(place, use)
        except OpbenchError:
            raise
        except Exception as error:  # a library's own
            if not limit.expired():
                raise MemoryFault(f"the memory library failed: {type(error).__name__}: {error}") from error
            raise UsageError(
                f"no answer in {self._timeout_s:.0f} s. Try again: what takes long is opening a store for the first "
                "time. If it stays so, try 'opbench memory search' on the command line."
            ) from None

    async def _with(self, place: Place, use: Callable[[OpenStore], Awaitable[T]]) -> T:
        # Two that ask for the same wait for one opening; others don't wait for it.
        async with self._locks.setdefault(place, asyncio.Lock()):
            entry = self._open.get(place)
            if entry is None:
                entry = self._open[place] = _Entry(await self._opener(place))
                if self._janitor is None or self._janitor.done():
                    self._janitor = asyncio.create_task(self._close_idle())
            entry.users += 1
        try:
            return await use(entry.store)
        finally:
            entry.users -= 1
            entry.used_at = time.monotonic()

    async def _close_idle(self) -> None:
        while self._open:
            await asyncio.sleep(self._idle_s / 4)
            now = time.monotonic()
            await self._close(
                [key for key, each in self._open.items() if not each.users and now - each.used_at >= self._idle_s]
            )

    async def _close_all(self) -> None:
        await self._close(list(self._open))
        if self._janitor is not None:
            self._janitor.cancel()
            await asyncio.gather(self._janitor, return_exceptions=True)
            self._janitor = None

    async def _close(self, places: Sequence[Place]) -> None:
        for place in places:
            async with self._locks.setdefault(place, asyncio.Lock()):
                entry = self._open.pop(place, None)
                if entry is not None:
                    # Nobody is left who could do anything about what fails now.
                    with contextlib.suppress(Exception):
                        await entry.store.aclose()
        if places and not self._open and self._on_empty is not None:
            with contextlib.suppress(Exception):
                await self._on_empty()

    def _wait(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise UsageError(f"no answer in {seconds:.0f} s. Try again, or use 'opbench memory search'.") from None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(loop,), name="memories", daemon=True).start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()
