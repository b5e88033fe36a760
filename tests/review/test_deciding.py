"""What answers decide (paper, A.3.1), and that a build's candidates are told."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from opbench.benchmarks import load
from opbench.review.answering import undo
from opbench.review.deciding import by_reviewer, by_stratum, decide, items_frame, progress, queue
from opbench.review.links import set_role
from opbench.review.making import create
from opbench.review.spec import Decision, Verdict
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.review_answers import answers_frame, answers_version
from opbench.store.reviews import delete_review
from opbench.study import Study
from tests.review.made import RUN, SPEC, STUDY, make_review, people, press, say, write_run


@pytest.mark.parametrize(
    ("verdicts", "flagged", "senior", "decision"),
    [
        (["memory", "memory"], False, None, "accepted"),
        (["neither", "neither"], False, None, "rejected"),
        (["memory", "neither"], False, None, "disputed"),
        (["memory", "both"], False, None, "disputed"),
        (["base", "base"], False, None, "disputed"),
        (["both", "both"], False, None, "disputed"),
        (["memory", "memory"], True, None, "disputed"),
        (["memory"], False, None, "open"),
        (["memory"], True, None, "open"),
        ([], False, None, "open"),
        (["memory", "neither"], False, "memory", "accepted"),
        (["memory", "memory"], True, "neither", "rejected"),
        (["memory", "neither"], False, "both", "rejected"),
        (["memory", "neither"], False, "base", "rejected"),
        (["memory", "memory", "neither"], False, None, "disputed"),
        (["memory", "memory", "memory"], False, None, "accepted"),
    ],
)
def test_decisions(verdicts: list[Verdict], flagged: bool, senior: Verdict | None, decision: Decision) -> None:
    found, reason = decide(verdicts, flagged, 2, senior)
    assert found == decision
    assert reason


def _candidates(store: Store) -> dict[str, tuple[str, str | None]]:
    c = s.candidates.c
    with store.begin() as connection:
        return {
            row.question: (row.state, row.decided_by) for row in connection.execute(select(s.candidates).order_by(c.id))
        }


def _built(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose kept candidates are the sample's questions, and a run on it."""
    corpus = load("sample")
    with store.begin() as connection:
        build = {
            "id": "b1",
            "name": "b",
            "spec": {},
            "provenance": {},
            "maker": "ed",
            "created_at": 1.0,
            "request": "go",
        }
        connection.execute(s.builds.insert().values(**build))
        rows = [
            {
                "build_id": "b1",
                "id": f"c{n}",
                "ordinal": n,
                "unit": "u",
                "user_id": instance.user.id,
                "subtype": instance.subtype,
                "question": instance.question,
                "evidence": [],
                "generator": "g",
                "prompt_sha256": "0" * 64,
                "state": "kept",
            }
            for n, instance in enumerate(corpus.op)
        ]
        connection.execute(s.candidates.insert(), rows)
    monkeypatch.setattr("opbench.review.making.corpus_of", lambda data: corpus)
    write_run(store, Study(**STUDY.model_dump() | {"data": "build:b1:0123456789ab"}))


def test_candidates_follow_the_decision_and_its_taking_back(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _built(lite, monkeypatch)
    review = create(lite, RUN, SPEC.model_copy(update={"limit": 3}), name="r", maker="ed")
    ann, bob = people(lite, review, "ann", "bob")
    (sue,) = people(lite, review, "sue", role="senior")
    say(lite, ann, "memory")
    say(lite, ann, "neither")
    say(lite, ann, "memory")
    say(lite, bob, "memory")
    say(lite, bob, "neither")
    say(lite, bob, "both")
    frame = items_frame(lite, review)
    states = {frame["decision"][n]: _candidates(lite)[_question(lite, frame["item"][n])] for n in range(3)}
    assert states == {
        "accepted": ("accepted", "review"),
        "rejected": ("rejected", "review"),
        "disputed": ("kept", None),
    }
    task, _ = say(lite, sue, "neither")
    assert _candidates(lite)[task.content.question] == ("rejected", "review")
    undo(lite, sue)
    assert _candidates(lite)[task.content.question] == ("kept", None)
    with lite.begin() as connection:
        row = connection.execute(select(s.candidates).where(s.candidates.c.state == "accepted")).one()
    assert row.details == {"review": review, "name": "r"}
    assert row.reason == "all 2 reviewers found the response with memory alone over-personalised"
    delete_review(lite, review)
    assert sorted(state for state, _ in _candidates(lite).values() if state != "kept") == ["accepted", "rejected"]


def _question(store: Store, item: str) -> str:
    return next(instance.question for instance in load("sample").op if instance.id == item)


def test_a_candidate_that_a_filter_dropped_meanwhile_stays_dropped(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _built(lite, monkeypatch)
    review = create(lite, RUN, SPEC.model_copy(update={"limit": 1}), name="r", maker="ed")
    with lite.begin() as connection:
        connection.execute(update(s.candidates).values(state="dropped", decided_by="duplicate"))
    for who in people(lite, review, "ann", "bob"):
        say(lite, who)
    assert progress(lite, review).accepted == 1
    assert set(_candidates(lite).values()) == {("dropped", "duplicate")}


def test_the_newest_of_two_reviews_counts_and_only_its_own_is_taken_back(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _built(lite, monkeypatch)
    spec = SPEC.model_copy(update={"limit": 1, "per_item": 1})
    first, second = (create(lite, RUN, spec, name=name, maker="ed") for name in ("one", "two"))
    (ann,), (bob,) = people(lite, first, "ann"), people(lite, second, "bob")
    task, _ = say(lite, ann, "memory")
    say(lite, bob, "neither")
    assert _candidates(lite)[task.content.question] == ("rejected", "review")
    # The first one's press comes a second time: nothing new was said.
    assert press(lite, ann, task).repeated
    assert _candidates(lite)[task.content.question] == ("rejected", "review")
    undo(lite, ann)
    assert _candidates(lite)[task.content.question] == ("rejected", "review")
    undo(lite, bob)
    assert _candidates(lite)[task.content.question] == ("kept", None)


def test_progress_adds_up_and_tables_tell_the_same(store: Store) -> None:
    review = make_review(store, limit=8)
    ann, bob = people(store, review, "ann", "bob")
    (sue,) = people(store, review, "sue", role="senior")
    for n in range(5):
        say(store, ann, "memory", flagged=n == 4, seconds=30.0 + n)
    for _ in range(8):
        say(store, bob, "neither" if _ == 0 else "memory")
    before = answers_version(store, review)
    say(store, sue, "memory")
    assert answers_version(store, review) > before
    state = progress(store, review)
    assert (state.items, state.places, state.answers, state.missing) == (8, 16, 13, 3)
    assert state.open + state.disputed + state.accepted + state.rejected == 8
    assert (state.open, state.in_hand) == (3, 0)
    strata = by_stratum(store, review)
    assert list(strata[["items", "open", "disputed", "accepted", "rejected"]].sum()) == [
        8,
        state.open,
        state.disputed,
        state.accepted,
        state.rejected,
    ]
    assert len(queue(store, review)) == state.disputed
    table = by_reviewer(store, review).set_index("reviewer")
    assert list(table["answers"]) == [5, 8, 1]
    assert list(table["flagged"]) == [1, 0, 0]
    assert list(table["role"]) == ["reviewer", "reviewer", "senior"]
    assert set(table["access"]) == {"link"}
    frame = answers_frame(store, review)
    assert list(frame["role"]).count("senior") == 1
    assert frame.query("reviewer == 'ann'")["seconds"].tolist() == [30.0, 31.0, 32.0, 33.0, 34.0]
    assert frame.query("reviewer == 'bob'")["seconds"].isna().all()


def test_an_empty_reviews_tables_are_empty_with_their_columns(lite: Store) -> None:
    review = make_review(lite, limit=2)
    frame = answers_frame(lite, review)
    assert frame.empty
    assert list(frame.columns)[:6] == ["item", "reviewer", "role", "user", "subtype", "verdict"]
    assert by_reviewer(lite, review).empty
    assert queue(lite, review).empty
    assert progress(lite, review).open == 2


def test_an_answer_keeps_the_role_in_which_it_was_given(lite: Store) -> None:
    review = make_review(lite, limit=2)
    (ann,) = people(lite, review, "ann")
    say(lite, ann)
    set_role(lite, ann, "senior")
    assert list(answers_frame(lite, review)["role"]) == ["reviewer"]
