"""Traps, shapes of answers, repeats and the ceiling, on the bundled sample's questions and small tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.benchmarks import load
from opbench.calibration.ceiling import ceiling
from opbench.calibration.position import EFFECTS, bias, bias_set
from opbench.calibration.selfconsistency import self_consistency
from opbench.calibration.spec import Rated
from opbench.calibration.traps import KINDS, acceptance, traps
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.store.judgings import read_set
from opbench.types import Corpus


@pytest.fixture(scope="module")
def sample() -> Corpus:
    return load("sample")


@pytest.fixture(scope="module")
def made(sample: Corpus) -> dict[tuple[str, str], Rated]:
    return {(each.response.kind, each.response.pair): each for each in traps(sample)}


def trap(made: dict[tuple[str, str], Rated], kind: str, number: int) -> str | None:
    found = made.get((kind, f"locomo/sample-1/{number}"))
    return None if found is None else found.response.response


def test_the_traps_of_some_questions(made: dict[tuple[str, str], Rated]) -> None:
    # Gold: 1 January 2024; the next temporal question's is 3 February 2024.
    assert trap(made, "right", 1) == "As far as I remember: 1 January 2024."
    assert trap(made, "near", 1) == "As far as I remember: 1 February 2024."
    # Gold: 1,204.
    assert trap(made, "near", 8) == "As far as I remember: 1,205."
    # Gold: fourteen.
    assert trap(made, "near", 20) == "As far as I remember: fifteen."
    # Gold: the postman and the diocese's inspector.
    assert trap(made, "part", 17) == "As far as I remember: the postman."
    # Gold: kiwi. Nothing to count, nothing to part.
    assert trap(made, "near", 10) is None
    assert trap(made, "part", 10) is None
    assert trap(made, "negated", 10) == "I am sure of one thing only: it is not “kiwi”."


def test_every_question_has_a_right_answer_and_wrong_ones(sample: Corpus, made: dict[tuple[str, str], Rated]) -> None:
    answerable = [each.id for each in sample.locomo if each.subtype != "adversarial"]
    assert len(answerable) == 27
    for identity in answerable:
        kinds = {kind for kind, pair in made if pair == identity}
        assert {"right", "another", "negated", "topic", "vague", "missing"} <= kinds
    assert {kind for kind, _ in made} == set(KINDS)
    assert all(each.people == (1.0 if kind == "right" else 0.0) for (kind, _), each in made.items())


def test_no_wrong_answer_is_the_gold_one(made: dict[tuple[str, str], Rated]) -> None:
    for (kind, _), each in made.items():
        said = each.response.response.casefold()
        gold = each.response.gold.casefold()
        if kind in ("another", "other person", "near", "topic", "vague", "missing"):
            assert gold not in said, (kind, gold, said)


def test_the_other_person_s_answer_is_to_a_question_about_the_other_person(
    sample: Corpus, made: dict[tuple[str, str], Rated]
) -> None:
    by_gold = {str(each.answer).rstrip("."): each for each in sample.locomo if each.answer}
    found = 0
    for (kind, _), each in made.items():
        if kind == "other person":
            source = by_gold[each.response.response.removeprefix("As far as I remember: ").removesuffix(".")]
            about = [name for name in ("Ottilie", "Corvin") if name in each.response.question]
            assert [name for name in ("Ottilie", "Corvin") if name in source.question] != about
            found += 1
    assert found >= 10


def test_a_limit_spreads_over_all_questions(sample: Corpus) -> None:
    of = [each.response.pair for each in traps(sample, 3)]
    assert list(dict.fromkeys(of)) == ["locomo/sample-1/1", "locomo/sample-1/10", "locomo/sample-1/19"]
    assert len(traps(sample, 1000)) == len(traps(sample))


def judged(values: dict[str, list[float]], metric: str = "correct") -> pd.DataFrame:
    """One judging; by kind the values of questions 0, 1, …"""
    rows = [
        {"judging": "j", "label": "x", "kind": kind, "pair": str(place), "metric": metric, "value": value}
        | {"reason": "empty" if math.isnan(value) else None}
        for kind, given in values.items()
        for place, value in enumerate(given)
    ]
    return pd.DataFrame(rows)


def test_acceptance_with_wilson_s_interval() -> None:
    nan = float("nan")
    table = acceptance(judged({"right": [1.0] * 8 + [0.0] * 2, "vague": [0.0] * 10, "near": [1.0, nan, 0.0]}))
    rows: dict[str, dict[str, Any]] = {str(row["kind"]): dict(row) for row in table.to_dict("records")}  # type: ignore[arg-type]
    right, vague, near = rows["right"], rows["vague"], rows["near"]
    assert [right[name] for name in ("n", "accepted", "rate", "wrong")] == [10, 8, 80.0, False]
    # Wilson (1927) for 8 and for 0 of 10.
    assert (right["low"], right["high"]) == pytest.approx((49.02, 94.33), abs=0.01)
    assert (vague["low"], vague["high"]) == pytest.approx((0.0, 27.75), abs=0.01)
    assert [near[name] for name in ("answers", "n", "missing", "accepted")] == [3, 2, 1, 1]
    assert math.isnan(near["low"])
    assert near["note"] == "2 answers, an interval needs 5"
    # Two of ten accepted at one of two repeats: 7 + 2 · ½.
    (half,) = acceptance(judged({"right": [1.0] * 7 + [0.5] * 2 + [0.0]})).to_dict("records")
    assert (half["n"], half["accepted"], half["rate"]) == (10, 8.0, 80.0)
    assert (half["low"], half["high"]) == pytest.approx((49.02, 94.33), abs=0.01)


def test_a_judge_that_gives_no_verdict_has_no_acceptance() -> None:
    (row,) = acceptance(judged({"right": [0.4] * 6}, "f1")).to_dict("records")
    assert math.isnan(row["rate"])
    assert row["note"] == "gives f1, no verdict"
    (row,) = acceptance(judged({"right": [float("nan")] * 6})).to_dict("records")
    assert (row["n"], row["missing"], row["note"]) == (0, 6, "empty")


def test_shapes_differ_in_what_they_are_about_alone(home: Path, sample: Corpus) -> None:
    store = open_store(settings().store_url)
    by_kind: dict[str, list[Rated]] = {}
    for each in read_set(store, bias_set(store, sample)):
        by_kind.setdefault(each.response.kind, []).append(each)
    store.close()
    assert {kind: len(each) for kind, each in by_kind.items() if kind.startswith("right")} == dict.fromkeys(
        ["right bare", "right first", "right middle", "right last", "right long"], 27
    )
    first, middle, last = (by_kind[f"right {place}"][9].response.response for place in ("first", "middle", "last"))
    assert len(first.split(". ")) == len(middle.split(". ")) == len(last.split(". ")) == 5
    assert first.startswith("The answer is: kiwi.")
    assert last.endswith("The answer is: kiwi.")
    assert by_kind["right bare"][9].response.response == "The answer is: kiwi."
    assert by_kind["wrong bare"][9].people == 0.0


def test_bias_is_paired_by_question() -> None:
    bare = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    first = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, float("nan")]
    table = bias(judged({"right bare": bare, "right first": first}))
    row = table[(table["answers"] == "right") & (table["effect"] == "length: 4 sentences more")].iloc[0]
    # Of the seven judged in both shapes 5 and 2 are accepted; three fall.
    assert (row["n"], row["missing"]) == (7, 1)
    assert (row["without"], row["with_it"], row["difference"]) == pytest.approx((500 / 7, 200 / 7, -300 / 7))
    assert row["low"] < -300 / 7 < row["high"]
    assert len(table) == 2 * len(EFFECTS)
    assert table[table["answers"] == "wrong"]["note"].unique().tolist() == ["no such answers in the set"]


def test_consistency_by_hand_and_by_shrout_and_fleiss() -> None:
    # Shrout & Fleiss (1979), table 2: six targets, four judges; ICC(1,1) = .17. As scores from 0 to 1.
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    rows = [
        {"judging": "j", "item": str(target), "repeat": repeat, "value": value / 10}
        for target, given in enumerate(ratings)
        for repeat, value in enumerate(given)
    ]
    (row,) = self_consistency(pd.DataFrame(rows), {"j": "x"}).to_dict("records")
    assert row["reliability"] == pytest.approx(0.17, abs=0.005)
    assert (row["n"], row["repeats"], row["same"], row["missing"]) == (6, 4, 0.0, 0)
    assert row["largest"] == pytest.approx(0.7)
    assert row["spread"] == pytest.approx(np.mean([np.std(each, ddof=1) for each in ratings]) / 10)
    assert row["spread_low"] < row["spread"] < row["spread_high"]


def test_a_judge_that_never_wavers_and_one_that_was_asked_once() -> None:
    rows = [
        {"judging": judging, "item": str(item), "repeat": repeat, "value": item / 10}
        for judging, repeats in (("steady", 3), ("once", 1))
        for item in range(6)
        for repeat in range(repeats)
    ]
    steady, once = self_consistency(pd.DataFrame(rows), {"steady": "s", "once": "o"}).to_dict("records")
    assert (steady["same"], steady["spread"], steady["largest"], steady["reliability"]) == (100.0, 0.0, 0.0, 1.0)
    # A bootstrap of six zeros would give an interval of no width.
    assert math.isnan(steady["spread_low"])
    assert "no draw can tell more" in steady["note"]
    # Wilson for 6 of 6.
    assert steady["same_low"] == pytest.approx(60.97, abs=0.01)
    assert (once["n"], math.isnan(once["same"])) == (0, True)
    assert "--repeats" in once["note"]


def test_the_ceiling_of_locomo(use_real_data: Path) -> None:
    """99 of 1,540 gold answers are wrong or doubtful, 13 of these debatable (the audit's own counts)."""
    rows = ceiling(load()).set_index("category")
    total = rows.loc["all"]
    assert (total["questions"], total["wrong_gold"], total["debatable"]) == (1540, 99, 13)
    assert total["ceiling"] == pytest.approx(100 * 1441 / 1540)
    assert total["without_debatable"] == pytest.approx(100 * 1454 / 1540)
    parts = rows.drop("all")
    assert parts["questions"].to_dict() == {"multi-hop": 282, "temporal": 321, "open-domain": 96, "single-hop": 841}
    assert parts["wrong_gold"].sum() == 99
    assert parts["ceiling"].between(89, 97).all()


def test_no_ceiling_is_told_of_data_that_the_audit_never_saw(sample: Corpus) -> None:
    rows = ceiling(sample).set_index("category")
    assert rows.loc["all", "questions"] == 27
    assert rows[["wrong_gold", "debatable", "ceiling", "without_debatable"]].isna().all(axis=None)
