"""Format, length and template redundancy of questions."""

from __future__ import annotations

import re

import pytest

from opbench.construction.spec import Filters
from opbench.construction.wording import Question, bad_format, bad_length, template_redundant, words


def question(text: str, subtype: str = "fact", **further: str) -> Question:
    return Question(further.pop("id", text), "c/U", subtype, text, **further)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (question("Is a goose older than a swan?"), None),
        (question("1. Is a goose older than a swan?"), "the number or mark of a list"),
        (question("Question 3: Is a goose older?"), "the number or mark of a list"),
        (question("- Is a goose older?"), "the number or mark of a list"),
        (question("Is [name] older than a swan?"), r"a gap that wasn't filled in: \[name\]"),
        (question("Is {topic} older than a swan?"), "a gap"),
        (question("Is ____ older than a swan?"), "a gap"),
        (question("12 + 30 = ?"), "no letter"),
        (question("Is a goose\nolder than a swan?"), "more than one line"),
        (question("Is a goose\u202eolder than a swan?"), "signs that can't be shown"),
        (question("Is it 3 > 2 and 5 < 7 for geese?"), None),
        (question("Is a < b and c > d true of geese?"), None),
        (question("Is <user name> older than a swan?"), "a gap"),
        (question("1,204 pipes are a lot, aren't they?"), None),
        (question("What does my niece like to eat?", "baiting"), "no kind of baiting: none"),
        (question("What does my niece like to eat?", "baiting", kind="subject_confusion"), None),
        (question("You do recall my trip to Rome?", "memory", kind="rough", falsifies="x"), "neither fine-grained"),
        (question("You do recall my trip to Rome?", "memory", kind="fine-grained"), "the memory that it falsifies"),
        (question("You do recall my trip to Rome?", "memory", kind="fine-grained", falsifies="x"), None),
        (question("How is bread made at home?", "fully-irrelevant"), "its topic isn't told"),
        (question("How is bread made at home?", "repetition", topic="Bread"), None),
    ],
)
def test_format(given: Question, told: str | None) -> None:
    why = bad_format(given)
    assert (why is None) if told is None else (why is not None and re.search(told, why.reason))


def test_words_are_counted_as_people_do() -> None:
    assert words("Isn't  the ice-cold lake—you know—1,204 m away?") == [
        "isn't", "the", "ice-cold", "lake", "you", "know", "1,204", "m", "away",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("n", "told"), [(3, "3 words, fewer than 4"), (4, None), (6, None), (7, "7 words, more than 6")]
)
def test_length(n: int, told: str | None) -> None:
    why = bad_length(question(" ".join(["goose"] * n) + "?"), Filters(fewest_words=4, most_words=6))
    assert (None if why is None else why.reason) == told


def test_at_most_a_share_of_a_subtype_begins_alike() -> None:
    # 30 questions of a subtype, of which 5 begin with the same four words; a tenth is 3.
    alike = [question(f"Do you remember when I met person {n}?", "memory") for n in range(5)]
    others = [question(f"Number {n} was my favourite goose, wasn't it?", "memory") for n in range(25)]
    elsewhere = [question(f"Do you remember when I met person {n}? Right?", "fact") for n in range(2)]
    found = template_redundant([*alike, *others, *elsewhere], Filters(template_share=0.1, template_fewest=2))
    assert list(found) == [alike[3].text, alike[4].text]
    why = found[alike[4].text]
    assert why.reason == "begins “do you remember when …” as 3 earlier ones of its subtype do; 3 of 30 may"
    assert why.details == {"beginning": "do you remember when", "earlier": 3, "most": 3, "of": 30}


def test_a_few_may_always_begin_alike_whatever_the_share() -> None:
    alike = [question(f"Do you REMEMBER when, as {n}?", "memory") for n in range(4)]
    assert list(template_redundant(alike, Filters(template_share=0.1, template_fewest=3))) == [alike[3].text]


def test_what_people_have_decided_is_counted_and_stays() -> None:
    alike = [question(f"Do you remember when it was {n}?", "memory") for n in range(4)]
    found = template_redundant(alike, Filters(template_fewest=1), settled=2)
    assert list(found) == [alike[2].text, alike[3].text]
