"""Starting the work on a build as a detached process, finding it again, and stopping it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.running.detached import Detached, Detachment, last_lines
from opbench.store.builds import load_build, request
from opbench.store.database import Store

_DETACHED = Detachment("build", "building")


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What a process does with a build: `run` makes what is missing of its candidates, `filter` filters them."""

    build_id: str
    what: Literal["run", "filter"] = "run"
    concurrency: int = 8
    again: bool = False
    """Run: whether units that failed for their answer are asked again."""
    filtered: bool = True
    """Run: whether filtering follows when the candidates are made."""

    def arguments(self) -> list[str]:
        """The words after `opbench` of the command that does it."""
        words = ["build", self.what, self.build_id, "--concurrency", str(self.concurrency)]
        if self.what == "run":
            words += ["--again"] if self.again else []
            words += ["--filter" if self.filtered else "--no-filter"]
        return words

    def command(self) -> str:
        """The shell command that does the same."""
        return shlex.join(["opbench", *self.arguments()])


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started here; `working` as of when it was looked at."""

    id: str
    order: BuildOrder
    pid: int
    started_at: float
    log: Path
    working: bool

    def last_words(self, lines: int = 12) -> list[str]:
        """The last lines of what it wrote."""
        return last_lines(self.log, lines)


def launch(store: Store, order: BuildOrder, keys: Mapping[str, SecretStr] | None = None) -> Started:
    """Start the work in a process of its own, which goes on when the caller ends.

    `keys` (by environment variable) go to the process in its environment and nowhere else.

    Raises:
        UsageError: no such build, it is being worked on, or no process can be started.
    """
    known = load_build(store, order.build_id)
    busy = next((each for each in started(order.build_id) if each.working), None)
    if known.working or busy is not None:
        who = known.worker if busy is None else str(busy.pid)
        raise UsageError(f"build {order.build_id} is being worked on by process {who}. Wait for it, or stop it first.")
    # Before the process starts: a stop that is asked for while it starts then stays asked for.
    request(store, order.build_id, "go")
    made = _DETACHED.start([*order.arguments(), "--keep-request"], asdict(order), keys)
    return Started(made.id, order, made.pid, made.started_at, made.log, working=True)


def started(build_id: str | None = None) -> list[Started]:
    """The processes that were started here (for a build), newest first; some that ended are among them."""
    found = [_started(each) for each in _DETACHED.started()]
    return [each for each in found if each is not None and build_id in (None, each.order.build_id)]


def stop(store: Store, build_id: str) -> None:
    """Ask whoever is at work on a build, here or elsewhere, to end after what is in hand.

    Raises:
        UsageError: no such build.
    """
    request(store, build_id, "stop")


def _started(found: Detached) -> Started | None:
    """None when its order is damaged."""
    try:
        order = BuildOrder(**found.order)
    except TypeError:
        return None
    return Started(found.id, order, found.pid, found.started_at, found.log, found.working)
