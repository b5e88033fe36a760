"""Three configurations over six users whose averages can be worked out by hand.

Each user has two baiting questions and one of fact-level sycophancy. By the task mean and the category macro an average
is (b + f) / 2, by instance (2 b + f) / 3:

| configuration | b | f | task mean | instance |
|---|---|---|---|---|
| x | 80 | 20 | 50 | 60 |
| y | 50 | 60 | 55 | 53.33 |
| z | 10 | 10 | 10 | 10 |
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis import flips, stability
from opbench.analysis.stability import View
from opbench.errors import UsageError
from opbench.store.rundata import RunData
from opbench.study import make_study

MEANS = {"x": (0.8, 0.2), "y": (0.5, 0.6), "z": (0.1, 0.1)}
#: What users differ by: nothing in the mean.
APART = (0.05, -0.05, 0.03, -0.03, 0.01, -0.01)
Change = Callable[[str, float], float]


def scores(change: Change = lambda memory, value: value, judge: str = "offline", users: int = 6) -> pd.DataFrame:
    rows = []
    for at, (memory, (baiting, fact)) in enumerate(MEANS.items()):
        for user in range(users):
            apart = APART[(user + 2 * at) % 6]
            for n in range(3):
                value = change(memory, (fact if n == 2 else baiting) + apart)
                rows.append(
                    {
                        "model": "m",
                        "memory": memory,
                        "mitigation": "none",
                        "instance": f"u{user}-{n}",
                        "judge": judge,
                        "metric": "score",
                        "value": value,
                        "reason": None,
                    }
                )
    return pd.DataFrame(rows)


def run(users: int = 6, own: pd.DataFrame | None = None) -> RunData:
    instances = [
        {
            "instance": f"u{user}-{n}",
            "ordinal": 3 * user + n,
            "benchmark": "op",
            "user": f"c/u{user}",
            "first_speaker": True,
            "subtype": "fact" if n == 2 else "baiting",
        }
        for user in range(users)
        for n in range(3)
    ]
    keys = pd.DataFrame([{"model": "m", "memory": memory, "mitigation": "none"} for memory in MEANS])
    mine = scores(users=users) if own is None else own
    return RunData(
        run_id="r1",
        name="by hand",
        study=make_study({"models": ["m"], "mitigations": ["none"], "judge": "offline"}),
        provenance={},
        recorded=False,
        text_left_out=False,
        comparable=False,
        instances=pd.DataFrame(instances),
        configurations=keys,
        records=mine[["model", "memory", "mitigation", "instance"]].assign(status="done"),
        scores=mine,
        user_scores=pd.DataFrame(columns=["model", "memory", "mitigation", "user", "judge", "metric", "value", "n"]),
        vectors=None,
    )


def rows(frame: pd.DataFrame, *names: str) -> dict[tuple[Any, ...], dict[Any, Any]]:
    """Rows by the values of the named columns."""
    return {tuple(row[name] for name in names): row for row in frame.to_dict("records")}


def against_reference(correlations: pd.DataFrame) -> dict[tuple[Any, ...], dict[Any, Any]]:
    return rows(flips.against(correlations, "offline", "task-mean"), "label", "rule")


REVERSED = scores(lambda memory, value: 1 - value)
SAME = scores(lambda memory, value: value / 2)


def test_averages_and_places_by_hand() -> None:
    found = stability.views(run(), {})
    told = rows(stability.order_table(found), "rule", "memory")
    for rule, averages, places in (
        ("task-mean", (50.0, 55.0, 10.0), (2, 1, 3)),
        ("category-macro", (50.0, 55.0, 10.0), (2, 1, 3)),
        ("instance", (60.0, 160 / 3, 10.0), (1, 2, 3)),
    ):
        of_rule = [told[rule, memory] for memory in MEANS]
        assert [row["op"] for row in of_rule] == pytest.approx(averages)
        assert [row["place"] for row in of_rule] == list(places)
        assert [(row["n"], row["users"]) for row in of_rule] == [(18, 6)] * 3


def test_correlations_by_hand() -> None:
    """The instance rule turns one of three pairs: tau (2 − 1) / 3, rho 1 − 6 · 2 / (3 · 8). A judge who says the
    opposite turns all."""
    found = stability.views(run(), {"turned": REVERSED, "halved": SAME})
    told = against_reference(stability.correlation_table(found))
    assert told["offline", "instance"]["tau"] == pytest.approx(1 / 3)
    assert told["offline", "instance"]["spearman"] == pytest.approx(0.5)
    assert told["offline", "instance"]["kept"] == 2
    assert told["turned", "task-mean"]["tau"] == pytest.approx(-1.0)
    assert told["halved", "task-mean"]["tau"] == pytest.approx(1.0)
    assert told["halved", "task-mean"]["spearman"] == pytest.approx(1.0)
    assert len(stability.correlation_table(found)) == 9 * 8 / 2


def test_an_interval_holds_the_value_and_needs_five_users() -> None:
    told = against_reference(stability.correlation_table(stability.views(run(), {"turned": REVERSED})))
    row = told["offline", "instance"]
    assert row["tau_low"] <= row["tau"] <= row["tau_high"]
    # z is far below the others whoever is drawn: two pairs of three never turn.
    assert row["tau_low"] == pytest.approx(1 / 3)
    few = stability.views(run(users=4), {"turned": scores(lambda memory, value: 1 - value, users=4)})
    assert few.no_interval == "4 users, an interval needs 5"
    table = stability.correlation_table(few)
    assert table["tau"].notna().all()
    assert table[["tau_low", "tau_high", "spearman_low"]].isna().all(axis=None)


def test_equal_averages_are_a_tie_and_no_flip() -> None:
    tied = scores(lambda memory, value: 0.5)
    found = stability.views(run(), {"tied": tied})
    told = against_reference(stability.correlation_table(found))
    assert np.isnan(told["tied", "task-mean"]["tau"])
    assert told["tied", "task-mean"]["note"] == "all averages are equal in a view"
    assert (flips.flip_table(found)["label"] != "tied").all()
    places = rows(stability.order_table(found), "label", "rule", "memory")
    assert [places["tied", "task-mean", memory]["place"] for memory in MEANS] == [1, 1, 1]


def test_all_judges_are_compared_over_the_same_records() -> None:
    """A judge whose score of one response is missing: nobody's score of that question counts, under none."""
    gone = REVERSED.copy()
    gone.loc[(gone["memory"] == "x") & (gone["instance"] == "u0-0"), "value"] = np.nan
    found = stability.views(run(), {"gone": gone})
    assert (found.n, found.planned) == (17, 18)
    of_x = (0.8 * 12 - (0.8 + APART[0])) / 11
    assert found.values[found.reference][0] == pytest.approx(100 * (of_x + 0.2) / 2)


def test_who_was_not_judged_is_left_out_by_name() -> None:
    found = stability.views(run(), {"half": REVERSED[REVERSED["memory"] != "z"], "none": REVERSED.head(0)})
    assert [key[1] for key in found.keys] == ["x", "y"]
    assert found.left_out == {
        "none": "has scored 0 of 54 responses",
        "m · z · none": "no score of all judges: baiting, fact",
    }
    two = [("m", "x", "none"), ("m", "y", "none")]
    with pytest.raises(UsageError, match="only 1 configuration"):
        stability.views(run(), {"one": REVERSED[REVERSED["memory"] == "x"]}, only=two)


def test_flips_and_whether_they_had_been_told_apart() -> None:
    found = stability.views(run(), {"turned": REVERSED})
    told = flips.flip_table(found)
    turned = rows(told[(told["label"] == "turned") & (told["rule"] == "task-mean")], "better", "worse")
    assert set(turned) == {("y", "x"), ("y", "z"), ("x", "z")}
    far = turned["y", "z"]
    assert far["before"] == pytest.approx(45.0)
    assert far["after"] == pytest.approx(-45.0)
    assert far["before_low"] < 45.0 < far["before_high"]
    assert (far["told_apart"], far["reversed"]) == (1.0, 1.0)
    by_rule = told[(told["label"] == "offline") & (told["rule"] == "instance")]
    assert list(by_rule[["better", "worse"]].iloc[0]) == ["y", "x"]
    assert by_rule["after"].iloc[0] == pytest.approx(100 * (0.5 * 2 + 0.6 - 0.8 * 2 - 0.2) / 3)
    assert flips.told_apart(found)[1] == 3


def test_the_sentence_of_a_ranking_that_survives() -> None:
    # x and y are told by a rule; without the instance rule no order changes.
    found = stability.views(run(), {"halved": SAME}, rules=("task-mean", "category-macro"))
    said = flips.meaning(found, flips.flip_table(found), stability.correlation_table(found))
    assert said == (
        "3 configurations in 4 views (2 judges or prompts by 2 averaging rules), over the same 18 instances of 6 "
        "users, set against offline · task-mean. Kendall's tau is from 1.00 [1.00; 1.00] (offline · category-macro) to "
        "1.00 (halved · category-macro). None of 3 pairs changes its order: the ranking survives every choice here. "
        "The reference tells 3 of 3 pairs apart (95 %, Holm). y is first in 4 of 4 views."
    )


def test_the_sentence_of_one_that_does_not() -> None:
    found = stability.views(run(), {"turned": REVERSED})
    said = flips.meaning(found, flips.flip_table(found), stability.correlation_table(found))
    assert "3 of 3 pairs change the order in at least one view: 1 by the averaging rule alone, 3 by the judge" in said
    assert "had been told apart (the reference tells" in said
    assert "the other way round with as much certainty" in said
    few = stability.views(run(users=4), {"turned": scores(lambda memory, value: 1 - value, users=4)})
    said = flips.meaning(few, flips.flip_table(few), stability.correlation_table(few))
    assert "can't be said (4 users, an interval needs 5): take the order for what one judge says" in said


def test_a_control_is_told_apart_from_judges() -> None:
    found = stability.views(run(), {"random": REVERSED}, controls={"random"})
    assert found.views[3:] == [View("random", rule, True) for rule in found.factors]
    said = flips.meaning(found, flips.flip_table(found), stability.correlation_table(found))
    assert said.startswith("3 configurations in 3 views (1 judge or prompt by 3 averaging rules)")
    assert "1 of 3 pairs changes the order" in said


def test_a_judge_that_scored_little_is_left_out_and_does_not_empty_the_comparison() -> None:
    """Compared with it, all others would rest on the few records that it has; on none, every order would be alike."""
    few = REVERSED[REVERSED["instance"].isin(["u0-0", "u1-2"])]
    found = stability.views(run(), {"few": few, "turned": REVERSED})
    assert found.left_out == {"few": "has scored 6 of 54 responses"}
    assert {view.label for view in found.views} == {"offline", "turned"}
    assert found.n == 18


def test_without_a_judged_subtype_there_is_no_ranking() -> None:
    """Halves that don't meet: a judge has scored the first three users, another the last three."""
    first = scores(lambda memory, value: 1 - value, users=3)
    second = REVERSED[~REVERSED["instance"].isin(first["instance"])]
    with pytest.raises(UsageError, match="choose fewer"):
        stability.views(run(), {"first": first, "second": second})


def test_a_judge_that_says_the_same_of_nearly_all_is_told() -> None:
    """One of 54 responses differs: 98 %; the study's own gives no score that often."""
    blunt = scores(lambda memory, value: 1.0)
    blunt.loc[(blunt["memory"] == "x") & (blunt["instance"] == "u0-0"), "value"] = 0.5
    found = stability.views(run(), {"blunt": blunt})
    assert found.same["blunt"] == pytest.approx(53 / 54)
    said = flips.meaning(found, flips.flip_table(found), stability.correlation_table(found))
    assert "blunt gives 98 % of the responses one and the same score" in said
    assert "offline gives" not in said


def test_an_order_that_a_judge_does_not_tell_does_not_survive_it() -> None:
    """A judge that gives every response the same puts all three pairs equal: none turns, and none is kept."""
    found = stability.views(run(), {"tied": scores(lambda memory, value: 0.5)}, rules=("task-mean",))
    said = flips.meaning(found, flips.flip_table(found), stability.correlation_table(found))
    assert "None of 3 pairs changes its order. " in said
    assert "survives" not in said
    assert "3 pairs are equal in one view and not in another." in said


def test_an_order_of_few_users_that_survives_is_no_finding() -> None:
    few = stability.views(run(users=4), {"halved": scores(lambda _, value: value / 2, users=4)}, rules=("task-mean",))
    said = flips.meaning(few, flips.flip_table(few), stability.correlation_table(few))
    assert (
        "the ranking survives every choice here. Whether any of them can be told apart can't be said (4 users" in said
    )


def test_the_studys_own_judge_under_another_name_is_no_second_opinion() -> None:
    found = stability.views(run(), {"offline · own": scores(), "halved": SAME})
    assert found.alike == ("offline · own",)
    said = flips.meaning(found, flips.flip_table(found), stability.correlation_table(found))
    assert "offline · own gives every response the score that offline gives: if it is the same judge" in said
    assert "halved gives" not in said
