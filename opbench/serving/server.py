"""One vLLM server: started, waited for, asked for its counters, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import IO

import httpx2

from opbench.models.failures import scrub
from opbench.running.detached import last_lines
from opbench.serving.checks import Install, devices_of, environment
from opbench.serving.command import Order
from opbench.serving.throughput import Counters, read
from opbench.settings import settings

#: Seconds that a server gets to end when asked.
_GOODBYE_S = 20.0
_ASK_S = 5.0
_LAST_LINES = 12
#: Lines at a log's end in which the first exception is looked for: the last often only tells that "the engine failed".
_LOOKED_THROUGH = 300
_LONGEST = 300
_EXCEPTION = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Exception): \S")
#: What vLLM puts before each line of its log.
_PREFIX = re.compile(r"^(?:\(\w+ pid=\d+\) ?)?(?:(?:INFO|WARNING|ERROR) \d\d-\d\d [\d:]+ (?:\[[\w./]+:\d+\] ?)?)?")


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

    def environment(self) -> dict[str, str]:
        """What it is started with: its key and its GPUs are here."""
        given = environment() | devices_of(self._order, self._install, self._index)
        return given if self._key is None else given | {"VLLM_API_KEY": self._key}

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
                env=self.environment(),
                # Ctrl-C in the terminal is ours: we ask the servers to end.
                start_new_session=True,
            )

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
        return next(iter(self.last_words()[::-1]), "").strip()[:_LONGEST]

    def end(self) -> str:
        """How it ended, with the first exception that its log tells."""
        code = self._process.returncode if self._process else None
        how = f"was ended by {_signal(-code)}" if code is not None and code < 0 else f"ended with code {code}"
        lines = self._log_lines(_LOOKED_THROUGH)
        first = next((number for number, each in enumerate(lines) if _EXCEPTION.match(each)), None)
        if first is None:
            return f"the server on port {self.port} {how}"
        # pydantic's "1 validation error for …" says what in the line below.
        last = first + 2 if "validation error" in lines[first] else first + 1
        why = " ".join(each.strip() for each in lines[first:last])[:_LONGEST].rstrip(" .")
        return f"the server on port {self.port} {how}: {why}"

    def last_words(self) -> list[str]:
        """The last lines of its log."""
        return self._log_lines(_LAST_LINES)

    def _log_lines(self, lines: int) -> list[str]:
        written = (_PREFIX.sub("", each).rstrip() for each in last_lines(self.log, lines))
        return [scrub(each, self._key) for each in written if each]

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
