"""An import beside a run at work: the store is locked for moments only, what isn't whole isn't shown, and a killed one
leaves nothing that stays."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from opbench.errors import StoreError, UsageError
from opbench.settings import ROOT
from opbench.store import schema as s
from opbench.store.bundle import export_run, import_run
from opbench.store.claims import claim, new_worker
from opbench.store.database import PATIENCE_OF_A_RUN_S, PATIENCE_S, Store, open_store
from opbench.store.human import rate
from opbench.store.reading import find_run, run_ids, run_list, run_status
from opbench.store.studies import study_list
from opbench.store.writing import beat, set_halted
from tests.pages.made_run import MADE, write_run
from tests.store import found_run

KILLED = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import func, select
from opbench.store import incoming, schema as s
from opbench.store.bundle import import_run
from opbench.store.database import open_store

def killed(self, run, keep):
    os.kill(os.getpid(), signal.SIGKILL)

incoming.Incoming.settle = killed
import_run(open_store(sys.argv[1]), Path(sys.argv[2]))
"""


class Watched(io.BytesIO):
    """A file that tells when it is read."""

    def __init__(self, content: bytes, told: Callable[[], None]) -> None:
        super().__init__(content)
        self._told = told

    def read(self, size: int | None = -1) -> bytes:
        self._told()
        return super().read(size)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    made = open_store(f"sqlite:///{tmp_path / 'made.sqlite3'}")
    write_run(made, name="pilot", failed=1)
    file = export_run(made, MADE, tmp_path / "made.opbench.zip")
    made.close()
    return file


def count(store: Store, table: str) -> int:
    with store.begin() as connection:
        return int(connection.scalar(select(func.count()).select_from(s.metadata.tables[table])) or 0)


def test_others_write_while_it_is_read_and_see_none_of_it(store: Store, store_url: str, bundle: Path) -> None:
    found_run.write(store)
    other = open_store(store_url, patience_s=0.01)
    hidden: list[int] = []

    def at_work() -> None:
        hidden.append(count(other, "records"))
        set_halted(other, found_run.RUN, f"written at read {len(hidden)}")
        assert run_ids(other) == [row.run_id for row in run_list(other)] == study_list(other)["run"].tolist()
        assert run_ids(other) == [found_run.RUN]
        assert find_run(other, None) == found_run.RUN
        with pytest.raises(UsageError, match="no run 'incoming-'"):
            find_run(other, "incoming-")

    imported = import_run(store, Watched(bundle.read_bytes(), at_work), label="made.opbench.zip")
    assert max(hidden) > hidden[0], "it was looked at while its records were there in part"
    assert set(run_ids(other)) == {found_run.RUN, imported}
    assert run_status(other, found_run.RUN).halted == f"written at read {len(hidden)}"
    assert count(store, "workers") == 0
    other.close()


def test_one_that_was_killed_is_never_shown_and_goes_with_the_next(store_url: str, bundle: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, store_url, str(bundle)], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    store = open_store(store_url)
    assert run_ids(store) == []
    left = count(store, "records")
    assert left > 0
    with pytest.raises(UsageError, match="no run in this store yet"):
        find_run(store, None)
    imported = import_run(store, bundle)
    assert run_ids(store) == [imported]
    assert (count(store, "runs"), count(store, "records"), count(store, "workers")) == (1, left, 0)
    store.close()


def test_one_that_comes_in_elsewhere_is_left_alone(store: Store, bundle: Path) -> None:
    with store.begin() as connection:
        run = dict.fromkeys(("name", "study_hash"), "") | {"study": {}, "provenance": {}, "created_at": 1.0}
        connection.execute(s.runs.insert().values(id="incoming-1", **run))
        connection.execute(s.workers.insert().values(**new_worker("incoming-1", 1)))
    imported = import_run(store, bundle)
    assert run_ids(store) == [imported]
    assert count(store, "runs") == 2


def test_what_fails_late_leaves_the_earlier_one_and_its_scores(
    store: Store, tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = import_run(store, bundle)
    with store.begin() as connection:
        c, r = s.configurations.c, s.records.c
        row = connection.execute(
            select(c.model, c.memory, c.mitigation, r.instance_id)
            .join(s.records, r.configuration_id == c.id)
            .where(r.response.is_not(None))
            .limit(1)
        ).one()
    rate(store, imported, tuple(row[:3]), row[3], 0.25, rater="me")
    records = count(store, "records")
    made = open_store(f"sqlite:///{tmp_path / 'again.sqlite3'}")
    write_run(made, name="another", failed=2)
    second = export_run(made, MADE, tmp_path / "again.opbench.zip")

    def full(*_: object) -> None:
        raise StoreError("store: database or disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr("opbench.store.incoming.Incoming.settle", full)
        with pytest.raises(StoreError, match="full"):
            import_run(store, second)
    assert (run_ids(store), count(store, "runs"), count(store, "records")) == ([imported], 1, records)
    assert run_status(store, imported).name == "pilot"
    assert import_run(store, second) == imported
    status = run_status(store, imported)
    assert (status.name, status.errors) == ("another", 2)
    with store.begin() as connection:
        assert connection.scalars(select(s.human_scores.c.value)).all() == [0.25]


def test_a_run_waits_for_the_store_longer_than_people_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    store, hasty = open_store(url), open_store(url, patience_s=0.05)
    found_run.write(store)
    with store.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreError, match="locked"):
            set_halted(hasty, found_run.RUN, "written")
        assert time.monotonic() - began < PATIENCE_S
    with open_store(url, patience_s=PATIENCE_OF_A_RUN_S).begin() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() == 1_800_000


def test_a_worker_whose_run_was_taken_meanwhile_stops(store: Store) -> None:
    found_run.write(store)
    silent, second = new_worker(found_run.RUN, 2), new_worker(found_run.RUN, 2)
    claim(store, found_run.RUN, silent)
    with store.begin() as connection:
        connection.execute(s.workers.update().values(heartbeat_at=time.time() - 3600))
    claim(store, found_run.RUN, second)
    assert beat(store, silent) == "stop"
    with store.begin() as connection:
        assert connection.scalars(select(s.workers.c.id)).all() == [second["id"]]
    assert beat(store, second) == "go"
