"""The servers of one order, from their start until somebody ends them or all have died."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import httpx2

from opbench.errors import ModelError, StoreError
from opbench.serving.checks import Install
from opbench.serving.command import Order
from opbench.serving.server import VllmServer
from opbench.serving.throughput import HEADING, Counters, between, line, together
from opbench.settings import settings

Tell = Callable[[str], None]
_POLL_S = 0.5
#: Seconds between lines about a start that lasts.
_NEWS_S = 15.0
#: Lines of the table under one heading.
_PAGE = 20


async def serve(
    order: Order,
    install: Install,
    key: str | None,
    ended: asyncio.Event,
    tell: Tell,
    *,
    every_s: float,
    start_limit_s: float,
) -> int:
    """Start the servers, wait until all answer, show what they do until `ended` is set, and end them all.

    Returns:
        Servers that died by themselves meanwhile; each was told of. When all are dead it is over.

    Raises:
        ModelError: one died before all answered, or they didn't within `start_limit_s` seconds.
        StoreError: their logs can't be written.
    """
    servers = [VllmServer(order, install, index, key) for index in range(len(order.ports))]
    try:
        # Nothing lies between us and this machine.
        async with httpx2.AsyncClient(trust_env=False) as http:
            for server in servers:
                tell(f"starting on port {server.port}, log {server.log}")
                await server.start()
            if not await _all_ready(order, servers, http, ended, tell, start_limit_s):
                return 0
            tell(f"{order.spec.name} answers at {', '.join(order.urls)}")
            if entry := order.entry():
                tell(f"To spread its calls over them, write into {settings().models_file} in place of its entry there:")
                for each in entry.splitlines():
                    tell(each)
            tell("Ctrl-C ends it.")
            return await _watch(servers, http, ended, tell, every_s)
    except OSError as error:
        raise StoreError(
            f"{error.filename or servers[0].log}: {error.strerror or error}. Mend that, or set OPBENCH_HOME to "
            "another folder."
        ) from error
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


async def _all_ready(
    order: Order,
    servers: Sequence[VllmServer],
    http: httpx2.AsyncClient,
    ended: asyncio.Event,
    tell: Tell,
    limit_s: float,
) -> bool:
    """Wait until all answer; False when it was ended before."""
    began = told = time.monotonic()
    waiting = list(servers)
    while not ended.is_set():
        # One that answered may die while others still start.
        for server in servers:
            if server.ended:
                _tell_log(server, tell)
                raise _failed(order, f"{server.end()}. Its log is {server.log}.")
        answers = await asyncio.gather(*(server.ready(http) for server in waiting))
        now = time.monotonic()
        for server in [each for each, answer in zip(waiting, answers, strict=True) if answer]:
            waiting.remove(server)
            tell(f"port {server.port} answers after {now - began:.0f} s")
        if not waiting:
            return True
        if now - began > limit_s:
            _tell_log(waiting[0], tell)
            late = f"the server on port {waiting[0].port} doesn't answer after {limit_s:.0f} s"
            raise _failed(order, f"{late}. Give it longer (--start-limit); its log is {waiting[0].log}.")
        if now - told > _NEWS_S:
            told = now
            tell(f"port {waiting[0].port} after {now - began:.0f} s: {waiting[0].doing()}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _POLL_S)
    return False


async def _watch(
    servers: Sequence[VllmServer], http: httpx2.AsyncClient, ended: asyncio.Event, tell: Tell, every_s: float
) -> int:
    """Show what they do; how many died when it is over."""
    alive = list(servers)
    table = Table(tell)
    await table.look(alive, http)
    while alive and not ended.is_set():
        over = [asyncio.create_task(each) for each in (ended.wait(), *(server.wait() for server in alive))]
        await asyncio.wait(over, timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
        for task in over:
            task.cancel()
        for server in [each for each in alive if each.ended]:
            alive.remove(server)
            _tell_log(server, tell)
            left = f"{len(alive)} of {len(servers)} servers go on" if alive else "No server is left"
            tell(f"{server.end()}. {left}.")
        await table.look(alive, http)
    table.close()
    return len(servers) - len(alive)


def _tell_log(server: VllmServer, tell: Tell) -> None:
    for each in server.last_words():
        tell(f"  {each}")


def _failed(order: Order, what: str) -> ModelError:
    return ModelError(f"{order.spec.name}: {what}", kind="server", model=order.spec.name, attempts=0)


class Table:
    """Lines of throughput, one a server and one of all together; none while nothing is asked of them."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._before: dict[int, Counters] = {}
        """By port, as of the last look that the server answered."""
        self._lines = 0
        self._busy = False

    async def look(self, servers: Sequence[VllmServer], http: httpx2.AsyncClient) -> None:
        """Ask them for their counters, and tell what they did since the last look."""
        seen = await asyncio.gather(*(server.counters(http) for server in servers))
        now = {server.port: counters for server, counters in zip(servers, seen, strict=True) if counters is not None}
        rows = {port: between(self._before[port], counters) for port, counters in now.items() if port in self._before}
        clock = time.strftime("%H:%M:%S")
        busy = any(row is not None and not row.idle for row in rows.values())
        # Once more when it becomes idle, so that the last line says so.
        if busy or self._busy:
            for server in servers:
                self._line(line(clock, str(server.port), rows.get(server.port)))
            if len(rows) > 1:
                before, after = (together(looks[port] for port in rows) for looks in (self._before, now))
                self._line(line(clock, "all", between(before, after)))
        self._busy = busy
        self._before |= now

    def close(self) -> None:
        """What was done in all."""
        if self._before:
            last = together(self._before.values())
            hits = f", {last.found / last.asked:.0%} of them out of the prefix cache" if last.asked else ""
            self._tell(f"in all {last.prompt:,.0f} prompt tokens{hits}, {last.generated:,.0f} new ones")

    def _line(self, text: str) -> None:
        if self._lines % _PAGE == 0:
            self._tell(HEADING)
        self._lines += 1
        self._tell(text)
