"""What each role finds on every page, and that a deed asks for the role when it is done, not when it is drawn."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from opbench.access import Role, Visitor
from opbench.settings import ROOT, settings
from opbench.store.claims import new_worker
from opbench.store.database import Store
from opbench.store.schema import metadata
from opbench.store.writing import beat
from pages.shared import access, results
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run

PAGES = sorted(file.stem for file in (ROOT / "pages" / "views").glob("*.py") if file.stem != "__init__")


def be(monkeypatch: pytest.MonkeyPatch, role: Role, name: str = "them@lab.example") -> None:
    """Be this from now on."""
    visitor = Visitor(name if role != "nobody" else "", role, signed_in=role != "nobody")
    monkeypatch.setattr(access, "who", lambda: visitor)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The processes that were started; none is."""
    asked: list[Any] = []

    class Refused(subprocess.Popen[Any]):
        """Nothing but git, which is asked for the commit."""

        def __init__(self, command: Any, *args: Any, **more: Any) -> None:
            if command[0] != "git":
                asked.append(command)
                raise OSError("no process in this test")
            super().__init__(command, *args, **more)

    monkeypatch.setattr(subprocess, "Popen", Refused)
    return asked


def contents(store: Store) -> dict[str, list[Any]]:
    """All that is in the store, by table."""
    with store.begin() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table)).all())) for table in metadata.sorted_tables
        }


def click_all(app: AppTest) -> AppTest:
    """Every button of the page at once, but for those that only show something else."""
    for button in app.button:
        if not button.disabled and button.key not in ("sign-out",):
            button.click()
    return app.run()


@pytest.mark.parametrize("page", PAGES)
def test_nobody_sees_one_button_and_the_store_stays_shut(
    page: str, visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, "nobody")
    monkeypatch.setattr(results, "opened", lambda: pytest.fail("the store was opened for nobody"))
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run().switch_page(f"pages/views/{page}.py")
    app.query_params["run"] = MADE
    app.run()
    assert not app.exception
    assert [button.label for button in app.button] == ["Sign in"]
    assert [title.value for title in app.title] == ["OP-Bench Workbench"]
    assert not app.sidebar.children


@pytest.mark.parametrize("page", PAGES)
def test_a_viewer_reads_every_page_and_changes_nothing(
    page: str, visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    write_run(store, name="pilot", failed=1, left=2)
    be(monkeypatch, "viewer")
    app = visit(page, run=MADE)
    assert not app.get("file_uploader")
    assert not [field for field in app.text_input if "Key" in field.label]
    before = contents(store)
    app = click_all(app)
    assert not app.exception
    assert contents(store) == before
    assert started == []


@pytest.mark.parametrize("page", PAGES)
def test_a_click_after_the_role_is_gone_does_nothing(
    page: str, visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    write_run(store, name="pilot", failed=1, left=2)
    be(monkeypatch, "editor")
    app = visit(page, run=MADE)
    before = contents(store)
    be(monkeypatch, "viewer")
    app = click_all(app)
    assert not app.exception
    assert contents(store) == before
    assert started == []


def test_the_steering_of_a_run_asks_for_the_role_too(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(store, left=2)
    beat(store, new_worker(MADE, 4))
    be(monkeypatch, "editor")
    app = visit("launch", run=MADE)
    before = contents(store)["runs"]
    be(monkeypatch, "viewer")
    app.button("pause").click().run()
    assert contents(store)["runs"] == before
    assert any(access.REFUSED.split(";")[0] in warning.value for warning in app.warning)
    be(monkeypatch, "editor")
    app.run()
    app.button("pause").click().run()
    assert contents(store)["runs"] != before


def test_the_sidebar_says_who_one_is(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, "viewer", "a_b@lab.example")
    app = visit("audit")
    assert "a\\_b\\@\u2060lab\\.example · viewer" in [caption.value for caption in app.sidebar.caption]
    assert [button.label for button in app.sidebar.button] == ["Sign out"]


def test_on_ones_own_machine_there_is_nothing_to_sign(visit: Open) -> None:
    app = visit("audit")
    assert not app.sidebar.button
    assert access.REFUSED not in [info.value for info in app.info]


def test_open_to_others_without_a_word_of_it_shows_a_sentence_and_no_more(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What `streamlit run app.py --server.address 0.0.0.0` would do, past tools/serve.py.
    monkeypatch.setattr(st, "get_option", lambda name: "0.0.0.0" if name == "server.address" else None)
    monkeypatch.setattr(results, "opened", lambda: pytest.fail("the store was opened"))
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert not app.exception
    assert "won't be served at 0\\.0\\.0\\.0 without sign\\-in" in app.error[0].value
    assert not app.title


def test_what_was_typed_is_forgotten_with_the_role(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, "editor")
    app = visit("launch")
    app.session_state["key-OPENAI_API_KEY"] = "sk-typed"
    be(monkeypatch, "nobody")
    app.run()
    assert "key-OPENAI_API_KEY" not in app.session_state


def test_files_are_taken_from_editors_sessions_only(monkeypatch: pytest.MonkeyPatch, visit: Open) -> None:
    monkeypatch.setattr(access, "_EDITING", type(access._EDITING)())
    assert not access.may_upload("nobody-knows-it")
    visit("studies")
    [session] = access._EDITING
    assert access.may_upload(session)
    monkeypatch.setenv("OPBENCH_OPEN", "viewer")
    settings.cache_clear()
    assert not access.may_upload(session)
