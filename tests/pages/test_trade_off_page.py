"""The trade-off page: the published answer, changes with intervals and verdicts, prices, controls, its link."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from opbench.analysis.prices import PRICE_COLUMNS
from opbench.analysis.tradeoff import TRADEOFF_COLUMNS
from opbench.cli import app as command_line
from opbench.settings import settings
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import make_study
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run
from tests.pages.test_instances_page import answer
from tests.pages.test_results_pages import first_table, words
from tests.pages.wide_run import WIDE, write_wide


def table(app: AppTest, with_column: str) -> Any:
    """The first table that has a column, by memory system and post-processor."""
    frame: pd.DataFrame = next(each.value for each in app.dataframe if with_column in each.value)
    return frame.set_index(["memory", "mitigation"])


def plain(app: AppTest) -> str:
    return words(app).replace("\\", "")


def test_published_changes_are_those_of_figure_6(visit: Open) -> None:
    found = first_table(visit())
    assert len(found) == 20
    assert found.loc[("RAG", "Reminder"), ["op_change", "locomo_change"]].tolist() == [3.5, -1.1]
    assert found.loc[("Mem0", "Few-Shot-CoT"), ["op_change", "locomo_change"]].tolist() == [20.0, 9.9]


def test_the_published_view_says_what_to_choose_for_mem0_and_what_it_costs(visit: Open) -> None:
    app = visit(memory="Mem0")
    said = plain(app)
    assert "Mem0 · gpt-4o-mini, as published" in said
    assert "Few-Shot-CoT +20.0 OP-Bench, +9.9 LoCoMo, about 3.2 s of post-processing" in said
    assert "No intervals are published" in said
    assert "RAG · gpt-4o-mini" not in said
    assert set(first_table(app).index.get_level_values("memory")) == {"Mem0"}


def test_published_prices_have_table_11s_times(visit: Open) -> None:
    prices = table(visit(), "front")
    assert prices.loc[("Mem0", "Few-Shot-CoT"), "seconds"] == pytest.approx(3.20949)
    assert prices.loc[("Mem0", "Few-Shot-CoT"), "front"] == "yes"
    assert prices.loc[("Mem0", "Reminder"), "front"] == ""


def test_measured_changes_in_points_and_percent(visit: Open, store: Store) -> None:
    # made_run: OP 0.5 → 0.7 and 0.4, LoCoMo 0.6 → 0.45 and 0.6.
    write_run(store)
    points = first_table(visit(run=MADE))
    assert points.loc[("RAG", "Reminder"), ["op_change", "locomo_change"]].tolist() == pytest.approx([20.0, -15.0])
    assert points.loc[("RAG", "MARAG"), ["op_change", "locomo_change"]].tolist() == pytest.approx([-10.0, 0.0])
    percent = first_table(visit(run=MADE, kind="relative"))
    assert percent.loc[("RAG", "Reminder"), ["op_change", "locomo_change"]].tolist() == pytest.approx([40.0, -25.0])


def test_the_n_of_a_cell_is_of_those_planned(visit: Open, store: Store) -> None:
    write_run(store, left=2)
    found = first_table(visit(run=MADE))
    assert found.loc[("RAG", "Reminder"), "locomo_of"] == "12 of 12, 1 user"
    assert found.loc[("RAG", "MARAG"), "locomo_of"] == "10 of 12, 1 user"


def test_a_run_of_two_users_has_changes_and_says_why_no_interval(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit(run=MADE)
    assert first_table(app).loc[("RAG", "Reminder"), "op_verdict"] == "can't be told"
    assert "2 users, an interval needs 5" in plain(app)


def test_intervals_verdicts_and_users_are_shown(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit(run=WIDE)
    found = first_table(app)
    assert found.loc[("RAG", "Reminder"), ["op_span", "op_verdict", "op_of"]].tolist() == [
        "+20.0 to +20.0",
        "better",
        "144 of 144, 12 users",
    ]
    assert found.loc[("RAG", "MARAG"), "op_verdict"] == "not distinguishable"
    said = plain(app)
    assert "Reminder +20.0 (+20.0 to +20.0) OP-Bench, −15.0 (−15.0 to −15.0) LoCoMo, about 0.4 s" in said
    assert "Not distinguishable from no post-processor on OP-Bench (n = 12 users): MARAG." in said


def test_prices_of_a_run(visit: Open, store: Store) -> None:
    write_wide(store)
    prices = table(visit(run=WIDE), "front")
    reminder = prices.loc[("RAG", "Reminder")]
    assert reminder[["locomo_per_op", "seconds_per_op", "usd_per_op"]].tolist() == pytest.approx([0.75, 0.02, 0.1])
    assert prices.loc[("RAG", "MARAG"), "price_note"] == "OP-Bench isn't improved: no price"


def test_controls_stand_in_a_table_of_their_own(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit(run=WIDE)
    assert "always abstain" not in first_table(app).index.get_level_values("mitigation")
    controls = app.dataframe[2].value.set_index(["memory", "mitigation"])
    assert controls.loc[("RAG", "always abstain"), "op_change"] == pytest.approx(45.0)
    assert controls.loc[("RAG", "random memories"), "locomo_change"] == pytest.approx(-30.0)
    assert controls.loc[("RAG", "no memory (BASE)"), "op_change"] == pytest.approx(40.0)


def test_memory_system_and_benchmark_are_in_the_link(visit: Open, store: Store) -> None:
    write_wide(store)
    app = visit(run=WIDE, memory="RAG", benchmark="LoCoMo")
    found = first_table(app)
    assert set(found.index.get_level_values("memory")) == {"RAG"}
    assert "op_change" not in app.dataframe[0].proto.column_order
    assert app.selectbox(key="memory").value == "rag"


def test_a_wrong_memory_system_in_the_link_is_a_sentence(visit: Open) -> None:
    assert "memory=MemX" in visit(memory="MemX").warning[0].value.replace("\\", "")


def test_a_run_without_post_processors_says_what_to_do(visit: Open, store: Store) -> None:
    study = make_study({"models": ["m"], "memories": ["base"], "limit": 1})
    create_run(store, "lonely", study, "lonely", {"comparable": True}, [])
    assert "launch a study" in visit(run="lonely").info[0].value


def run_table(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    settings.cache_clear()
    with pytest.raises(SystemExit) as ended:
        command_line(line.split())
    assert not ended.value.code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_line_gives_the_same_numbers(visit: Open, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    write_wide(store)
    app = visit(run=WIDE, rule="instance", kind="relative")
    told = run_table(f"table {WIDE} --of tradeoff --aggregate instance --kind relative --json", capsys)
    assert told["rule"] == "instance"
    rows = {(row["memory"], row["mitigation"]): row for row in told["rows"]}
    assert set(told["rows"][0]) == {*TRADEOFF_COLUMNS, *PRICE_COLUMNS}
    shown: pd.DataFrame = app.dataframe[0].value
    for row in shown.to_dict("records"):
        key = row["memory"].lower().replace("random memories", "random"), row["mitigation"].lower()
        for name in ("op_change", "op_low", "op_high", "op_p_holm", "locomo_change", "locomo_high", "op_verdict"):
            assert rows[key][name] == (pytest.approx(row[name]) if isinstance(row[name], float) else row[name])
    assert any("Not distinguishable from no post-processor" in note for note in told["notes"])


def test_a_failed_post_processing_is_told_before_the_changes(visit: Open, store: Store) -> None:
    write_run(store)
    answer(store, "A reply.", ("rag", "reminder"), state="kept")
    answer(store, "A reply.", ("rag", "marag"), state="failed")
    # 12 instances a benchmark, so 24 records a configuration.
    assert "Post-processing failed, and changed nothing, in: MARAG 24 of 24 records" in plain(visit(run=MADE))


def test_without_a_failed_post_processing_there_is_no_warning(visit: Open, store: Store) -> None:
    write_run(store)
    answer(store, "A reply.", ("rag", "marag"), state="kept")
    assert not visit(run=MADE).warning


def test_several_memory_systems_have_the_picture_first_and_say_what_is_common_once(visit: Open) -> None:
    app = visit()
    assert plain(app).count("No intervals are published") == 1
    assert app.header[0].value == "In words, by memory system"
    alone = visit(memory="Mem0")
    assert "In words, by memory system" not in [each.value for each in alone.header]
