"""`opbench report`: a study's main tables and figures, with the numbers of `opbench table`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import update

from opbench.sharing.html import holds_texts
from opbench.sharing.report import report_sheet
from opbench.sharing.sheet import Chart, Data, Sheet, Text
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.exchange import answers, configurations_of
from opbench.store.reading import read_run
from tests.pages.made_run import MADE, OP, write_run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    yield opened
    opened.close()


def tables(sheet: Sheet) -> dict[str, Data]:
    return {block.name: block for block in sheet.blocks if isinstance(block, Data)}


def test_the_main_tables_and_figures_are_there_with_known_numbers(store: Store) -> None:
    sheet = report_sheet(read_run(store, write_run(store, name="pilot")), "instance")
    found = tables(sheet)
    assert list(found) == ["trade-off", "oracle-gap", "op", "locomo", "latency"]
    charts = [block.name for block in sheet.blocks if isinstance(block, Chart)]
    assert charts == ["trade-off", "oracle-gap", "op-subtypes", "latency"]
    op = found["op"].whole.set_index(["memory", "mitigation"])["fully_irrelevant"]
    assert {key: op[key] for key in OP} == {key: pytest.approx(100 * value) for key, value in OP.items()}
    change = found["trade-off"].whole.set_index("mitigation")["locomo_change"]
    # 0.45 − 0.6 and 0.6 − 0.6, in points
    assert change[["reminder", "marag"]].tolist() == pytest.approx([-15.0, 0.0])


def test_it_says_what_its_numbers_are(store: Store) -> None:
    sheet = report_sheet(read_run(store, write_run(store, name="pilot", left=2)), "category-macro", first_only=True)
    assert "pilot" in sheet.title
    assert sheet.marks == [
        f"run {MADE}",
        "measured",
        "94 of 96 records",
        "rule: category-macro",
        "first speakers only",
        "judge: offline",
        "not comparable with the paper",
    ]
    assert sheet.provenance["judge"] == "offline"
    assert not holds_texts(sheet)


def test_a_run_without_results_says_so_and_draws_nothing(store: Store) -> None:
    run = write_run(store)
    with store.begin() as connection:
        connection.execute(s.records.delete())
        connection.execute(update(s.user_scores).values(value=None, n=0))
    sheet = report_sheet(read_run(store, run), "task-mean")
    assert tables(sheet) == {}
    assert not [block for block in sheet.blocks if isinstance(block, Chart)]
    said = [block.text for block in sheet.blocks if isinstance(block, Text) and not block.heading]
    assert sum(text.startswith("Nothing to show") for text in said) == 5


def test_every_response_can_be_added(store: Store) -> None:
    data = read_run(store, write_run(store, failed=1, left=1))
    metrics: dict[Any, str] = {"op": "score", "locomo": "f1"}
    parts = [answers(store, MADE, each, "offline", metrics) for each in configurations_of(store, MADE)]
    sheet = report_sheet(data, "task-mean", answers=pd.concat(parts, ignore_index=True))
    table = tables(sheet)["responses"]
    assert holds_texts(sheet)
    # 4 configurations on 24 instances, planned ones without a record among them
    assert len(table.whole) == 96
    assert table.whole["response"].notna().sum() == 94
    assert set(table.texts) >= {"question", "response", "context"}


def test_marks_of_a_run_from_elsewhere_are_told(store: Store) -> None:
    run = write_run(store)
    with store.begin() as connection:
        connection.execute(update(s.runs).values(provenance={"marks": ["2 scores of 0 may mean …"], "data": {}}))
    assert "2 scores of 0 may mean …" in report_sheet(read_run(store, run), "task-mean").marks
    with store.begin() as connection:
        connection.execute(update(s.runs).values(provenance={"marks": "a text", "data": {}}))
    assert "a text" not in report_sheet(read_run(store, run), "task-mean").marks
