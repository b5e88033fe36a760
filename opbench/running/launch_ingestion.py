"""Starting `opbench memory ingest` as a detached process, and stopping it: for a page, which watches the manifests.

A started process holds a lock for its life, so whether it is still there is asked of the lock: its number alone may
have been given to another by then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.memories.locking import is_locked
from opbench.settings import ROOT, settings

#: Ended processes whose last words are kept.
_KEPT = 5
_LOG_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be ingested. `users` empty means all; `extractor` None is for systems that need none."""

    systems: tuple[str, ...]
    users: tuple[str, ...] = ()
    extractor: str | None = None
    embedder: str = "minilm"
    data: Literal["auto", "sample"] = "auto"
    budget_usd: float | None = None
    rebuild: bool = False

    def arguments(self) -> list[str]:
        """The words after `opbench` of the command that does it."""
        words = ["memory", "ingest", *self.systems]
        if self.users:
            words += ["--users", ",".join(self.users)]
        if self.extractor is not None:
            words += ["--extractor", self.extractor]
        words += ["--embedder", self.embedder]
        if self.data != "auto":
            words += ["--data", self.data]
        if self.budget_usd is not None:
            words += ["--budget", f"{self.budget_usd:.12g}"]
        return [*words, "--rebuild"] if self.rebuild else words

    def command(self) -> str:
        """The shell command that does the same."""
        return shlex.join(["opbench", *self.arguments()])


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started here; `working` as of when it was looked at."""

    id: str
    order: Order
    pid: int
    started_at: float
    log: Path
    working: bool

    def concerns(self, system: str, user: str) -> bool:
        """Whether this process was asked to ingest that user with that system."""
        return system in self.order.systems and (not self.order.users or user in self.order.users)

    def last_words(self, lines: int = 12) -> list[str]:
        """The last lines of what it wrote; none when nothing was written."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - _LOG_BYTES))
                return log.read().decode("utf-8", "replace").splitlines()[-lines:]
        except OSError:
            return []


def launch(order: Order, keys: Mapping[str, SecretStr] | None = None) -> Started:
    """Start the ingestion in a process of its own, which goes on when the caller ends.

    `keys` (by environment variable) go to the process in its environment and nowhere else.

    Raises:
        UsageError: a process that was started here is at work on the same, or none can be started.
    """
    if not order.systems:
        raise UsageError("nothing to ingest: choose at least one memory system.")
    for other in started():
        if other.working and _overlap(order, other.order):
            raise UsageError(
                f"process {other.pid} is ingesting {', '.join(sorted({*order.systems} & {*other.order.systems}))} "
                "already. Wait for it, or stop it first."
            )
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    folder, log = _folder(), settings().home / "logs" / f"ingest-{name}.log"
    environment = dict(os.environ) | {each: key.get_secret_value() for each, key in (keys or {}).items()}
    try:
        for each in (folder, log.parent):
            each.mkdir(parents=True, exist_ok=True)
        with _held(folder / f"{name}.lock") as lock, log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "opbench", *order.arguments()],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        begun = time.time()
        known = {"pid": process.pid, "started_at": begun, "log": str(log), "order": asdict(order)}
        part = folder / f"{name}.part"
        part.write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")
        part.replace(folder / f"{name}.json")
    except OSError as error:
        raise UsageError(
            f"{error.filename or settings().home}: can't be written ({error.strerror or error}), so nothing was "
            "started. Mend that, or set OPBENCH_HOME to another folder."
        ) from error
    # Whoever starts a process must wait for it: else a dead one stays as a zombie.
    threading.Thread(target=process.wait, name=f"ingest-{name}", daemon=True).start()
    _forget_old()
    return Started(name, order, process.pid, begun, log, working=True)


def started() -> list[Started]:
    """The processes that were started here, newest first; some that ended are among them."""
    found = [_read(file) for file in sorted(_folder().glob("*.json"), reverse=True)]
    return [each for each in found if each is not None]


def stop(process: Started) -> None:
    """Ask a process to end; what was ingested stays, and the session in flight is done again next time."""
    if is_locked(_folder() / f"{process.id}.lock"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


def _overlap(one: Order, other: Order) -> bool:
    users = not one.users or not other.users or bool({*one.users} & {*other.users})
    return users and bool({*one.systems} & {*other.systems})


def _folder() -> Path:
    return settings().home / "ingestions"


@contextlib.contextmanager
def _held(file: Path) -> Iterator[int]:
    """A lock that lasts until the last process that inherited it has ended."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


def _read(file: Path) -> Started | None:
    """The process that the file tells of; None when the file is damaged or gone."""
    try:
        known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        order = known["order"]
        values = order | {"systems": tuple(order["systems"]), "users": tuple(order["users"])}
        return Started(
            file.stem,
            Order(**values),
            int(known["pid"]),
            float(known["started_at"]),
            Path(known["log"]),
            is_locked(file.with_suffix(".lock")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _forget_old() -> None:
    for each in [process for process in started() if not process.working][_KEPT:]:
        for file in (*_folder().glob(f"{each.id}.*"), each.log):
            file.unlink(missing_ok=True)
