"""The benchmark's studies: a home with data of the paper's size, a registry for the scripted server, and warm stores.

A record is the whole of one: a retrieval from the call store, a post-processor that asks nothing itself
(`reminder-original` writes into the prompt), one generation, one judge call, a durable write in SQLite.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opbench.benchmarks.check import LOCOMO_COUNTS, OP_COUNTS
from opbench.running import interpreter
from opbench.running.engine import Progress
from opbench.running.launch import study_toml
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.study import Study
from tests.speed import made_up_data
from tests.speed.anchors import CONNECTIONS
from tests.speed.server import ROOT, SLICES, Server

#: What a model judges: repetition is scored from embeddings, and the usual protocol asks nothing adversarial.
JUDGED = tuple(name for name in (*OP_COUNTS, *LOCOMO_COUNTS) if name not in ("repetition", "adversarial"))
CALLS_A_RECORD = 2
MODEL, JUDGE, EMBEDDER = "scripted", "scripted-judge", "scripted-embedder"
_WARM = "warm"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a run did: `calls` as the server counted them, in `seconds` from the first look at the store to its end,
    with `processor_s` of this process's processor time."""

    calls: int
    records: int
    seconds: float
    processor_s: float

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

    def use(self, url: str, further: Sequence[str] = ()) -> None:
        """Let the registry's models, and `further` ones, be served at that URL, which belongs to their identities."""
        entry = f'base_url = "{url}"\nconcurrency = {CONNECTIONS}\n'
        names = (_WARM, MODEL, JUDGE, *further)
        models = "".join(f'[models."{name}"]\nserved = "{name}"\n{entry}' for name in names)
        self.registry.write_text(f'{models}[embedders."{EMBEDDER}"]\nbase_url = "{url}"\nserved = "scripted"\n')

    def warm_up(self) -> None:
        """Retrieve everything once, for another model than the one that is measured."""
        _run(self.warm, study(models=(_WARM,), mitigation="none", judge="offline"), CONNECTIONS)
        checkpoint(self.warm)

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
    *,
    models: Sequence[str] = (MODEL,),
    mitigation: str = "reminder-original",
    judge: str = JUDGE,
    limit: int | None = None,
) -> Study:
    """The measured study: 2,358 records a model; with `limit` so many of each benchmark."""
    return Study(
        models=tuple(models),
        memories=("rag",),
        mitigations=(mitigation,),
        subtypes=JUDGED,
        limit=limit,
        judge=judge,
        judge_pack="own",
        embedder=EMBEDDER,
    )


def measure(home: Home, server: Server, what: Study, latency_s: float = 0.0) -> Measure:
    """Do a study in this process, from a warm store, and see that all of it was done."""
    with home.store() as file:
        server.anew(latency_s)
        began = time.process_time()
        seconds, progress = _run(file, what, CONNECTIONS)
        processor_s = time.process_time() - began
        calls = server.ledger()["answered"]
    _check(progress.planned, progress.done, progress.errors, calls)
    return Measure(calls, progress.done, seconds, processor_s)


def measure_command(home: Home, server: Server, what: Study, workers: int) -> float:
    """Calls per second of `opbench run --workers`, in the middle tenth of a second of its work: a process starts up
    for seconds, and not all at the same time."""
    with home.store() as file, tempfile.NamedTemporaryFile("w", suffix=".toml") as toml:
        toml.write(study_toml(what))
        toml.flush()
        server.anew()
        flags = [f"--workers={workers}", f"--concurrency={CONNECTIONS}", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "opbench", "run", toml.name, *flags],
            env=dict(os.environ) | {"OPBENCH_STORE": f"sqlite:///{file}"},
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        ledger = server.ledger()
    if done.returncode:
        raise AssertionError(f"opbench run --workers={workers} failed:\n{done.stderr[-3000:]}")
    status = json.loads(done.stdout)
    _check(status["planned"], status["done"], status["errors"], ledger["answered"])
    slices: list[int] = ledger["slices"]
    return statistics.median(slices) * SLICES


def _check(planned: int, done: int, errors: int, calls: int) -> None:
    if (done, errors, calls) != (planned, 0, CALLS_A_RECORD * planned):
        raise AssertionError(
            f"{planned} records with {CALLS_A_RECORD} calls each were to be done: {done} were, {errors} of them "
            f"errors, and the server answered {calls} calls"
        )


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

    return interpreter.run(run())


def checkpoint(file: Path) -> None:
    """Bring all of a store into its one file, which can then be copied."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
