"""The Build page in this process: what a build gave and dropped, what can be done with it by whom, hostile text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from opbench.access import Visitor
from opbench.benchmarks import built
from opbench.construction import launching
from opbench.construction.launching import BuildOrder, Started
from opbench.construction.loading import read_source
from opbench.construction.spec import BuildSpec, Counts
from opbench.store import schema as s
from opbench.store.builds import (
    Ruling,
    claim_build,
    list_builds,
    load_build,
    new_worker,
    release_build,
    save_unit,
    set_states,
)
from opbench.store.database import Store
from pages.shared import access, build_estimate, steering
from tests.construction.built import CORVIN, OTTILIE, add, candidate, made_build, unit_named
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY
from tests.pages.test_text_safety import _AS_IT_IS, _HIDDEN, _MARKUP, elements, texts

SPEC = BuildSpec(name="Mine", counts=Counts(topics=2, fact=3))


@pytest.fixture
def made(store: Store) -> str:
    """Six questions: one kept, one accepted, one rejected, two dropped, one not filtered yet."""
    build_id = made_build(store, SPEC)
    add(
        store,
        build_id,
        candidate(0, "Should I trust the moon with a secret?"),
        candidate(1, "Is kiwi good for me?", "memory", evidence=("D3:9",)),
        candidate(2, "Too short?", "value"),
        candidate(3, "Should I trust the sea with a secret?", user=CORVIN),
        candidate(4, "What does a bank do?", "fully-irrelevant", CORVIN),
        candidate(5, "How do tides work?", "repetition"),
    )
    near = {"filter": "duplicate", "of": "c0", "cosine": 0.91}
    set_states(
        store,
        build_id,
        [
            Ruling("c0", "kept"),
            Ruling("c1", "accepted", "review", "both saw it"),
            Ruling("c2", "dropped", "length", "2 words, fewer than 4"),
            Ruling("c3", "dropped", "duplicate", "cosine 0.910 to “Should I trust the moon with a secret?”", near),
            Ruling("c4", "rejected", "review", "neither saw it"),
        ],
    )
    return build_id


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> list[BuildOrder]:
    """What was ordered; no process is started."""
    orders: list[BuildOrder] = []

    def launch(store: Store, order: BuildOrder, keys: Any = None) -> Started:
        orders.append(order)
        return Started("x", order, 1, 0.0, Path("nowhere.log"), working=True)

    monkeypatch.setattr(launching, "launch", launch)
    monkeypatch.setattr(build_estimate, "launch", launch)
    return orders


def told(app: AppTest) -> str:
    parts = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    return " ".join(part.value for part in parts).replace("\\", "").replace("\u2060", "")


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def table(app: AppTest, *columns: str) -> list[dict[str, Any]]:
    """The rows of the table that has these columns."""
    for each in app.dataframe:
        if set(columns) <= set(each.value.columns):
            return [{str(name): value for name, value in row.items()} for row in each.value.to_dict("records")]
    raise AssertionError(f"no table has {columns}")


def upload(app: AppTest, content: bytes) -> None:
    uploader: Any = app.get("file_uploader")[0]
    uploader.set_value(("chats.jsonl", content, "application/jsonl")).run()


def questions(app: AppTest) -> list[str]:
    return [text.value for text in app.text if text.value.endswith("?")]


def test_nothing_built_says_what_to_do_and_what_it_takes(visit: Open) -> None:
    app = visit("build")
    assert app.title[0].value == "Which questions do these conversations give, and which of them stand?"
    assert "No benchmark is made here yet" in told(app)
    assert app.expander[0].proto.expanded
    # Two users: 10 topics × 3, 5 baiting, 5 fact, 5 value, 10 memory-level, 5 × 3 × 3 repetition.
    assert metrics(app)["Users"] == "2"
    assert metrics(app)["Questions, at most"] == "200"
    assert "opbench build run --conversations sample" in [code.value for code in app.code]


def test_what_is_chosen_is_begun_once_and_then_goes_on(visit: Open, store: Store, ordered: list[BuildOrder]) -> None:
    app = visit("build", users=OTTILIE, subtypes="Fact-level", fact="2", topics="3", name="Mine", cosine="0.9")
    assert metrics(app)["Questions, at most"] == "2"
    command = (
        f"opbench build run --conversations sample --name Mine --users {OTTILIE} --subtypes fact --topics 3 --fact 2 "
        "--cosine 0.9"
    )
    assert command in [code.value for code in app.code]
    app.button("start-building").click().run()
    (build,) = [each.build for each in list_builds(store)]
    assert build is not None
    assert build.spec == BuildSpec(
        name="Mine", users=(OTTILIE,), subtypes=("fact",), counts=Counts(topics=3, fact=2), filters={"cosine": 0.9}
    )
    assert build.maker == "local"
    assert ordered == [BuildOrder(build.id)]
    assert f"Build {build.id} is begun" in told(app)
    again = visit("build", users=OTTILIE, subtypes="Fact-level", fact="2", topics="3", name="Mine", cosine="0.9")
    assert f"Build {build.id} is this very build" in told(again)
    again.button("start-building").click().run()
    assert len(list_builds(store)) == 1
    assert ordered == [BuildOrder(build.id)] * 2


def test_a_form_that_makes_no_build_says_why(visit: Open, store: Store) -> None:
    app = visit("build", generators="")
    app.multiselect("generators").set_value([]).run()
    assert "this form: build: name at least one generator." in app.error[0].value.replace("\\", "")
    assert not list_builds(store)


def test_a_builds_numbers_and_questions(visit: Open, made: str) -> None:
    app = visit("build")
    shown = metrics(app)
    assert {name: shown[name] for name in ("Candidates", "Kept", "Dropped", "Accepted", "Rejected")} == {
        "Candidates": "6",
        "Kept": "1",
        "Dropped": "2",
        "Accepted": "1",
        "Rejected": "1",
    }
    # 6 generated; 1 too short; 1 near-duplicate; 1 not filtered; 1 rejected; 1 not decided: 1 accepted.
    funnel = {row["step"]: (row["n"], row["dropped"]) for row in table(app, "label", "undecided")}
    assert funnel["generated"] == (6, 0)
    assert funnel["length"] == (5, 1)
    assert funnel["duplicate"] == (4, 1)
    assert funnel["filtered"] == (3, 0)
    assert funnel["reviewed"] == (2, 1)
    assert funnel["accepted"] == (1, 0)
    (generator,) = table(app, "usd_per_accepted")
    assert (generator["generated"], generator["reviewed"], generator["accepted"]) == (6, 2, 1)
    assert generator["percent"] == pytest.approx(50)
    assert "6 of 6 questions" in told(app)
    assert len(questions(app)) == 6
    # A dropped one says why, and what it rests on; a memory-level one which memory it falsifies.
    assert "Why: 2 words, fewer than 4" in told(app)
    assert "Why: cosine 0.910 to “Should I trust the moon with a secret?”" in told(app)
    assert "The memory that it falsifies: Ottilie is allergic to kiwi" in told(app)
    assert "turns D3:9" in told(app)
    assert '"cosine": 0.91' in " ".join(str(each.value) for each in app.json)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"state": "dropped"}, ["Too short?", "Should I trust the sea with a secret?"]),
        ({"subtype": "Memory-level"}, ["Is kiwi good for me?"]),
        ({"by": "near-duplicate"}, ["Should I trust the sea with a secret?"]),
        ({"user": CORVIN, "state": "rejected"}, ["What does a bank do?"]),
        ({"says": "ALLERGIC"}, ["Is kiwi good for me?"]),
    ],
)
def test_questions_are_found_by_what_became_of_them(
    visit: Open, made: str, asked: dict[str, str], found: list[str]
) -> None:
    app = visit("build", **asked)
    assert questions(app) == found
    assert f"{len(found)} of 6 questions" in told(app)


def test_no_question_that_fits_says_so(visit: Open, made: str) -> None:
    assert "No question fits" in told(visit("build", says="nobody said this"))


def test_the_papers_funnel_is_marked_as_published(visit: Open, made: str) -> None:
    app = visit("build", funnel="the paper's")
    assert [row["n"] for row in table(app, "label", "undecided")] == [10_000, 4_289, 3_075, 1_700]
    assert "As published with OP-Bench" in told(app)


def test_one_at_work_is_watched_and_stopped(visit: Open, store: Store, made: str) -> None:
    worker = new_worker()
    claim_build(store, made, worker)
    app = visit("build")
    assert f"Mine `{made}`: building" in told(app)
    assert "go-on-building" not in [button.key for button in app.button]
    assert "It is being worked on: stop it before deleting it." in told(app)
    app.button(f"stop-build-{made}").click().run()
    assert load_build(store, made).request == "stop"
    assert f"Mine `{made}`: stopping: what is in hand is finished first" in told(app)
    release_build(store, made, worker, "Stopped on request. The next start goes on.")
    stopped = visit("build")
    assert "Stopped on request" in told(stopped)
    assert "go-on-building" in [button.key for button in stopped.button]


def test_failed_units_say_why_and_are_asked_again(
    visit: Open, store: Store, made: str, ordered: list[BuildOrder]
) -> None:
    unit = f"tasks/{OTTILIE}/fact/smollm2-135m/1"
    failure: dict[str, Any] = {"status": "failed", "reason": "not JSON after a repair", "output": {"retriable": False}}
    save_unit(store, made, unit_named(unit, OTTILIE, **failure))
    app = visit("build")
    assert "1 × not JSON after a repair" in told(app)
    assert table(app, "unit", "again") == [
        {"unit": unit, "model": "scripted", "again": "no", "reason": "not JSON after a repair"}
    ]
    app.button("again-building").click().run()
    assert ordered == [BuildOrder(made, again=True)]


def test_profiles_topics_and_observations_of_a_user(visit: Open, made: str) -> None:
    app = visit("build", profile=CORVIN)
    assert "Corvin is busy." in [text.value for text in app.text]
    assert "Profiles and topics: 2 of 2 users" in [expander.label for expander in app.expander]
    facts = table(app, "observation", "evidence")
    source = read_source("sample")
    expected = [
        each.text
        for session in source.conversations["sample-1"].sessions
        for each in session.observations
        if each.speaker == "Corvin"
    ]
    assert len(facts) == len(expected)


def test_responses_are_of_what_is_kept_and_a_run_like_any_other(
    visit: Open, store: Store, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def start(study: Any, concurrency: int) -> str:
        access.demand_edit()
        begun.append(study)
        return "r1"

    monkeypatch.setattr(steering, "start", start)
    app = visit("build")
    assert "1 questions aren't filtered yet: they would be left out" in told(app)
    app.multiselect("models").set_value(["smollm2-135m"])
    app.multiselect("memories").set_value(["rag"]).run()
    assert f"opbench build respond {made} --models smollm2-135m --memories rag" in [code.value for code in app.code]
    assert not built.exported()
    app.button("respond-quote").click().run()
    # Two questions, kept and accepted, with and without memory.
    assert metrics(app)["Records to do"] == "4"
    (data,) = built.exported()
    app.button("respond").click().run()
    (study,) = begun
    assert (study.data, study.memories, study.benchmarks) == (data, ("base", "rag"), ("op",))
    assert sorted(each.question for each in built.corpus_of(data).op) == [
        "Is kiwi good for me?",
        "Should I trust the moon with a secret?",
    ]


def test_accepted_ones_and_kept_ones_are_downloads(visit: Open, made: str) -> None:
    app = visit("build")
    labels = [each.proto.label for each in app.get("download_button")]
    assert "The 1 accepted questions" in labels
    assert "All 2 that filters kept" in labels


def test_renamed_and_deleted_only_when_it_is_meant(visit: Open, store: Store, made: str) -> None:
    app = visit("build")
    app.text_input[[each.label for each in app.text_input].index("Name", 1)].set_value(" My  own ")
    next(button for button in app.button if button.label == "Rename").click().run()
    assert load_build(store, made).name == "My own"
    field = next(each for each in app.text_input if each.label == f"Type {made} to delete this build")
    field.set_value("something")
    next(button for button in app.button if button.label == "Delete this build").click().run()
    assert "nothing was deleted" in told(app)
    assert list_builds(store)
    there = built.folder(built.name(made, "0" * 12))
    there.mkdir(parents=True)
    field = next(each for each in app.text_input if each.label == f"Type {made} to delete this build")
    field.set_value(made)
    next(button for button in app.button if button.label == "Delete this build").click().run()
    assert not list_builds(store)
    assert not there.exists()
    assert f"Deleted: build {made}, My own." in told(app)
    assert "No benchmark is made here yet" in told(app)


def test_a_damaged_build_hides_no_other(visit: Open, store: Store, made: str) -> None:
    other = made_build(store, BuildSpec(name="Newer"))
    with store.begin() as connection:
        connection.execute(update(s.builds).where(s.builds.c.id == other).values(spec={"rounds": "many"}))
    app = visit("build", build=f"Newer · {other}")
    assert f"build {other} 'Newer' can't be read: spec: rounds" in told(app)
    app.selectbox("build").set_value(made).run()
    assert "6 of 6 questions" in told(app)


def test_a_viewer_reads_and_changes_nothing(
    visit: Open, store: Store, made: str, monkeypatch: pytest.MonkeyPatch, ordered: list[BuildOrder]
) -> None:
    monkeypatch.setattr(access, "who", lambda: Visitor("them@lab.example", "viewer", signed_in=True))
    app = visit("build", models="SmolLM2-135M-Instruct", memories="RAG")
    assert len(questions(app)) == 6
    labels = {button.label for button in app.button}
    assert not labels & {"Build", "Go on", "Stop", "Respond", "What will it take?", "Rename", "Delete this build"}
    assert not app.get("file_uploader")
    assert ordered == []
    assert not built.exported()


def test_chats_are_read_in_and_converted(visit: Open, store: Store, ordered: list[BuildOrder]) -> None:
    app = visit("build", conversations="a file of mine")
    assert "Choose a file to see what a build of it takes" in told(app)
    lines = [
        {"conversation": "c1", "speaker": name, "text": f"{name} says {n}", "time": f"2024-03-0{n}T10:00:00Z"}
        for n in (1, 2)
        for name in ("Nia", "Otto")
    ]
    content = "\n".join(json.dumps(line) for line in lines).encode()
    upload(app, content)
    assert "1 conversation, 2 sessions, 4 turns" in told(app)
    assert "no session summaries, so these are made first" in told(app)
    assert "opbench build run --conversations chats.json" in [code.value for code in app.code]
    app.button("start-building").click().run()
    (build,) = [each.build for each in list_builds(store)]
    assert build is not None
    assert build.provenance["conversations"]["name"] == "chats.json"
    damaged = content + b'\n{"conversation": "c1"'
    again = visit("build", conversations="a file of mine")
    upload(again, damaged)
    assert "chats.jsonl: line 5" in again.error[0].value.replace("\\", "")


def test_hostile_text_stays_text(visit: Open, store: Store) -> None:
    build_id = made_build(store, BuildSpec(name="x"))
    hostile = {"topic": NASTY, "subtopic": NASTY, "explanation": NASTY, "falsifies": NASTY, "kind": NASTY}
    add(store, build_id, candidate(0, NASTY, "memory", **hostile))
    set_states(store, build_id, [Ruling("c0", "dropped", "duplicate", NASTY, {"of": NASTY})])
    save_unit(store, build_id, unit_named(f"tasks/{OTTILIE}/value/1", OTTILIE, status="failed", reason=NASTY))
    with store.begin() as connection:
        connection.execute(update(s.builds).values(name=NASTY[:100], halted=NASTY))
    app = visit("build")
    for kind, proto in elements(app):
        if kind in ("text", "code"):
            assert not _HIDDEN.search(proto.body if kind == "text" else proto.code_text)
        elif kind not in _AS_IT_IS:
            for text in texts(proto):
                assert not _MARKUP.search(text), (kind, text[:300])
                assert not _HIDDEN.search(text), (kind, text[:300])
