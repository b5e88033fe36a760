"""Starting a judging as a detached process, watching it by what it writes, and stopping it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.running.detached import Detached, Detachment, Progress, last_progress, last_words

_DETACHED = Detachment("judge", "judgings")
_PROGRESS = re.compile(
    r"^(?P<label>.+): (?P<done>[\d,]+) of (?P<planned>[\d,]+) judgements(?:, (?P<seconds>\d+) s left)?$"
)


@dataclass(frozen=True, slots=True)
class JudgeOrder:
    """Judges over a set (`set_id`) or over a run's responses (`run_id`); judges as `NAME` or `NAME@PACK`.
    `configurations` (as `MODEL/MEMORY/MITIGATION`) and `subtypes` are a run's; empty: all."""

    judges: tuple[str, ...]
    set_id: str | None = None
    run_id: str | None = None
    repeats: int = 1
    temperature: float = 0.0
    configurations: tuple[str, ...] = ()
    subtypes: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """The words after `opbench` of the command that does it.

        Raises:
            UsageError: neither a set nor a run, or both.
        """
        if (self.set_id is None) == (self.run_id is None):
            raise UsageError("name what is to be judged: a set of responses, or a run.")
        words = ["judges", *(("calibrate", self.set_id) if self.set_id else ("rescore", str(self.run_id)))]
        for judge in self.judges:
            words += ["--judge", judge]
        if self.repeats != 1:
            words += ["--repeats", str(self.repeats)]
        if self.temperature:
            words += ["--temperature", f"{self.temperature:g}"]
        for option, values in (("--configurations", self.configurations), ("--subtypes", self.subtypes)):
            if values:
                words += [option, ",".join(values)]
        return words

    def command(self) -> str:
        """The shell command that does the same."""
        return shlex.join(["opbench", *self.arguments()])


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started here; `working` as of when it was looked at."""

    id: str
    order: JudgeOrder
    pid: int
    started_at: float
    log: Path
    working: bool

    def progress(self) -> Progress | None:
        """In judgements of the judge at work, as its last line of progress says; None before the first."""
        return last_progress(self.log, _PROGRESS)

    def last_words(self, lines: int = 12) -> list[str]:
        """The last lines of what it wrote that aren't of progress; none when nothing was written."""
        return last_words(self.log, _PROGRESS, lines)


def progress_line(label: str, done: int, planned: int, seconds_left: float | None) -> str:
    """What `Started.progress` reads."""
    rest = "" if seconds_left is None else f", {seconds_left:.0f} s left"
    return f"{label}: {done:,} of {planned:,} judgements{rest}"


def launch(order: JudgeOrder, keys: Mapping[str, SecretStr] | None = None) -> Started:
    """Start the judging in a process of its own, which goes on when the caller ends; what is judged already isn't
    judged again.

    `keys` (by environment variable) go to the process in its environment and nowhere else.

    Raises:
        UsageError: a process that was started here does the very same, or none can be started.
    """
    for other in started():
        if other.working and other.order == order:
            raise UsageError(f"process {other.pid} is at this judging already. Wait for it, or stop it first.")
    made = _DETACHED.start(order.arguments(), asdict(order), keys)
    return Started(made.id, order, made.pid, made.started_at, made.log, working=True)


def started(*, set_id: str | None = None, run_id: str | None = None) -> list[Started]:
    """The processes that were started here (for a set, for a run), newest first; some that ended are among them."""
    found = [_started(each) for each in _DETACHED.started()]
    return [
        each
        for each in found
        if each is not None and set_id in (None, each.order.set_id) and run_id in (None, each.order.run_id)
    ]


def stop(process: Started) -> None:
    """Ask a process to end after what it has in hand; what was judged stays."""
    _DETACHED.stop(process.id, process.pid)


def _started(found: Detached) -> Started | None:
    """None when its order is damaged."""
    given = found.order.items()
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given}
    try:
        order = JudgeOrder(**values)
    except TypeError:
        return None
    return Started(found.id, order, found.pid, found.started_at, found.log, found.working)
