"""Intervals and p: exact cases, a loop written anew, coverage, scipy's own intervals, Holm by hand."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from opbench.analysis import intervals
from opbench.analysis.aggregate import RULES, Rule, aggregate, coefficients
from opbench.analysis.intervals import UserSums, holm, interval, paired_difference
from opbench.types import OP_SUBTYPES

Floats = npt.NDArray[np.float64]
WEIGHTS = {"fully-irrelevant": 318, "baiting": 100, "repetition": 882, "fact": 100, "value": 100, "memory": 200}


def several(n_users: int, each: int = 3) -> list[str]:
    return [f"user {number}" for number in range(n_users) for _ in range(each)]


def test_the_same_difference_everywhere_is_known_exactly() -> None:
    found = paired_difference([70.0, 40.0, 55.0] * 20, [60.0, 30.0, 45.0] * 20, several(20))
    assert [found.low, found.high] == pytest.approx([10.0, 10.0])
    assert found.p == 1 / 5000
    assert (found.n_users, found.reason) == (20, "")


def test_a_few_users_that_all_go_one_way_are_no_more_than_the_sign_test_says() -> None:
    # By chance 10 coins fall alike in 2 of 1,024 throws, 6 in 2 of 64, 5 in 2 of 32: that is above 5 %.
    ten, six, five = (paired_difference([100.0] * 3 * n, [0.0] * 3 * n, several(n)) for n in (10, 6, 5))
    assert (ten.p, six.p, five.p) == (2 / 1024, 2 / 64, 2 / 32)
    assert [six.low, six.high] == [100.0, 100.0]
    assert math.isnan(five.low)
    assert five.reason == "all 5 users change by the same, too few to tell more"


def test_no_difference_anywhere_has_p_one() -> None:
    found = paired_difference([50.0] * 15, [50.0] * 15, several(5))
    assert (found.low, found.high, found.p) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(("n", "reason"), [(0, "0 users"), (1, "1 user"), (4, "4 users")])
def test_too_few_users_is_a_reason_not_an_interval(n: int, reason: str) -> None:
    users = several(n)
    found = paired_difference(np.arange(len(users)) * 1.0, np.zeros(len(users)), users)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isnan(found.p)
    assert found.reason == f"{reason}, an interval needs 5"


def test_only_what_both_have_counts_and_only_its_users() -> None:
    users = several(7)
    a, b = np.full(21, 30.0), np.full(21, 10.0)
    a[:2], b[2] = 1000.0, -1000.0
    a[2] = b[:2] = np.nan
    found = paired_difference(a, b, users)
    # The first user has no pair, the others differ by 20.
    assert [found.low, found.high, found.n_users] == pytest.approx([20.0, 20.0, 6])


def test_unaligned_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="aren't aligned: 2, 3, 3"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0], ["a", "b", "c"])


def test_the_interval_is_symmetric_around_the_difference_and_turns_with_it() -> None:
    random = np.random.default_rng(4)
    a, b, users = random.normal(60, 20, 80), random.normal(50, 20, 80), several(20, 4)
    found, turned = paired_difference(a, b, users), paired_difference(b, a, users)
    assert (found.low + found.high) / 2 == pytest.approx(a.mean() - b.mean())
    assert [turned.low, turned.high] == pytest.approx([-found.high, -found.low])
    assert turned.p == found.p
    assert paired_difference(a, b, users) == found


def test_instances_of_one_user_are_one_draw() -> None:
    """20 users who each said the same thing nine times are 20 draws, not 180: the interval is that of 20 scores."""
    random = np.random.default_rng(8)
    a, b = random.normal(10, 30, 20), np.zeros(20)
    alone = paired_difference(a, b, several(20, 1))
    repeated = paired_difference(np.repeat(a, 9), np.repeat(b, 9), several(20, 9))
    assert [repeated.low, repeated.high, repeated.p] == pytest.approx([alone.low, alone.high, alone.p])


def test_p_is_at_most_5_percent_exactly_where_the_interval_leaves_out_zero() -> None:
    random = np.random.default_rng(5)
    seen = set()
    for shift in np.linspace(0, 20, 25):
        found = paired_difference(random.normal(shift, 20, 36), np.zeros(36), several(12))
        outside = found.low > 0 or found.high < 0
        assert outside == (found.p <= 0.05)
        assert 1 / 5000 <= found.p <= 1
        seen.add(outside)
    assert seen == {True, False}


def test_a_difference_of_one_user_among_ten_has_no_interval_and_no_small_p() -> None:
    a = np.zeros(10)
    a[0] = 100.0
    found = paired_difference(a, np.zeros(10), several(10, 1))
    assert math.isnan(found.low)
    assert found.reason == "too few users differ for an interval"
    # That user is drawn in none of 0.9 ** 10 = 35 % of the replicates, which then lie as far off as can be.
    assert found.p > 0.3


def naive(sums: UserSums, weights: Floats, seed: int, replicates: int) -> tuple[float, float, float]:
    """Difference of two averages, by plain loops: low, high, p."""

    def average(rows: list[int], which: int) -> float:
        total = 0.0
        for part, weight in enumerate(weights):
            scores = sum(sums.sums[which, row, part] for row in rows)
            count = sum(sums.counts[row, part] for row in rows)
            total += weight * scores / count
        return total

    def error(rows: list[int]) -> float:
        size, total = len(rows), 0.0
        for row in rows:
            own = 0.0
            for part, weight in enumerate(weights):
                count = sum(sums.counts[other, part] for other in rows)
                for which, sign in ((0, 1), (1, -1)):
                    mean = sum(sums.sums[which, other, part] for other in rows) / count
                    own += sign * weight * (sums.sums[which, row, part] - mean * sums.counts[row, part]) / count
            total += own**2
        return math.sqrt(size / (size - 1) * total)

    everybody = list(range(sums.counts.shape[0]))
    value = average(everybody, 0) - average(everybody, 1)
    own_error = error(everybody)
    random = np.random.default_rng(seed)
    distances = []
    for _ in range(replicates):
        rows = [int(row) for row in random.integers(0, len(everybody), len(everybody))]
        distances.append(abs(average(rows, 0) - average(rows, 1) - value) / error(rows))
    quantile = float(np.quantile(distances, 0.95))
    p = (1 + sum(distance >= abs(value) / own_error for distance in distances)) / (1 + replicates)
    return value - quantile * own_error, value + quantile * own_error, p


def example(n_users: int, seed: int, shift: float) -> UserSums:
    random = np.random.default_rng(seed)
    counts = random.integers(1, 6, (n_users, 3)).astype(float)
    reference = counts * random.normal(50, 8, (n_users, 3))
    changed = reference + counts * random.normal(shift, 8, (n_users, 3))
    return UserSums(np.stack([changed, reference]), counts, ("one", "two", "three"))


def test_it_agrees_with_a_loop_written_by_itself() -> None:
    sums, weights = example(8, 3, 3.0), np.array([0.5, 0.3, 0.2])
    found = interval(sums, weights, intervals.change)
    low, high, p = naive(sums, weights, seed=99, replicates=1500)
    width = high - low
    assert found.low == pytest.approx(low, abs=0.06 * width)
    assert found.high == pytest.approx(high, abs=0.06 * width)
    assert found.p == pytest.approx(p, abs=0.03)


def test_with_many_users_it_comes_near_scipys_percentile_interval() -> None:
    random = np.random.default_rng(11)
    differences = random.normal(4, 20, 200)
    found = paired_difference(differences, np.zeros(200), several(200, 1))
    other = stats.bootstrap((differences,), np.mean, method="percentile", rng=np.random.default_rng(1))
    assert found.low == pytest.approx(other.confidence_interval.low, abs=0.25)
    assert found.high == pytest.approx(other.confidence_interval.high, abs=0.25)


def test_19_of_20_intervals_hold_the_truth_of_clustered_data() -> None:
    """Ten users with effects of their own (as LoCoMo has), 15 instances each, true difference 2."""
    random = np.random.default_rng(21)
    studies, held, naive_held = 300, 0, 0
    users = several(10, 15)
    for _ in range(studies):
        differences = np.repeat(random.normal(2.0, 8.0, 10), 15) + random.normal(0.0, 20.0, 150)
        found = paired_difference(differences, np.zeros(150), users)
        held += found.low <= 2.0 <= found.high
        half = 1.96 * differences.std(ddof=1) / math.sqrt(150)
        naive_held += abs(differences.mean() - 2.0) <= half
    # Binomial: 95 % of 300 ± 3.3 standard errors. Without clusters it is far off, so the data does try the method.
    assert 273 <= held <= 297
    assert naive_held < 255


@pytest.mark.parametrize("rule", RULES)
def test_coefficients_make_the_average_of_each_rule(rule: Rule) -> None:
    scores = dict(zip(OP_SUBTYPES, (61.0, 20.0, 50.0, 40.0, 25.0, 70.0), strict=True))
    factors = coefficients(WEIGHTS, rule)
    assert factors.sum() == pytest.approx(1.0)
    assert factors @ np.array(list(scores.values())) == pytest.approx(aggregate(scores, WEIGHTS, rule))


def test_coefficients_by_hand() -> None:
    assert coefficients(WEIGHTS, "task-mean") == pytest.approx([0.25, 0.25, 0.25, 0.0625, 0.0625, 0.125])
    assert coefficients(WEIGHTS, "category-macro") == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 9, 1 / 9, 1 / 9])
    assert coefficients(WEIGHTS, "instance") == pytest.approx(np.array(list(WEIGHTS.values())) / 1700)
    without = coefficients(WEIGHTS | {"repetition": 0}, "task-mean")
    assert without == pytest.approx([1 / 3, 1 / 3, 0, 1 / 12, 1 / 12, 1 / 6])


def test_a_part_that_few_users_hold_gives_no_interval() -> None:
    counts = np.ones((10, 2))
    counts[4:, 1] = 0
    sums = UserSums(np.random.default_rng(0).normal(50, 5, (2, 10, 2)) * counts, counts, ("baiting", "value"))
    found = interval(sums, np.array([0.5, 0.5]), intervals.change)
    assert found.reason == "value rests on 4 users, an interval needs 5"
    assert math.isnan(found.low)
    # A part that isn't planned doesn't count.
    assert not math.isnan(interval(sums, np.array([1.0, 0.0]), intervals.change).low)


def test_replicates_without_a_part_are_left_out() -> None:
    """Five of ten users hold the second part: one in a thousand replicates has none of them and no average."""
    random = np.random.default_rng(2)
    counts = np.ones((10, 2))
    counts[5:, 1] = 0
    second = random.normal(50, 5, (10, 2)) * counts
    sums = UserSums(np.stack([second + random.normal(6, 6, (10, 2)) * counts, second]), counts, ("one", "two"))
    found = interval(sums, np.array([0.5, 0.5]), intervals.change)
    assert found.low < found.high
    # With p = 1 every replicate that counts lies at least as far as none: nothing was lost by a NaN.
    same = interval(
        UserSums(np.stack([second, second]), counts, ("one", "two")), np.array([0.5, 0.5]), intervals.change
    )
    assert same.p == 1.0


def test_relative_change_and_gap_of_equal_users_by_hand() -> None:
    counts = np.full((6, 1), 2.0)
    of = {"method": 70.0, "system": 50.0, "oracle": 90.0}
    sums = UserSums(np.stack([counts * value for value in of.values()]), counts, ("one",))
    gap = interval(sums, np.ones(1), intervals.gap)
    assert [gap.low, gap.high] == pytest.approx([0.5, 0.5])
    two = UserSums(sums.sums[:2], counts, ("one",))
    percent = interval(two, np.ones(1), intervals.relative)
    assert [percent.low, percent.high] == pytest.approx([40.0, 40.0])


def test_gradients_are_those_of_the_statistics() -> None:
    places = [np.array([70.0]), np.array([50.0]), np.array([90.0])]
    for combine, size in ((intervals.change, 2), (intervals.relative, 2), (intervals.gap, 3)):
        _, gradient = combine(places[:size])
        for at in range(size):
            nearby = [each + (1e-6 if place == at else 0.0) for place, each in enumerate(places[:size])]
            slope = (combine(nearby)[0] - combine(places[:size])[0]) / 1e-6
            assert gradient[at] == pytest.approx(slope, rel=1e-4)


def test_holm_by_hand() -> None:
    # 0.01 × 4; then 0.02 × 3 = 0.06; 0.03 × 2 = 0.06; 0.5. Each at least the one before.
    assert holm([0.02, 0.01, 0.5, 0.03]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])


def test_holm_is_statsmodels_holm() -> None:
    p = np.random.default_rng(6).uniform(0, 0.2, 40) ** 2
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])


def test_holm_counts_only_what_was_tested() -> None:
    found = holm([0.02, math.nan, 0.04])
    assert found[[0, 2]] == pytest.approx([0.04, 0.04])
    assert math.isnan(found[1])
    assert len(holm([])) == 0
    assert np.isnan(holm([math.nan])).all()
