"""A small review worked out by hand."""

import math
from typing import Any

import pandas as pd
import pytest

from opbench.analysis import reviewing
from opbench.store.review_answers import ANSWERS

NAN = float("nan")


def answer(item: str, reviewer: str, verdict: str, at: float = 0.0, **more: Any) -> dict[str, Any]:
    subtype = "baiting" if item.startswith("b") else "fact"
    return {
        "item": item,
        "reviewer": reviewer,
        "role": "reviewer",
        "user": "c/U",
        "subtype": subtype,
        "verdict": verdict,
        "base_score": NAN,
        "memory_score": NAN,
        "seconds": NAN,
        "flagged": False,
        "made_at": at,
        "known": None,
    } | more


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(ANSWERS))


@pytest.fixture
def answers() -> pd.DataFrame:
    """Anna and Ben on b1, b2, f1, f2; Cleo on f2; a senior on f1; Anna and Ben on a spot check."""
    return frame(
        answer("b1", "Anna", "memory", 1, memory_score=0.2, base_score=0.8, seconds=30),
        answer("b2", "Anna", "neither", 2, seconds=50),
        answer("b1", "Ben", "memory", 3, memory_score=0.4, base_score=0.8, seconds=70),
        answer("b2", "Ben", "neither", 4, flagged=True),
        answer("f1", "Anna", "memory", 5, seconds=40),
        answer("f1", "Ben", "neither", 6, seconds=90),
        answer("f2", "Anna", "neither", 7),
        answer("f2", "Cleo", "neither", 8, seconds=20),
        answer("f1", "Sen", "memory", 9, role="senior", seconds=200),
        answer("f9", "Anna", "base", 10, known="memory", seconds=10),
        answer("f9", "Ben", "memory", 11, known="memory", seconds=10),
        answer("f9", "Cleo", "memory", 12, known="memory", seconds=10),
    )


def test_agreement_by_hand(answers: pd.DataFrame) -> None:
    """Four items with two answers, three alike: 75 %. Nominal alpha: pairs mm, nn, mn, nn; n = 8, memory 3, neither 5;
    observed ¼, expected 2·3·5 / (8·7) = 15/28; alpha 1 − 7/15. Anna and Ben share three items, Anna and Cleo one: too
    few for a mean of kappas."""
    row = reviewing.agreement(answers).iloc[0]
    assert (row["items"], row["doubly"], row["answers"], row["pairs"]) == (4, 4, 8, 2)
    assert row["percent"] == 75.0
    assert row["alpha"] == pytest.approx(8 / 15)
    assert math.isnan(row["kappa"])
    assert "kappa: none of 2 pairs of reviewers shares 10 items" in row["note"]
    # Scores: b1's base 0.8, 0.8 and memory 0.2, 0.4: n 4, observed 2·0.2²/4 = 0.02 (0.08 over 4);
    # expected 2 (4·1.48 − 2.2²) / (4·3) = 0.18.
    assert row["score_units"] == 2
    assert row["score_alpha"] == pytest.approx(1 - 0.02 / 0.18)
    assert "an interval needs 10" in row["note"]
    assert math.isnan(row["alpha_low"])


def test_agreement_by_subtype(answers: pd.DataFrame) -> None:
    told = reviewing.agreement(answers, "subtype").set_index("group")
    assert list(told.index) == ["baiting", "fact"]
    assert told.loc["baiting", "percent"] == 100.0
    assert told.loc["fact", "percent"] == 50.0
    # m, n on f1; n, n on f2: observed ½, expected 2·1·3 / (4·3) = ½.
    assert told.loc["fact", "alpha"] == pytest.approx(0.0)


def test_a_spot_check_and_a_senior_make_no_agreement(answers: pd.DataFrame) -> None:
    known = reviewing.compared(answers)
    assert set(known["item"]) == {"b1", "b2", "f1", "f2"}
    assert set(known["reviewer"]) == {"Anna", "Ben", "Cleo"}


def test_reviewers(answers: pd.DataFrame) -> None:
    told = reviewing.reviewer_table(answers).set_index("reviewer")
    anna = told.loc["Anna"]
    assert (anna["answers"], anna["shared"], anna["agree"]) == (4, 4, 75.0)
    assert (anna["spot_n"], anna["spot_right"]) == (1, 0.0)
    # 30, 50, 40 and the spot check's 10.
    assert (anna["timed"], anna["seconds_median"]) == (4, 35.0)
    assert (told.loc["Ben", "flagged"], told.loc["Ben", "spot_right"]) == (1, 100.0)
    assert told.loc["Ben", "agree"] == pytest.approx(200 / 3)
    senior = told.loc["Sen"]
    assert (senior["role"], senior["answers"], senior["shared"]) == ("senior", 1, 0)
    assert senior[["agree", "kappa"]].isna().all()
    assert senior["note"] == "decides after the reviewers"


def test_pairs(answers: pd.DataFrame) -> None:
    """Anna and Ben share b1, b2, f1: observed 2/3, expected ⅔·⅓ + ⅓·⅔ = 4/9, kappa (6/9 − 4/9) / (5/9) = 0.4; Anna and
    Cleo gave one verdict only, so theirs isn't defined."""
    ben, cleo = reviewing.pair_table(answers).to_dict("records")
    assert (ben["first"], ben["second"], ben["n"]) == ("Anna", "Ben", 3)
    assert ben["kappa"] == pytest.approx(0.4)
    assert (cleo["first"], cleo["second"], cleo["n"]) == ("Anna", "Cleo", 1)
    assert math.isnan(cleo["kappa"])
    assert "kappa isn't defined" in cleo["note"]


def test_growth_ends_with_what_there_is_now(answers: pd.DataFrame) -> None:
    told = reviewing.growth(answers)
    assert list(told["answers"]) == [3, 4, 5, 6, 7, 8]
    assert list(told["doubly"]) == [1, 2, 2, 3, 3, 4]
    assert list(told["percent"].round(1)) == [100.0, 100.0, 100.0, 66.7, 66.7, 75.0]
    assert told["alpha"].iloc[-1] == pytest.approx(8 / 15)
    assert len(reviewing.growth(answers, steps=3)) == 2


def test_times_and_verdicts(answers: pd.DataFrame) -> None:
    told = reviewing.times(answers).set_index("subtype")
    assert (told.loc["baiting", "answers"], told.loc["baiting", "timed"], told.loc["baiting", "median"]) == (4, 3, 50.0)
    assert told.loc["all", "timed"] == 9
    counts = reviewing.verdict_table(answers).set_index("subtype")
    assert counts.loc["baiting"].to_dict() == {"base": 0, "memory": 2, "neither": 2, "both": 0, "answers": 4}
    assert counts.loc["fact", "neither"] == 3


def test_nothing_yet_gives_empty_tables() -> None:
    none = frame()
    assert reviewing.agreement(none).iloc[0]["note"].startswith("percent")
    for table in (reviewing.agreement(none, "subtype"), reviewing.growth(none), reviewing.pair_table(none)):
        assert table.empty
    for table in (reviewing.reviewer_table(none), reviewing.times(none), reviewing.verdict_table(none)):
        assert table.empty
