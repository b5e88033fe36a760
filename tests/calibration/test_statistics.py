"""Agreement with people over a small table worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from opbench.calibration.pairs import COLUMNS
from opbench.calibration.random_judge import RandomJudge
from opbench.calibration.statistics import agreement_with_people, verdict, worst
from opbench.judges.base import Evidence
from opbench.types import ChatRequest, ChatResult, Instance, User

NAN = float("nan")


def table(people: list[float], judge: list[float], **columns: list[Any]) -> pd.DataFrame:
    """One judging; responses 0 and 1 are of the first question, 2 and 3 of the second, …"""
    n = len(people)
    given = {
        "judging": ["j"] * n,
        "label": ["judge"] * n,
        "item": [f"item {number}" for number in range(n)],
        "pair": [f"question {number // 2}" for number in range(n)],
        "user": [f"c/{number % 2}" for number in range(n)],
        "subtype": ["fact"] * n,
        "people": people,
        "value": judge,
        "reason": [None] * n,
    } | columns
    frame = pd.DataFrame({name: given.get(name, [None] * n) for name in COLUMNS})
    return frame.assign(residual=frame["value"].astype(float) - frame["people"].astype(float))


def test_errors_by_hand() -> None:
    people = [0.2, 0.8, 0.4, 0.6, 0.1, 0.9, 0.3, 0.7, 0.5, 0.5]
    judge = [0.3, 0.6, 0.4, 0.8, 0.1, 1.0, 0.0, 0.7, 0.6, 0.4]
    (row,) = agreement_with_people(table(people, judge)).to_dict("records")
    # Differences .1 -.2 0 .2 0 .1 -.3 0 .1 -.1: sum -.1, sum of sizes 1.1.
    assert row["error"] == pytest.approx(-0.01)
    assert row["absolute_error"] == pytest.approx(0.11)
    assert (row["responses"], row["n"], row["missing"], row["unrated"], row["clusters"]) == (10, 10, 0, 0, 5)
    assert row["error_low"] < -0.01 < row["error_high"]
    assert 0 <= row["absolute_error_low"] < 0.11 < row["absolute_error_high"]
    # Sums of products and of squares about the means .5 and .49: .63, .60 and .869.
    assert row["pearson"] == pytest.approx(0.63 / math.sqrt(0.60 * 0.869))


def test_what_is_missing_is_counted_and_never_zero() -> None:
    people = [0.2, 0.8, 0.4, NAN, 0.1, 0.9]
    judge = [0.2, 0.8, NAN, 0.9, 0.1, 0.9]
    (row,) = agreement_with_people(table(people, judge)).to_dict("records")
    assert (row["responses"], row["n"], row["missing"], row["unrated"]) == (6, 4, 1, 1)
    assert row["error"] == 0
    assert math.isnan(row["error_low"])
    assert "2 questions, an interval needs 5" in row["note"] or "3 questions, an interval needs 5" in row["note"]


def test_nobody_scored_and_nothing_judged_say_so() -> None:
    (row,) = agreement_with_people(table([NAN, NAN], [0.5, 0.4])).to_dict("records")
    assert row["note"] == "nobody scored these responses"
    assert math.isnan(row["error"])
    (row,) = agreement_with_people(table([0.5, 0.4], [NAN, NAN], reason=["auth", "auth"])).to_dict("records")
    assert row["note"] == "auth"
    assert row["n"] == 0
    assert math.isnan(row["absolute_error"])


def test_by_subtype_each_stands_alone() -> None:
    frame = table([0.2, 0.8, 0.4, 0.6], [0.3, 0.9, 0.2, 0.4], subtype=["fact", "fact", "value", "value"])
    rows = agreement_with_people(frame, by="subtype").set_index("group")
    assert rows.loc["fact", "error"] == pytest.approx(0.1)
    assert rows.loc["value", "error"] == pytest.approx(-0.2)


def test_worst_first_and_missing_ones_aren_t_among_them() -> None:
    found = worst(table([0.2, 0.8, 0.4, 0.6], [0.3, 0.1, NAN, 0.2]), "j", 2)
    assert list(found["item"]) == ["item 1", "item 3"]


def test_users_as_clusters_are_named_so() -> None:
    (row,) = agreement_with_people(table([0.2, 0.8, 0.4, 0.6], [0.3, 0.1, 0.5, 0.2]), cluster="user").to_dict("records")
    assert row["clusters"] == 2
    assert row["note"] == "2 users, an interval needs 5"


def test_the_sentence_says_what_the_interval_allows() -> None:
    def says(**values: Any) -> str:
        return verdict(pd.Series({"label": "x", "n": 20, "note": "few"} | values))

    assert "better than chance" in says(spearman=0.5, spearman_low=0.1, spearman_high=0.8)
    assert "no agreement with people is shown" in says(spearman=0.5, spearman_low=-0.1, spearman_high=0.8)
    assert "reverse" in says(spearman=-0.5, spearman_low=-0.8, spearman_high=-0.1)
    assert "no more than a hint" in says(spearman=0.5, spearman_low=NAN, spearman_high=NAN)
    assert "no agreement can be told (few)" in says(spearman=NAN, spearman_low=NAN, spearman_high=NAN)


async def _nobody(request: ChatRequest) -> ChatResult:
    raise AssertionError("the control asks nobody")


async def drawn(seed: int) -> list[float]:
    """What the control says of twenty responses."""
    user = User("c", "s", "", False)
    found = []
    for number in range(20):
        instance = Instance("op/c/s/fact/1", "op", user, "fact", f"question {number // 2}")
        (score,) = await RandomJudge(seed=seed).score(Evidence(instance, f"response {number}"), _nobody)
        assert score.value is not None
        found.append(score.value)
    return found


async def test_the_control_shows_no_agreement() -> None:
    """Over 40 controls the mean correlation is nothing, and few intervals (5 in 100) leave out 0."""
    people = [0.1 + 0.04 * number for number in range(20)]
    rows = [agreement_with_people(table(people, await drawn(seed))).iloc[0] for seed in range(40)]
    # A mean of 40 correlations of 20 responses has a standard deviation of 0.23 / sqrt(40) = 0.036.
    assert abs(sum(row["spearman"] for row in rows) / 40) < 0.11
    assert sum(row["spearman_low"] <= 0 <= row["spearman_high"] for row in rows) >= 34
    scores = [value for seed in range(40) for value in await drawn(seed)]
    assert sum(scores) / len(scores) == pytest.approx(0.5, abs=0.04)
    assert await drawn(3) == await drawn(3)
