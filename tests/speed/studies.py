"""The benchmark's studies: a home with data of the paper's size, a registry for the scripted server, and warm stores.

A record is the whole of one: a retrieval from the call store, a post-processor that asks nothing itself
(`reminder-original` writes into the prompt), one generation, one judge call, a durable write in SQLite.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opbench.benchmarks.check import LOCOMO_COUNTS, OP_COUNTS
from opbench.running.engine import Progress
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.study import Study
from tests.speed import made_up_data
from tests.speed.anchors import CONNECTIONS
from tests.speed.server import Server

#: What a model judges: repetition is scored from embeddings, and the usual protocol asks nothing adversarial.
JUDGED = tuple(name for name in (*OP_COUNTS, *LOCOMO_COUNTS) if name not in ("repetition", "adversarial"))
RECORDS = sum({**OP_COUNTS, **LOCOMO_COUNTS}[name] for name in JUDGED)
CALLS_A_RECORD = 2
MODEL, JUDGE, EMBEDDER = "scripted", "scripted-judge", "scripted-embedder"
_WARM = "warm"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a run did: `calls` as the server counted them, in `seconds` from the first look at the store to its end."""

    calls: int
    records: int
    seconds: float

    @property
    def rate(self) -> float:
        """Model calls per second."""
        return self.calls / self.seconds


class Home:
    """A folder with data, registry and a store in which all retrievals are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = made_up_data.write(folder / "data")
        self.registry = folder / "models.toml"
        self.warm = folder / "warm.sqlite3"

    def environment(self) -> dict[str, str]:
        """What a process needs to work here."""
        return {"OPBENCH_HOME": str(self.folder), "OPBENCH_DATA": str(self.data), "OPBENCH_MODELS": str(self.registry)}

    def use(self, url: str) -> None:
        """Let the registry's models be served at that URL. Their identities don't depend on its port."""
        entry = f'base_url = "{url}"\nserved = "scripted"\nconcurrency = {CONNECTIONS}\n'
        models = "".join(f'[models."{name}"]\n{entry}' for name in (_WARM, MODEL, JUDGE))
        self.registry.write_text(f'{models}[embedders."{EMBEDDER}"]\nbase_url = "{url}"\nserved = "scripted"\n')

    def warm_up(self) -> None:
        """Retrieve everything once, for another model than the one that is measured."""
        _run(self.warm, study(model=_WARM, mitigation="none", judge="offline"), CONNECTIONS)
        # All of it in the one file that is copied.
        with sqlite3.connect(self.warm) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def store(self) -> Iterator[Path]:
        """A copy of the warm store, thrown away with the block."""
        file = self.folder / "measured.sqlite3"
        try:
            shutil.copy(self.warm, file)
            yield file
        finally:
            for part in self.folder.glob("measured.sqlite3*"):
                part.unlink()


@contextmanager
def at_home(folder: Path, url: str) -> Iterator[Home]:
    """A home that this process works in while the block lasts."""
    home = Home(folder)
    home.use(url)
    before = dict(os.environ)
    os.environ.update(home.environment())
    settings.cache_clear()
    try:
        yield home
    finally:
        os.environ.clear()
        os.environ.update(before)
        settings.cache_clear()


def study(
    *, model: str = MODEL, memory: str = "rag", mitigation: str = "reminder-original", judge: str = JUDGE
) -> Study:
    return Study(
        models=(model,),
        memories=(memory,),
        mitigations=(mitigation,),
        subtypes=JUDGED,
        judge=judge,
        judge_pack="own",
        embedder=EMBEDDER,
    )


def measure(home: Home, server: Server, what: Study, concurrency: int = CONNECTIONS) -> Measure:
    """Do a study in this process, from a warm store, and see that all of it was done."""
    with home.store() as file:
        server.anew()
        seconds, progress = _run(file, what, concurrency)
        calls = server.ledger()["answered"]
    if (progress.done, progress.errors, calls) != (RECORDS, 0, CALLS_A_RECORD * RECORDS):
        raise AssertionError(
            f"{RECORDS} records with {CALLS_A_RECORD} calls each were to be done: {progress.done} were, "
            f"{progress.errors} of them errors, and the server answered {calls} calls"
        )
    return Measure(calls, progress.done, seconds)


def _run(file: Path, what: Study, concurrency: int) -> tuple[float, Progress]:
    async def run() -> tuple[float, Progress]:
        store = open_store(f"sqlite:///{file}")
        prepared = prepare(what)
        try:
            start = time.perf_counter()
            progress = await execute(store, prepared, concurrency=concurrency, on_progress=lambda progress: None)
            return time.perf_counter() - start, progress
        finally:
            await prepared.aclose()
            store.close()

    return asyncio.run(run())
