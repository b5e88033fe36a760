"""Words, dates, numbers and names."""

from __future__ import annotations

import pytest

from mitigations.evidence import Evidence
from mitigations.text import Date, content_words, find_dates, mentions, numbers, same_word, sentences, stem
from tests.mitigations.scripted import STORE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("moved", "moving"), ("move", "moves"), ("teaches", "teach"), ("bees", "bee"), ("classes", "class"),
        ("Thursdays", "Thursday"), ("baking", "bake"), ("allergic", "allergies"), ("allergy", "allergies"),
        ("running", "run"), ("parties", "party"), ("May", "may"), ("Jun", "June"), ("07", "7"), ("three", "3"),
    ],
)  # fmt: skip
def test_forms_of_one_word(one: str, other: str) -> None:
    assert same_word(stem(one), stem(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("walnut", "hazelnut"), ("Ghent", "Utrecht"), ("bee", "beer"), ("2023", "2024"), ("May", "March"), ("cat", "car")],
)
def test_different_words(one: str, other: str) -> None:
    assert not same_word(stem(one), stem(other))


def test_content_words_leave_out_small_words_and_keep_digits() -> None:
    assert content_words("She has been there with 3 of her bees") == {stem("3"), stem("bees")}


@pytest.mark.parametrize(
    "text",
    ["9 May 2024", "May 9, 2024", "9th of May 2024", "2024-05-09", "1:56 pm on 9 May, 2024", "MAY 9TH 2024"],
)
def test_every_spelling_of_a_date(text: str) -> None:
    assert find_dates(text) == [Date(2024, 5, 9)]
    assert mentions("She moved on 9 May 2024.", text)
    assert not mentions("She moved on 8 May 2024.", text)


def test_parts_of_dates() -> None:
    assert find_dates("in May 2024, on 3 June") == [Date(2024, 5, None), Date(None, 6, 3)]


def test_numbers() -> None:
    assert numbers("two cats, 1,200 books, the 3rd, 07:30") == {"2", "1200", "3", "7:30"}


def test_sentences() -> None:
    assert sentences("Dr. Vos came at 7 p.m. on Monday. She left! Why?") == [
        "Dr. Vos came at 7 p.m. on Monday.", "She left!", "Why?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sources", "what"),
    [
        ("Mara moved to Utrecht on 9 May 2024.", (3,), None),
        ("Mara moved to Utrecht in May 2024.", (3,), None),
        ("Mara moved to Utrecht in 2023.", (3,), "number"),
        ("Mara moved to Utrecht on 4 May 2024.", (3,), "date"),
        ("Mara moved to Utrecht on 2 May 2024.", (1, 3), "date"),  # 2 Feb and 9 May merged
        ("Mara moved to Utrecht with two cats.", (3,), "number"),
        ("Mara moved to Amsterdam.", (3,), "name"),
        ("Joost moved to Utrecht.", (3,), "name"),  # a name of the question
        ("Pieter moved to Utrecht.", (3,), "name"),  # no name that anybody mentioned, but where Mara's should stand
        ("The class moved from Thursdays to Tuesdays.", (4, 5), None),
        ("The class moved to Fridays.", (4, 5), "name"),
        ("Moving to Utrecht, Mara left Ghent.", (3,), None),
    ],
)
def test_invented(text: str, sources: tuple[int, ...], what: str | None) -> None:
    assert Evidence("When did Joost move to Utrecht?", STORE).invented(text, sources) == what


def test_the_users_name_is_known_from_most_memories() -> None:
    assert Evidence("?", STORE).users == {"user", stem("Mara")}
