"""Launch: the quote, the start with its keys, the watched run and its steering. No process is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from opbench.running.launch import Launched, log_file
from opbench.running.prepare import prepare
from opbench.store.claims import new_worker
from opbench.store.database import Store
from opbench.store.reading import run_ids
from opbench.store.schema import runs
from opbench.store.writing import beat
from opbench.study import Study
from pages.shared import watching
from tests.pages.conftest import Open
from tests.pages.made_run import FAULT, MADE, write_run

KEY = "sk-typed-in-the-session"


@pytest.fixture
def launched(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `launch` was asked for; it registers the run and starts nothing."""
    asked: list[dict[str, Any]] = []

    def launch(store: Store, study: Study, *, concurrency: int, keys: dict[str, SecretStr]) -> Launched:
        prepared = prepare(study)
        prepared.register(store)
        asked.append({"study": study, "concurrency": concurrency, "keys": keys, "run": prepared.run_id})
        return Launched(prepared.run_id, 0, Path("nowhere.log"))

    monkeypatch.setattr(watching, "launch", launch)
    return asked


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def request(store: Store) -> str:
    with store.begin() as connection:
        return str(connection.scalar(select(runs.c.request).where(runs.c.id == MADE)))


def work_on(store: Store) -> None:
    """Let this process look like the run's worker."""
    beat(store, new_worker(MADE, 4))


def test_the_quote_is_there_before_the_start_and_leaves_no_run(visit: Open, store: Store) -> None:
    app = visit("launch")
    # BASE takes no post-processor: base·none, rag·none, rag·reminder on 12 instances of each benchmark.
    assert metrics(app)["Configurations"] == "3"
    assert metrics(app)["Records to do"] == "72"
    assert metrics(app)["Cost"] == "$0.00"
    assert "opbench run --models smollm2-135m --mitigations none,reminder --limit 12" in app.code[-1].value
    assert not app.button(key="start").disabled
    assert run_ids(store) == []


def test_start_hands_over_the_study_and_looks_at_its_run(
    visit: Open, store: Store, launched: list[dict[str, Any]]
) -> None:
    app = visit("launch")
    app.multiselect(key="mitigations").set_value(["none", "marag"])
    app.number_input(key="limit").set_value(6)
    app.number_input(key="max_tokens").set_value(24).run()
    app.button(key="start").click().run()
    assert not app.exception
    (asked,) = launched
    assert asked["study"].mitigations == ("none", "marag")
    assert (asked["study"].limit, asked["study"].max_tokens, asked["concurrency"]) == (6, 24, 4)
    assert asked["keys"] == {}
    assert app.query_params["run"] == asked["run"]
    assert "starting" in app.subheader[0].value


def test_a_key_is_asked_for_and_reaches_the_process_only(
    visit: Open, launched: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    app = visit("launch")
    app.multiselect(key="models").set_value(["gpt-4o-mini"]).run()
    assert app.button(key="start").disabled
    assert "OPENAI_API_KEY" in app.info[0].value
    app.text_input(key="key-OPENAI_API_KEY").set_value(KEY).run()
    assert not app.button(key="start").disabled
    app.button(key="start").click().run()
    assert launched[0]["keys"] == {"OPENAI_API_KEY": SecretStr(KEY)}
    assert KEY not in str(dict(app.query_params))
    assert KEY not in "".join(code.value for code in app.code)


def test_a_key_in_the_environment_is_not_asked_for(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    app = visit("launch")
    app.multiselect(key="models").set_value(["gpt-4o-mini"]).run()
    assert not app.button(key="start").disabled
    assert KEY not in "".join(code.value for code in app.code)


def test_a_model_without_its_key_does_not_answer_and_says_why(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    app = visit("launch")
    app.multiselect(key="models").set_value(["gpt-4o-mini"]).run()
    app.button(key="probe").click().run()
    assert not app.exception
    assert "OPENAI_API_KEY" in app.warning[0].value.replace("\\", "")


def test_a_form_without_models_says_what_is_missing(visit: Open) -> None:
    app = visit("launch")
    app.multiselect(key="models").set_value([]).run()
    assert not app.exception
    assert "this form: models" in app.error[0].value.replace("\\", "")


def test_base_alone_with_a_post_processor_is_no_study(visit: Open) -> None:
    app = visit("launch")
    app.multiselect(key="memories").set_value(["base"])
    app.multiselect(key="mitigations").set_value(["reminder"]).run()
    assert "BASE takes no post-processor" in app.error[0].value.replace("\\", "")


def test_the_form_is_kept_when_one_looks_at_another_page(visit: Open) -> None:
    app = visit("launch")
    app.number_input(key="limit").set_value(7).run()
    app.switch_page("pages/views/latency.py").run()
    app.switch_page("pages/views/launch.py").run()
    assert app.number_input(key="limit").value == 7


def test_a_stopped_run_says_what_is_left_and_why_it_failed(visit: Open, store: Store) -> None:
    write_run(store, failed=1, left=2)
    app = visit("launch", run=MADE)
    assert "stopped" in app.subheader[0].value
    assert [metrics(app)[name] for name in ("Done", "Failed", "Waiting")] == ["93", "1", "2"]
    failures = next(table.value for table in app.dataframe if "reason" in table.value)
    assert failures["reason"].tolist() == [FAULT]
    shown_as_markup = [*app.markdown, *app.caption, *app.error, *app.warning, *app.info]
    assert not [element for element in shown_as_markup if "<script>" in str(element.value)]


def test_go_on_resumes_the_watched_run(visit: Open, store: Store, launched: list[dict[str, Any]]) -> None:
    write_run(store, left=2)
    app = visit("launch", run=MADE)
    app.button(key="resume").click().run()
    assert launched[0]["study"].mitigations == ("none", "reminder", "marag")
    # The made run's id isn't its study's hash, as if data or prompts had changed since: said, not hidden.
    assert "this is a new run" in app.warning[0].value.replace("\\", "")
    assert app.query_params["run"] == launched[0]["run"]


def test_pause_go_on_and_stop_are_asked_of_the_worker(visit: Open, store: Store) -> None:
    write_run(store, left=2)
    work_on(store)
    app = visit("launch", run=MADE)
    assert "running" in app.subheader[0].value
    app.button(key="pause").click().run()
    assert request(store) == "pause"
    assert "paused" in app.subheader[0].value
    app.button(key="go").click().run()
    assert request(store) == "go"
    app.button(key="stop").click().run()
    assert request(store) == "stop"
    assert "stopping" in app.subheader[0].value


def test_a_complete_run_has_nothing_to_steer(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("launch", run=MADE)
    assert "complete" in app.subheader[0].value
    assert {button.key for button in app.button} & {"pause", "go", "stop", "resume"} == set()


def test_a_process_that_died_leaves_its_last_words(visit: Open, store: Store) -> None:
    write_run(store, left=2)
    file = log_file(MADE)
    file.parent.mkdir(parents=True)
    file.write_text("opbench: the disk is full\n", encoding="utf-8")
    app = visit("launch", run=MADE)
    assert "opbench: the disk is full" in [code.value for code in app.code]
