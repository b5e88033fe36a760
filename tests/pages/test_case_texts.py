"""The texts of a case: marks that are text and nothing else, a user to read, published cases beside our judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from opbench.benchmarks import load
from opbench.cases.marks import became, spans
from opbench.cases.outcome import Found, Shown
from opbench.store.database import Store
from pages.shared import texts
from pages.shared.case_text import pieces
from tests.pages.hostile import NASTY
from tests.pages.test_text_safety import _HIDDEN, _MARKUP, elements
from tests.pages.test_text_safety import texts as texts_of

LAKE = Found(text="Ottilie swims in the old quarry lake.", date="9 May 2024")


def run(body: Callable[..., None], **kwargs: Any) -> AppTest:
    app = AppTest.from_function(body, default_timeout=60, kwargs=kwargs).run()
    assert not app.exception, app.exception[0].value
    return app


def components(app: AppTest) -> list[dict[str, Any]]:
    """The data of the page's components."""
    return [json.loads(proto.json) for kind, proto in elements(app) if kind == "bidi_component"]


def shown_as_text(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def test_pieces_are_the_text_with_the_numbers_of_its_memories() -> None:
    response = "The old quarry lake is deep."
    found = pieces(response, spans(response, [LAKE]))
    assert found == [("The ", []), ("old quarry lake", [1]), (" is deep.", [])]
    assert pieces("", []) == []


def test_nothing_of_a_hostile_text_is_lost_or_hidden() -> None:
    found = pieces(NASTY, spans(NASTY, [Found(text=NASTY)]))
    assert any(numbers for _, numbers in found)
    whole = "".join(piece for piece, _ in found)
    assert not _HIDDEN.search(whole)
    assert whole == NASTY.replace("\x1b", "⟨ESC⟩").replace("\u202e", "⟨RLO⟩")


def _marked(text: str, memory: str) -> None:
    from opbench.cases.marks import spans
    from opbench.cases.outcome import Found
    from pages.shared import case_text

    found = [Found(text=memory, date="9 May 2024")]
    case_text.marked(text, spans(text, found), dict(enumerate(found, 1)), 0)


def test_a_marked_text_goes_to_the_component_in_pieces_with_the_memories() -> None:
    app = run(_marked, text="The old quarry lake is deep.", memory=LAKE.text)
    (data,) = components(app)
    assert data["pieces"] == [["The ", []], ["old quarry lake", [1]], [" is deep.", []]]
    assert data["memories"] == {"1": f"(9 May 2024) {LAKE.text}"}
    assert "no proof of cause" in app.caption[0].value


def test_a_text_without_marks_is_text_and_says_so() -> None:
    app = run(_marked, text="Use **vinegar**.", memory=LAKE.text)
    assert components(app) == []
    assert app.text[0].value == "Use **vinegar**."
    assert "No wording of a memory" in app.caption[0].value


def test_the_component_writes_text_nodes_alone() -> None:
    from pages.shared import case_text

    assert "innerHTML" not in case_text._SCRIPT
    assert "insertAdjacentHTML" not in case_text._SCRIPT
    # What it is given of texts stands in its data, never in its HTML, style or script.
    app = run(_marked, text=NASTY, memory=NASTY)
    for kind, proto in elements(app):
        if kind == "bidi_component":
            assert "alert(1)" not in proto.html_content + proto.css_content + proto.js_content


def _memories(texts: list[str], lines: list[tuple[str, list[int]]]) -> None:
    from opbench.cases.marks import became
    from opbench.cases.outcome import Found, Shown
    from pages.shared import case_text

    found = [Found(text=text, date=text) for text in texts]
    shown = [Shown(text=text, sources=tuple(sources)) for text, sources in lines]
    for fated in became(found, shown):
        if fated.number is not None:
            case_text.number(0, fated.number)
        case_text.memory(fated.runs)


def test_what_became_of_memories_is_told_by_weight_and_line_too() -> None:
    app = run(
        _memories,
        texts=[LAKE.text, "Ottilie likes tea."],
        lines=[("Ottilie swims in a lake.", [1]), ("Ottilie likes tea.", [2])],
    )
    (altered,) = [element.value for element in app.markdown if "~~" in element.value]
    assert altered == ("Ottilie swims in :gray[~~the old quarry~~] :violet-background[**a**] lake\\.")
    assert "Ottilie likes tea." in shown_as_text(app)


def test_hostile_memories_stay_text() -> None:
    app = run(_memories, texts=[NASTY, f"{NASTY} and more"], lines=[(f"{NASTY} tail", [1]), (NASTY, [])])
    for kind, proto in elements(app):
        for text in texts_of(proto):
            assert not _HIDDEN.search(text), (kind, text[:200])
            if kind != "text":
                assert not _MARKUP.search(text), (kind, text[:200])


def test_changed_pieces_are_escaped_and_marked_line_by_line() -> None:
    assert texts.changed([("a ", "kept"), ("*b*\nc ", "dropped"), ("d", "added")]) == (
        "a :gray[~~\\*b\\*~~]  \n:gray[~~c~~] :violet-background[**d**]"
    )
    lost = became([LAKE], [Shown(text="x", sources=())])[0]
    assert texts.changed(lost.runs) == ":gray[~~Ottilie swims in the old quarry lake\\.~~]"


def _user(user: str) -> None:
    from opbench.benchmarks import load
    from pages.shared import reading_user

    reading_user.draw(load("sample"), user)


def test_a_user_is_read_by_profile_observations_and_sessions() -> None:
    corpus = load("sample")
    profile = corpus.profiles["sample-1/Ottilie"]
    sessions = corpus.conversations["sample-1"].sessions
    app = run(_user, user="sample-1/Ottilie")
    assert profile.profile in shown_as_text(app)
    read = app.segmented_control(key="user-read")
    read.set_value("observations").run()
    assert not app.exception
    assert [element.value for element in app.text] == list(profile.observations[:10])
    app.number_input(key="user-sample-1/Ottilie-observations--page").set_value(2).run()
    assert [element.value for element in app.text] == list(profile.observations[10:20])
    read.set_value("history").run()
    assert sessions[0].day in app.selectbox(key="user-sample-1/Ottilie-session").options[0]
    assert sessions[0].turns[0].text in shown_as_text(app)
    app.selectbox(key="user-sample-1/Ottilie-session").select_index(1).run()
    assert sessions[1].turns[0].text in shown_as_text(app)
    assert sessions[0].turns[0].text not in shown_as_text(app)


def test_a_history_is_searched_whatever_the_case() -> None:
    corpus = load("sample")
    turns = [turn for session in corpus.conversations["sample-1"].sessions for turn in session.turns]
    holding = [turn for turn in turns if "goose" in turn.text.casefold()]
    assert holding
    app = run(_user, user="sample-1/Ottilie")
    read = app.segmented_control(key="user-read")
    read.set_value("history").run()
    app.text_input(key="user-sample-1/Ottilie-Search the history").set_value(" GOOSE ").run()
    assert any(caption.value.startswith(f"{len(holding)} turn") for caption in app.caption)
    assert [element.value for element in app.text] == [turn.text for turn in holding[:10]]
    app.text_input(key="user-sample-1/Ottilie-Search the history").set_value("no such word").run()
    assert any("No turn of the history" in caption.value for caption in app.caption)


def _published() -> None:
    import streamlit as st

    from opbench.benchmarks import load
    from pages.shared import published_cases

    asked = published_cases.choose(load("sample"), {})
    st.session_state["asked"] = asked


def test_a_published_case_brings_its_question_user_and_memories(store: Store) -> None:
    app = run(_published)
    asked = app.session_state["asked"]
    assert (asked.published, asked.user, asked.data, asked.subtype) == (
        "invented-1",
        "sample-1/Ottilie",
        "sample",
        "fully-irrelevant",
    )
    given = asked.columns[1].given
    assert [memory.text for memory in given][2] == "Ottilie keeps a one-eyed goose named Admiral."
    said = " ".join(element.value for element in app.markdown)
    assert "invented score 0.20" in said
    assert "offline judge" in said
    assert "published score" not in said
    (data,) = components(app)
    assert ["Admiral", [3]] in data["pieces"]


def test_our_judges_stand_beside_the_invented_scores(store: Store) -> None:
    app = run(_published)
    app.toggle(key="rated").set_value(True).run()
    assert not app.exception, app.exception[0].value
    scores, agreement, repetition = (element.value for element in app.dataframe)
    # Four cases that are no repetition, each with a response and a reference.
    assert len(scores) == 8
    assert (scores["offline"] - scores["invented"]).round(9).tolist() == scores["offline − invented"].round(9).tolist()
    assert agreement["n"].tolist() == [4, 8]
    assert repetition["n"].tolist() == [3, 3, 2, 2]
    assert any("Not the same thing" in caption.value for caption in app.caption)


@pytest.mark.parametrize("chosen", ["invented-5/2", "invented-6/1"])
def test_a_repetition_is_chosen_by_question(chosen: str, store: Store) -> None:
    app = run(_published)
    select = app.selectbox(key="published")
    select.set_value(chosen).run()
    assert not app.exception
    assert app.session_state["asked"].published == chosen
