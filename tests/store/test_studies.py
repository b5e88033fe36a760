"""Runs that come and go: the list, another name, the end."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import func, select

from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.claims import claim, new_worker
from opbench.store.database import Store
from opbench.store.reading import run_ids
from opbench.store.runs import run_study
from opbench.store.studies import COLUMNS, delete_run, rename_run, study_list
from opbench.store.writing import CallRow, CallUse, FinishedRecord, save_records
from tests.pages.made_run import MADE, write_run


def count(store: Store, table: object) -> int:
    with store.begin() as connection:
        return int(connection.scalar(select(func.count()).select_from(table)) or 0)  # type: ignore[arg-type]


def test_the_list_tells_every_run_without_reading_it(store: Store) -> None:
    assert study_list(store).columns.tolist() == COLUMNS
    assert study_list(store).empty
    write_run(store, "one", name="first")
    write_run(store, "two", failed=3, left=2)
    frame = study_list(store).set_index("run")
    assert frame.index.tolist() == ["two", "one"]
    # 4 configurations on 12 instances a benchmark
    assert frame["planned"].tolist() == [96, 96]
    assert frame["done"].tolist() == [91, 96]
    assert frame["errors"].tolist() == [3, 0]
    assert frame["name"].tolist() == ["", "first"]
    assert frame["judge"].tolist() == ["offline", "offline"]
    assert not frame["working"].any()
    assert not frame["recorded"].any()
    assert frame["texts"].all()


def test_a_new_name_leaves_the_id_and_the_hash(store: Store) -> None:
    write_run(store, name="old")
    rename_run(store, MADE, "  new\n name ")
    assert study_list(store)["name"].tolist() == ["new name"]
    assert run_study(store, MADE)[0].name == "new name"
    assert run_ids(store) == [MADE]
    with pytest.raises(UsageError, match="at most 120"):
        rename_run(store, MADE, "x" * 121)
    with pytest.raises(UsageError, match="no run 'gone'"):
        rename_run(store, "gone", "x")


def test_nothing_but_the_calls_outlasts_a_run(store: Store) -> None:
    write_run(store, "kept")
    write_run(store)
    with store.begin() as connection:
        configuration = connection.scalar(select(s.configurations.c.id).where(s.configurations.c.run_id == MADE)) or 0
        instance = connection.scalar(select(s.instances.c.instance_id).where(s.instances.c.run_id == MADE)) or ""
        human = {"run_id": MADE, "configuration_id": configuration, "instance_id": instance, "rater": "ada"}
        human |= {"response_sha256": "0" * 64, "value": 1.0, "note": "", "made_at": 1.0}
        connection.execute(s.human_scores.insert().values(**human))
    call = CallRow("k", "chat", "m", {}, "An answer.", "stop", 1, 1, 0.5, 1.0, 1, time.time())
    record = FinishedRecord(configuration, instance, {"status": "done", "response": "An answer.", "finished_at": 1.0})
    record.calls, record.uses = [call], [CallUse("k", "response", False)]
    save_records(store, MADE, [record])
    assert delete_run(store, MADE) == 96
    assert run_ids(store) == ["kept"]
    assert count(store, s.calls) == 1
    assert count(store, s.record_calls) == count(store, s.human_scores) == 0
    assert count(store, s.records) == 96
    assert count(store, s.configurations) == 4
    with pytest.raises(UsageError, match="no run"):
        delete_run(store, MADE)


def test_a_run_at_work_isnt_deleted(store: Store) -> None:
    write_run(store)
    claim(store, MADE, new_worker(MADE, 2))
    with pytest.raises(UsageError, match=r"is being worked on by process \d+ .* Stop it first"):
        delete_run(store, MADE)
    assert study_list(store)["working"].tolist() == [True]
    assert count(store, s.records) == 96


def test_a_worker_that_died_is_no_hindrance(store: Store) -> None:
    write_run(store)
    dead = new_worker(MADE, 2) | {"heartbeat_at": time.time() - 3600}
    with store.begin() as connection:
        connection.execute(s.workers.insert().values(**dead))
    delete_run(store, MADE)
    assert count(store, s.workers) == 0
