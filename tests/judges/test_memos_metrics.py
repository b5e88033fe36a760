"""The lexical metrics of protocol memos, worked out by hand."""

from __future__ import annotations

import math

import pytest

from opbench.judges.memos_metrics import (
    METRIC_NAMES,
    bleu,
    context_tokens,
    lexical_scores,
    meteor,
    rouge,
    set_f1,
    tokens,
)
from opbench.judges.synonyms import WordNetSynonyms

from .helpers import evidence, locomo


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("On May 7, 2023.", ["on", "may", "7", ",", "2023", "."]),
        ("She didn't.", ["she", "did", "n't", "."]),
        # A full stop ends a sentence before white space, but not after an abbreviation or an initial.
        ("Yes. Mr. Tran did.", ["yes", ".", "mr.", "tran", "did", "."]),
        ("At 3 p.m. by J. Doe", ["at", "3", "p.m.", "by", "j.", "doe"]),
        ("No. She left!", ["no", ".", "she", "left", "!"]),
        ("bee-keeping", ["bee-keeping"]),
        ("", []),
    ],
)
def test_tokens_are_nltks_words_and_punctuation_marks_in_lower_case(text: str, found: list[str]) -> None:
    assert tokens(text) == found


@pytest.mark.parametrize(
    ("said", "wanted", "f1"),
    [
        ("a red red car", "a car", 0.8),  # sets {a, red, car} and {a, car}: 2·2 / (3 + 2); as multisets it were 2/3
        ("car", "car car car", 1.0),
        ("A Car", "a car", 1.0),
        ("car.", "car", 2 / 3),  # the full stop is a token
        ("bus", "car", 0.0),
    ],
)
def test_f1_is_over_sets_of_tokens(said: str, wanted: str, f1: float) -> None:
    assert set_f1(tokens(said), tokens(wanted)) == pytest.approx(f1)


def test_f1_of_nothing_is_zero() -> None:
    assert set_f1([], ["a"]) == set_f1(["a"], []) == 0.0


def test_bleu_with_brevity_penalty_and_smoothing() -> None:
    # All n-grams of three words match, none of four words is there: 0 / 1 becomes 0.1 (method 1).
    brevity = math.exp(-1 / 3)
    found = bleu(["the", "red", "car"], ["the", "red", "car", "too"])
    assert found == pytest.approx([brevity, brevity, brevity, brevity * 0.1**0.25])


def test_bleu_3_has_the_weights_of_the_original() -> None:
    # p1 = 2/3, p2 = 1/2, p3 = 0/1 → 0.1; with weights of 0.33 that sum to 0.99.
    found = bleu(["a", "b", "c"], ["a", "b", "d"])
    assert found[1] == pytest.approx(math.sqrt(2 / 3 * 1 / 2))
    assert found[2] == pytest.approx((2 / 3 * 1 / 2 * 0.1) ** 0.33)


def test_bleu_of_nothing_is_zero() -> None:
    assert bleu([], ["a"]) == bleu(["a"], ["b"]) == [0.0] * 4


def test_rouge_is_the_f_measure_with_stems() -> None:
    # red and car of three words each; one of two bigrams each; the longest common subsequence is red car.
    assert rouge("a red cars", "The red car") == pytest.approx({"rouge1": 2 / 3, "rouge2": 1 / 2, "rougeL": 2 / 3})
    # In another order: unigrams stay, the subsequence has one word, no bigram is left.
    assert rouge("car red", "red car") == pytest.approx({"rouge1": 1.0, "rouge2": 0.0, "rougeL": 0.5})


@pytest.mark.parametrize(
    ("said", "wanted", "score"),
    [
        ("a red car", "a red car", 1 - 0.5 / 27),  # one chunk of three matches: penalty ½ · (1/3)³
        ("car red a", "a red car", 0.5),  # three chunks: penalty ½
        (
            "a red",
            "a red car there",
            0.9375 * 0.5 / 0.95,
        ),  # P = 1, R = ½: F = P·R / (0.9 P + 0.1 R); penalty ½ · (1/2)³
        ("cars parked", "car parking", 0.9375),  # both by their stems
        ("a fast auto", "a fast car", 1 - 0.5 / 27),  # auto and car are synonyms; without them it were 0.625
        ("men", "man", 0.5),  # by the irregular plural; one match is one chunk: penalty ½
        ("automobile", "car", 0.0),  # nltk looks up synonyms of the stem, and automobil is no word
        ("bus", "car", 0.0),
    ],
)
def test_meteor_with_exact_stem_and_synonym_matches(said: str, wanted: str, score: float) -> None:
    assert meteor(tokens(said), tokens(wanted)) == pytest.approx(score)


def test_meteor_of_nothing_is_zero() -> None:
    assert meteor([], ["a"]) == meteor(["a"], []) == 0.0


def words(word: str) -> set[str]:
    return {lemma.name() for synset in WordNetSynonyms().synsets(word) for lemma in synset.lemmas()}


def test_synonyms_by_base_forms() -> None:
    assert {"car", "auto", "automobile", "machine", "motorcar"} <= words("automobile")
    assert "automobile" in words("cars")  # an ending
    assert "mouse" in words("mice")  # irregular
    assert "walk" in words("walking")
    assert "joyful" in words("Joyful"), "any case"
    assert not words("qwertzuiop")
    assert not words(".")


def test_all_metrics_of_a_response() -> None:
    scores = lexical_scores(evidence(locomo("multi-hop", "What?", "a red car; a bike"), "<think>Hm.</think>A red car"))
    assert tuple(score.metric for score in scores) == METRIC_NAMES
    found = {score.metric: score.value for score in scores}
    # The whole gold answer counts: a red car ; bike are its tokens, three of five are said, all that is said is in it.
    assert found["memos_f1"] == pytest.approx(2 * 3 / (3 + 5))
    assert all(value is not None and 0 <= value <= 1 for value in found.values())


@pytest.mark.parametrize(
    ("response", "gold", "reason"),
    [
        ("  ", "a car", "empty response"),
        ("<think>a car</think>", "a car", "empty response: only a thinking block"),
        ("a car", None, "no gold answer"),
    ],
)
def test_what_cannot_be_scored_is_missing_with_its_reason(response: str, gold: str | None, reason: str) -> None:
    scores = lexical_scores(evidence(locomo("temporal", "When?", gold), response))
    assert [(score.value, score.reason) for score in scores] == [(None, reason)] * len(METRIC_NAMES)


def test_context_tokens_count_words_and_punctuation_marks() -> None:
    # Memories of Rosa : - ( 8 May 2023 ) I ran .
    assert context_tokens("Memories of Rosa:\n- (8 May 2023) I ran.") == 13
    assert context_tokens("") == 0
