"""LoCoMo's metrics, worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opbench.judges.dates import canonical_dates
from opbench.judges.locomo import bleu1, list_f1, locomo_scores, rouge_l, says_not_there, token_f1

from .helpers import locomo

SAME_DAY = ["7 May 2023", "May 7, 2023", "2023-05-07", "7th of May 2023", "7th May, 2023", "May the 7th, 2023"]
SAME_DAY += ["May 7th 2023", "07 May 2023", "2023/05/07", "7 may 2023", "7May, 2023", "7th of May, 2023"]


@pytest.mark.parametrize("written", SAME_DAY)
def test_a_day_in_any_format_is_the_same_answer(written: str) -> None:
    assert canonical_dates(written) == "7 may 2023"
    assert token_f1(written, "7 May 2023") == 1.0
    assert bleu1(written, "7 May 2023") == 1.0
    assert rouge_l(written, "7 May 2023") == 1.0


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("May, 2023", "may 2023"),
        ("In May of 2023", "In may 2023"),
        ("2023-05", "may 2023"),
        ("Sept. 3, 2022", "3 september 2022"),
        ("Dec 2023", "december 2023"),
        ("the week before June 9th", "the week before 9 june"),
        ("between 26 March and 20 April 2023", "between 26 march and 20 april 2023"),
        ("1:56 pm on 8 May, 2023", "1:56 pm on 8 may 2023"),
        # No date, or one of two readings: untouched.
        ("05/07/2023", "05/07/2023"),
        ("I may go 3 times", "I may go 3 times"),
        ("They march on.", "They march on."),
        ("2022-2023", "2022-2023"),
        ("Mar 10:30", "Mar 10:30"),
        ("May 2023", "may 2023"),
    ],
)
def test_dates(written: str, canonical: str) -> None:
    assert canonical_dates(written) == canonical


@given(st.text())
def test_dates_are_canonical_after_one_pass_over_any_text_without_error(text: str) -> None:
    canonical_dates(text)


def test_other_days_are_not_made_equal() -> None:
    assert token_f1("8 May 2023", "7 May 2023") == pytest.approx(2 / 3)  # may and 2023 of three tokens each
    assert token_f1("May 2023", "7 May 2023") == pytest.approx(0.8)  # p = 1, r = 2/3


@pytest.mark.parametrize(
    ("response", "gold", "f1"),
    [
        ("A parrot.", "the parrot", 1.0),  # articles, case and punctuation don't count
        ("parrots", "parrot", 1.0),  # Porter stems
        ("salt and pepper", "pepper, salt", 1.0),
        ("three beehives", "3 beehives", 1.0),
        ("Her sister Ilka", "Ilka", 0.5),  # p = 1/3, r = 1
        ("rye rye bread", "rye bread", 0.8),  # a repeated token counts once: p = 2/3, r = 1
        ("Danube", "Rhine", 0.0),
        ("the", "the", 0.0),  # nothing left to compare
    ],
)
def test_token_f1(response: str, gold: str, f1: float) -> None:
    assert token_f1(response, gold) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("May 3–5, 2023", "May 3-5, 2023"),
        ("3–5 May 2023", "3-5 May 2023"),
        ("March 26–April 20, 2023", "March 26 - April 20, 2023"),
        ("2022–2023", "2022-2023"),
        ("Yes—Caroline did", "Yes, Caroline did"),
        ("Yes – Caroline did", "Yes, Caroline did"),
        ("Yes--Caroline did", "Yes, Caroline did"),
        ("Yes…Caroline did", "Yes, Caroline did"),
        ("May 7—it rained", "7 May, it rained"),
    ],
)
def test_dashes_and_dots_part_words_as_a_space_does(written: str, same: str) -> None:
    assert token_f1(written, same) == token_f1(same, written) == 1.0
    assert bleu1(written, same) == rouge_l(written, same) == 1.0


@pytest.mark.parametrize(
    ("response", "gold", "f1"),
    [
        ("Kiwi, Ilka, Ben", "Ben, Kiwi, Ilka", 1.0),
        ("Kiwi, Ben", "Ben, Kiwi, Ilka", 2 / 3),
        ("Kiwi", "Kiwi", 1.0),
        ("rye bread, cake", "rye bread", 1.0),  # the official rule doesn't punish extra items
        ("May 7, 2023", "7 May 2023", 1.0),  # the comma of a date splits nothing
        ("nothing", "Ben, Kiwi", 0.0),
    ],
)
def test_list_f1(response: str, gold: str, f1: float) -> None:
    assert list_f1(response, gold) == pytest.approx(f1)


def test_bleu1_by_hand() -> None:
    assert bleu1("a parrot called Kiwi", "a parrot") == pytest.approx(2 / 4)
    assert bleu1("parrot", "a grey parrot") == pytest.approx(math.exp(1 - 3 / 1))  # precision 1, brevity penalty
    assert bleu1("parrot parrot", "parrot") == pytest.approx(1 / 2)  # clipped counts
    assert bleu1("goat", "parrot") == 0.0
    assert bleu1("?!", "parrot") == 0.0


def test_rouge_l_by_hand() -> None:
    # longest common subsequence "rosa bakes bread" of 4 and 3 words: p = 3/4, r = 1
    assert rouge_l("Rosa often bakes bread", "Rosa bakes bread") == pytest.approx(6 / 7)
    # order counts: "bread" or "rosa" alone
    assert rouge_l("bread Rosa", "Rosa bread") == pytest.approx(1 / 2)


def test_categories_choose_their_metrics() -> None:
    def f1(subtype: str, response: str, gold: str) -> float | None:
        scores = locomo_scores(locomo(subtype, "?", gold), response)
        assert [s.metric for s in scores] == ["f1", "bleu1", "rougeL"]
        return scores[0].value

    assert f1("multi-hop", "Kiwi, Ben", "Ben, Kiwi, Ilka") == pytest.approx(2 / 3)
    assert f1("single-hop", "Kiwi, Ben", "Ben, Kiwi, Ilka") == pytest.approx(0.8)
    assert f1("open-domain", "Yes", "Yes; since she says so") == 1.0
    assert f1("single-hop", "Yes", "Yes; since she says so") == pytest.approx(2 / 6)
    assert f1("temporal", "2022", "2022") == 1.0


@pytest.mark.parametrize(
    ("subtype", "metrics"), [("single-hop", ["f1", "bleu1", "rougeL"]), ("adversarial", ["correct"])]
)
def test_empty_answers_are_missing_with_reason(subtype: str, metrics: list[str]) -> None:
    instance = locomo(subtype, "?", "Ben")
    for response, finish, reason in (
        ("", None, "empty response"),
        ("  ", "stop", "empty response"),
        ("", "length", "empty response (length)"),
        ("<think>Ben", "length", "empty response (only a thinking block)"),
    ):
        scores = locomo_scores(instance, response, finish)
        assert [s.metric for s in scores] == metrics
        assert {(s.value, s.reason) for s in scores} == {(None, reason)}


def test_missing_gold_answer_is_missing_with_reason() -> None:
    scores = locomo_scores(locomo("single-hop", "?", None), "Ben")
    assert {(s.value, s.reason) for s in scores} == {(None, "no gold answer")}


def test_thinking_is_not_part_of_the_answer() -> None:
    assert locomo_scores(locomo("single-hop", "?", "Ben"), "<think>Kiwi or Ben?</think>Ben")[0].value == 1.0


@pytest.mark.parametrize(
    "response",
    [
        "Not mentioned in the conversation.",
        "No information available.",
        "I don't have any record of that.",
        "I don't know.",
        "The conversation doesn’t say.",
        "That was never mentioned.",
        "There is no mention of a goat.",
        "It cannot be determined from the conversation.",
        "She did not specify it.",
        "Unknown",
        "I do not have enough information to answer.",
        "I don't have specific information about that.",
        "I don't have any specific memory of that.",
        "I don't have any specific details",
        "There's nothing in the memories about that.",
        "I have no idea.",
        "I’ve no idea.",
        "I have no clue.",
        "There is nothing about that in our conversations.",
        "Nothing was said about it.",
        "There isn't any information on that.",
        "There is not enough information.",
        "I'm not sure.",
        "I'm not aware of any goat.",
        "I don't think she mentioned a goat.",
        "I haven't got any details.",
        "I don't have anything on that.",
        "I have no specific memory of it.",
        "N/A",
        "Nobody mentioned a goat.",
        "I couldn't find that.",
        "I have no recollection of that.",
        "I do not have any other details about the goat.",
        "It was not available.",
        "Information is not available.",
        "Melanie is not mentioned.",
        "That detail isn't in my notes: I have no record of it.",
        "There are no details about it.",
        "I don't have a clear memory of that.",
    ],
)
def test_abstaining_is_correct_for_an_adversarial_question(response: str) -> None:
    (score,) = locomo_scores(locomo("adversarial", "?", None), response)
    assert (score.metric, score.value) == ("correct", 1.0)


@pytest.mark.parametrize(
    "response",
    [
        "A parrot.",
        "She doesn't have a dog, she has a parrot.",
        "They don't have to pay.",
        "He isn't sure about it.",
        "Rosa said she doesn't like it.",
        "It was given to her by Ilka.",
        "The unknown painter from Linz.",
        "No, she sold it.",
        "I don't know about you, but she went to Paris.",
        "Melanie did not say no; she went to Paris.",
        "She adopted a dog, with no details spared.",
        "She was not available on Friday.",
        "Melanie was not available on Friday.",
        "She couldn't find her keys.",
        "Rosa kept no records of her runs.",
        "She didn't say goodbye.",
        "They had nothing in the fridge.",
        "I'm not sure, but I think Paris.",
        "She had no idea about the party.",
        "He was not given a dog.",
        "No expense was spared.",
        "There was nothing special about it.",
    ],
)
def test_an_answer_is_wrong_for_an_adversarial_question(response: str) -> None:
    assert not says_not_there(response)
    (score,) = locomo_scores(locomo("adversarial", "?", None), response)
    assert score.value == 0.0


@given(st.text(max_size=80), st.text(min_size=1, max_size=80))
def test_metrics_stay_within_zero_and_one(response: str, gold: str) -> None:
    for score in locomo_scores(locomo("multi-hop", "?", gold), response):
        assert score.value is None or 0 <= score.value <= 1 + 1e-12


def test_every_real_gold_answer_matches_itself(real_data: Path) -> None:
    names = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
    conversations = json.loads((real_data / "locomo" / "locomo10.json").read_text("utf-8"))
    questions = [(qa["category"], str(qa["answer"])) for c in conversations for qa in c["qa"] if qa["category"] != 5]
    assert len(questions) == 1540
    for category, gold in questions:
        response = gold.split(";")[0] if category == 3 else gold
        scores = locomo_scores(locomo(names[category], "?", gold), response)
        assert [s.value for s in scores] == pytest.approx([1.0, 1.0, 1.0])
