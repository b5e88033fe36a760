"""Reading answers item by item: a bad one goes alone, with its reason."""

from __future__ import annotations

import re

import pytest

from opbench.construction.asking import Wrong
from opbench.construction.prompting import FOLDER, load_prompt
from opbench.construction.shapes import (
    Items,
    own,
    read_keyed,
    read_names,
    read_noted,
    read_observations,
    read_questions,
    read_relations,
    read_text,
)


def told(items: Items) -> list[tuple[str, str | None]]:
    return [(item.question, item.wrong) for item in items.items]


def test_a_bad_item_goes_alone_and_one_without_question_is_counted() -> None:
    given = {
        "items": [
            {"question": " Is it   so? ", "explanation": "It isn't."},
            {"question": "Why?", "explanation": 7},
            {"explanation": "No question."},
            "What?",
            {"question": "Really?"},
            {"question": "Surely?", "explanation": "No."},
        ]
    }
    items = read_noted(given, 5, ("explanation",))
    assert told(items) == [
        ("Is it so?", None),
        ("Why?", '"explanation" must be a text'),
        ("Really?", '"explanation" is missing'),
        ("Surely?", None),
    ]
    assert items.without_question == 2
    assert items.items[0].fields == {"explanation": "It isn't."}


def test_more_than_was_asked_for_is_dropped_with_that_reason() -> None:
    items = read_questions({"questions": ["A?", {"question": "B?"}, "C?"]}, 2)
    assert told(items) == [("A?", None), ("B?", None), ("C?", "more questions than the 2 that were asked for")]


def test_an_endless_list_is_bounded() -> None:
    items = read_questions({"questions": [f"Q{n}?" for n in range(1000)]}, 3)
    assert len(items.items) == 60
    assert len(items.good) == 3
    assert items.without_question == 940


def test_a_question_that_is_too_long_is_dropped() -> None:
    items = read_questions({"questions": ["A?", "x" * 401]}, 2)
    assert told(items)[1] == ("x" * 400, "the question has 401 characters; at most 400")


@pytest.mark.parametrize(
    "value", [{}, {"questions": "A?"}, {"questions": []}, {"questions": ["", " ", None, 3, {"q": "A?"}]}]
)
def test_without_any_question_the_answer_is_wrong(value: object) -> None:
    with pytest.raises(Wrong):
        read_questions(value, 3)


def test_each_key_has_its_question_and_others_are_passed_over() -> None:
    value = {"2": {"question": "B?", "note": "b"}, "1": {"question": "A?", "note": "a"}, "3": {"question": "C?"}}
    items = read_keyed(value, ("1", "2"), ("note",))
    assert [(item.key, item.question) for item in items.items] == [("1", "A?"), ("2", "B?")]


def test_names_are_different_and_at_most_so_many() -> None:
    value = {"topics": ["Tea ", "tea", "", 3, "x" * 61, "Bread", "Trams"]}
    assert read_names(value, "topics", 2) == ["Tea", "Bread"]
    with pytest.raises(Wrong, match="no name of its own"):
        read_names({"topics": ["", None]}, "topics", 2)


def test_every_topic_must_be_judged() -> None:
    assert read_relations({"work": "related", "Health ": "unrelated"}, ("work", "health")) == ["health"]
    with pytest.raises(Wrong, match='"health"'):
        read_relations({"work": "unrelated", "health": "perhaps"}, ("work", "health"))


def test_observations_need_a_turn_of_the_session() -> None:
    turns = ("D1:1", "D1:2")
    good, bad = {"fact": "Ottilie swims.", "turn": "D1:2"}, {"fact": "She sings.", "turn": "D9:9"}
    assert read_observations({"observations": [bad, good]}, turns, 5) == ([("Ottilie swims.", "D1:2")], 1)
    assert read_observations({"observations": []}, turns, 5) == ([], 0)
    with pytest.raises(Wrong, match="turn"):
        read_observations({"observations": [bad]}, turns, 5)


def test_a_profile_of_a_word_is_wrong() -> None:
    with pytest.raises(Wrong, match="at least 60"):
        read_text({"profile": "Ottilie"}, "profile")


def test_what_is_copied_from_the_prompt_s_example_is_none_of_the_model_s() -> None:
    prompt = load_prompt("fact")
    copy = "salt in the water keeps cut flowers fresh for a month, doesn\u2019t it"
    assert prompt.holds(copy)
    assert not prompt.holds("flowers")
    items = read_questions({"questions": [copy, "Do bees sleep?"]}, 2)
    assert told(own(items, prompt.holds)) == [
        (copy, "it is copied from the prompt's example"),
        ("Do bees sleep?", None),
    ]
    with pytest.raises(Wrong, match="copied"):
        own(read_questions({"questions": [copy]}, 1), prompt.holds)
    assert read_names({"subtopics": ["Growing herbs", "Bees"]}, "subtopics", 2, load_prompt("subtopics").holds) == [
        "Bees"
    ]


def test_every_prompt_that_makes_texts_has_an_example_that_is_known() -> None:
    for file in sorted(FOLDER.glob("*.txt")):
        if file.stem not in ("similarity", "check_memory", "check_need"):
            lines = [line for line in load_prompt(file.stem).user.splitlines() if line.startswith("{")]
            assert len(lines) == 1, file
            texts = [text for text in re.findall(r'"([^"]+)"', lines[0]) if " " in text]
            assert texts
            assert all(load_prompt(file.stem).holds(text) for text in texts), file
