"""Overview, audit and data: what they say is what the command line says, and the sample is said to be one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from opbench.cli import app as command_line
from opbench.settings import settings
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import make_study
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run

PAGES = ("overview", "audit", "data")
NASTY = "<script>alert(1)</script> **bold** ![x](http://example.invalid/x.png) :red[x] =1+1"


def words(app: AppTest) -> str:
    """All that the page says, as people read it: without Markdown's escapes."""
    return source(app).replace("\\", "")


def source(app: AppTest) -> str:
    elements = [*app.markdown, *app.caption, *app.info, *app.warning, *app.error]
    return "\n".join(str(element.value) for element in elements)


def table(app: AppTest, *columns: str) -> Any:
    """The first table that has these columns."""
    return next(one.value for one in app.dataframe if set(columns) <= set(one.value.columns))


def spoken(*arguments: str) -> Any:
    """What the command line says with --json."""
    result = CliRunner().invoke(command_line, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("page", PAGES)
def test_each_page_asks_its_question_with_and_without_a_run(visit: Open, store: Store, page: str) -> None:
    write_run(store)
    for parameters in ({}, {"run": MADE}):
        app = visit(page, **parameters)
        assert app.title[0].value.endswith("?")
        assert not app.error
        # The made run names a digest that no file has: the data page says so.
        assert len(app.warning) == int(page == "data" and "run" in parameters)


# Overview ----------------------------------------------------------------------------------------------------------


def test_without_data_the_examples_are_said_to_be_invented(visit: Open) -> None:
    app = visit("overview")
    assert "Invented for this project" in words(app)
    text = words(app)
    assert "chased the bishop into the font" in text  # sycophancy: a memory that never was
    assert "score 0.10" in text
    assert [one.value for one in app.subheader] == ["Irrelevance", "Sycophancy", "Repetition"]


def test_another_example_comes_by_link(visit: Open) -> None:
    app = visit("overview", irrelevance="Baiting · invented-2")
    assert "landlady" in words(app)
    wrong = visit("overview", irrelevance="fig-99")
    assert "irrelevance=fig-99" in words(wrong)


def test_published_averages_as_printed_and_by_one_rule(visit: Open) -> None:
    printed = table(visit("overview"), "op", "drop").set_index(["model", "memory"])
    assert printed.loc[("gpt-4o-mini", "RAG"), ["op", "drop"]].to_list() == [55.96, 32.7]
    app = visit("overview", averages="recomputed by the rule")
    recomputed = table(app, "op", "drop").set_index(["model", "memory"])
    assert recomputed.loc[("gpt-4o-mini", "RAG"), "op"] == pytest.approx(58.45)
    assert "table 6" in words(app)


def test_the_radars_table_is_figure_2(visit: Open) -> None:
    app = visit("overview")
    radar = table(app, "subtype", "base")
    assert list(radar["base"]) == [99.94, 99.60, 71.92, 81.00, 83.40, 68.45]
    few = table(visit("overview", systems="BASE", radar="qwen3-8b"), "subtype", "base")
    assert list(few.columns) == ["subtype", "base"]
    assert few["base"].iloc[0] == 100.0


def test_a_run_stands_beside_the_published_figures_and_never_among_them(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("overview", run=MADE)
    frames = [one.value for one in app.dataframe if {"op", "drop"} <= set(one.value.columns)]
    assert [set(frame["source"]) for frame in frames] == [{"published"}, {"measured"}]
    measured: Any = frames[1].set_index("memory")
    # All judged at 0.9 by BASE and 0.5 by RAG; the drop is their difference in percent of BASE's.
    assert measured.loc["BASE", "op"] == pytest.approx(90)
    assert measured.loc["RAG", ["op", "drop"]].to_list() == pytest.approx([50, 100 * 40 / 90])
    # One of the two users has a single repetition question, which alone can't be scored.
    assert measured.loc["RAG", "scored"] == "11 of 12"
    assert "published" in words(app)
    assert "measured here" in words(app)
    with_reminder = visit("overview", run=MADE, processor="Reminder")
    frames = [one.value for one in with_reminder.dataframe if {"op", "drop"} <= set(one.value.columns)]
    assert frames[1].set_index("memory").loc["RAG", "op"] == pytest.approx(70)


def test_a_run_without_a_score_leaves_the_published_figures_alone(visit: Open, store: Store) -> None:
    study = make_study({"models": ["smollm2-135m"], "memories": ["base"], "data": "sample", "limit": 2})
    create_run(store, "empty0run", study, "empty0run", {"comparable": False}, [])
    app = visit("overview", run="empty0run")
    assert "Nothing measured to put beside" in words(app)
    frames = [one.value for one in app.dataframe if {"op", "drop"} <= set(one.value.columns)]
    assert [set(frame["source"]) for frame in frames] == [{"published"}]


def test_text_of_a_case_stays_text(visit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "published").mkdir(parents=True)
    row = {
        **{"id": "fig-1", "persona": "x", "category": "irrelevance", "subtype": "baiting", "method": NASTY},
        **{"question": NASTY, "memory": [NASTY], "response": NASTY, "published_score": 0.2},
        **{"reference_response": NASTY, "reference_score": 0.9},
    }
    (tmp_path / "data" / "published" / "appendix_cases.jsonl").write_text(json.dumps(row))
    monkeypatch.setenv("OPBENCH_DATA", str(tmp_path / "data"))
    settings.cache_clear()
    app = visit("overview")
    text = source(app)
    assert "appendix" in text
    assert "\\<script\\>" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "![" not in text.replace("\\!\\[", "")
    assert ":red[" not in text.replace("\\:red\\[", "")
    assert "No example of this kind" in text


def test_damaged_cases_are_a_sentence(visit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "published").mkdir(parents=True)
    (tmp_path / "data" / "published" / "appendix_cases.jsonl").write_text("{")
    monkeypatch.setenv("OPBENCH_DATA", str(tmp_path / "data"))
    settings.cache_clear()
    app = visit("overview")
    (error,) = app.error
    assert "line 1" in error.value


# Audit -------------------------------------------------------------------------------------------------------------


def test_the_audit_is_the_commands(visit: Open) -> None:
    shown = table(visit("audit"), "published", "residual")
    said = pd.DataFrame(spoken("audit"))
    numbers = [column for column in said.columns if pd.api.types.is_numeric_dtype(said[column])]
    assert len(shown) == 20
    pd.testing.assert_frame_equal(
        shown[numbers].reset_index(drop=True).astype(float), said[numbers].astype(float), check_exact=False, atol=1e-9
    )
    assert list(shown["best"]) == list(said["best"])


@pytest.mark.parametrize(("rule", "first"), [("task-mean", False), ("instance", True), ("category-macro", False)])
def test_the_rule_re_ranks(visit: Open, rule: str, first: bool) -> None:
    app = visit("audit")
    app.radio(key="rule").set_value(rule)
    app.toggle(key="first").set_value(first).run()
    said = spoken("audit", "--rule", rule, *(["--first-only"] if first else []))
    ranking = table(app, "place", "published_place")
    assert list(ranking["drop"]) == pytest.approx([row["drop"] for row in said["ranking"]], abs=1e-9)
    assert list(ranking["model"]) == [row["model"] for row in said["ranking"]]
    assert f"**{len(said['pairs'])} of 120 pairs**" in words(app)


def test_nine_pairs_swap_by_the_task_mean(visit: Open) -> None:
    app = visit("audit")
    assert "**9 of 120 pairs**" in words(app)
    pairs = table(app, "first", "second")
    assert len(pairs) == 9
    assert pairs.iloc[0][["first", "second"]].to_list() == ["gpt-4o-mini RAG", "gemini-2.5-flash RAG"]


def test_a_wrong_rule_for_the_audit_is_a_line() -> None:
    for arguments in (["audit", "--rule", "mean"], ["audit", "--first-only"]):
        assert CliRunner().invoke(command_line, arguments).exit_code != 0


# Data --------------------------------------------------------------------------------------------------------------


def test_the_sample_is_said_to_be_one(visit: Open) -> None:
    app = visit("data")
    assert "small data set written for this project" in words(app)
    assert "`opbench data fetch`" in words(app)
    counts = table(app, "category", "count")
    assert list(counts["count"][:6]) == [8, 10, 20, 6, 6, 8]
    assert "pipe organs" in words(app)  # Ottilie's profile


def test_the_real_data_are_the_papers(visit: Open, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPBENCH_DATA", str(real_data))
    settings.cache_clear()
    app = visit("data", user="conv-30/Jon", kind="empty-list")
    assert "counts as published" in words(app)
    counts = table(app, "category", "count")
    assert list(counts["count"][:6]) == [318, 100, 882, 100, 100, 200]
    assert len(table(app, "place", "detail")) == 15
    lists = table(app, "listed", "found")
    assert list(lists["found"]) == [99, 57]
    assert app.subheader[0].value == "conv\\-30/Jon"


def test_locomos_counts_are_by_conversation(visit: Open) -> None:
    frame = table(visit("data", of="LoCoMo"), "conversation", "temporal")
    assert frame.iloc[0].to_list() == ["sample-1", 6, 8, 4, 9, 4]


def test_a_run_on_other_files_is_said(visit: Open, store: Store) -> None:
    study = make_study({"models": ["smollm2-135m"], "memories": ["base"], "data": "sample", "limit": 2})
    create_run(store, "other0run", study, "other0run", {"comparable": False, "data": {"x/y.json": "0" * 64}}, [])
    assert "made on other files" in words(visit("data", run="other0run"))


def test_own_lists_are_there_and_damaged_ones_are_said(visit: Open, home: Path) -> None:
    folder = home / "exclusions"
    folder.mkdir(parents=True)
    (folder / "mine.csv").write_text(f'instance,reason\nlocomo/sample-1/2,"{NASTY}"\n')
    (folder / "broken.csv").write_text("nonsense\n")
    app = visit("data", list="mine")
    assert "no column 'instance'" in words(app)
    listed = table(app, "instance", "reason", "question")
    assert listed.iloc[0][["instance", "subtype"]].to_list() == ["locomo/sample-1/2", "single-hop"]


def test_a_wrong_user_in_a_link_is_said(visit: Open) -> None:
    assert "user=nobody" in words(visit("data", user="nobody"))
