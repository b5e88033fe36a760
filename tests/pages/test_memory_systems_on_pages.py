"""Memory systems that take histories in, on the other pages: the form, the quote, the watched run, the results."""

from __future__ import annotations

import os
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import select, update
from streamlit.testing.v1 import AppTest

from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.claims import new_worker
from opbench.store.database import Store
from opbench.store.writing import beat
from opbench.study import make_study
from pages.shared import study_form
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY
from tests.pages.made_run import MADE, write_run
from tests.pages.test_text_safety import _HIDDEN, _MARKUP, elements, texts

NOTE = "MemU's store and retrieval, our extractor"


def told(app: AppTest) -> str:
    parts = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    return " ".join(part.value for part in parts).replace("\\", "").replace("\u2060", "")


def keys(app: AppTest) -> set[str]:
    return {box.key for box in app.selectbox if box.key}


def command(app: AppTest) -> str:
    return str(app.code[-1].value)


def test_an_extractor_is_asked_for_when_a_memory_system_needs_one(visit: Open) -> None:
    app = visit("launch")
    assert "extractor" not in keys(app)
    app.multiselect(key="memories").set_value(["base", "memu"]).run()
    box = app.selectbox(key="extractor")
    assert box.value == "the study's model"
    # Nothing of its own to say: the study and so its run are those without it.
    assert "--extractor" not in command(app)
    box.set_value("gpt-4o-mini").run()
    assert "--memories base,memu" in command(app)
    assert "--extractor gpt-4o-mini" in command(app)
    assert "OPENAI_API_KEY" in told(app)


def test_with_several_models_one_of_them_extracts(visit: Open) -> None:
    app = visit("launch")
    app.multiselect(key="models").set_value(["smollm2-135m", "gpt-4o-mini"]).run()
    app.multiselect(key="memories").set_value(["base", "memu"]).run()
    assert "the study's model" not in app.selectbox(key="extractor").options
    assert "--extractor smollm2-135m" in command(app)
    assert not app.exception


def test_what_takes_histories_in_is_in_the_quote(visit: Open) -> None:
    app = visit("launch", data="bundled sample")
    app.multiselect(key="memories").set_value(["base", "memu"]).run()
    assert not app.exception
    # Nine sessions of each of the two users, a call each.
    assert "MemU first takes in 18 sessions of 2 users: 18 calls of smollm2-135m" in told(app)


def test_the_protocols_say_what_differs_and_reach_the_command(visit: Open) -> None:
    app = visit("launch")
    assert "uniform: the same answer prompt for all memory systems, and k memories in all" in told(app)
    assert "--protocol" not in command(app)
    app = visit("launch", protocol="memos")
    assert "memos: as MemOS's own evaluation asks: k memories of each of the two speakers" in told(app)
    assert "can't be compared with those of “uniform”" in told(app)
    assert "--protocol memos" in command(app)
    of_op_alone = visit("launch", protocol="memos", benchmarks="OP-Bench")
    assert "--protocol" not in command(of_op_alone)


def test_the_form_is_filled_with_extractor_and_protocol(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", state)
    study_form.fill(make_study({"models": ["a"], "memories": ["mem0"], "extractor": "b", "protocol": "memos"}), ())
    assert (state["extractor"], state["protocol"]) == ("b", "memos")
    study_form.fill(make_study({"models": ["a"]}), ())
    assert (state["extractor"], state["protocol"]) == ("the study's model", "uniform")


def test_a_chosen_system_that_is_not_installed_says_the_command(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPBENCH_MEMOS_PYTHON", raising=False)
    settings.cache_clear()
    app = visit("launch")
    app.multiselect(key="memories").set_value(["base", "memos"]).run()
    assert not app.exception
    assert "opbench memory install memos" in [code.value for code in app.code]
    assert not [button for button in app.button if button.key == "start"]


def work_on(store: Store, *standings: dict[str, Any]) -> None:
    """Let this process look like the run's worker, at its ingestions."""
    beat(store, new_worker(MADE, 4) | {"pid": os.getpid(), "stats": {"ingesting": list(standings)}})


def standing(user: str, state: str, done: int = 0, error: str | None = None) -> dict[str, Any]:
    return {
        "system": "mem0",
        "label": "Mem0",
        "user": user,
        "done": done,
        "planned": 9,
        "memories": 2 * done,
        "state": state,
        "error": error,
    }


def test_a_run_that_takes_histories_in_says_how_far(visit: Open, store: Store) -> None:
    write_run(store, left=2)
    work_on(store, standing("sample-1/Ana", "at work", 4), standing("sample-1/Ben", "waiting"))
    app = visit("launch", run=MADE)
    assert "ingesting" in app.subheader[0].value
    bars = [each.proto.text.replace("\\", "") for each in app.get("progress")]
    assert "Mem0: 4 of 18 sessions of 2 users, 8 memories; at sample-1/Ana" in bars


def test_one_that_failed_is_told_while_the_run_goes_on(visit: Open, store: Store) -> None:
    write_run(store, left=2)
    work_on(store, standing("sample-1/Ana", "failed", 3, NASTY), standing("sample-1/Ben", "complete", 9))
    app = visit("launch", run=MADE)
    assert "running" in app.subheader[0].value
    assert "Mem0, sample-1/Ana: =1+1 <script>" in told(app)
    for _, proto in elements(app):
        if type(proto).__name__ == "Alert":
            for text in texts(proto):
                assert not _MARKUP.search(text)
                assert not _HIDDEN.search(text)


def write_ingestions(store: Store, *rows: dict[str, Any]) -> None:
    with store.begin() as connection:
        known = connection.execute(select(s.runs.c.provenance).where(s.runs.c.id == MADE)).scalar_one()
        connection.execute(
            update(s.runs).where(s.runs.c.id == MADE).values(provenance=known | {"ingestion": list(rows)})
        )


def row(label: str, user: str, memories: int, **more: Any) -> dict[str, Any]:
    values = {"system": label.lower(), "label": label, "note": "", "user": user, "state": "complete", "error": None}
    counts = {"sessions": 9, "planned": 9, "memories": memories, "extractions": 9, "empty": 9 if not memories else 1}
    return values | counts | {"calls": 9, "reused": 0, "cost_usd": 0.0, "seconds": 12.0, "digest": "d" * 64} | more


@pytest.mark.parametrize("page", ["trade_off", "oracle_gap", "latency", "compare", "instances", "overview"])
def test_results_say_when_there_was_nothing_to_retrieve(page: str, visit: Open, store: Store) -> None:
    write_run(store)
    write_ingestions(store, row("Mem0", "sample-1/Ana", 0), row("MemU", "sample-1/Ana", 30, note=NOTE))
    app = visit(page, run=MADE)
    warned = [each.value.replace("\\", "") for each in app.warning]
    assert any(
        each.startswith("Mem0 holds no memory of sample-1/Ana: 9 of 9 extractions gave nothing.") for each in warned
    )
    assert f"MemU: {NOTE}." in told(app)
    tables = [frame.value for frame in app.dataframe if "barren" in frame.value]
    assert tables[0][["label", "memories", "barren"]].to_numpy().tolist() == [
        ["Mem0", 0, "9 of 9"],
        ["MemU", 30, "1 of 9"],
    ]


def test_a_run_without_ingestions_says_nothing_of_them(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("trade_off", run=MADE)
    assert "What its memory systems took in" not in told(app)
    assert not [each for each in app.warning if "holds" in each.value]


@pytest.mark.parametrize("told_of", [NASTY, [NASTY], [{"label": NASTY}]])
def test_whatever_a_bundle_says_of_ingestions_is_no_fault(told_of: Any, visit: Open, store: Store) -> None:
    write_run(store)
    with store.begin() as connection:
        known = connection.execute(select(s.runs.c.provenance)).scalar_one()
        connection.execute(update(s.runs).values(provenance=known | {"ingestion": told_of}))
    assert not visit("trade_off", run=MADE).exception


def test_text_of_an_imported_ingestion_stays_text(visit: Open, store: Store) -> None:
    write_run(store)
    write_ingestions(store, row(NASTY, NASTY, 0, note=NASTY, error=NASTY))
    app = visit("trade_off", run=MADE)
    assert not app.exception
    for kind, proto in elements(app):
        if kind in ("markdown", "caption", "alert", "heading") or type(proto).__name__ in ("Markdown", "Alert"):
            for text in texts(proto):
                assert not _MARKUP.search(text), text[:200]
                assert not _HIDDEN.search(text), text[:200]
