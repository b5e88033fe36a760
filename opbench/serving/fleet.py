"""The servers of one order, from their start until somebody ends them or all have died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx2

from opbench.errors import ModelError, StoreError
from opbench.serving.checks import Install
from opbench.serving.command import Order
from opbench.serving.server import VllmServer
from opbench.serving.throughput import HEADING, Counters, between, line, together

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
            if await _all_ready(order, servers, http, ended, tell, start_limit_s):
                return await _watch(servers, http, ended, tell, every_s)
            return 0
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
    while waiting:
        if ended.is_set():
            return False
        for server in waiting:
            if server.ended:
                raise _failed(order, server.last_words())
        answers = await asyncio.gather(*(server.ready(http) for server in waiting))
        now = time.monotonic()
        for server, answer in zip(list(waiting), answers, strict=True):
            if answer:
                waiting.remove(server)
                tell(f"port {server.port} answers after {now - began:.0f} s")
        if waiting and now - began > limit_s:
            said = f"the server on port {waiting[0].port} doesn't answer after {limit_s:.0f} s"
            raise _failed(
                order, [f"{said}; it was ended. Give it longer: --start-limit. Its log ends:", waiting[0].doing()]
            )
        if waiting and now - told > _NEWS_S:
            told = now
            tell(f"port {waiting[0].port} after {now - began:.0f} s: {waiting[0].doing()}")
        if waiting:
            await _pause(ended, _POLL_S)
    return True


def _failed(order: Order, words: Sequence[str]) -> ModelError:
    return ModelError(f"{order.spec.name}: " + "\n  ".join(words), kind="server", model=order.spec.name, attempts=0)


async def _watch(
    servers: Sequence[VllmServer], http: httpx2.AsyncClient, ended: asyncio.Event, tell: Tell, every_s: float
) -> int:
    alive = list(servers)
    table = _Table(tell)
    await table.look(alive, http)
    while alive and not ended.is_set():
        deaths = [asyncio.create_task(server.wait()) for server in alive]
        end = asyncio.create_task(ended.wait())
        await asyncio.wait([end, *deaths], timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (end, *deaths):
            task.cancel()
        for server in [each for each in alive if each.ended]:
            alive.remove(server)
            if not ended.is_set():
                words = server.last_words()
                tell("\n  ".join(words))
                tell(f"{len(alive)} of {len(servers)} servers go on" if alive else "no server is left")
        await table.look(alive, http)
    table.close()
    return 0 if not servers else len(servers) - len(alive)


class _Table:
    """Lines of throughput: a server each, and of all together where they are several; silent while nothing is asked."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._before: dict[int, Counters] = {}
        self._latest: dict[int, Counters] = {}
        self._began: dict[int, Counters] = {}
        self._lines = 0
        self._busy = False

    async def look(self, servers: Sequence[VllmServer], http: httpx2.AsyncClient) -> None:
        seen = await asyncio.gather(*(server.counters(http) for server in servers))
        now = {server.port: counters for server, counters in zip(servers, seen, strict=True) if counters is not None}
        rows = {port: between(self._before[port], counters) for port, counters in now.items() if port in self._before}
        clock = time.strftime("%H:%M:%S")
        busy = any(row is not None and not row.idle for row in rows.values())
        # One more when it becomes idle, so that the last line says so.
        if busy or self._busy:
            for server in servers:
                self._line(line(clock, str(server.port), rows.get(server.port)))
            if len(rows) > 1:
                both = [self._before[port] for port in rows], [now[port] for port in rows]
                self._line(line(clock, "all", between(together(both[0]), together(both[1]))))
        self._busy = busy
        self._before = self._before | now
        for port, counters in now.items():
            self._began.setdefault(port, counters)
        self._latest |= now

    def _line(self, text: str) -> None:
        if self._lines % _PAGE == 0:
            self._tell(HEADING)
        self._lines += 1
        self._tell(text)

    def close(self) -> None:
        """What was done in all."""
        if not self._latest:
            return
        last = together(self._latest.values())
        hits = f", {last.found / last.asked:.0%} of them out of the prefix cache" if last.asked else ""
        self._tell(f"in all {last.prompt:,.0f} prompt tokens{hits}, {last.generated:,.0f} new ones")


async def _pause(ended: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return
