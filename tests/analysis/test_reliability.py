"""Kappa and alpha against values printed in textbooks and worked out by hand."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from opbench.analysis.reliability import alpha, kappa, percent, proportion, score_alpha

NAN = float("nan")


def answers(**by_reviewer: str) -> pd.DataFrame:
    """One sign an item, `.` where the reviewer hasn't answered."""
    return pd.DataFrame(
        [
            {"item": f"i{at:02d}", "reviewer": name, "verdict": sign}
            for name, signs in by_reviewer.items()
            for at, sign in enumerate(signs)
            if sign != "."
        ]
    )


def two(table: list[list[int]]) -> pd.DataFrame:
    """The answers of two reviewers from their table: rows the first one's verdicts, columns the second's."""
    first, second = "", ""
    for row, counts in enumerate(table):
        for column, count in enumerate(counts):
            first += "abcdef"[row] * count
            second += "abcdef"[column] * count
    return answers(A=first, B=second)


# Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, sections A to C.
BINARY = answers(Meg="0100000010", Owen="1110010000")
NOMINAL = answers(Ben="aabbdcccedda", Gerry="babbbccceddd")
MISSING = answers(A="123321412...", B="1233224125.3", C=".3332342251.", D="12332441251.")


def test_alpha_is_krippendorffs_own() -> None:
    assert alpha(BINARY).value == pytest.approx(0.095, abs=0.0005)
    assert alpha(NOMINAL).value == pytest.approx(0.692, abs=0.0005)


def test_alpha_with_missing_answers_is_krippendorffs_own() -> None:
    told = alpha(MISSING)
    assert told.value == pytest.approx(0.743, abs=0.0005)
    # The twelfth unit has one answer: no pair.
    assert told.n == 11
    scores = MISSING.assign(unit="memory", value=MISSING["verdict"].astype(float))
    assert score_alpha(scores).value == pytest.approx(0.849, abs=0.0005)


def test_alpha_of_fleiss_example() -> None:
    """Fleiss' kappa of ten subjects and fourteen raters is printed as 0.210; alpha is the same with a correction for
    small numbers: 1 − alpha = (1 − kappa) (N − 1) / N, N = 140 ratings."""
    table = """0 0 0 0 14/0 2 6 4 2/0 0 3 5 6/0 3 9 2 0/2 2 8 1 1/7 7 0 0 0/3 2 6 3 0/2 5 3 2 2/6 5 2 1 0/0 2 2 3 7"""
    rows = []
    for subject, counts in enumerate(table.split("/")):
        signs = "".join(str(kind) * int(count) for kind, count in enumerate(counts.split()))
        rows += [{"item": subject, "reviewer": f"r{at}", "verdict": sign} for at, sign in enumerate(signs)]
    told = alpha(pd.DataFrame(rows))
    assert 1 - (1 - told.value) * 140 / 139 == pytest.approx(0.210, abs=0.0005)


def test_kappa_is_the_textbooks() -> None:
    # Fleiss (1981), Statistical Methods for Rates and Proportions, table 13.1: 100 diagnoses, 0.68.
    told = kappa(two([[75, 1, 4], [5, 4, 1], [0, 0, 10]]))
    assert told.value == pytest.approx(0.68, abs=0.005)
    assert told.n == 100
    # Fifty proposals, 20 yes-yes, 5, 10, 15 no-no: (0.7 − 0.5) / (1 − 0.5).
    assert kappa(two([[20, 5], [10, 15]])).value == pytest.approx(0.4)


def test_kappa_of_three_is_the_mean_over_pairs_weighted_by_shared_items() -> None:
    """By hand, of four items five times over. A and B share 4: three alike of aabb/aaab; expected ½·¾ + ½·¼ = ½, kappa
    ½. A and C share 2, both alike: 1. B and C share 2 (item 0: a, a; item 2: a, b): observed ½, expected 1·½, kappa
    0."""
    told = kappa(answers(A="aabb" * 5, B="aaab" * 5, C="a.b." * 5))
    assert told.value == pytest.approx((4 * 0.5 + 2 * 1.0 + 2 * 0.0) / 8)
    assert told.n == 20
    assert told.low < told.value < told.high
    assert told.reason == ""


def test_a_mean_over_pairs_leaves_out_those_that_share_few_items() -> None:
    """Of one item that two share, agreement has no kappa and disagreement 0: a mean over many such pairs is near 0
    however often reviewers agree."""
    # A and B as above, on 12 items: ½. A and C share two, which differ: left out, and so are B and C.
    told = kappa(answers(A="aabb" * 3, B="aaab" * 3, C="bb" + "." * 10))
    assert told.value == pytest.approx(0.5)
    assert told.reason == "2 of 3 pairs left out, which share too few items or gave one verdict only"
    few = kappa(answers(A="aa..", B="a.b.", C=".ab."))
    assert math.isnan(few.value)
    assert few.reason == "none of 3 pairs of reviewers shares 10 items: see alpha"
    # Two alone are no mean.
    alone = kappa(answers(A="aabb", B="aaab"))
    assert (alone.value, alone.reason) == (0.5, "4 items, an interval needs 10")


def test_kappa_agrees_with_scikit_learns_on_many_tables() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        table = rng.integers(0, 9, (4, 4))
        frame = two(table.tolist())
        wide = frame.pivot(index="item", columns="reviewer", values="verdict")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = cohen_kappa_score(wide["A"], wide["B"])
        assert kappa(frame).value == pytest.approx(expected)


def test_percent_with_missing_answers_by_hand() -> None:
    # Items 0 and 2 alike, 1 not, 3 has one answer: 2 of 3.
    told = percent(answers(A="aab.", B="abbb"))
    assert told.value == pytest.approx(200 / 3)
    assert told.n == 3
    # Three answers a, a, b: one pair of three is alike; the other item all alike.
    assert percent(answers(A="aa", B="aa", C="ba")).value == pytest.approx(100 * (1 / 3 + 1) / 2)


def test_wilson_is_the_textbooks() -> None:
    # Newcombe (1998), Statistics in Medicine 17: 81 of 263 gives 0.2553 to 0.3662.
    told = proportion(81, 263)
    assert told.low == pytest.approx(25.53, abs=0.005)
    assert told.high == pytest.approx(36.62, abs=0.005)
    assert math.isnan(proportion(0, 0).value)


def test_an_interval_covers_what_it_should() -> None:
    """Reviewers of whom each is right with chance 0.9 and else guesses among three: alpha of all such items is 0.81.
    Of 60 reviews of 150 items, an interval of 95 % leaves it out in about 3, and in more than 9 hardly ever."""
    rng = np.random.default_rng(3)
    left_out = 0
    for _ in range(60):
        truth = rng.integers(0, 3, 150)
        both = np.where(rng.random((2, 150)) < 0.9, truth, rng.integers(0, 3, (2, 150)))
        first, second = ("".join(map(str, row)) for row in both)
        frame = answers(A=first, B=second)
        for told in (alpha(frame), kappa(frame)):
            assert told.low < told.value < told.high
            left_out += not told.low <= 0.81 <= told.high
    assert left_out / 2 <= 9


def test_what_is_not_defined_is_missing_and_says_why() -> None:
    same = answers(A="aaa", B="aaa")
    assert math.isnan(alpha(same).value)
    assert "alpha isn't defined" in alpha(same).reason
    assert math.isnan(kappa(same).value)
    assert "kappa isn't defined" in kappa(same).reason
    assert percent(same).value == 100.0
    alone = answers(A="abc")
    for told in (alpha(alone), kappa(alone), percent(alone)):
        assert math.isnan(told.value)
        assert told.reason


def test_full_agreement_has_no_interval_of_no_width() -> None:
    whole = answers(A="ab" * 20, B="ab" * 20)
    for told in (alpha(whole), kappa(whole)):
        assert told.value == pytest.approx(1.0)
        assert math.isnan(told.low)
        assert "nobody disagrees on 40 items" in told.reason
    # Wilson's interval knows how far below 100 % it may be.
    assert percent(whole).low == pytest.approx(100 * 40 / (40 + 1.959964**2), abs=0.01)


def test_scores_of_an_item_are_drawn_together() -> None:
    """Both responses of an item scored alike by the two: an interval as if 40 responses were independent is narrower
    than one over 20 items."""
    rng = np.random.default_rng(5)
    rows = []
    for item in range(20):
        truth = rng.random()
        for reviewer in "AB":
            value = min(1.0, max(0.0, truth + rng.normal(0, 0.2)))
            rows += [{"item": item, "unit": unit, "reviewer": reviewer, "value": value} for unit in ("base", "memory")]
    frame = pd.DataFrame(rows)
    together = score_alpha(frame)
    apart = score_alpha(frame.assign(item=frame["item"].astype(str) + frame["unit"], unit="one"))
    assert together.n == apart.n == 40
    assert together.value == pytest.approx(apart.value)
    assert together.high - together.low > 1.2 * (apart.high - apart.low)
