"""Trade-off, oracle gap and latency: the right numbers, and a sentence where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from opbench.settings import ROOT, settings
from opbench.store.bundle import export_run
from opbench.store.database import Store, open_store
from opbench.store.writing import create_run
from opbench.study import make_study
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run

PAGES = ("trade_off", "oracle_gap", "latency")


def words(app: AppTest) -> str:
    """All that the page says in Markdown: text, badges, captions, messages."""
    elements = [*app.markdown, *app.caption, *app.info, *app.warning, *app.error]
    return "\n".join(str(element.value) for element in elements)


def first_table(app: AppTest) -> Any:
    """By memory system and post-processor."""
    frame: pd.DataFrame = app.dataframe[0].value
    return frame.set_index(["memory", "mitigation"])


@pytest.mark.parametrize("page", PAGES)
def test_a_first_visit_shows_the_published_figures_marked_as_such(visit: Open, page: str) -> None:
    app = visit(page)
    assert app.title[0].value.endswith("?")
    assert "published" in words(app)
    assert "measured" not in app.main.markdown[0].value
    assert len(app.dataframe[0].value) > 0


def test_published_latency_of_reminder(visit: Open) -> None:
    table: pd.DataFrame = visit("latency").dataframe[0].value
    reminder: Any = table[table["mitigation"] == "Reminder"].set_index("stage")
    assert reminder.loc["post-processing", ["mean_ms", "std_ms"]].tolist() == [1168.17, 1968.61]


@pytest.mark.parametrize("page", PAGES)
def test_what_is_missing_and_what_cannot_be_compared_is_said(visit: Open, store: Store, page: str) -> None:
    write_run(store, failed=1, left=2)
    said = words(visit(page, run=MADE))
    assert "93 of 96 records" in said
    assert "1 failed" in said
    assert "measured here" in said
    assert "not comparable with the paper" in said


def test_rule_and_speakers_are_the_same_on_all_pages(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit(run=MADE)
    app.sidebar.radio(key="rule").set_value("instance").run()
    app.sidebar.toggle(key="first").set_value(True).run()
    app.switch_page("pages/views/oracle_gap.py").run()
    assert app.sidebar.radio(key="rule").value == "instance"
    assert "rule: instance" in words(app).replace("\\", "")
    assert "first speakers only" in words(app)
    assert app.query_params["run"] == MADE


def test_a_recorded_study_is_taken_in_and_marked(visit: Open, demo: Path, tmp_path: Path) -> None:
    elsewhere = open_store(f"sqlite:///{tmp_path / 'elsewhere.sqlite3'}")
    export_run(elsewhere, write_run(elsewhere, name="demo"), demo / "made.opbench.zip", texts=False)
    elsewhere.close()
    app = visit()
    assert [option for option in app.sidebar.selectbox[0].options if "recorded" in option]
    shown = visit(run=f"rec-{MADE}")
    assert "recorded" in words(shown)
    assert "measured here" not in words(shown)
    assert first_table(shown).loc[("RAG", "Reminder"), "op_change"] == pytest.approx(20.0)


def test_a_damaged_recorded_study_is_a_sentence(visit: Open, demo: Path) -> None:
    (demo / "broken.opbench.zip").write_bytes(b"PK not a zip")
    app = visit()
    assert "isn't a whole bundle" in app.warning[0].value.replace("\\", "")
    assert len(first_table(app)) == 20


def test_a_link_to_no_run_is_a_sentence_and_the_published_figures(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit(run="nosuchrun")
    assert "no run 'nosuchrun'" in app.warning[0].value.replace("\\", "")
    assert len(first_table(app)) == 20


def test_the_head_of_a_run_id_is_enough(visit: Open, store: Store) -> None:
    write_run(store)
    assert first_table(visit(run="made")).loc[("RAG", "Reminder"), "op_change"] == pytest.approx(20.0)


def test_text_of_a_link_is_no_markup(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit(run="![x](http://example.invalid/x.png)<script>")
    assert "![x](" not in app.warning[0].value
    assert "\\!\\[x\\]\\(" in app.warning[0].value


@pytest.mark.parametrize(("name", "value"), [("rule", "mean"), ("kind", "percent"), ("first", "maybe")])
def test_a_wrong_choice_in_a_link_is_a_sentence(visit: Open, name: str, value: str) -> None:
    app = visit(**{name: value})
    assert f"{name}={value}" in app.warning[0].value.replace("\\", "")


@pytest.mark.parametrize("page", PAGES)
def test_a_run_without_records_says_so(visit: Open, store: Store, page: str) -> None:
    write_run(store, left=0)
    study = make_study({"models": ["m"], "memories": ["rag"], "mitigations": ["none", "marag"]})
    create_run(store, "empty", study, "empty", {"comparable": True}, [])
    app = visit(page, run="empty")
    assert "yet" in app.info[0].value


def test_a_store_that_cannot_be_opened_is_a_sentence(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPBENCH_STORE", "nosuchkind://somewhere/store")
    settings.cache_clear()
    app = visit()
    assert "no such kind of database" in app.error[0].value.replace("\\", "")


def test_nothing_below_the_pages_imports_streamlit() -> None:
    files = [*(ROOT / "opbench").rglob("*.py"), *(ROOT / "mitigations").rglob("*.py")]
    assert len(files) > 50
    assert [str(file) for file in files if "import streamlit" in file.read_text(encoding="utf-8")] == []


def test_no_page_turns_text_into_html_or_computes_on_scores_by_sql() -> None:
    for file in [ROOT / "app.py", *(ROOT / "pages").rglob("*.py")]:
        source = file.read_text(encoding="utf-8")
        assert "unsafe_allow_html" not in source
        assert "sqlalchemy" not in source
        assert "httpx" not in source
