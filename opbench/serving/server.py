"""One vLLM server: started, waited for, asked for its counters, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import httpx2

from opbench.models.failures import scrub
from opbench.running.detached import last_lines
from opbench.serving.checks import Install, devices_of
from opbench.serving.command import Order
from opbench.serving.throughput import Counters, read
from opbench.settings import settings

#: Seconds that a server gets to end when asked.
_GOODBYE_S = 20.0
_ASK_S = 5.0
_LAST_LINES = 8
#: A line that tells an exception; the last ones of a log often only say that "the engine failed, see above".
_EXCEPTION = re.compile(r"\b\w*(?:Error|Exception)\b: \S")
#: What vLLM puts before each line of its log.
_PREFIX = re.compile(r"^(?:\(\w+ pid=\d+\) )?(?:(?:INFO|WARNING|ERROR) \d\d-\d\d [\d:]+ (?:\[[\w./]+:\d+\] )?)?")
_LOG_BYTES = 2_000_000


class VllmServer:
    """A server of an order, a process group of its own."""

    def __init__(self, order: Order, install: Install, index: int, key: str | None) -> None:
        self._order = order
        self._install = install
        self._index = index
        self._key = key
        self.port = order.ports[index]
        self.log = settings().home / "logs" / f"serve-{order.spec.name}-{self.port}.log"
        self._process: asyncio.subprocess.Process | None = None

    def command(self) -> list[str]:
        """What is started."""
        flags = self._order.arguments(self.port)
        if self._install.distribution == "vllm":
            return [self._install.python, "-m", "vllm.entrypoints.cli.main", "serve", self._order.model, *flags]
        # The command line of other builds doesn't find its own version.
        module = "vllm.entrypoints.openai.api_server"
        return [self._install.python, "-m", module, "--model", self._order.model, *flags]

    async def start(self) -> None:
        """Start it. It answers when `ready` says so.

        Raises:
            OSError: its log can't be written, or it can't be started.
        """
        with _anew(self.log) as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(Path(__file__).with_name("bound.py")),
                str(os.getpid()),
                *self.command(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                # Ctrl-C in the terminal is ours: we ask the servers to end.
                start_new_session=True,
            )

    def _environment(self) -> Mapping[str, str]:
        environment = {"VLLM_NO_USAGE_STATS": "1"} | os.environ | devices_of(self._order, self._install, self._index)
        return environment if self._key is None else environment | {"VLLM_API_KEY": self._key}

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    async def wait(self) -> None:
        """Until it ends."""
        assert self._process is not None
        await self._process.wait()

    async def ready(self, http: httpx2.AsyncClient) -> bool:
        """Whether it answers now."""
        try:
            return (await http.get(f"{self._order.here(self.port)}/health", timeout=_ASK_S)).status_code == 200
        except httpx2.HTTPError:
            return False

    async def counters(self, http: httpx2.AsyncClient) -> Counters | None:
        """Its counters now; None when it doesn't tell."""
        try:
            reply = await http.get(f"{self._order.here(self.port)}/metrics", timeout=_ASK_S)
        except httpx2.HTTPError:
            return None
        return read(reply.text, time.monotonic()) if reply.status_code == 200 else None

    def doing(self) -> str:
        """The last line of its log, for whoever waits."""
        lines = [_PREFIX.sub("", each).strip() for each in last_lines(self.log, 20)]
        return scrub(next((each for each in reversed(lines) if each), ""), self._key)[:160]

    def last_words(self) -> list[str]:
        """How it ended and the last lines of its log, with the first exception in it."""
        code = self._process.returncode if self._process else None
        how = f"ended with code {code}" if code is None or code >= 0 else f"was ended by {_signal(-code)}"
        written = [_PREFIX.sub("", each).rstrip() for each in last_lines(self.log, 2000)]
        lines = [each for each in written if each]
        last = lines[-_LAST_LINES:]
        first = next((each.strip() for each in lines if _EXCEPTION.search(each)), None)
        told = ([first] if first and first not in (each.strip() for each in last) else []) + last
        return [f"the server on port {self.port} {how}. Its log {self.log} ends:", *(scrub(x, self._key) for x in told)]

    async def stop(self) -> None:
        """Ask it to end, wait, and end by force what is left of it. Never raises."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GOODBYE_S)
        # Its engines and workers are of its group; a dead parent may have left them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _anew(log: Path) -> IO[bytes]:
    """An empty log; the one before is kept beside it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    return log.open("wb")
