"""Correlations against published and hand-computed values, and their intervals against what they must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from opbench.calibration.correlating import _Places, correlations

# IQ and hours of TV a week, the worked example of Spearman's rho (rho = -29/165).
IQ = np.array([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], dtype=float)
TV = np.array([7, 27, 2, 50, 28, 29, 20, 12, 6, 17], dtype=float)


def test_spearman_of_the_textbook() -> None:
    spearman, _ = correlations(IQ, TV, [str(n) for n in range(10)])
    assert spearman.value == pytest.approx(-29 / 165)
    assert spearman.low < -29 / 165 < spearman.high


def test_pearson_by_hand() -> None:
    # Deviations -2 -1 0 1 2 and -1 -1 0 1 1: 6 / sqrt(10 * 4).
    _, pearson = correlations(np.arange(1.0, 6.0), np.array([1.0, 1.0, 2.0, 3.0, 3.0]), list("abcde"))
    assert pearson.value == pytest.approx(6 / math.sqrt(40))
    # Ranks of the second: 1.5 1.5 3 4.5 4.5; 9 / sqrt(10 * 9).
    spearman, _ = correlations(np.arange(1.0, 6.0), np.array([1.0, 1.0, 2.0, 3.0, 3.0]), list("abcde"))
    assert spearman.value == pytest.approx(9 / math.sqrt(90))


def test_ranks_of_what_is_taken_several_times_are_those_of_the_sample_written_out() -> None:
    values = np.array([0.5, 0.1, 0.5, 0.9, 0.1])
    times = np.array([2, 1, 0, 3, 1])
    written_out = stats.rankdata(np.repeat(values, times))
    ranks = _Places(values).ranks(times[None, :].astype(float))[0]
    assert np.repeat(ranks, times) == pytest.approx(written_out)


def test_saying_everything_twice_makes_no_interval_narrower() -> None:
    """Two responses of a question aren't independent: what counts are the questions."""
    clusters = [str(n) for n in range(10)]
    once = correlations(IQ, TV, clusters)
    twice = correlations(np.repeat(IQ, 2), np.repeat(TV, 2), [name for name in clusters for _ in range(2)])
    for one, two in zip(once, twice, strict=True):
        assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high), abs=1e-6)


def test_the_order_of_responses_changes_nothing() -> None:
    clusters = [str(n // 2) for n in range(10)]
    turned = [3, 9, 0, 5, 1, 8, 2, 7, 4, 6]
    first = correlations(IQ, TV, clusters)
    second = correlations(IQ[turned], TV[turned], [clusters[n] for n in turned])
    assert [one.value for one in first] == pytest.approx([two.value for two in second])
    assert all(abs(one.low - two.low) < 0.1 for one, two in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("n", "n_clusters", "reason"),
    [(2, 2, "2 responses, a correlation needs 3"), (8, 4, "4 questions, an interval needs 5")],
)
def test_too_few_have_no_interval_and_say_so(n: int, n_clusters: int, reason: str) -> None:
    spearman, pearson = correlations(IQ[:n], TV[:n], [str(number % n_clusters) for number in range(n)])
    assert math.isnan(spearman.low)
    assert math.isnan(pearson.high)
    assert spearman.reason == pearson.reason == reason
    assert math.isnan(spearman.value) == (n == 2)


def test_a_judge_that_says_the_same_of_all_has_no_correlation() -> None:
    spearman, pearson = correlations(IQ, np.full(10, 0.5), [str(n) for n in range(10)])
    assert math.isnan(spearman.value)
    assert math.isnan(pearson.value)
    assert spearman.reason == "the judge gave the same score to all 10"


def test_a_perfect_order_is_one_and_claims_no_interval() -> None:
    spearman, _ = correlations(IQ, IQ, [str(n) for n in range(10)])
    assert spearman.value == pytest.approx(1.0)
    assert math.isnan(spearman.low)
    assert spearman.reason == "a perfect correlation has no interval"


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Ten questions of two responses; the truth (0.0) is within about 95 of 100 intervals."""
    rng = np.random.default_rng(5)
    clusters = [str(n // 2) for n in range(20)]
    inside = 0
    for _ in range(60):
        shared = rng.normal(size=(2, 10)).repeat(2, axis=1)
        first, second = shared + rng.normal(size=(2, 20))
        spearman, _ = correlations(first, second, clusters)
        inside += spearman.low <= 0.0 <= spearman.high
    # 60 draws of 0.95: fewer than 52 happen once in 300 times.
    assert 52 <= inside <= 60
