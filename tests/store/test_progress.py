"""How far each configuration is, and how fast: on SQLite and PostgreSQL."""

from __future__ import annotations

import math
import time

import pytest

from opbench.benchmarks import load, select
from opbench.store.claims import new_worker
from opbench.store.database import Store
from opbench.store.progress import by_configuration
from opbench.store.reading import run_status
from opbench.store.writing import FinishedRecord, beat, create_run, save_records
from opbench.study import make_study


def write(store: Store) -> None:
    """Two configurations on 6 instances: `none` has 4 done in the last minute, `reminder` one done and two errors."""
    study = make_study({"models": ["m"], "memories": ["rag"], "mitigations": ["none", "reminder"], "data": "sample"})
    instances = select(load("sample"), ("op",), limit=6)
    ids = create_run(store, "r", study, "r", {}, instances)
    now = time.time()
    records = []
    for configuration, number in ids.items():
        kinds = [None] * 4 if configuration.mitigation == "none" else [None, "timeout", "timeout"]
        for instance, kind in zip(instances, kinds, strict=False):
            values = {"status": "error" if kind else "done", "error_kind": kind, "error": kind, "finished_at": now - 30}
            records.append(FinishedRecord(number, instance.id, values))
    save_records(store, "r", records)


def test_a_run_at_work_has_rates_and_times_left(store: Store) -> None:
    write(store)
    beat(store, new_worker("r", 2) | {"started_at": time.time() - 600})
    frame = by_configuration(store, run_status(store, "r")).set_index("mitigation")
    # Four in a minute, two to go: half a minute. Three tried in a minute, three to go: a minute.
    assert frame.loc["none", "rate"] == pytest.approx(4 / 60)
    assert frame.loc["none", "seconds_left"] == pytest.approx(30)
    assert frame.loc["reminder", "rate"] == pytest.approx(3 / 60)
    assert frame.loc["reminder", "seconds_left"] == pytest.approx(60)
    assert frame["kinds"].to_dict() == {"none": "", "reminder": "2 × timeout"}


def test_a_run_that_nobody_works_on_has_no_rate(store: Store) -> None:
    write(store)
    frame = by_configuration(store, run_status(store, "r"))
    assert all(math.isnan(rate) for rate in frame["rate"])
    assert all(math.isnan(left) for left in frame["seconds_left"])
    assert frame["done"].tolist() == [4, 1]
