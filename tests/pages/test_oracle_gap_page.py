"""The oracle gap page: published and measured gaps, by subtype and memory system, with intervals and in words."""

from __future__ import annotations

import pandas as pd
import pytest

from opbench.store.database import Store
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run
from tests.pages.test_results_pages import first_table
from tests.pages.test_trade_off_page import plain, run_table
from tests.pages.wide_run import WIDE, write_wide


def test_published_gap_of_rag_with_reminder(visit: Open) -> None:
    # Table 2: BASE 83.10, RAG 55.96; figure 6: +3.5 read as points.
    app = visit("oracle_gap")
    table = first_table(app)
    assert table.loc[("RAG", "Reminder"), "op"] == pytest.approx(59.46)
    assert table.loc[("RAG", "Reminder"), "closed"] == pytest.approx(100 * 3.5 / 27.14)
    assert "RAG · gpt-4o-mini, as published" in plain(app)
    read_as_percent = first_table(visit("oracle_gap", kind="relative"))
    assert read_as_percent.loc[("RAG", "Reminder"), "op"] == pytest.approx(55.96 * 1.035)


def test_published_subscores_by_subtype_and_model(visit: Open) -> None:
    app = visit("oracle_gap", subtype="Baiting", model="gpt-4o-mini", system="Mem0")
    table = first_table(app)
    assert table.loc[("Mem0", "no post-processor"), "op"] == 46.20
    assert set(table.index.get_level_values("memory")) == {"BASE", "Mem0"}
    assert "Few-Shot-CoT" not in table.index.get_level_values("mitigation")


def test_measured_gap(visit: Open, store: Store) -> None:
    # Oracle 90, RAG 50: reminder's 70 closes half of it, marag's 40 goes a quarter the other way.
    write_run(store)
    app = visit("oracle_gap", run=MADE)
    table = first_table(app)
    assert table.loc[("RAG", "Reminder"), "closed"] == pytest.approx(50.0)
    assert table.loc[("RAG", "MARAG"), "closed"] == pytest.approx(-25.0)
    assert table.loc[("RAG", "MARAG"), "words"] == (
        "widens the gap: worse than no post-processor (by the averages: 2 users, an interval needs 5)"
    )
    assert pd.isna(table.loc[("BASE", "no post-processor"), "closed"])
    said = plain(app)
    assert "50.0 points, 40.0 below the oracle's 90.0" in said
    assert "Widens it or leaves it: MARAG −25 %" in said
    assert "2 users, an interval needs 5" in said


def test_gap_with_its_interval_and_what_is_not_distinguishable(visit: Open, store: Store) -> None:
    write_wide(store)
    table = first_table(visit("oracle_gap", run=WIDE, system="RAG"))
    assert table.loc[("RAG", "Reminder"), ["span", "gap_users"]].tolist() == ["50 % to 50 %", 12]
    assert table.loc[("RAG", "MARAG"), "words"] == "not distinguishable from no post-processor"
    assert table.loc[("RAG", "always abstain"), "words"] == "control: goes beyond the oracle"
    assert "random memories" not in table.index.get_level_values("memory")


def test_one_subtype_has_its_own_n(visit: Open, store: Store) -> None:
    write_wide(store)
    table = first_table(visit("oracle_gap", run=WIDE, subtype="Value-level"))
    assert table.loc[("RAG", "Reminder"), ["scored", "gap_n"]].tolist() == ["24 of 24", 24]


def test_a_wrong_subtype_in_the_link_is_a_sentence(visit: Open) -> None:
    assert "subtype=politeness" in visit("oracle_gap", subtype="politeness").warning[0].value.replace("\\", "")


def test_the_command_line_gives_the_same_gaps(visit: Open, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    write_wide(store)
    shown: pd.DataFrame = visit("oracle_gap", run=WIDE, subtype="Baiting").dataframe[0].value
    told = run_table(f"table {WIDE} --of gap --subtype baiting --json", capsys)
    assert len(told["rows"]) == len(shown)
    for row, same in zip(told["rows"], shown.to_dict("records"), strict=True):
        assert row["words"] == same["words"]
        for name in ("op", "gap_closed", "gap_low", "gap_high", "gap_p_holm"):
            assert (row[name] is None and pd.isna(same[name])) or row[name] == pytest.approx(same[name])
