"""Launch: the quote, the start with its keys, the watched run and its steering. No process is started here."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from opbench.running.launch import Launched, log_file
from opbench.running.prepare import prepare
from opbench.store.claims import announce, new_worker
from opbench.store.database import Store
from opbench.store.reading import run_ids
from opbench.store.schema import runs
from opbench.store.writing import add_execution, beat, set_halted
from opbench.study import Study
from pages.shared import access, steering
from pages.shared.study_form import chosen_subtypes
from tests.pages.conftest import Open
from tests.pages.made_run import FAULT, MADE, write_run

KEY = "sk-typed-in-the-session"


@pytest.fixture
def launched(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `launch` was asked for; it registers the run and starts nothing."""
    asked: list[dict[str, Any]] = []

    def launch(store: Store, study: Study, *, concurrency: int, **more: Any) -> Launched:
        prepared = prepare(study)
        prepared.register(store)
        announce(store, prepared.run_id, os.getpid(), concurrency)
        asked.append({"study": study, "concurrency": concurrency, "run": prepared.run_id, **more})
        return Launched(prepared.run_id, 0, Path("nowhere.log"))

    monkeypatch.setattr(steering, "launch", launch)
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
    assert (asked["keys"], asked["budget_usd"], asked["pilot_records"], asked["plugins"]) == ({}, None, None, ())
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


# The form and its link ---------------------------------------------------------------------------------------------


def test_a_link_opens_the_form_that_it_was_copied_from(visit: Open) -> None:
    app = visit(
        "launch",
        memories="RAG",
        mitigations="MARAG",
        data="bundled sample",
        benchmarks="OP-Bench",
        categories="Irrelevance",
        limit="3",
        seed="4",
        k="2",
        temperature="0.5",
        max_tokens="24",
        name="a link's",
    )
    assert not app.warning
    said = app.code[-1].value
    assert shlex.split(said)[3] == "a link's"
    assert (
        "--memories rag --mitigations marag --benchmarks op --subtypes fully-irrelevant,baiting --limit 3 --seed 4 "
        "--k 2 --temperature 0.5 --max-tokens 24 --data sample --concurrency 4" in said
    )
    assert metrics(app)["Configurations"] == "1"
    assert metrics(app)["Records to do"] == "3"


def test_what_of_a_link_is_unknown_is_said(visit: Open) -> None:
    app = visit("launch", models="GPT-9", temperature="hot", limit="0", users="conv-0/Nobody")
    said = " ".join(warning.value.replace("\\", "") for warning in app.warning)
    for part in ("models=GPT-9", "temperature=hot", "limit=0", "users=conv-0/Nobody"):
        assert part in said
    assert not app.exception
    assert metrics(app)["Records to do"] == "72", "the form is the usual one"


@pytest.mark.parametrize("limit", ["--5", "²", "-", "9" * 5000, "１２", "1e3", "1e999", "nan", "-inf"])
def test_a_number_that_is_none_is_said(visit: Open, limit: str) -> None:
    app = visit("launch", limit=limit, temperature=limit if limit != "1e3" else "1e400")
    assert any(f"limit={limit[:40]}" in warning.value.replace("\\", "") for warning in app.warning)
    assert metrics(app)["Records to do"] == "72", "the form is the usual one"


@pytest.mark.parametrize(
    ("benchmarks", "categories", "subtypes", "locomo", "adversarial", "expected"),
    [
        (["op", "locomo"], [], [], [], False, ()),
        (["op"], ["irrelevance", "repetition", "sycophancy"], [], [], False, ()),
        (["op"], ["sycophancy"], [], [], False, ("fact", "value", "memory")),
        (["op"], ["sycophancy"], ["value"], [], False, ("value",)),
        # A filter of one benchmark leaves the other whole.
        (["op", "locomo"], [], ["baiting"], [], False, (
            "baiting", "multi-hop", "temporal", "open-domain", "single-hop")),
        (["op", "locomo"], [], [], ["temporal"], False, (
            "fully-irrelevant", "baiting", "repetition", "fact", "value", "memory", "temporal")),
        (["locomo"], ["irrelevance"], [], [], False, ()),
        (["locomo"], [], [], ["adversarial"], False, ("adversarial",)),
        (["locomo"], [], [], [], True, ()),
    ],
)  # fmt: skip
def test_filters_name_subtypes_only_where_they_leave_some_out(
    benchmarks: list[str],
    categories: list[str],
    subtypes: list[str],
    locomo: list[str],
    adversarial: bool,
    expected: tuple[str, ...],
) -> None:
    assert chosen_subtypes(benchmarks, categories, subtypes, locomo, adversarial) == expected


def test_the_form_can_be_filled_with_a_runs_study(visit: Open, store: Store) -> None:
    write_run(store, left=2)
    app = visit("launch", run=MADE)
    app.number_input(key="limit").set_value(3).run()
    app.button(key="fill").click().run()
    assert app.multiselect(key="mitigations").value == ["none", "reminder", "marag"]
    assert "--mitigations none,reminder,marag --limit 12 --data sample" in app.code[-1].value


# Quote, pilot, budget ----------------------------------------------------------------------------------------------


def test_the_grid_shows_what_there_is_to_do(visit: Open) -> None:
    app = visit("launch")
    table = next(frame.value for frame in app.dataframe if "planned" in frame.value)
    assert table[["memory", "mitigation", "done", "planned"]].to_numpy().tolist() == [
        ["BASE", "no post-processor", 0, 24],
        ["RAG", "no post-processor", 0, 24],
        ["RAG", "Reminder", 0, 24],
    ]
    # Three configurations, 24 instances: 24 + 24 + 2 × 24 calls, of which nothing is shared.
    assert metrics(app)["Model calls, at most"] == "96"


def test_a_pilot_is_started_in_whole_rounds(visit: Open, launched: list[dict[str, Any]]) -> None:
    app = visit("launch")
    app.button(key="pilot").click().run()
    # Three configurations on two benchmarks are 6 a round: two rounds.
    assert launched[0]["pilot_records"] == 12


def test_the_budget_is_handed_over_and_is_no_part_of_the_link(visit: Open, launched: list[dict[str, Any]]) -> None:
    app = visit("launch")
    app.number_input(key="budget").set_value(2.5).run()
    assert "--budget 2.5" in app.code[-1].value
    app.button(key="start").click().run()
    assert launched[0]["budget_usd"] == 2.5
    assert "budget" not in app.query_params


def test_a_budget_without_a_price_is_refused_with_the_mend(visit: Open, store: Store) -> None:
    app = visit("launch")
    app.multiselect(key="models").set_value(["qwen3-8b"])
    app.number_input(key="budget").set_value(2.5).run()
    assert metrics(app)["Cost"] == "unknown"
    app.button(key="start").click().run()
    said = app.error[0].value.replace("\\", "")
    assert "no budget can be kept with qwen3-8b" in said
    assert "price_in and price_out" in said
    assert run_ids(store) == [], "nothing was started"


def test_a_reached_budget_must_be_raised_to_go_on(
    visit: Open, store: Store, launched: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(store, left=2)
    add_execution(store, MADE, {"concurrency": 3, "budget_usd": 2.0})
    set_halted(store, MADE, "Stopped: the budget of $2.00 is reached, $2.10 are spent. To go on, give a higher one.")
    monkeypatch.setattr(steering, "spent_before", lambda store, run_id: 2.1)
    app = visit("launch", run=MADE)
    assert "budget of $2.00 is reached" in app.warning[0].value.replace("\\", "")
    assert metrics(app)["Spent"] == "$2.10"
    assert app.button(key="resume").disabled
    app.number_input(key=f"raised-{MADE}").set_value(2.05).run()
    assert app.button(key="resume").disabled
    app.number_input(key=f"raised-{MADE}").set_value(5.0).run()
    app.button(key="resume").click().run()
    assert (launched[0]["budget_usd"], launched[0]["concurrency"]) == (5.0, 3)


# Watching, in every browser ----------------------------------------------------------------------------------------


def test_another_browser_sees_the_run_start_and_can_steer_it(
    visit: Open, store: Store, launched: list[dict[str, Any]]
) -> None:
    mine = visit("launch", data="bundled sample")
    mine.button(key="start").click().run()
    run = launched[0]["run"]
    other = visit("launch", run=run)
    assert "starting" in mine.subheader[0].value
    assert "starting" in other.subheader[0].value
    assert other.button(key="pause").label == "Pause"
    other.button(key="pause").click().run()
    mine.run()
    assert "paused" in mine.subheader[0].value


def test_a_worker_tells_its_rate_its_retries_and_what_it_spent(visit: Open, store: Store) -> None:
    write_run(store, failed=1, left=2)
    stats = {"calls_made": 7, "calls_reused": 5, "retries": {"rate_limit": 4}, "spent_usd": 0.5, "budget_usd": 2.0}
    beat(store, new_worker(MADE, 4) | {"stats": stats})
    app = visit("launch", run=MADE)
    shown = metrics(app)
    assert (shown["Calls made"], shown["Calls reused"], shown["Spent of $2.00"]) == ("7", "5", "$0.50")
    badges = " ".join(element.value for element in app.markdown if "badge" in element.value).replace("\\", "")
    assert "1 failed: timeout" in badges
    assert "4 tried again: rate_limit" in badges
    table = next(frame.value for frame in app.dataframe if "kinds" in frame.value)
    assert table.set_index(["memory", "mitigation"]).loc[("RAG", "MARAG"), "kinds"] == "1 × timeout"
    assert "again" not in {button.key for button in app.button}, "what failed is tried again after the run has ended"


def test_failures_are_filtered_by_kind_and_tried_again(
    visit: Open, store: Store, launched: list[dict[str, Any]]
) -> None:
    write_run(store, failed=2, left=2)
    app = visit("launch", run=MADE)
    assert next(frame.value for frame in app.dataframe if "reason" in frame.value).shape[0] == 2
    assert app.multiselect(key="failed").options == ["timeout"]
    said = [caption.value for caption in app.caption if "failed ones again" in caption.value]
    assert said == [
        "Goes on with the run: tries all failed ones again and does the 2 that wait. What is finished stays."
    ]
    app.button(key="again").click().run()
    assert launched[0]["study"].mitigations == ("none", "reminder", "marag")


def test_a_viewer_sees_how_far_it_is_and_starts_nothing(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(store, failed=1, left=2)
    monkeypatch.setattr(access, "may_edit", lambda: False)
    app = visit("launch", run=MADE, limit="5")
    assert "stopped" in app.subheader[0].value
    assert {button.key for button in app.button} & {"start", "pilot", "resume", "again", "probe", "fill"} == set()
    assert "You look as a viewer" in app.info[0].value
    assert app.number_input(key="limit").disabled
    assert app.number_input(key="limit").value == 5, "the link's form, to be read"
    assert metrics(app)["Records to do"] == "30"


# Plugins -----------------------------------------------------------------------------------------------------------

PLUGIN = """
import mitigations
from mitigations.none import NoMitigation

class Mine(NoMitigation):
    def __init__(self):
        super().__init__("mine")
        self.label = "My method"

mitigations.register(Mine())
"""


def test_plugin_files_of_the_users_folder_are_offered_by_name(
    visit: Open, home: Path, launched: list[dict[str, Any]]
) -> None:
    file = home / "plugins" / "mine.py"
    file.parent.mkdir(parents=True)
    file.write_text("raise RuntimeError('loaded for lying there')", encoding="utf-8")
    app = visit("launch")
    assert app.multiselect(key="plugins").options == ["mine.py"]
    assert "My method" not in app.multiselect(key="mitigations").options
    file.write_text(PLUGIN, encoding="utf-8")
    app.multiselect(key="plugins").set_value(["mine.py"]).run()
    assert "My method" in app.multiselect(key="mitigations").options
    app.multiselect(key="mitigations").set_value(["none", "mine"]).run()
    assert not app.error
    assert f"--plugin {file}" in app.code[-1].value
    import mitigations

    assert "mine" not in mitigations.names(), "its code isn't loaded into the dashboard"


def test_a_plugin_that_fails_is_a_sentence(visit: Open, home: Path) -> None:
    file = home / "plugins" / "broken.py"
    file.parent.mkdir(parents=True)
    file.write_text("raise RuntimeError('<b>no</b>')", encoding="utf-8")
    app = visit("launch", plugins="broken.py")
    assert not app.exception
    assert "the plugin failed while loading: RuntimeError" in app.error[0].value.replace("\\", "")


def test_no_link_names_a_file_elsewhere(visit: Open, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.py"
    file.write_text("raise SystemExit", encoding="utf-8")
    app = visit("launch", plugins=str(file))
    assert not app.error
    assert "which is none of" in app.warning[0].value.replace("\\", "")
