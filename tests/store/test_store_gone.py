"""A store that goes while it is open: a file that is moved, a server that is restarted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from opbench.errors import StoreBroken, StoreError
from opbench.store import database
from opbench.store.database import Store, open_store


def _count(store: Store) -> int:
    with store.begin() as connection:
        return int(connection.execute(text("SELECT count(*) FROM runs")).scalar_one())


def test_nothing_is_written_into_a_file_that_was_moved(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"
    store = open_store(f"sqlite:///{file}")
    assert _count(store) == 0
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"was moved or removed while it was open. Put it back"):
        _count(store)
    (tmp_path / "elsewhere").rename(file)
    assert _count(store) == 0, "put back, it is the same store"


def test_nor_into_another_file_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"
    store = open_store(f"sqlite:///{file}")
    file.unlink()
    open_store(f"sqlite:///{file}").close()
    with pytest.raises(StoreError, match="moved or removed"):
        _count(store)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_AGAIN_S", 0.01)


def _broken(store: Store, pids: list[int]) -> None:
    """End the store's connections from the server's side, as a restart does."""
    other = create_engine(store.engine.url, isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        for pid in pids:
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    other.dispose()


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_work_that_a_server_broke_off_is_done_again(store: Store, impatient: None) -> None:
    store.patience_s = 5.0
    tries = []

    def work() -> int:
        with store.begin() as connection:
            tries.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
            if len(tries) == 1:
                _broken(store, tries)
            return int(connection.execute(text("SELECT 7")).scalar_one())

    assert store.patiently(work) == 7
    assert len(set(tries)) == 2, "on a new connection"


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_it_waits_once_and_then_says_what_the_server_said(store: Store, impatient: None) -> None:
    store.patience_s = 0.3
    tries = []

    def work() -> None:
        with store.begin() as connection:
            tries.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
            _broken(store, tries[-1:])
            connection.execute(text("SELECT 7"))

    with pytest.raises(StoreBroken, match="terminating connection"):
        store.patiently(work)
    assert len(tries) > 1
    met, began = len(tries), time.monotonic()
    with pytest.raises(StoreBroken):
        store.patiently(work)
    assert len(tries) == met + 1, "what is tidied up afterwards doesn't wait as long again"
    assert time.monotonic() - began < 0.3


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_what_is_refused_is_not_tried_again(store: Store) -> None:
    store.patience_s = 60.0
    tries = []

    def work() -> None:
        with store.begin() as connection:
            tries.append(1)
            connection.execute(text("SELECT * FROM no_such_table"))

    with pytest.raises(StoreError, match="no_such_table"):
        store.patiently(work)
    assert len(tries) == 1
