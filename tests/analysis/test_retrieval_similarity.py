"""Similarity of questions and memories: means, shares, curves and areas worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

from opbench.analysis.retrieval_similarity import (
    abstention_curves,
    cosines,
    retrievals,
    separations,
    should_abstain,
    similarity_differences,
    similarity_table,
)
from opbench.store.rundata import RunData
from tests.analysis.conftest import build

NAN = math.nan


def found_of(tops: Mapping[str, Mapping[str, Sequence[float]]], memory: str = "rag") -> pd.DataFrame:
    """By group and user, the highest cosine of each question; NaN: nothing was retrieved."""
    rows = [
        {
            "memory": memory,
            "control": memory == "random",
            "instance": f"{group}/{user}/{place}",
            "user": user,
            "benchmark": "locomo" if group == "locomo" else "op",
            "subtype": group,
            "group": group,
            "n": 0 if math.isnan(top) else 2,
            "top1": top,
            "cosines": [] if math.isnan(top) else [top, top - 0.1],
        }
        for group, users in tops.items()
        for user, values in users.items()
        for place, top in enumerate(values)
    ]
    return pd.DataFrame(rows)


HAND = found_of({"fully-irrelevant": {"A": [0.1, 0.2], "B": [0.3, NAN]}, "locomo": {"A": [0.2, 0.4]}})


def test_retrievals_take_user_and_group_from_the_run_and_put_the_control_last() -> None:
    data = build()
    data = dataclasses.replace(data, instances=data.instances.replace({"subtype": {"single-hop": "temporal"}}))
    measured = pd.DataFrame(
        [
            ("random", "ff-B", [0.1, 0.3]),
            ("rag", "lo-3", [0.5, None, 0.7]),
            ("rag", "lo-5", []),
            ("rag", "ff-A", [0.9]),
            ("rag", "not in the run", [0.9]),
        ],
        columns=["memory", "instance", "cosines"],
    )
    found = retrievals(data, measured)
    assert found["instance"].tolist() == ["ff-A", "lo-3", "lo-5", "ff-B"]
    assert found["group"].tolist() == ["fully-irrelevant", "locomo", "adversarial", "fully-irrelevant"]
    assert found["control"].tolist() == [False, False, False, True]
    assert found["user"].tolist() == ["A", "A", "A", "B"]
    assert found["n"].tolist() == [1, 3, 0, 2]
    assert found["top1"].tolist()[:2] == [0.9, 0.7]
    assert math.isnan(found["top1"][2])
    assert found["cosines"][1] == [0.5, 0.7], "a blank memory has no cosine"


def test_an_empty_retrieval_has_no_cosine_and_is_counted() -> None:
    assert cosines(HAND)["cosine"].tolist() == [0.1, 0.2, 0.3, 0.2, 0.4]
    assert len(cosines(HAND, "all")) == 10
    row = similarity_table(HAND).set_index("group").loc["fully-irrelevant"]
    assert (row["n"], row["n_empty"], row["n_cosines"]) == (4, 1, 3)
    assert row["mean"] == pytest.approx(0.2)
    assert row["sd"] == pytest.approx(0.1)
    assert similarity_table(HAND, "all").set_index("group").loc["fully-irrelevant", "mean"] == pytest.approx(0.15)


def test_two_users_give_no_interval_and_say_so() -> None:
    row = similarity_table(HAND).iloc[0]
    assert math.isnan(row["low"])
    assert row["users"] == 2
    assert row["reason"] == "2 users, an interval needs 5"
    assert separations(HAND).iloc[0]["reason"] == "fully-irrelevant rests on 2 users, an interval needs 5"


def test_three_of_four_fully_irrelevant_questions_should_have_been_left_alone() -> None:
    row = should_abstain(HAND).iloc[0]
    assert (row["n"], row["n_retrieved"], row["share"]) == (4, 3, 0.75)
    assert len(should_abstain(HAND[HAND["group"] == "locomo"])) == 0


def test_all_retrievals_of_six_users_are_a_count_and_no_certainty() -> None:
    tops = {user: [0.2, 0.3] for user in "ABCDEF"}
    row = should_abstain(found_of({"fully-irrelevant": tops})).iloc[0]
    assert (row["n"], row["n_retrieved"], row["share"]) == (12, 12, 1.0)
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])
    assert row["reason"] == "all users are alike, drawing them anew can't tell how sure it is"
    # Half of three users' and all of the others': 9 of 12, which has an interval.
    row = should_abstain(found_of({"fully-irrelevant": tops | {user: [NAN, 0.3] for user in "ABC"}})).iloc[0]
    assert row["share"] == 0.75
    assert row["low"] < row["share"] < row["high"]
    assert row["reason"] == ""


def test_curves_count_what_lies_below_the_threshold_and_empty_retrievals_always() -> None:
    curves = abstention_curves(HAND).set_index(["group", "threshold"])["share"]
    assert curves["fully-irrelevant", 0.0] == 0.25
    assert curves["fully-irrelevant", 0.2] == 0.5, "0.2 itself isn't below 0.2"
    assert curves["fully-irrelevant", 0.21] == 0.75
    assert curves["fully-irrelevant", 1.0] == 1.0
    assert curves["locomo", 0.25] == 0.5
    assert abstention_curves(HAND)["threshold"].max() == 1.0


def test_curves_begin_below_the_lowest_cosine() -> None:
    low = found_of({"locomo": {"A": [-0.033, 0.4]}})
    assert abstention_curves(low)["threshold"].min() == pytest.approx(-0.04)


def test_the_area_is_the_share_of_pairs_that_the_other_group_wins_ties_half() -> None:
    # Against (0.2, 0.4): 0.1 and nothing lose to both, 0.2 ties one and loses to one, 0.3 loses to one.
    row = separations(HAND).iloc[0]
    assert (row["group"], row["against"]) == ("fully-irrelevant", "locomo")
    assert row["auc"] == pytest.approx((2 + 2 + 1.5 + 1) / 8)
    assert (row["n"], row["n_against"]) == (4, 2)


def test_the_best_threshold_lies_between_what_it_tells_apart() -> None:
    # Between 0.3 and 0.4: all four below, and one of two; below 0.2: two of four and none; both leave half.
    row = separations(HAND).iloc[0]
    assert row["threshold"] == pytest.approx(0.15)
    assert row["separates"] == "", "two users are too few to tell"


def test_no_question_has_a_say_in_its_own_threshold() -> None:
    # Best without A: 0.35 (B's 0.3 or 0.4), below it A's 0.1 and 0.2. Best without B: 0.15, below it nothing of B's.
    found = found_of({"fully-irrelevant": {"A": [0.1], "B": [0.3]}, "locomo": {"A": [0.2], "B": [0.4]}})
    row = separations(found).iloc[0]
    assert (row["abstains"], row["loses"]) == (0.5, 0.5)
    alone = separations(found[found["user"] == "A"]).iloc[0]
    assert math.isnan(alone["abstains"])
    assert math.isnan(alone["loses"])


def test_groups_apart_for_every_user_are_separated() -> None:
    alike, unlike = ({user: [top] for user in "ABCDEF"} for top in (0.5, 0.1))
    apart = found_of({"fully-irrelevant": unlike, "locomo": alike})
    row = separations(apart).iloc[0]
    assert (row["auc"], row["low"], row["high"]) == (1.0, 1.0, 1.0)
    assert row["p"] == pytest.approx(2 / 2**6), "no less than the sign test over six users can tell"
    assert row["threshold"] == pytest.approx(0.3)
    assert (row["abstains"], row["loses"], row["separates"]) == (1.0, 0.0, "well")
    difference = similarity_differences(apart).iloc[0]
    assert difference["difference"] == pytest.approx(-0.4)
    assert (difference["low"], difference["high"]) == (pytest.approx(-0.4), pytest.approx(-0.4))


def test_groups_that_overlap_by_a_fifth_are_separated_in_part() -> None:
    # Of each user's five, one lies on the other side: 4/5 less 1/5 below whatever threshold between 0.2 and 0.4.
    tops = {"fully-irrelevant": [0.1, 0.1, 0.2, 0.2, 0.5], "locomo": [0.1, 0.4, 0.4, 0.5, 0.5]}
    row = separations(found_of({group: dict.fromkeys("ABCDEF", each) for group, each in tops.items()})).iloc[0]
    assert (row["abstains"], row["loses"]) == (pytest.approx(0.8), pytest.approx(0.2))
    assert row["separates"] == "in part"


def test_groups_of_one_kind_arent_told_apart_and_the_interval_holds_a_half() -> None:
    made = np.random.default_rng(3)
    tops = {
        group: {f"u{n}": made.normal(0.4, 0.1, 6).tolist() for n in range(12)}
        for group in ("fully-irrelevant", "locomo")
    }
    row = separations(found_of(tops)).iloc[0]
    assert row["low"] < 0.5 < row["high"]
    assert 0.05 < row["high"] - row["low"] < 0.4
    assert row["p"] > 0.05
    assert row["separates"] == ""


def test_users_that_are_copies_tell_no_more_than_one() -> None:
    # The same 12 questions a user: an interval that took questions for draws of their own would be a fifth as wide.
    made = np.random.default_rng(5)
    users = {f"u{n}": made.normal(0.4 + 0.1 * made.normal(), 0.01, 40).tolist() for n in range(8)}
    row = similarity_table(found_of({"locomo": users})).iloc[0]
    means = np.array([np.mean(values) for values in users.values()])
    by_user = 2.36 * means.std(ddof=1) / math.sqrt(8)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(by_user, rel=0.35)


def test_differences_are_of_fully_irrelevant_against_each_other_group_there_is() -> None:
    three = found_of({"fully-irrelevant": {"A": [0.2]}, "baiting": {"A": [0.5]}, "locomo": {"A": [0.4, 0.8]}})
    frame = similarity_differences(three).set_index("against")["difference"]
    assert frame["baiting"] == pytest.approx(-0.3)
    assert frame["locomo"] == pytest.approx(-0.4)
    assert [(row.group, row.against) for row in separations(three).itertuples()] == [
        ("fully-irrelevant", "locomo"),
        ("baiting", "locomo"),
        ("fully-irrelevant", "baiting"),
    ]


def test_nothing_measured_gives_empty_frames(run: RunData) -> None:
    nothing = retrievals(run, pd.DataFrame(columns=["memory", "instance", "cosines"]))
    for frame in (
        cosines(nothing),
        similarity_table(nothing),
        similarity_differences(nothing),
        should_abstain(nothing),
        abstention_curves(nothing),
        separations(nothing),
    ):
        assert len(frame) == 0


def test_a_group_that_is_surely_the_more_similar_is_hardly_told_by_a_threshold() -> None:
    tops = {user: [0.6 + 0.01 * place, 0.7] for place, user in enumerate("ABCDEF")}
    others = {user: [0.1 + 0.01 * place, 0.2] for place, user in enumerate("ABCDEF")}
    row = separations(found_of({"fully-irrelevant": tops, "baiting": others})).iloc[0]
    assert (row["auc"], row["high"]) == (0.0, 0.0)
    assert row["separates"] == "hardly", "no question of reaching 0.5"
