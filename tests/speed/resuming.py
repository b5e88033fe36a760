"""How long a run takes to see that it is finished, and to go on where little is missing: 100,440 records.

A program of its own, so that a run starts with what any run starts with: `python -m tests.speed.resuming`. The study is
made once and kept in the temporary folder; a run works on a copy.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from opbench.running import interpreter
from opbench.running.plan import make_plan
from opbench.running.prepare import Prepared, prepare
from opbench.running.worker import execute
from opbench.store.database import MIGRATIONS, open_store
from opbench.study import Study
from tests.speed import big_study
from tests.speed.anchors import CONNECTIONS
from tests.speed.server import Server, running
from tests.speed.studies import EMBEDDER, JUDGE, at_home, checkpoint

MISSING = 1_000
#: BASE, and three memory systems under ten post-processors, of one model: 31 × 3,240.
STUDY = Study(
    models=("scripted",),
    memories=("base", "rag", "rag-observations", "random"),
    mitigations=(
        *("none", "reminder", "self-critic", "few-shot-cot", "comorag"),
        *("marag", "self-recheck", "empty", "abstain", "reminder-original"),
    ),
    judge=JUDGE,
    judge_pack="own",
    embedder=EMBEDDER,
)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Seconds, but for `records` and `missing`."""

    records: int
    plan_s: float
    """Comparing the finished study's records with its plan."""
    finished_s: float
    """A whole run of the finished study, from its first look at the store to its end."""
    missing: int
    first_call_s: float
    """From the start of a run with that many records missing to its first call at the endpoint."""
    resumed_s: float
    """The whole of that run."""


def measure() -> Resumed:
    with running() as server, tempfile.TemporaryDirectory() as folder, at_home(Path(folder), server.url):
        prepared = prepare(STUDY)
        kept = _finished_store(prepared)
        store_file = Path(folder) / "store.sqlite3"
        shutil.copy(kept, store_file)
        records, plan_s = _plan(store_file, prepared)
        finished_s, done = _run(store_file)
        if done or server.ledger()["answered"]:
            raise AssertionError(f"nothing was to do, and {done} records were done")
        _forget(store_file, MISSING)
        server.anew()
        began = time.time()
        resumed_s, done = _run(store_file)
        if done != MISSING:
            raise AssertionError(f"{MISSING} records were missing, and {done} were done")
        return Resumed(records, plan_s, finished_s, MISSING, _first(server) - began, resumed_s)


def _first(server: Server) -> float:
    first: float = server.ledger()["first_at"]
    return first


def _plan(file: Path, prepared: Prepared) -> tuple[int, float]:
    store = open_store(f"sqlite:///{file}")
    try:
        ids = prepared.register(store)
        start = time.perf_counter()
        plan = make_plan(store, prepared.run_id, ids, prepared.instances)
        taken = time.perf_counter() - start
        if len(plan.jobs):
            raise AssertionError(f"{len(plan.jobs)} records are left to do of a finished study")
        return plan.planned, taken
    finally:
        store.close()


def _run(file: Path) -> tuple[float, int]:
    """(seconds, records done): preparing, which reads the data, comes before."""

    async def run() -> tuple[float, int]:
        store = open_store(f"sqlite:///{file}")
        prepared = prepare(STUDY)
        try:
            start = time.perf_counter()
            progress = await execute(store, prepared, concurrency=CONNECTIONS, on_progress=lambda progress: None)
            return time.perf_counter() - start, progress.done
        finally:
            await prepared.aclose()
            store.close()

    return interpreter.run(run())


def _finished_store(prepared: Prepared) -> Path:
    """The finished study, made when it isn't there for this run's id, this schema and these scripts."""
    sources = [Path(big_study.__file__), Path(__file__), *sorted((MIGRATIONS / "versions").glob("*.py"))]
    parts = [prepared.digest.encode(), *(file.read_bytes() for file in sources)]
    file = Path(tempfile.gettempdir()) / f"opbench-resume-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}.sqlite3"
    if not file.exists():
        for old in file.parent.glob("opbench-resume-*.sqlite3"):
            old.unlink()
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "store.sqlite3"
            store = open_store(f"sqlite:///{part}")
            ids = prepared.register(store)
            big_study.write_records(store, prepared.run_id, ids, prepared.instances, STUDY, failed=0.0)
            store.close()
            checkpoint(part)
            shutil.move(part, file)
    return file


def _forget(file: Path, records: int) -> None:
    """Take every n-th record out of the store, of all configurations alike."""
    connection = sqlite3.connect(file)
    every = connection.execute("SELECT count(*) FROM records").fetchone()[0] // records
    connection.execute(
        "CREATE TEMP TABLE gone AS SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM records) "
        "WHERE n % ? = 0 LIMIT ?",
        (every, records),
    )
    owners = [
        (table, column[3])
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for column in connection.execute(f"PRAGMA foreign_key_list({table})").fetchall()
        if column[2] == "records"
    ]
    for table, column in [*owners, ("records", "id")]:
        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT id FROM gone)")
    connection.commit()
    connection.close()


if __name__ == "__main__":
    print(json.dumps(asdict(measure())))
