"""What the drivers of memory libraries share that run in this process: clients of the gateway, threads, faults.

The gateway answers from our event loop, so a library must not block it; and what a library does for a caller that was
cancelled meanwhile must have ended before its folder is copied or removed. So each store has threads of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import openai

from opbench.errors import MemoryFault, UsageError
from opbench.gateway.lease import Lease
from opbench.models.failures import scrub
from opbench.types import User

T = TypeVar("T")
_LONGEST = 300
_THREADS = 4


def installed(name: str, package: str) -> str:
    """The version of a package that memory system `name` needs.

    Raises:
        UsageError: it isn't installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise UsageError(f"{name}: {package} isn't installed. Run: pip install -r requirements.txt") from None


def client(lease: Lease) -> openai.OpenAI:
    """A client of the gateway. Retries and time limits are the gateway's business; no proxy lies between."""
    http = openai.DefaultHttpxClient(timeout=None, trust_env=False)
    return openai.OpenAI(api_key=lease.key, base_url=lease.base_url, max_retries=0, timeout=None, http_client=http)


def async_client(lease: Lease) -> openai.AsyncOpenAI:
    """The same for coroutines."""
    http = openai.DefaultAsyncHttpxClient(timeout=None, trust_env=False)
    return openai.AsyncOpenAI(api_key=lease.key, base_url=lease.base_url, max_retries=0, timeout=None, http_client=http)


def fault(label: str, user: User, lease: Lease, error: BaseException, mend: str) -> MemoryFault:
    """What a library raised, as one line without the lease's key."""
    told = scrub(" ".join(str(error).split()), lease.key)[:_LONGEST].rstrip(".")
    told = f": {told}" if told else ""
    return MemoryFault(f"{label} ({user.id}): {type(error).__name__}{told}. {mend}.")


class Threads:
    """Threads of one store's own, for a library that blocks."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._running: set[Future[Any]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns. It goes on to its end also when the caller is cancelled."""
        future = self._pool.submit(work)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    async def aclose(self, last: Callable[[], None]) -> None:
        """Run `last` when all else has ended, and give the threads back."""
        running = list(self._running)

        def end() -> None:
            wait(running)
            last()

        await asyncio.to_thread(end)
        self._pool.shutdown(wait=False)


class Loop:
    """An event loop in a thread of one store's own, for a library of coroutines that block between their awaits."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def aclose(self, last: Coroutine[Any, Any, None]) -> None:
        """Run `last` and end the thread."""
        try:
            await self.run(last)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
