"""Starting a measurement of a run as a detached process, watching it by what it writes, and stopping it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.mechanism.measuring import LIMIT
from opbench.models.embedded import NAME as EMBEDDED
from opbench.running.detached import Detached, Detachment, Progress, last_progress, last_words

_DETACHED = Detachment("measure", "measurements")
#: Lines of progress of `opbench mechanism attention` and `opbench mechanism retrieval --measure`.
_PROGRESS = re.compile(
    r"(?P<done>[\d,]+)(?: of |/)(?P<planned>[\d,]+) (?:records|retrievals measured)(?:, (?P<seconds>\d+) s left)?$"
)


@dataclass(frozen=True, slots=True)
class AttentionOrder:
    """Attention of a run's records. `configurations` (as `MODEL/MEMORY/MITIGATION`) empty: all; `subtypes` empty:
    OP-Bench's; `limit` None: all instances of them."""

    run_id: str
    reader: str = EMBEDDED
    configurations: tuple[str, ...] = ()
    subtypes: tuple[str, ...] = ()
    limit: int | None = LIMIT

    what = "attention"

    def arguments(self) -> list[str]:
        """The words after `opbench` of the command that does it."""
        words = ["mechanism", "attention", self.run_id, "--reader", self.reader]
        if self.configurations:
            words += ["--configurations", ",".join(self.configurations)]
        if self.subtypes:
            words += ["--subtypes", ",".join(self.subtypes)]
        return [*words, *(["--all"] if self.limit is None else ["--limit", str(self.limit)])]

    def command(self) -> str:
        """The shell command that does the same."""
        return shlex.join(["opbench", *self.arguments()])


@dataclass(frozen=True, slots=True)
class SimilarityOrder:
    """Similarities of a run's questions and memories; `embedder` None: the study's own."""

    run_id: str
    embedder: str | None = None

    what = "similarities"

    def arguments(self) -> list[str]:
        """The words after `opbench` of the command that does it."""
        words = ["mechanism", "retrieval", self.run_id, "--measure"]
        return words if self.embedder is None else [*words, "--embedder", self.embedder]

    def command(self) -> str:
        """The shell command that does the same."""
        return shlex.join(["opbench", *self.arguments()])


Order = AttentionOrder | SimilarityOrder
_KINDS: dict[str, type[AttentionOrder] | type[SimilarityOrder]] = {
    each.what: each for each in (AttentionOrder, SimilarityOrder)
}


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started here; `working` as of when it was looked at."""

    id: str
    order: Order
    pid: int
    started_at: float
    log: Path
    working: bool

    def progress(self) -> Progress | None:
        """In records (or retrievals), as its last line of progress says; None before the first."""
        return last_progress(self.log, _PROGRESS)

    def last_words(self, lines: int = 12) -> list[str]:
        """The last lines of what it wrote that aren't of progress; none when nothing was written."""
        return last_words(self.log, _PROGRESS, lines)


def launch(order: Order, keys: Mapping[str, SecretStr] | None = None) -> Started:
    """Start the measurement in a process of its own, which goes on when the caller ends; what is measured already isn't
    measured again.

    `keys` (by environment variable) go to the process in its environment and nowhere else.

    Raises:
        UsageError: a process that was started here measures the same of that run, or none can be started.
    """
    for other in started(order.run_id):
        if other.working and other.order.what == order.what:
            raise UsageError(
                f"process {other.pid} is measuring {order.what} of run {order.run_id} already. Wait for it, or stop it "
                "first."
            )
    made = _DETACHED.start(order.arguments(), {"what": order.what} | asdict(order), keys)
    return Started(made.id, order, made.pid, made.started_at, made.log, working=True)


def started(run_id: str | None = None) -> list[Started]:
    """The processes that were started here (for a run), newest first; some that ended are among them."""
    found = [_started(each) for each in _DETACHED.started()]
    return [each for each in found if each is not None and run_id in (None, each.order.run_id)]


def stop(process: Started) -> None:
    """Ask a process to end after what it has in hand; what was measured stays."""
    _DETACHED.stop(process.id, process.pid)


def _started(found: Detached) -> Started | None:
    """None when its order is damaged."""
    given = found.order.items()
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given}
    try:
        order = _KINDS[values.pop("what")](**values)
    except (KeyError, TypeError):
        return None
    return Started(found.id, order, found.pid, found.started_at, found.log, found.working)
