"""Figures and sentences of retrieval, language and repetition: what they show is what the frames hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis.retrieval_similarity import (
    abstention_curves,
    cosines,
    separations,
    should_abstain,
    similarity_differences,
    similarity_table,
)
from opbench.figures import theme
from opbench.figures.language import names_of, signed, word_bars, word_cloud, word_list
from opbench.figures.mechanism_answers import language_answers, repetition_answers, retrieval_answers
from opbench.figures.response_map import dispersion_figure, map_figure, recurring_figure
from opbench.figures.retrieval_similarity import (
    abstention_figure,
    mean_figure,
    separation_figure,
    similarity_figure,
)
from tests.analysis.conftest import BASE, RAG
from tests.analysis.test_response_map import texts as response_texts
from tests.analysis.test_retrieval_similarity import HAND, found_of

NAN = math.nan
USERS = "ABCDEF"
FRAMES = (similarity_table, similarity_differences, should_abstain, separations)


def apart(memory: str = "rag") -> pd.DataFrame:
    made = np.random.default_rng(1)
    tops = {"fully-irrelevant": 0.2, "baiting": 0.5, "locomo": 0.5}
    return found_of(
        {group: {user: made.normal(top, 0.05, 4).tolist() for user in USERS} for group, top in tops.items()}, memory
    )


def word(name: str, delta: float, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"word": name, "order": 1, "count_with": 8, "count_without": 2, "per_1000_with": 4.0}
    row |= {"per_1000_without": 1.0, "responses_with": 7, "responses_without": 2, "users": 6, "delta": delta}
    row |= {"variance": 0.25, "z": 2 * delta, "analytic_low": delta - 1, "analytic_high": delta + 1}
    row |= {"low": delta - 0.5, "high": delta + 0.5, "p": 0.01, "p_adjusted": 0.04, "reason": ""}
    return row | {"from_memories": 0.0, "from_question": 0.5, "content": False} | more


WORDS = pd.DataFrame(
    [
        word("glad", 1.5),
        word("wonderful", 0.5, low=NAN, high=NAN, p=NAN, p_adjusted=NAN, reason="2 users have it, an interval needs 5"),
        word("<b>well-known</b>", 0.2, p_adjusted=0.9),
        word("however", -2.0),
    ]
)


def named(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_a_panel_a_memory_system_and_a_curve_a_group_whose_shares_are_a_hundred() -> None:
    frame = cosines(pd.concat([apart(), apart("random")]))
    figure = similarity_figure(frame, "recorded")
    assert [each.text for each in figure.layout.annotations] == ["<b>RAG</b>", "<b>random memories</b> (control)"]
    assert len(figure.data) == 6
    curve = figure.data[0]
    assert curve.name == "Fully irrelevant"
    assert sum(curve.y[::2]) == pytest.approx(100.0), "each bin is drawn from edge to edge"
    assert "of 24" in curve.customdata[0]
    assert figure.layout.xaxis2.title.text == "cosine of question and memory"
    assert [trace.showlegend for trace in figure.data] == [True] * 3 + [False] * 3
    assert len(figure.layout.shapes) == 6, "an upright a mean"


def test_a_cosine_of_one_and_a_negative_one_are_drawn() -> None:
    frame = cosines(found_of({"locomo": {"A": [1.0, -0.31, 0.2]}}))
    curve = similarity_figure(frame).data[0]
    assert sum(curve.y[::2]) == pytest.approx(100.0)
    assert min(curve.x) == pytest.approx(-0.35)


def test_means_without_interval_are_hollow_and_say_why() -> None:
    figure = mean_figure(similarity_table(HAND))
    trace, other = figure.data
    assert (trace.y, other.y) == (("Fully irrelevant",), ("LoCoMo",))
    assert (trace.x[0], other.x[0]) == (pytest.approx(0.2), pytest.approx(0.3))
    assert trace.marker.color == "rgba(0,0,0,0)"
    assert "2 users, an interval needs 5" in trace.customdata[0]
    assert "3 cosines of 4 questions (1 without a memory)" in trace.customdata[0]


def test_intervals_are_drawn_to_both_sides() -> None:
    table = similarity_table(apart())
    figure = mean_figure(table)
    row = table[table["group"] == "baiting"].iloc[0]
    trace = next(each for each in figure.data if "Baiting" in each.y)
    assert trace.error_x.array[0] == pytest.approx(row["high"] - row["mean"])
    assert trace.error_x.arrayminus[0] == pytest.approx(row["mean"] - row["low"])


def test_thresholds_are_drawn_in_percent() -> None:
    curve = named(abstention_figure(abstention_curves(HAND)), "Fully irrelevant")
    by_threshold = dict(zip(curve.x, curve.y, strict=True))
    assert by_threshold[0.21] == pytest.approx(75.0)
    assert "of 4" in curve.hovertemplate


def test_areas_stand_beside_a_half() -> None:
    figure = separation_figure(separations(apart()))
    assert list(figure.data[0].y) == [
        "Fully irrelevant or LoCoMo",
        "Baiting or LoCoMo",
        "Fully irrelevant or Baiting",
    ]
    assert figure.layout.shapes[0].x0 == 0.5
    assert "n = 24 and 24" in figure.data[0].customdata[0]


def test_what_retrieval_comes_to_is_told_with_n_and_interval() -> None:
    found = pd.concat([apart(), apart("random")])
    said = retrieval_answers(*(make(found) for make in FRAMES))
    assert said[0].startswith("RAG retrieved something for 24 of 24 fully irrelevant questions (100 %)")
    assert said[1].startswith("Random memories (control) retrieved something")
    assert "a threshold tells fully irrelevant well from LoCoMo questions" in " ".join(said)
    assert "it can't be said whether a threshold tells baiting from LoCoMo questions" in " ".join(said)
    assert "(95 %)" in said[2]


def test_two_users_are_too_few_to_say_that_a_threshold_separates() -> None:
    found = apart()
    found = found[found["user"].isin(["A", "B"])]
    said = " ".join(retrieval_answers(*(make(found) for make in FRAMES)))
    assert "RAG: it can't be said whether a threshold tells fully irrelevant from LoCoMo questions" in said
    one = found[found["user"] == "A"]
    assert "one user tells nothing" in " ".join(retrieval_answers(*(make(one) for make in FRAMES)))


def test_without_locomo_what_a_threshold_loses_isnt_told() -> None:
    found = apart()
    found = found[found["group"] != "locomo"]
    said = retrieval_answers(*(make(found) for make in FRAMES))
    assert said[-1].startswith("Questions that need a memory (LoCoMo) aren't among these")


def test_bars_show_both_sides_by_z_with_intervals_and_counts() -> None:
    figure = word_bars(WORDS)
    first = named(figure, "more frequent with memory")
    second = named(figure, "more frequent without")
    hollow = figure.data[1]
    assert list(first.y) == ["glad", "&lt;b&gt;well-known&lt;/b&gt;"]
    assert list(hollow.y) == ["wonderful"]
    assert list(second.y) == ["however"]
    assert list(figure.layout.yaxis.categoryarray)[::-1] == [first.y[0], hollow.y[0], first.y[1], second.y[0]]
    assert list(first.error_x.array) == pytest.approx([0.5, 0.5])
    assert hollow.error_x.array is None
    assert hollow.marker.color == "rgba(0,0,0,0)"
    assert "2 users have it" in hollow.customdata[0]
    assert [trace.showlegend for trace in figure.data] == [True, False, True]
    assert "with memory 8 times in 7 responses, without 2 in 2" in first.customdata[0]
    assert figure.layout.shapes[0].x0 == 0.0


def test_an_interval_far_beyond_the_dots_doesnt_squash_them() -> None:
    wide = pd.DataFrame([word("glad", 1.0), word("rarely", 2.0, low=-80.0, high=84.0)])
    assert list(word_bars(wide).layout.xaxis.range) == [-5.0, 5.0]
    assert word_bars(WORDS).layout.xaxis.range is None


def test_each_side_shows_its_most_typical_words_only() -> None:
    figure = word_bars(WORDS, most=1)
    assert [list(trace.y) for trace in figure.data] == [["glad"], ["however"]]


def test_words_that_stand_nowhere_are_listed_without_a_dot() -> None:
    absent = word("really", NAN, z=NAN, low=NAN, high=NAN, reason="it stands in no response")
    figure = word_list(pd.DataFrame([absent, word("might", 0.3)]))
    assert list(figure.layout.yaxis.categoryarray)[::-1] == ["really", "might"]
    assert [note.text for note in figure.layout.annotations] == [theme.MISSING]
    assert "it stands in no response" in figure.layout.annotations[0].hovertext


def test_the_cloud_holds_one_sides_words_as_text_larger_by_z_and_the_same_each_time() -> None:
    figure = word_cloud(WORDS, "with")
    trace = figure.data[0]
    assert set(trace.text) == {"glad", "wonderful", "&lt;b&gt;well-known&lt;/b&gt;"}
    sizes = dict(zip(trace.text, trace.textfont.size, strict=True))
    assert sizes["glad"] > sizes["wonderful"]
    assert trace.mode == "text"
    again = word_cloud(WORDS, "with").data[0]
    assert (list(again.x), list(again.y)) == (list(trace.x), list(trace.y))
    assert list(word_cloud(WORDS, "without").data[0].text) == ["however"]
    assert word_cloud(WORDS[WORDS["delta"] > 0], "without").data[0].text in (None, ())


def test_what_language_comes_to_names_what_is_sure_and_what_the_paper_named() -> None:
    absent = word("really", NAN, z=NAN, low=NAN, high=NAN, reason="it stands in no response")
    said = language_answers(pd.DataFrame([absent, word("might", 0.3)]), WORDS, 36, 6)
    assert said[0] == "36 questions that both sides answered, of 6 users."
    assert said[1] == "“really” (named by the paper) stands in no response of either side."
    assert "log odds ratio +0.30, −0.20 to +0.80 (95 %), Holm's p = 0.04" in said[2]
    assert said[3].endswith("with memory (adjusted p at most 0.05): “glad”.")
    assert said[4].endswith("without (adjusted p at most 0.05): “however”.")


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    assert [signed(value) for value in (0.004, -0.004, -0.006, 1.25, NAN)] == ["0.00", "0.00", "−0.01", "+1.25", "n/a"]


def test_where_no_phrase_can_be_tested_the_most_users_that_one_has_are_told() -> None:
    few = {"low": NAN, "high": NAN, "p": NAN, "p_adjusted": NAN}
    rows = [
        word("glad", 1.0, **few, users=1, reason="1 user has it, an interval needs 5"),
        word("sad", -1.0, **few, users=3, reason="3 users have it, an interval needs 5"),
    ]
    assert language_answers(WORDS.head(0), pd.DataFrame(rows), 18, 3)[-1] == (
        "2 phrases counted; none can be tested: an interval needs 5 users who have a phrase, and there are 3 at most."
    )


def test_both_sides_with_memory_go_by_their_names_and_neither_is_without() -> None:
    names = names_of(("m", "rag", "few-shot-cot"), ("m", "rag", "none"))
    figure = word_bars(WORDS, names=names)
    assert named(figure, "more frequent with RAG + Few-Shot-CoT").y[0] == "glad"
    assert named(figure, "more frequent with RAG").y[0] == "however"
    assert figure.layout.xaxis.title.text == "log odds ratio; right: more frequent with RAG + Few-Shot-CoT"
    assert "with RAG + Few-Shot-CoT 8 times in 7 responses, with RAG 2 in 2" in figure.data[0].customdata[0]
    said = language_answers(pd.DataFrame([word("might", 0.3)]), WORDS, 36, 6, names)
    assert "8 times with RAG + Few-Shot-CoT, 2 with RAG; log odds ratio +0.30" in said[1]
    assert said[2].startswith("More frequent with RAG + Few-Shot-CoT (adjusted p at most 0.05): “glad”")
    assert said[3].startswith("More frequent with RAG (adjusted p at most 0.05): “however”")
    assert word_cloud(WORDS, "without", names=names).layout.title.text.startswith("More frequent with RAG")
    drawn = [*(text for trace in figure.data for text in trace.customdata), *said]
    assert not [text for text in drawn if "without" in text or "didn't see" in text]
    assert names_of(("m", "rag", "few-shot-cot"), BASE).second == "without"
    assert names_of(("m", "rag", "none"), ("m", "random", "none")).second == "with random memories"


def test_the_map_tells_explained_variance_and_what_a_click_hits() -> None:
    points = response_texts(RAG, re_A1={}, re_B1={}).assign(x=[1.0, 2.0], y=[0.5, -0.5])
    points = pd.concat([points, response_texts(BASE, re_A1={}).assign(x=0.0, y=0.0)])
    figure = map_figure(points, (0.61, 0.2))
    assert [trace.name for trace in figure.data] == ["RAG", "BASE"]
    assert list(figure.data[0].customdata[1]) == ["re-B1", "B", "m", "rag", "none"]
    assert "61 % of variance" in figure.layout.xaxis.title.text
    assert figure.layout.yaxis.scaleanchor == "x"
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol
    assert "no variance" in map_figure(points, (NAN, NAN)).layout.xaxis.title.text


def changes(**more: Any) -> pd.DataFrame:
    row = {"model": "m", "memory": "rag", "mitigation": "none", "against_memory": "base", "against_mitigation": "none"}
    numbers = {"dispersion": 70.0, "against": 80.0, "change": -10.0, "low": -15.0, "high": -5.0, "p": 0.01}
    numbers |= {"p_holm": 0.03, "tests": 3}
    rest = {"users": 6, "closer": 5, "responses": 90, "unequal": 0, "reason": ""}
    return pd.DataFrame([row | numbers | rest | more])


def test_a_change_of_dispersion_is_drawn_and_told() -> None:
    figure = dispersion_figure(changes())
    assert list(figure.data[0].x) == [-10.0]
    assert "70.0 − 80.0 = −10.0 points" in figure.data[0].customdata[0]
    assert repetition_answers(changes()) == [
        "RAG against BASE: dispersion 70.0 and 80.0 points, change −10.0, −15.0 to −5.0 (95 %), p = 0.01: "
        "closer together. Closer for 5 of 6 users."
    ]


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"low": -21.0, "high": 1.0}, "no difference can be told"),
        ({"low": NAN, "high": NAN, "p": NAN, "reason": "2 users, an interval needs 5"}, "no difference can be told"),
        ({"change": 10.0, "low": 5.0, "high": 15.0}, "farther apart"),
        ({"change": 0.0, "low": 0.0, "high": 0.0}, "the same for each of them"),
        ({"p_holm": 0.09, "tests": 9}, "closer together by itself, but not sure among 9 changes (Holm's p = 0.09)"),
    ],
)
def test_only_an_interval_that_leaves_out_0_is_a_finding(more: dict[str, Any], verdict: str) -> None:
    assert f": {verdict}." in repetition_answers(changes(**more))[0]


def test_recurring_memories_are_drawn_as_they_are_ranked() -> None:
    row = {"memory": "I <i>paddle</i> " + "far " * 30, "date": "", "questions": 9, "retrieved": 5, "went_on": 3}
    frame = pd.DataFrame([row | {"shows": 2, "instances": "a"}, row | {"retrieved": 4, "shows": 0, "instances": "b"}])
    figure = recurring_figure(frame)
    assert list(named(figure, "retrieved").x) == [5, 4]
    assert figure.data[0].y[0] == "1. I &lt;i&gt;paddle&lt;/i&gt; far far<br>far far far far far …"
    assert len(set(figure.data[0].y)) == 2
    assert "of 9 questions" in figure.data[0].customdata[0]


def test_empty_frames_make_empty_figures() -> None:
    nothing = HAND.head(0)
    similarity_figure(cosines(nothing))
    mean_figure(similarity_table(nothing))
    abstention_figure(abstention_curves(nothing))
    separation_figure(separations(nothing))
    word_bars(WORDS.head(0))
    word_cloud(WORDS.head(0), "with")
    dispersion_figure(changes().head(0))
    recurring_figure(pd.DataFrame(columns=["memory", "retrieved", "went_on", "shows", "questions", "instances"]))
