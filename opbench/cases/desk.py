"""Where live cases are asked: one thread with one event loop in a process."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Mapping
from functools import cache

from pydantic import SecretStr

from opbench.benchmarks import load
from opbench.cases.session import Session
from opbench.cases.spec import CaseSpec
from opbench.errors import OpbenchError, UsageError
from opbench.models.embedded import EmbeddedServer
from opbench.models.embeddings import MiniLM
from opbench.models.registry import load_registry
from opbench.store.database import Store

MOST_AT_WORK = 8
"""Sessions of a process that may be at work at once."""
MOST_KEPT = 64
"""Sessions that can be found again by their id."""
_IDLE_S = 600.0
"""How long the embedded server is kept after the last case that asked it."""
#: A case that is opened right after the desk goes before the warming.
_FIRST_S = 0.3


class Desk:
    """Asks cases in a daemon thread, which starts with the first one. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._sessions: dict[str, Session] = {}
        self._unheard: set[str] = set()
        """Sessions that no text has come of yet."""
        self._all_heard = asyncio.Event()
        self._all_heard.set()
        self._server = EmbeddedServer()
        self._holding: set[asyncio.Task[None]] = set()
        self._release: asyncio.TimerHandle | None = None

    def open(self, store: Store, spec: CaseSpec, *, keys: Mapping[str, SecretStr] | None = None) -> Session:
        """Ask a case; returns at once. `keys` by environment variable name live in memory, as long as the session.

        Raises:
            UsageError: too many cases are at work at once, or the desk is closed.
        """
        with self._lock:
            if self._closed:
                raise UsageError("the desk is closed: nothing is asked any more.")
            if sum(session.busy for session in self._sessions.values()) >= MOST_AT_WORK:
                raise UsageError(f"{MOST_AT_WORK} cases are being asked already: wait for one, or cancel it.")
            loop = self._running()
            id = secrets.token_hex(8)
            loop.call_soon_threadsafe(self._opened, loop, id, spec)
            session = Session(id, spec, store, loop, keys, lambda: self._heard(id))
            self._sessions[id] = session
            idle = [each for each, kept in self._sessions.items() if not kept.busy]
            for each in idle[: max(0, len(self._sessions) - MOST_KEPT)]:
                del self._sessions[each]
            return session

    def session(self, id: str) -> Session | None:
        """One of the latest sessions by its id, so that a page that is loaded anew finds what it had asked."""
        with self._lock:
            return self._sessions.get(id)

    def warm(self) -> None:
        """Begin to load in the background what the first case would wait for: data, embedder. Cases go before it."""
        with self._lock:
            loop = self._running()
        asyncio.run_coroutine_threadsafe(self._warm(), loop)

    def close(self) -> None:
        """Cancel what is at work and end the thread. The desk can't be used any more."""
        with self._lock:
            closed, self._closed = self._closed, True
            loop, thread, sessions = self._loop, self._thread, list(self._sessions.values())
        if closed or loop is None or thread is None:
            return
        for session in sessions:
            session.cancel()
        for session in sessions:
            session.wait(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        self._server.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="opbench-cases", daemon=True)
            self._thread.start()
        return self._loop

    async def _warm(self) -> None:
        await asyncio.sleep(_FIRST_S)
        # What is wrong with either shows in the case that needs it.
        with contextlib.suppress(OpbenchError):
            await self._all_heard.wait()
            await asyncio.to_thread(load)
        with contextlib.suppress(OpbenchError):
            await self._all_heard.wait()
            embedders = (await asyncio.to_thread(load_registry)).embedders.values()
            for spec in embedders:
                if spec.kind == "embedded":
                    await MiniLM(spec).warm()

    def _opened(self, loop: asyncio.AbstractEventLoop, id: str, spec: CaseSpec) -> None:
        self._unheard.add(id)
        self._all_heard.clear()
        task = loop.create_task(self._hold(loop, spec))
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    def _heard(self, id: str) -> None:
        self._unheard.discard(id)
        if not self._unheard:
            self._all_heard.set()

    async def _hold(self, loop: asyncio.AbstractEventLoop, spec: CaseSpec) -> None:
        """Keep the embedded server from ending between two cases that ask it."""
        with contextlib.suppress(OpbenchError):
            models = (await asyncio.to_thread(load_registry)).models
            asked = {spec.judge, *(column.model for column in spec.columns)}
            if any(models[name].kind == "embedded" for name in asked if name in models):
                await asyncio.to_thread(self._server.ensure)
                if self._release is not None:
                    self._release.cancel()
                self._release = loop.call_later(_IDLE_S, self._server.close)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@cache
def desk() -> Desk:
    """The process's own desk. The first call begins to load in the background what the first case needs."""
    made = Desk()
    made.warm()
    return made
