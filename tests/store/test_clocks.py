"""Who is at work is judged by the store's clock, whatever the machines' clocks say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from opbench.errors import UsageError
from opbench.store import leases
from opbench.store import schema as s
from opbench.store.claims import claim, new_worker
from opbench.store.database import Store, open_store
from opbench.store.reading import run_status
from opbench.store.writing import beat, create_run
from opbench.study import Study

HOUR = 3600.0


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = open_store(store_url)
    create_run(opened, "run", Study(models=("m",)), "digest", {}, [])
    yield opened
    opened.close()


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("fast", [HOUR, -HOUR])
def test_a_machine_whose_clock_is_an_hour_off(store: Store, fast: float, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = {"host": "elsewhere"}
    leader = new_worker("run", 4) | elsewhere
    claim(store, "run", leader)
    here = time.time
    monkeypatch.setattr(time, "time", lambda: here() + fast)
    with pytest.raises(UsageError, match="is being worked on"):
        claim(store, "run", new_worker("run", 4))
    leases.join(store, new_worker("run", 2, leader["id"]))
    assert run_status(store, "run").working
    # Its own heartbeats are the store's time too.
    assert beat(store, leader | {"heartbeat_at": time.time()}) == "go"
    monkeypatch.setattr(time, "time", here)
    with store.begin() as connection:
        beats = list(connection.scalars(select(s.workers.c.heartbeat_at)))
    assert len(beats) == 2
    assert all(abs(each - time.time()) < 60 for each in beats)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_who_is_silent_by_the_stores_clock_counts_as_dead(store: Store) -> None:
    dead = new_worker("run", 4) | {"host": "elsewhere"}
    claim(store, "run", dead)
    with store.begin() as connection:
        connection.execute(s.workers.update().values(heartbeat_at=s.workers.c.heartbeat_at - 31))
    assert not run_status(store, "run").working
    claim(store, "run", new_worker("run", 4))
