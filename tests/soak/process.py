"""Processes of `opbench`, as people start them, and some of them with a limit or with a clock of its own.

Starting Python and loading the packages takes three seconds; a soak starts a hundred processes. So they are forked from
a server that has loaded the packages and nothing else: processes of their own, with their own environment, standard
streams, signals and exit codes.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

Jump = tuple[float, float]
"""(seconds after the start, seconds by which the wall clock is off from then on)."""

_LOADED = ("opbench.cli", "opbench.judges.llm", "opbench.store.database", "psycopg", "tests.soak.process")


@dataclass
class Process:
    """A started `opbench`."""

    argv: list[str]
    log: Path
    """What it says, on both streams."""
    concurrency: int
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    killed: bool = False
    handle: ForkServerProcess | None = None

    @property
    def pid(self) -> int:
        assert self.handle is not None
        assert self.handle.pid is not None
        return self.handle.pid

    @property
    def running(self) -> bool:
        assert self.handle is not None
        return self.handle.is_alive()

    def wait(self, seconds: float = 240.0) -> int:
        """The exit code; minus the signal's number when one ended it."""
        assert self.handle is not None
        self.handle.join(seconds)
        code = self.handle.exitcode
        if code is None:
            self.handle.kill()
            raise AssertionError(f"{self.argv[:2]} was still running after {seconds:.0f} s. It said:\n{self.said()}")
        self.ended = self.ended or time.monotonic()
        return int(code)

    def signal(self, number: signal.Signals) -> None:
        self.killed = self.killed or number == signal.SIGKILL
        os.kill(self.pid, number)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def last_line(self) -> str:
        return ([line for line in self.said().splitlines() if line.strip()] or [""])[-1]

    @property
    def verdict(self) -> str:
        """The line that tells how it ended: how many records are done, or what stopped it; none when it was killed."""
        told = [line for line in self.said().splitlines() if " done, " in line or line.startswith("opbench: ")]
        return "" if self.killed or not told else told[-1]


class Starter:
    """Starts processes, and ends those that are left."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(_LOADED))
        self.started: list[Process] = []

    def start(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        log: Path,
        *,
        concurrency: int = 1,
        jumps: Sequence[Jump] = (),
        file_limit: int | None = None,
    ) -> Process:
        """`opbench ARGUMENTS`. `file_limit`: bytes that a file of its may have; `jumps` are of its clock."""
        log.parent.mkdir(parents=True, exist_ok=True)
        process = Process(["opbench", *arguments], log, concurrency)
        handle = self._context.Process(
            target=_main, args=(process.argv, environment, str(log), tuple(jumps), file_limit), daemon=False
        )
        handle.start()
        process.handle = handle
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                if process.running:
                    process.signal(signal.SIGKILL)
                    process.wait(10)


def _main(
    argv: list[str], environment: dict[str, str], log: str, jumps: Sequence[Jump], file_limit: int | None
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(out, stream)
    if file_limit is not None:
        # Else the limit ends the process before the write can fail.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if jumps:
        _jump(jumps)
    # What a terminal's Ctrl-C does, as in any new process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = argv
    from opbench.cli import main
    from opbench.settings import settings

    settings.cache_clear()
    main()


def _jump(jumps: Sequence[Jump]) -> None:
    """Set the wall clock of this process alone: what `time.time` and `datetime.now` say, and not the monotonic one,
    as when somebody sets a machine's clock."""
    began, true_time, true_datetime = time.monotonic(), time.time, datetime.datetime

    def off() -> float:
        passed = time.monotonic() - began
        return sum(by for after, by in jumps if passed >= after)

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Shifted:
            return cls.fromtimestamp(true_time() + off(), tz)

    time.time = lambda: true_time() + off()
    for name, module in list(sys.modules.items()):
        if name.startswith(("opbench.", "mitigations.")):
            for word, value in list(vars(module).items()):
                if value is true_datetime:
                    setattr(module, word, Shifted)
