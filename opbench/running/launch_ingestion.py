"""Starting `opbench memory ingest` as a detached process, and stopping it: for a page, which watches the manifests."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.running.detached import Detached, Detachment, last_lines

_DETACHED = Detachment("ingest", "ingestions")


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
        return last_lines(self.log, lines)


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
    made = _DETACHED.start(order.arguments(), asdict(order), keys)
    return Started(made.id, order, made.pid, made.started_at, made.log, working=True)


def started() -> list[Started]:
    """The processes that were started here, newest first; some that ended are among them."""
    found = [_started(each) for each in _DETACHED.started()]
    return [each for each in found if each is not None]


def stop(process: Started) -> None:
    """Ask a process to end; what was ingested stays, and the session in flight is done again next time."""
    _DETACHED.stop(process.id, process.pid)


def _overlap(one: Order, other: Order) -> bool:
    users = not one.users or not other.users or bool({*one.users} & {*other.users})
    return users and bool({*one.systems} & {*other.systems})


def _started(found: Detached) -> Started | None:
    """None when its order is damaged."""
    try:
        values = found.order | {name: tuple(found.order[name]) for name in ("systems", "users")}
        return Started(found.id, Order(**values), found.pid, found.started_at, found.log, found.working)
    except (KeyError, TypeError):
        return None
