"""Commands of ours as processes that go on when their caller ends: started, found again, stopped.

A started process holds a lock for its life, so whether it is still there is asked of the lock: its number alone may
have been given to another by then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.memories.locking import is_locked
from opbench.settings import ROOT, settings

#: Ended processes of a kind whose last words are kept.
KEPT = 5
_LOG_BYTES = 20_000
#: Lines among which the newest one of progress is looked for.
_PROGRESS_LINES = 200


@dataclass(frozen=True, slots=True)
class Detached:
    """A process that was started here; `working` as of when it was looked at."""

    id: str
    pid: int
    started_at: float
    log: Path
    order: dict[str, Any]
    """What it was asked for, JSON values, as whoever started it wrote it."""
    working: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a process is that tells it in its log, in whatever it counts; `label` says at what it is, if it does."""

    done: int
    planned: int
    seconds_left: float | None
    label: str = ""


class Detachment:
    """The processes of one kind: `kind` begins their logs' names, `folder` (below OPBENCH_HOME) holds what is known of
    them."""

    def __init__(self, kind: str, folder: str) -> None:
        self._kind = kind
        self._name = folder

    @property
    def folder(self) -> Path:
        return settings().home / self._name

    def start(
        self, arguments: Sequence[str], order: Mapping[str, Any], keys: Mapping[str, SecretStr] | None = None
    ) -> Detached:
        """Start `opbench` with these arguments. `keys` (by environment variable) go to the process in its environment
        and nowhere else.

        Raises:
            UsageError: none can be started.
        """
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        folder, log = self.folder, settings().home / "logs" / f"{self._kind}-{name}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _held(folder / f"{name}.lock") as lock:
                process = spawn(arguments, log, keys, pass_fds=(lock,))
            begun = time.time()
            known = {"pid": process.pid, "started_at": begun, "log": str(log), "order": dict(order)}
            part = folder / f"{name}.part"
            part.write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")
            part.replace(folder / f"{name}.json")
        except OSError as error:
            raise UsageError(
                f"{error.filename or settings().home}: can't be written ({error.strerror or error}), so nothing was "
                "started. Mend that, or set OPBENCH_HOME to another folder."
            ) from error
        self._forget_old()
        return Detached(name, process.pid, begun, log, dict(order), working=True)

    def started(self) -> list[Detached]:
        """The processes that were started here, newest first; some that ended are among them."""
        found = [_read(file) for file in sorted(self.folder.glob("*.json"), reverse=True)]
        return [each for each in found if each is not None]

    def stop(self, name: str, pid: int) -> None:
        """Ask the process of that id to end; nobody is asked when it isn't there any more."""
        if is_locked(self.folder / f"{name}.lock"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _forget_old(self) -> None:
        for each in [process for process in self.started() if not process.working][KEPT:]:
            for file in (*self.folder.glob(f"{each.id}.*"), each.log):
                file.unlink(missing_ok=True)


def spawn(
    arguments: Sequence[str], log: Path, keys: Mapping[str, SecretStr] | None = None, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start `opbench` with these arguments in a process that goes on when the caller ends, and writes to `log`.

    `keys` (by environment variable) go to the process in its environment and nowhere else.

    Raises:
        OSError: the log can't be written, or the process can't be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "opbench", *arguments],
            cwd=ROOT,
            env=dict(os.environ) | {each: key.get_secret_value() for each, key in (keys or {}).items()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    # Whoever starts a process must wait for it: else a dead one keeps its number and looks alive.
    threading.Thread(target=process.wait, name=f"wait-{process.pid}", daemon=True).start()
    return process


def last_lines(log: Path, lines: int = 12) -> list[str]:
    """The last lines of what a process wrote; none when nothing was written."""
    try:
        with log.open("rb") as written:
            written.seek(max(0, log.stat().st_size - _LOG_BYTES))
            return written.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []


def last_progress(log: Path, pattern: re.Pattern[str]) -> Progress | None:
    """As the newest line that `pattern` is found in says, by its groups `done`, `planned` and `seconds`, and `label`
    where it has one; None before the first."""
    for line in reversed(last_lines(log, _PROGRESS_LINES)):
        if match := pattern.search(line):
            found = match.groupdict()
            done, planned = (int(found[name].replace(",", "")) for name in ("done", "planned"))
            seconds = None if found["seconds"] is None else float(found["seconds"])
            return Progress(done, planned, seconds, found.get("label") or "")
    return None


def last_words(log: Path, progress: re.Pattern[str], lines: int = 12) -> list[str]:
    """The last lines of what a process wrote that aren't of progress; none when nothing was written."""
    return [line for line in last_lines(log, _PROGRESS_LINES) if not progress.search(line)][-lines:]


@contextlib.contextmanager
def _held(file: Path) -> Iterator[int]:
    """A lock that lasts until the last process that inherited it has ended."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


def _read(file: Path) -> Detached | None:
    """The process that the file tells of; None when the file is damaged or gone."""
    try:
        known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Detached(
            file.stem,
            int(known["pid"]),
            float(known["started_at"]),
            Path(known["log"]),
            dict(known["order"]),
            is_locked(file.with_suffix(".lock")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
