"""The Case page in this process: the form and its link, answers of every kind, leave-one-out, changes, saving, roles.

The desk is one of these tests' own: what it is asked is noted, and answers as it is told to. The real one is asked in
`tests/browser/test_cases.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from opbench.access import Visitor
from opbench.benchmarks import load
from opbench.cases.outcome import Ablation, At, Found, Judged, Outcome
from opbench.cases.spec import CaseSpec, Column
from opbench.store import cases as kept
from opbench.store.database import Store
from pages.shared import access, case_failures, case_live
from tests.cases import made
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY
from tests.pages.test_text_safety import _AS_IT_IS, _HIDDEN, _MARKUP, elements, texts

CORPUS = load("sample")
FIRST, SECOND = CORPUS.users
MODEL = "smollm2-135m"


@dataclass
class FakeSession:
    """A session that has come as far as a test says."""

    id: str
    spec: CaseSpec
    outcomes_now: list[Outcome]
    busy: bool = False
    error: str | None = None
    unkept: str | None = None
    cancelled: bool = False
    left: dict[tuple[int, At], Ablation] = field(default_factory=dict)
    started_at: float = field(default_factory=time.time)
    provenance: dict[str, Any] = field(default_factory=lambda: dict(made.PROVENANCE))

    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(self.outcomes_now)

    def ablations(self) -> dict[tuple[int, At], Ablation]:
        return dict(self.left)

    def cancel(self) -> None:
        self.cancelled, self.busy = True, False
        self.outcomes_now = [
            each if each.over else each.model_copy(update={"state": "cancelled"}) for each in self.outcomes_now
        ]

    def leave_one_out(self, column: int, at: At = "retrieval") -> None:
        self.left[column, at] = made.ABLATION.model_copy(update={"column": column, "at": at})

    def cancel_ablation(self, column: int, at: At = "retrieval") -> None:
        self.left[column, at] = self.left[column, at].model_copy(update={"over": True})


@dataclass
class FakeDesk:
    """Answers every column by `answer`; `busy`: whether sessions are at work still."""

    answer: Callable[[Column], Outcome]
    busy: bool = False
    sessions: list[FakeSession] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)

    def open(self, store: Store, spec: CaseSpec, *, keys: dict[str, Any] | None = None) -> FakeSession:
        session = FakeSession(
            f"s{len(self.sessions)}", spec, [self.answer(column) for column in spec.columns], self.busy
        )
        self.sessions.append(session)
        self.keys.append(dict(keys or {}))
        return session


def answer(column: Column) -> Outcome:
    if column.memory == "base":
        return made.BASE
    return made.RAG if column.mitigation == "none" else made.REMINDER


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> FakeDesk:
    fake = FakeDesk(answer)
    monkeypatch.setattr(case_live, "desk", lambda: fake)
    return fake


def told(app: AppTest) -> str:
    parts = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    parts += [*app.header, *app.text]
    return " ".join(part.value for part in parts).replace("\\", "").replace("\u2060", "")


def asked(visit: Open, **parameters: str) -> AppTest:
    """The page after the sample's default question is asked."""
    app = visit("case", data="bundled sample", **parameters)
    app.button(key="case-ask").click().run()
    assert not app.exception, app.exception[0].value
    return app


def keys_of(app: AppTest) -> set[str]:
    return {str(button.key) for button in app.button}


def save(store: Store, **more: Any) -> str:
    values: dict[str, Any] = {
        "name": "Bread on the train",
        "note": "for Monday",
        "spec": made.SPEC,
        "outcomes": made.OUTCOMES,
        "ablations": [made.ABLATION],
        "provenance": made.PROVENANCE,
        "maker": "local",
    } | more
    return kept.save_case(store, **values)


def live_of(app: AppTest) -> str:
    """The id of the case at work, from the page's link."""
    (id,) = [app.query_params["live"]] if isinstance(app.query_params["live"], str) else app.query_params["live"]
    assert len(id) == 32
    return str(id)


def be(monkeypatch: pytest.MonkeyPatch, role: Any) -> None:
    monkeypatch.setattr(access, "who", lambda: Visitor("them@lab.example", role, signed_in=True))


# --- the form ------------------------------------------------------------------------------------------------------


def test_the_form_asks_what_it_says(visit: Open, desk: FakeDesk) -> None:
    asked(visit)
    (session,) = desk.sessions
    spec = session.spec
    assert (spec.question, spec.instance) == (CORPUS.op[0].question, CORPUS.op[0].id)
    assert (spec.user, spec.subtype, spec.data) == (CORPUS.op[0].user.id, CORPUS.op[0].subtype, "sample")
    assert spec.columns == (
        Column(model=MODEL),
        Column(model=MODEL, memory="rag"),
        Column(model=MODEL, memory="rag", mitigation="few-shot-cot"),
    )
    assert (spec.k, spec.temperature, spec.max_tokens, spec.judge) == (5, 0.0, 512, "offline")


def test_a_link_opens_the_form_as_it_was(visit: Open, desk: FakeDesk) -> None:
    question = "Which book should I take to the lake?"
    app = asked(
        visit,
        ask="free text",
        question=question,
        user=SECOND,
        subtype="Baiting",
        columns="RAG-obs. + Reminder",
        k="3",
        temperature="0.7",
        max_tokens="99",
    )
    spec = desk.sessions[0].spec
    assert (spec.question, spec.user, spec.instance, spec.subtype) == (question, SECOND, None, "baiting")
    assert [(column.memory, column.mitigation) for column in spec.columns] == [
        ("base", "none"),
        ("rag-observations", "reminder"),
    ]
    assert (spec.k, spec.temperature, spec.max_tokens) == (3, 0.7, 99)
    assert not app.session_state["notices"] if "notices" in app.session_state else True


def test_an_instance_is_found_by_its_words_and_by_its_id(visit: Open, desk: FakeDesk) -> None:
    wanted = CORPUS.locomo[3]
    asked(visit, instance=wanted.id)
    assert (desk.sessions[0].spec.instance, desk.sessions[0].spec.subtype) == (wanted.id, wanted.subtype)
    fits = [each for each in (*CORPUS.op, *CORPUS.locomo) if "smoke" in each.question.lower()]
    app = visit("case", data="bundled sample", says="SMOKE")
    assert f"{len(fits)} of these fit" in told(app)
    app = visit("case", data="bundled sample", says="xyzzy")
    assert "No instance fits" in told(app)
    assert "case-ask" not in keys_of(app)
    app = visit("case", data="bundled sample", instance="op/nobody/1")
    assert "is no instance of these data" in told(app)


def test_several_models_have_a_base_each_and_too_many_columns_are_said(visit: Open, desk: FakeDesk) -> None:
    app = visit("case", data="bundled sample")
    models = app.multiselect(key="models")
    models.set_value([MODEL, "gpt-4o-mini"]).run()
    # A key is missing: nothing can be asked.
    assert app.button(key="case-ask").disabled
    assert "Type a key first" in told(app)
    app.text_input(key="key-OPENAI_API_KEY").input("sk-of-the-session").run()
    assert "At most 8 calls" in told(app)
    app.button(key="case-ask").click().run()
    spec = desk.sessions[0].spec
    assert [column.model for column in spec.columns if column.memory == "base"] == [MODEL, "gpt-4o-mini"]
    assert desk.keys[0]["OPENAI_API_KEY"].get_secret_value() == "sk-of-the-session"
    many = list(app.multiselect(key="columns").options)[:12]
    app.multiselect(key="columns").set_value(many).run()
    assert "at most 12" in told(app)
    assert "case-ask" not in keys_of(app)


def test_a_saved_case_is_asked_again_with_its_own_columns(visit: Open, store: Store, desk: FakeDesk) -> None:
    saved = save(store, spec=made.EDITED)
    asked(visit, ask="saved case", saved=f"Bread on the train · {saved[:6]}")
    spec = desk.sessions[0].spec
    assert spec.question == made.QUESTION
    assert spec.columns[1].given == made.EDITED.columns[1].given
    assert {column.model for column in spec.columns} == {MODEL}


# --- the answers ---------------------------------------------------------------------------------------------------


def test_the_answers_stand_side_by_side_with_all_that_led_to_them(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit)
    said = told(app)
    for name in ("BASE", "RAG", "RAG + Few-Shot-CoT"):
        assert name in [head.value.replace("\\", "") for head in app.subheader]
    marked = [proto.json for name, proto in elements(app) if name == "bidi_component" and "pieces" in proto.json]
    pieces = [json.loads(each)["pieces"] for each in marked]
    # The wording of memory 1 is marked in RAG's response, which is there as a whole.
    assert "".join(piece for piece, _ in pieces[0]) == made.RAG.response
    assert ["sourdough bread", [1]] in pieces[0] or [1] in [numbers for _, numbers in pieces[0]]
    assert "similarity 0.457 · 9 May 2024" in said
    assert "2 retrieved, 1 kept, 1 line in the prompt" in " ".join(each.label for each in app.expander)
    assert "1 of 2 memories are used unasked" in said
    assert "score 0.25" in said
    assert "score n/a" in said
    assert "No score: the judge's reply has no number" in said
    assert "not comparable" in said
    assert "memory retrieval 10 ms (reused) · response 200 ms" in said
    assert "60 tokens in, 12 out" in said
    # A price that isn't known is said, and is no nought.
    assert "cost unknown" in said


def test_what_a_column_is_at_is_seen_while_it_is_at_work(visit: Open, desk: FakeDesk) -> None:
    desk.busy = True
    states = {
        "base": Outcome(state="response", response="A short no"),
        "none": Outcome(state="waiting"),
        "few-shot-cot": Outcome(
            state="post", retrieved=made.RETRIEVED, post_text="1, because", retrying="timeout: again"
        ),
    }
    desk.answer = lambda column: states["base" if column.memory == "base" else column.mitigation]
    app = asked(visit)
    said = told(app)
    assert "A short no ▌" in said
    for words in ("answering", "waits for its turn", "post-processing", "1, because ▌", "timeout: again"):
        assert words in said
    assert "0 of 3 columns" in said
    # Nothing can be kept or changed before the end.
    assert not {"case-save-button", "case-edit-ask"} & keys_of(app)
    app.button(key="case-cancel").click().run()
    assert desk.sessions[0].cancelled
    assert "cancelled" in told(app)


def several(visit: Open, desk: FakeDesk, outcomes: Sequence[Outcome]) -> AppTest:
    """A case whose columns beside BASE came to this; the page after it."""
    waiting = list(outcomes)
    desk.answer = lambda column: made.BASE if column.memory == "base" else waiting.pop(0)
    app = visit("case", data="bundled sample")
    columns = app.multiselect(key="columns")
    names = [*columns.value, *(each for each in columns.options if each not in ("RAG", "RAG + Few-Shot-CoT"))]
    columns.set_value(names[: len(outcomes)]).run()
    app.button(key="case-ask").click().run()
    assert not app.exception, app.exception[0].value
    assert not waiting
    return app


def test_every_fault_looks_like_what_it_is(visit: Open, desk: FakeDesk) -> None:
    kinds = sorted(case_failures._KINDS)
    assert len({case_failures._KINDS[kind] for kind in kinds}) == len(kinds)
    for some in (kinds[:9], kinds[9:]):
        faults = [Outcome(state="failed", error_kind=kind, error=f"{kind} it said") for kind in some]
        app = several(visit, desk, faults)
        said = told(app)
        assert [error.value for error in app.error] == [case_failures._KINDS[kind][1] for kind in some]
        assert all(f"{kind} it said" in said for kind in some)
        pages = [proto.page for name, proto in elements(app) if name == "page_link"]
        # What isn't ingested is ingested over there.
        assert sum("memories" in page for page in pages) == some.count("memory")


def test_every_end_looks_like_what_it_is(visit: Open, desk: FakeDesk) -> None:
    ends: list[tuple[dict[str, Any], str]] = [
        ({"retrieved": (), "context": ()}, "The search found no memory"),
        (
            {"post_state": "failed", "post_reason": "cut off"},
            "The post-processor failed (cut off): the memories went on as they were retrieved.",
        ),
        ({"post_state": "nothing", "context": ()}, "The post-processor keeps nothing"),
        ({"finish_reason": "length"}, "Cut off: the longest response is 512 tokens"),
        ({"finish_reason": "content_filter"}, "Refused: the provider's filter cut the answer off"),
        ({"response": " "}, "The model answered with nothing"),
        ({"draft": "First.", "critique": "Less.", "post_state": "failed"}, "the draft stands as it was"),
        ({"at_once": True}, "reused, unpaid"),
        ({"prompt_tokens": None}, "tokens not told"),
    ]
    said = told(several(visit, desk, [made.REMINDER.model_copy(update=change) for change, _ in ends]))
    assert all(said.count(words) == 1 for _, words in ends)


def test_a_case_that_cannot_be_asked_says_why(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit)
    desk.sessions[0].error = "the data are damaged: mend them"
    app.run()
    assert "the data are damaged: mend them" in told(app)


def test_another_case_cancels_the_one_before(visit: Open, desk: FakeDesk) -> None:
    desk.busy = True
    app = asked(visit)
    app.button(key="case-ask").click().run()
    first, second = desk.sessions
    assert first.cancelled
    assert not second.cancelled


# --- which memory did it -------------------------------------------------------------------------------------------


def test_loaded_anew_the_page_finds_the_case_again(visit: Open, desk: FakeDesk) -> None:
    desk.busy = True
    app = asked(visit)
    anew = visit("case", data="bundled sample", live=live_of(app))
    assert made.BASE.response in told(anew)
    assert "case-cancel" in keys_of(anew)
    assert live_of(anew) == live_of(app)
    assert len(desk.sessions) == 1


def test_a_case_is_found_again_by_its_asker_alone(visit: Open, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    app = asked(visit)
    id = live_of(app)
    be(monkeypatch, "editor")
    theirs = visit("case", data="bundled sample", live=id)
    assert made.BASE.response not in told(theirs)
    assert "live" not in theirs.query_params


def test_a_link_to_a_case_that_nobody_has_any_more_opens_the_form(visit: Open, desk: FakeDesk) -> None:
    app = visit("case", data="bundled sample", live="0123456789abcdef0123456789abcdef")
    assert "case-ask" in keys_of(app)
    assert not app.warning
    assert "live" not in app.query_params


def test_what_failed_is_asked_again(visit: Open, desk: FakeDesk) -> None:
    failed = Outcome(state="failed", error_kind="rate_limit", error="m: rate limited", total_ms=5.0)
    desk.answer = lambda column: failed if column.memory == "rag" else made.BASE
    app = asked(visit, columns="RAG")
    desk.answer = answer
    app.button(key="case-again").click().run()
    assert not app.exception
    first, second = desk.sessions
    assert second.spec == first.spec
    assert str(made.RAG.scores[0].reason) in told(app)
    assert "case-again" not in keys_of(app)


def test_what_broke_off_is_no_answer_to_compare(visit: Open, desk: FakeDesk) -> None:
    """Nor are its tokens and cost made up."""
    broken = Outcome(
        state="failed",
        error_kind="timeout",
        error="m: no answer within 5 s",
        response="A book about",
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        total_ms=5_000.0,
    )
    desk.answer = lambda column: broken if column.memory == "rag" else made.BASE
    app = asked(visit, columns="RAG")
    said = told(app)
    assert "Failed: this is as far as it came." in said
    assert "tokens and cost of an answer that broke off aren't known" in said
    assert "What differs" not in said


def test_leave_one_out_names_the_memory_and_draws_it(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit)
    assert "case-leave-0" not in keys_of(app)  # BASE has no memories.
    app.button(key="case-leave-1").click().run()
    assert set(desk.sessions[0].left) == {(1, "retrieval")}
    assert "Memory 1 did it: without it the score rises from 0.25 to 1.00." in told(app)
    assert any(name == "plotly_chart" for name, _ in elements(app))
    app.segmented_control(key="case-at-2").set_value("context").run()
    app.button(key="case-leave-2").click().run()
    assert (2, "context") in desk.sessions[0].left


def test_a_leave_one_out_at_work_shows_how_far_it_is_and_can_be_cancelled(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit)
    session = desk.sessions[0]
    waiting = made.ABLATION.items[1].model_copy(update={"outcome": Outcome(), "score_change": None, "similarity": None})
    session.left[1, "retrieval"] = made.ABLATION.model_copy(
        update={"over": False, "items": (made.ABLATION.items[0], waiting)}
    )
    session.busy = True
    app.run()
    assert "Memory 1 did it" not in told(app)
    bars = [proto.text for name, proto in elements(app) if name == "progress"]
    assert "1 of 2 answers" in bars
    app.button(key="case-stop-1-retrieval").click().run()
    assert session.left[1, "retrieval"].over


def test_without_a_memory_is_a_column_beside(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit)
    app.button(key="case-without-1-2").click().run()
    further = desk.sessions[1].spec.columns
    assert further[1] == Column(model=MODEL, memory="rag", without=(2,))
    assert further[0].memory == "base"
    names = [head.value.replace("\\", "") for head in app.subheader]
    # BASE stands there once.
    assert names.count("BASE") == 1
    assert "RAG (without 2)" in names


# --- changed in place ----------------------------------------------------------------------------------------------


def test_k_temperature_and_prompt_are_changed_and_asked_beside(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit)
    app.selectbox(key="case-edit").set_value(2).run()
    # The same again at temperature 0 would be the same answer.
    assert app.button(key="case-edit-ask").disabled
    app.number_input(key="case-edit-k-2").set_value(2).run()
    app.number_input(key="case-edit-temperature-2").set_value(0.5).run()
    prompts = [area for area in app.text_area if str(area.key).startswith("case-edit-prompt-2-")]
    assert prompts
    prompts[0].set_value("Keep what was asked for.").run()
    app.button(key="case-edit-ask").click().run()
    column = desk.sessions[1].spec.columns[1]
    assert (column.k, column.temperature, column.mitigation) == (2, 0.5, "few-shot-cot")
    assert list(column.prompts.values()) == ["Keep what was asked for."]
    assert column.given is None
    # What it changed stands there, beside the column that it came from.
    assert app.selectbox(key="case-before-4").value == 2
    assert app.selectbox(key="case-after-4").value == 3


def test_at_a_temperature_the_same_again_is_another_draw(visit: Open, desk: FakeDesk) -> None:
    app = asked(visit, temperature="0.7")
    app.selectbox(key="case-edit").set_value(1).run()
    app.button(key="case-edit-ask").click().run()
    app.selectbox(key="case-edit").set_value(1).run()
    app.button(key="case-edit-ask").click().run()
    assert [session.spec.columns[1].repeat for session in desk.sessions[1:]] == [1, 2]


# --- kept ----------------------------------------------------------------------------------------------------------


def test_a_case_is_saved_with_all_columns_and_opened_by_its_link(visit: Open, store: Store, desk: FakeDesk) -> None:
    app = asked(visit)
    app.button(key="case-without-1-2").click().run()
    app.button(key="case-leave-3").click().run()
    app.text_input(key="case-save-name").input("Bread <b>again</b>")
    app.text_area(key="case-save-note").input("for Monday")
    app.button(key="case-save-button").click().run()
    (row,) = kept.list_cases(store)
    saved = kept.load_case(store, row.id)
    assert (saved.name, saved.note) == ("Bread <b>again</b>", "for Monday")
    assert len(saved.spec.columns) == len(saved.outcomes) == 4
    assert [ablation.column for ablation in saved.ablations] == [3]
    assert f"case={row.id}" in " ".join(block.value for block in app.code)

    opened = visit("case", case=row.id)
    assert len(desk.sessions) == 2  # Nobody is asked again.
    said = told(opened)
    assert "RAG (without 2)" in said
    assert "Memory 1 did it" in said
    assert "for Monday" in said
    assert "case-ask" not in keys_of(opened)


def test_a_case_without_a_name_is_not_saved(visit: Open, store: Store, desk: FakeDesk) -> None:
    app = asked(visit)
    app.button(key="case-save-button").click().run()
    assert kept.list_cases(store) == []
    assert app.error


def test_a_key_that_was_typed_is_in_no_saved_case(visit: Open, store: Store, desk: FakeDesk) -> None:
    key = "sk-secret-of-the-session"
    desk.answer = lambda column: made.BASE.model_copy(update={"response": f"You gave me {key}."})
    app = visit("case", data="bundled sample")
    app.multiselect(key="models").set_value(["gpt-4o-mini"]).run()
    app.text_input(key="key-OPENAI_API_KEY").input(key).run()
    app.button(key="case-ask").click().run()
    app.text_input(key="case-save-name").input("with a key")
    app.button(key="case-save-button").click().run()
    (row,) = kept.list_cases(store)
    assert key not in kept.load_case(store, row.id).model_dump_json()
    assert key not in str(dict(app.query_params))


def test_a_saved_case_is_renamed_and_deleted(visit: Open, store: Store) -> None:
    case = save(store)
    app = visit("case", case=case)
    app.text_input(key=f"case-name-{case}").input("Another name").run()
    app.button(key=f"case-rename-{case}").click().run()
    assert kept.load_case(store, case).name == "Another name"
    app.button(key=f"case-delete-{case}").click().run()
    assert kept.list_cases(store) == []
    assert "No case is saved yet" in told(app)


def test_a_link_to_a_case_that_is_gone_says_so(visit: Open) -> None:
    app = visit("case", case="0123456789abcdef")
    assert "no saved case" in told(app)
    assert "case-close" in keys_of(app)


def test_a_book_is_made_ordered_exported_and_deleted(visit: Open, store: Store) -> None:
    first, second = save(store, name="One"), save(store, name="Two")
    app = visit("case")
    app.text_input(key="book-name").input("For the appendix").run()
    app.multiselect(key="book-cases").set_value([second, first]).run()
    app.button(key="book-make").click().run()
    (book,) = kept.list_books(store)
    assert (book.name, book.cases) == ("For the appendix", (second, first))
    app.multiselect(key=f"book-cases-{book.id}").set_value([first]).run()
    app.button(key=f"book-keep-{book.id}").click().run()
    assert kept.list_books(store)[0].cases == (first,)
    app.button(key=f"book-delete-{book.id}").click().run()
    assert kept.list_books(store) == []


# --- who may -------------------------------------------------------------------------------------------------------


def test_viewers_read_and_export_and_ask_nothing(
    visit: Open, store: Store, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = save(store)
    be(monkeypatch, "viewer")
    app = visit("case", data="bundled sample")
    assert "only editors ask models" in told(app)
    assert "case-ask" not in keys_of(app)
    opened = visit("case", case=case)
    assert "Memory 1 did it" in told(opened)
    assert not {f"case-rename-{case}", f"case-delete-{case}"} & keys_of(opened)
    assert any(name == "download_button" and "case-html" in proto.id for name, proto in elements(opened))


def test_a_right_that_ended_meanwhile_asks_nothing(
    visit: Open, store: Store, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = save(store)
    app, opened = asked(visit), visit("case", case=case)
    be(monkeypatch, "viewer")
    app.button(key="case-without-1-2").click()
    app.button(key="case-leave-1").click().run()
    opened.button(key=f"case-delete-{case}").click().run()
    assert len(desk.sessions) == 1
    assert not desk.sessions[0].left
    assert [row.id for row in kept.list_cases(store)] == [case]


# --- hostile text --------------------------------------------------------------------------------------------------


def test_text_of_models_memories_and_people_stays_text(visit: Open, store: Store, desk: FakeDesk) -> None:
    hostile = made.REMINDER.model_copy(
        update={
            "response": NASTY,
            "retrieved": (Found(text=NASTY, date=NASTY, score=0.5),),
            "context": (),
            "post_text": NASTY,
            "post_reason": NASTY,
            "scores": (Judged(metric=NASTY, value=0.5, reason=NASTY),),
            "draft": NASTY,
            "critique": NASTY,
            "finish_reason": NASTY,
        }
    )
    failed = Outcome(state="failed", error_kind="server", error=NASTY, response=NASTY)
    desk.answer = lambda column: failed if column.memory == "base" else hostile
    app = asked(visit, ask="free text", question=NASTY[:900])
    item = made.ABLATION.items[0].model_copy(update={"text": NASTY, "outcome": hostile})
    desk.sessions[0].left[1, "retrieval"] = made.ABLATION.model_copy(update={"items": (item,)})
    app.run()
    case = save(
        store,
        name=NASTY[:100],
        note=NASTY,
        outcomes=(failed, hostile, hostile),
        spec=made.SPEC.model_copy(update={"question": NASTY}),
        maker=NASTY[:80],
    )
    for page in (app, visit("case", case=case), visit("case")):
        for name, proto in elements(page):
            if name in _AS_IT_IS or name in ("text", "code"):
                continue
            for text in texts(proto):
                assert not _MARKUP.search(text), (name, text)
                assert not _HIDDEN.search(text), (name, text)
