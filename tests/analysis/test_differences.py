"""From one configuration to another: better, worse, equal; by user for repetition; and what differs between runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis.agreement import agreement
from opbench.analysis.differences import (
    Side,
    largest,
    op_average_change,
    pair,
    pairs,
    repetition_pairs,
    summary,
)
from opbench.analysis.unlike import doubts, unlike
from opbench.errors import UsageError
from opbench.store.rundata import RunData
from opbench.study import make_study
from tests.analysis.conftest import BASE, MARAG, RAG, REMINDER, build


def rows(frame: pd.DataFrame) -> Any:
    return frame.set_index("subtype")


def test_instances_are_paired_over_what_both_have(run: RunData) -> None:
    frame: Any = pairs(pair(Side(run, RAG), Side(run, REMINDER))).set_index("instance")
    # ff-B and ba-A are scored by one of the two only; lo-2 failed under reminder.
    assert list(frame.index) == ["ff-A", "ba-A", "fa-A", "va-B", "me-A", "me-B", "lo-1", "lo-3", "lo-4", "lo-5"]
    assert frame.loc["ff-A", ["before", "after", "change"]].tolist() == pytest.approx([50.0, 70.0, 20.0])
    assert frame.loc["lo-4", "change"] == pytest.approx(-20.0)


def test_better_worse_and_equal_by_subtype(run: RunData) -> None:
    table = rows(summary(pair(Side(run, RAG), Side(run, REMINDER))))
    assert table.loc["memory", ["better", "worse", "equal", "n_paired", "n_planned"]].tolist() == [2, 0, 0, 2, 2]
    assert table.loc["value", ["better", "worse", "equal"]].tolist() == [0, 0, 1]
    assert table.loc["fully-irrelevant", ["n_paired", "n_planned"]].tolist() == [1, 2]
    # LoCoMo without its adversarial question: lo-1 20 → 10, lo-3 60 → 60, lo-4 100 → 80.
    assert table.loc["all", ["better", "worse", "equal", "n_paired", "n_planned"]].tolist() == [0, 2, 1, 3, 4]
    assert table.loc["all", ["before", "after", "change"]].tolist() == pytest.approx([60.0, 50.0, -10.0])
    assert table.loc["adversarial", "change"] == pytest.approx(50.0)
    assert "2 users" in table.loc["memory", "reason"]


def test_repetition_is_compared_by_user(run: RunData) -> None:
    found = pair(Side(run, BASE), Side(run, RAG))
    frame: Any = repetition_pairs(found).set_index("user")
    assert frame.loc["A", ["before", "after", "change"]].tolist() == pytest.approx([60.0, 40.0, -20.0])
    line = rows(summary(found)).loc["repetition"]
    assert (line["unit"], line["n_planned"], line["n_paired"], line["worse"]) == ("user", 2, 2, 2)
    assert not (pairs(found)["subtype"] == "repetition").any()


def test_a_user_without_repetition_on_one_side_is_left_out(run: RunData) -> None:
    assert list(repetition_pairs(pair(Side(run, RAG), Side(run, REMINDER)))["user"]) == ["A"]


def test_nothing_scored_by_both_says_so(run: RunData) -> None:
    line = rows(summary(pair(Side(run, RAG), Side(run, MARAG)))).loc["all"]
    assert (line["n_paired"], line["reason"]) == (0, "nothing scored by both")
    assert np.isnan(line["change"])


def test_the_average_follows_the_rule(run: RunData) -> None:
    # Base → rag over what both have (ba-B is missing under rag): fully 100 → 60; baiting 100 → 20; repetition 70 → 50;
    # sycophancy weighted by planned instances: (80 + 60 + 2 × 50) / 4 = 60 → (40 + 20 + 2 × 20) / 4 = 25.
    change = op_average_change(pair(Side(run, BASE), Side(run, RAG)), "task-mean")
    assert change.points == pytest.approx((60 + 20 + 50 + 25) / 4 - (100 + 100 + 70 + 60) / 4)


def test_the_ten_largest_of_each_direction() -> None:
    frame = pd.DataFrame({"instance": list("abcdef"), "change": [5.0, -3.0, 0.0, 9.0, 5.0, -8.0]})
    better, worse = largest(frame, 2)
    assert list(better["instance"]) == ["d", "a"]
    assert list(worse["instance"]) == ["f", "b"]


def test_first_speakers_only(run: RunData) -> None:
    assert set(pairs(pair(Side(run, RAG), Side(run, REMINDER), first_only=True))["user"]) == {"A"}


def test_a_configuration_that_is_not_there_is_refused(run: RunData) -> None:
    with pytest.raises(UsageError, match="no configuration m · mem0 · none"):
        pair(Side(run, RAG), Side(run, ("m", "mem0", "none")))


def other_run(**fields: Any) -> RunData:
    return dataclasses.replace(build(), run_id="r2", **fields)


def test_two_runs_are_paired_by_what_both_plan(run: RunData) -> None:
    fewer = run.instances[~run.instances["instance"].isin(["ff-A", "me-A"])]
    found = pair(Side(run, RAG), Side(other_run(instances=fewer), REMINDER))
    assert (found.only_before, found.only_after) == (2, 0)
    assert "ff-A" not in set(pairs(found)["instance"])
    assert rows(summary(found)).loc["memory", ["n_paired", "n_planned"]].tolist() == [1, 1]


def test_each_run_is_read_with_its_own_judge(run: RunData) -> None:
    judged = build("gpt")
    table: Any = pairs(pair(Side(run, RAG), Side(judged, RAG))).set_index("instance")
    assert table.loc["ff-B", ["before", "after"]].tolist() == pytest.approx([70.0, 70.0])
    assert "token F1" in pair(Side(run, RAG), Side(judged, RAG)).remarks[0]


def unit(*degrees: float) -> list[np.ndarray]:
    return [np.array([np.cos(np.radians(each)), np.sin(np.radians(each))], dtype=np.float32) for each in degrees]


def test_repetition_of_runs_with_other_slices_is_made_anew_over_common_responses(run: RunData) -> None:
    # A's three responses stand at 0, 90 and 90 degrees: pairwise cosines 0, 0 and 1. The other run asks for the first
    # two only, whose cosine is 0: the score over what both have is 100 on either side.
    names = ("re-A1", "re-A2", "re-A3")
    vectors = {(*RAG, name): vector for name, vector in zip(names, unit(0, 90, 90), strict=True)}
    users = run.user_scores.copy()
    mine = (users["mitigation"] == "none") & (users["memory"] == "rag")
    users.loc[mine & (users["user"] == "A"), "value"] = 1 - 1 / 3
    whole = dataclasses.replace(run, vectors=vectors, user_scores=users)
    fewer = run.instances[~run.instances["instance"].isin(["re-A3", "re-B1", "re-B2"])]
    users = users.assign(value=np.where(mine & (users["user"] == "A"), 1.0, users["value"]))
    users = users.assign(n=np.where(mine & (users["user"] == "A"), 2, users["n"]))
    part = other_run(instances=fewer, vectors={key: vectors[key] for key in list(vectors)[:2]}, user_scores=users)
    frame: Any = repetition_pairs(pair(Side(whole, RAG), Side(part, RAG)))
    assert frame[["user", "n"]].values.tolist() == [["A", 2]]
    assert frame[["before", "after"]].iloc[0].tolist() == pytest.approx([100.0, 100.0])


def with_facts(run: RunData, **provenance: Any) -> RunData:
    return dataclasses.replace(run, provenance={**run.provenance, **provenance})


def test_what_differs_is_listed_and_what_is_alike_is_not(run: RunData) -> None:
    first = with_facts(run, judge={"judge": "offline", "version": "1"}, git_commit="aaa")
    second = with_facts(other_run(), judge={"judge": "offline", "version": "2"}, git_commit="aaa")
    frame: Any = unlike(Side(first, RAG), Side(second, MARAG)).set_index("what")
    assert frame.loc["judge: version"].tolist() == ["1", "2"]
    assert frame.loc["post-processor: name"].tolist() == ["none", "marag"]
    assert "commit" not in frame.index
    assert "memory system: name" not in frame.index


def test_other_judge_data_or_embedder_raise_doubts(run: RunData) -> None:
    other = dataclasses.replace(
        other_run(),
        study=make_study({"models": ["m"], "judge": "gpt", "embedder": "large"}),
        provenance={"data": {"f": "2"}},
    )
    said = doubts(Side(with_facts(run, data={"f": "1"}), RAG), Side(other, RAG))
    assert [sentence.split(" differ")[0] for sentence in said] == ["The judges", "The data files", "The embedders"]
    assert "offline and gpt" in said[0]


def test_two_configurations_of_one_run_raise_none(run: RunData) -> None:
    assert doubts(Side(run, RAG), Side(run, MARAG)) == []


def test_histories_of_other_conversations_are_no_difference(run: RunData) -> None:
    first = with_facts(run, data={"f": "1"}, history={"c1": "x", "c2": "y"})
    alike = with_facts(other_run(), data={"f": "1"}, history={"c1": "x"})
    changed = with_facts(other_run(), data={"f": "1"}, history={"c1": "z"})
    assert doubts(Side(first, RAG), Side(alike, RAG)) == []
    assert "conversations" in doubts(Side(first, RAG), Side(changed, RAG))[0]


def scored(n: int, judge: float, person: float, rater: str = "ann", current: bool = True) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "instance": [f"i{place}" for place in range(n)],
            "benchmark": "op",
            "user": [f"u{place % 5}" for place in range(n)],
            "model": "m",
            "memory": "rag",
            "mitigation": "none",
            "value": person,
            "rater": rater,
            "current": current,
            "judge_score": judge,
        }
    )


def test_agreement_needs_ten_records() -> None:
    row: Any = agreement(scored(9, 0.8, 0.5)).iloc[0]
    assert row["n"] == 9
    assert np.isnan(row["difference"])
    assert row["note"] == "9 scored by both, 10 are needed to compare"


def test_agreement_is_judge_minus_people_over_the_mean_of_raters() -> None:
    # Two raters of each record, 0.5 and 0.7: people give 60 points, the judge 80.
    row: Any = agreement(pd.concat([scored(10, 0.8, 0.5), scored(10, 0.8, 0.7, "bob")])).iloc[0]
    assert (row["n"], row["raters"]) == (10, 2)
    assert row[["judge", "people", "difference", "apart"]].tolist() == pytest.approx([80.0, 60.0, 20.0, 20.0])


def test_scores_of_earlier_responses_do_not_agree_or_disagree() -> None:
    assert agreement(scored(12, 0.8, 0.5, current=False)).empty
