"""A scenario's surroundings: a provider, a registry, a home, a store, and the processes that work on one study."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opbench.store.database import Store, open_store
from opbench.store.reading import RunStatus, run_ids, run_status
from tests.soak.ledger import Break, Line, audit
from tests.soak.process import Jump, Process, Starter
from tests.soak.provider import Plan

#: Sample instances, and configurations of a model: BASE, and RAG under three post-processors.
INSTANCES, CONFIGURATIONS = 85, 4
RECORDS_A_MODEL = INSTANCES * CONFIGURATIONS
CONCURRENCY = 32
_RESUMES = 12
_LATE_S = 0.2
ROOT = Path(__file__).parents[2]


class World:
    """Opens with its provider at work; `run` and `resume` work on the study, `audit` closes the books."""

    def __init__(
        self,
        name: str,
        folder: Path,
        starter: Starter,
        plan: Plan,
        *,
        models: int,
        home: Path | None = None,
        store_url: str | None = None,
    ) -> None:
        """`home`: where it isn't in `folder`; what processes say is kept in `folder` always."""
        self.name = name
        self.home = home or folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.models = models
        self.planned = models * RECORDS_A_MODEL
        self.store_file = self.home / "store.sqlite3"
        self.store_url = store_url or f"sqlite:///{self.store_file}"
        self.breaks: list[Break] = []
        self.processes: list[Process] = []
        self._starter = starter
        self._logs = folder / "said"
        self._began = time.monotonic()
        self._plan = plan

    def __enter__(self) -> Self:
        self._provider = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.provider", json.dumps(asdict(self._plan))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._provider.stdout is not None
        self.url = self._provider.stdout.readline().strip()
        (self.home / "models.toml").write_text(self.registry(), encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._starter.close()
        self._provider.kill()
        self._provider.communicate()

    def registry(self) -> str:
        waits = "timeout_s = 6.0\nfirst_wait_s = 0.05\nmax_wait_s = 1.0\nconcurrency = 64\nprice_in = 1.0\n"
        entries = [
            f'[models.{name}]\nbase_url = "{self.url}"\nprice_out = 2.0\n{waits}'
            for name in (*(f"m{n}" for n in range(self.models)), "judge")
        ]
        return "\n".join([*entries, f'[embedders.vectors]\nbase_url = "{self.url}"\n{waits}'])

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OPBENCH_")}
        return kept | {
            "OPBENCH_HOME": str(self.home),
            "OPBENCH_MODELS": str(self.home / "models.toml"),
            "OPBENCH_STORE": self.store_url,
        }

    @property
    def arguments(self) -> list[str]:
        return [
            "run",
            f"--models={','.join(f'm{n}' for n in range(self.models))}",
            "--memories=base,rag",
            "--mitigations=none,reminder,self-critic",
            "--benchmarks=op,locomo",
            "--judge=judge",
            "--judge-pack=own",
            "--embedder=vectors",
            "--data=sample",
        ]

    def start(
        self,
        *more: str,
        concurrency: int = CONCURRENCY,
        jumps: Sequence[Jump] = (),
        file_limit: int | None = None,
    ) -> Process:
        """`opbench run` of the study."""
        log = self._logs / f"{len(self.processes)}.log"
        arguments = [*self.arguments, f"--concurrency={concurrency}", *more]
        process = self._starter.start(
            arguments, self.environment, log, concurrency=concurrency, jumps=jumps, file_limit=file_limit
        )
        self.processes.append(process)
        return process

    # --- watching ---------------------------------------------------------------------------------------------------

    @property
    def requests(self) -> int:
        """Requests that reached the provider so far."""
        return int(self._ask("/count"))

    def _ask(self, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(self.url.removesuffix("/v1") + path, data, timeout=30) as reply:
                    return bytes(reply.read())
            except (urllib.error.URLError, ConnectionError):
                # It plays dead.
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def wait_for(self, process: Process, met: Callable[[], bool], seconds: float = 240.0) -> None:
        """Until something is met; the process must live that long."""
        until = time.monotonic() + seconds
        while not met():
            assert process.running, f"{self.name}: it ended too early: {process.said()}"
            assert time.monotonic() < until, f"{self.name}: it never came to that: {process.said()}"
            time.sleep(0.01)

    def wait_for_requests(self, process: Process, share: float) -> None:
        """Until that share of about all the requests that the study takes has been sent."""
        wanted = share * self.planned * 2.25
        self.wait_for(process, lambda: self.requests >= wanted)

    # --- ends -------------------------------------------------------------------------------------------------------

    def broke(self, process: Process, what: str, concurrency: int | None = None) -> None:
        """Book that the process has ended, or a part of it, with work in hands."""
        time.sleep(_LATE_S)
        self.breaks.append(Break(time.monotonic(), process.concurrency if concurrency is None else concurrency, what))

    def kill(self, process: Process, what: str = "SIGKILL of the worker") -> None:
        process.signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        self.broke(process, what)

    def store_gone(self, process: Process, what: str, *words: str) -> None:
        """The process must end by itself, and say in its last line that its store is gone."""
        code = process.wait(60)
        self.broke(process, what)
        assert code == 1, f"{self.name}: exit code {code}: {process.said()}"
        assert process.last_line.startswith("opbench: store "), process.said()
        assert "Traceback" not in process.said(), process.said()
        for word in words:
            assert word in process.last_line, process.last_line

    def status(self) -> RunStatus:
        store = self.open()
        try:
            (run_id,) = run_ids(store)
            return run_status(store, run_id)
        finally:
            store.close()

    def open(self) -> Store:
        return open_store(self.store_url)

    def resume(self, **how: Any) -> None:
        """Start the study again until it is complete, or until what is missing stays missing."""
        missing = None
        for _ in range(_RESUMES):
            process = self.start(**how)
            code = process.wait()
            status = self.status()
            assert code == (0 if status.complete else 1), process.said()
            assert status.waiting == 0, f"{self.name}: {status.waiting} records were never tried: {process.said()}"
            assert f"{status.done} done, {status.errors} errors" in process.said()
            if status.complete or (status.errors, status.retriable) == missing:
                return
            missing = status.errors, status.retriable
        raise AssertionError(f"{self.name}: not complete after {_RESUMES} starts: {process.said()}")

    def audit(self) -> Line:
        """The ledger's line. Raises AssertionError when something is lost, double, or doesn't add up."""
        log = json.loads(self._ask("/ledger"))
        store = self.open()
        try:
            line = audit(self.name, log, store, self.breaks, self.planned)
        finally:
            store.close()
        line.seconds = time.monotonic() - self._began
        # Those that were killed couldn't say anything.
        line.said = [sentence for process in self.processes if (sentence := process.verdict)]
        return line
