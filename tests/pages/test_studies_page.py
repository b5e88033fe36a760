"""The Studies page, and the bar above every page, in this process."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from opbench.store.claims import claim, new_worker
from opbench.store.database import Store
from opbench.store.reading import run_ids, run_list
from pages.shared import access
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run


def told(app: AppTest) -> str:
    parts = [*app.info, *app.success, *app.error, *app.caption, *app.markdown]
    return " ".join(part.value for part in parts).replace("\\", "")


def keys(app: AppTest, kind: str) -> set[str]:
    return {element.key for element in app.get(kind) if element.key}


def test_an_empty_store_says_what_to_do(visit: Open) -> None:
    app = visit("studies")
    assert app.title[0].value == "Which studies are here, and how do I share, import or delete one?"
    assert "launch one, or import one" in told(app)


def test_all_studies_are_told_and_one_is_chosen(visit: Open, store: Store) -> None:
    write_run(store, "one", name="first")
    write_run(store, "two", name="<b>second</b>", failed=3, left=2)
    app = visit("studies")
    table = app.dataframe[0].value
    assert table["run"].tolist() == ["two", "one"]
    assert table["records"].tolist() == ["91 of 96", "96 of 96"]
    assert table["state"].tolist() == ["stopped", "complete"]
    assert table["errors"].tolist() == [3, 0]
    assert "Choose a study in the table" in told(app)
    assert app.header[0].value == "Import"
    chosen = visit("studies", run="two")
    assert chosen.header[0].value.replace("\\", "") == "<b>second</b>"
    assert {"bundle-numbers", "bundle-texts", "public-json"} <= keys(chosen, "download_button")


def test_a_study_is_renamed(visit: Open, store: Store) -> None:
    write_run(store, name="old")
    app = visit("studies", run=MADE)
    app.text_input[0].set_value("new name")
    button(app, "Rename").click()
    app.run()
    assert "Renamed." in told(app)
    assert run_list(store)[0].name == "new name"
    assert app.header[0].value == "new name"


def test_a_study_is_deleted_by_its_id_alone(visit: Open, store: Store) -> None:
    write_run(store, "kept")
    write_run(store)
    app = visit("studies", run=MADE)
    delete = next(each for each in app.text_input if "type its id" in each.label)
    delete.set_value("made")
    button(app, "Delete this study").click()
    app.run()
    assert "nothing was deleted" in told(app)
    assert set(run_ids(store)) == {"kept", MADE}
    next(each for each in app.text_input if "type its id" in each.label).set_value(MADE)
    button(app, "Delete this study").click()
    app.run()
    assert f"Deleted {MADE} with 96 records" in told(app)
    assert run_ids(store) == ["kept"]
    assert not app.exception


def test_a_study_at_work_cant_be_deleted(visit: Open, store: Store) -> None:
    write_run(store)
    claim(store, MADE, new_worker(MADE, 1))
    app = visit("studies", run=MADE)
    assert "A process is at work on it" in told(app)
    assert not [each for each in app.button if each.label == "Delete this study"]
    assert app.dataframe[0].value["state"].tolist() == ["running"]


def test_viewers_take_along_and_change_nothing(visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(store)
    monkeypatch.setattr(access, "may_edit", lambda: False)
    app = visit("studies", run=MADE)
    assert {"bundle-numbers", "bundle-texts"} <= keys(app, "download_button")
    assert not app.button
    assert not app.get("file_uploader")
    assert "Import" not in [each.value for each in app.header]


def button(app: AppTest, label: str) -> Any:
    return next(each for each in app.button if each.label == label)
