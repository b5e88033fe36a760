"""The client of MemOS's process (`inside/`): starts it, asks it, and starts it anew when it died.

One process serves all stores of ours (measured: 200 MB and 3 s to start, so not one a user). It is used from threads
and event loops alike.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from opbench.errors import MemoryFault
from opbench.settings import settings

PROGRAM = Path(__file__).with_name("inside")
STARTS_WITHIN_S = 180.0
ENDS_WITHIN_S = 20.0
LOG_BYTES = 5_000_000
"""Size from which a log is put aside at the next start."""
#: All that the process sees of our environment, so that no setting, key or proxy of ours reaches MemOS.
PASSED = ("PATH", "LANG", "LC_ALL", "TMPDIR")


class Died(Exception):
    """The process ended before it answered."""


class Refused(Exception):
    """The process answered with an error: its line."""


class Process:
    """One run of the program."""

    def __init__(self, python: Path, base: Path, log: Path) -> None:
        base.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_suffix(".old.log"))
        self._log = log
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._last = 0
        self._ready: Future[dict[str, Any]] = Future()
        with log.open("ab") as errors:
            # A session of its own: Ctrl-C at the terminal is for us, and we end it in order.
            self._process = subprocess.Popen(
                [python, "-I", "-u", "-X", "utf8", PROGRAM, base],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=base,
                env=_surroundings(base),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="memos-replies", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._reader.is_alive() and self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until it has imported MemOS.

        Raises:
            MemoryFault: it didn't start; says why and where its log is.
        """
        try:
            said = self._ready.result(STARTS_WITHIN_S)
        except TimeoutError:
            self.end(0)
            said = {"failed": f"no answer within {STARTS_WITHIN_S:.0f} s"}
        except Died:
            said = {"failed": _last_line(self._log)}
        if "ready" not in said:
            self.end(ENDS_WITHIN_S)
            raise MemoryFault(f"MemOS's process didn't start: {said['failed']} (log: {self._log})")

    def ask(self, method: str, **parameters: Any) -> Future[Any]:
        """The result of a method, which fails with `Died` or `Refused`."""
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()  # whoever stops waiting doesn't break the reader
        assert self._process.stdin is not None
        with self._lock:
            self._last += 1
            self._pending[self._last] = answer
            line = json.dumps({"id": self._last, "method": method, "params": parameters}).encode() + b"\n"
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except (OSError, ValueError):
                del self._pending[self._last]
                answer.set_exception(Died())
        if not self._reader.is_alive():
            self._fail_pending()
        return answer

    def end(self, within_s: float) -> None:
        """End it in order, or by force when that takes longer."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as replies:
            for line in replies:
                reply = json.loads(line)
                if not self._ready.done():
                    self._ready.set_result(reply)
                    continue
                with self._lock:
                    answer = self._pending.pop(reply["id"])
                if "error" in reply:
                    answer.set_exception(Refused(reply["error"]))
                else:
                    answer.set_result(reply["result"])
        self._process.wait()
        if not self._ready.done():
            self._ready.set_exception(Died())
        self._fail_pending()

    def _fail_pending(self) -> None:
        with self._lock:
            pending, self._pending = list(self._pending.values()), {}
        for answer in pending:
            answer.set_exception(Died())


class Sidecar:
    """The process that runs now, or the next one."""

    def __init__(self, python: Path, base: Path, log: Path) -> None:
        self.log = log
        self._python = python
        self._base = base
        self._lock = threading.Lock()
        self._process: Process | None = None

    def process(self) -> Process:
        """The running process; starts one where there is none. Blocks for its start.

        Raises:
            MemoryFault: it didn't start.
        """
        with self._lock:
            if self._process is None or not self._process.alive:
                try:
                    self._process = Process(self._python, self._base, self.log)
                except OSError as error:
                    raise MemoryFault(f"MemOS's process didn't start: {error} (log: {self.log})") from None
                self._process.wait_ready()
            return self._process

    def end(self) -> None:
        """End the process, when one runs."""
        with self._lock:
            if self._process is not None:
                self._process.end(ENDS_WITHIN_S)
                self._process = None


_SIDECARS: dict[tuple[Path, Path], Sidecar] = {}
_LOCK = threading.Lock()


def sidecar(python: Path) -> Sidecar:
    """The sidecar of this environment and home; ended with our process."""
    home = settings().home
    with _LOCK:
        if (python, home) not in _SIDECARS:
            _SIDECARS[python, home] = Sidecar(python, settings().cache / "memos", home / "logs" / "memos.log")
        return _SIDECARS[python, home]


def end_all() -> None:
    """End all processes; at the end of ours this is done by itself."""
    with _LOCK:
        running = list(_SIDECARS.values())
        _SIDECARS.clear()
    for each in running:
        each.end()


atexit.register(end_all)


def _surroundings(base: Path) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in PASSED if name in os.environ},
        "HOME": str(base),
        "MEMOS_BASE_PATH": str(base),
        "MOS_EMBEDDER_TIMEOUT": "3600",  # seconds; the gateway has the timeouts and the retries
        "PYTHON_DOTENV_DISABLED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "OTEL_SDK_DISABLED": "true",
    }


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        lines = deque((line for line in file if line.strip()), maxlen=1)
    return lines[0].decode(errors="replace").strip() if lines else "it said nothing"
