"""How much memory a process takes that plans 602,640 records and does some of them.

A program of its own, since what a process took at its peak counts: `python -m tests.speed.memory`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from opbench.running import interpreter
from opbench.running.engine import Progress
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store.database import open_store
from tests.speed.anchors import CONNECTIONS
from tests.speed.resuming import STUDY
from tests.speed.server import running
from tests.speed.studies import at_home

#: Records after which memory is looked at, the second time at the end.
EARLY, LATE = 500, 2_500
GRID = STUDY.model_copy(update={"models": tuple(f"scripted-{number}" for number in range(6))})


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (2**20 bytes) of resident memory."""

    planned: int
    before_mb: float
    """Everything imported, data read, nothing planned."""
    planned_mb: float
    """When the first record was done."""
    early_mb: float
    """After 500 records."""
    late_mb: float
    """After 2,500 records."""
    peak_mb: float
    """The most at any time."""


def measure() -> Memory:
    with running() as server, tempfile.TemporaryDirectory() as folder, at_home(Path(folder), server.url) as home:
        home.use(server.url, GRID.models)
        return interpreter.run(_measure())


async def _measure() -> Memory:
    store = open_store(settings().store_url)
    prepared = prepare(GRID)
    before = _now_mb()
    seen: dict[int, float] = {}
    planned = 0

    def watch(progress: Progress) -> None:
        nonlocal planned
        planned = progress.planned
        for records in (1, EARLY, LATE):
            if progress.done >= records and records not in seen:
                seen[records] = _now_mb()
                if records == LATE:
                    os.kill(os.getpid(), signal.SIGINT)

    try:
        await execute(store, prepared, concurrency=CONNECTIONS, on_progress=watch)
    finally:
        await prepared.aclose()
        store.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Memory(planned, before, seen[1], seen[EARLY], seen[LATE], peak)


def _now_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no line VmRSS")


if __name__ == "__main__":
    print(json.dumps(asdict(measure())))
