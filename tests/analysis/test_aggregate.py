"""The three rules, on the paper's numbers and on slices that lack subtypes."""

from __future__ import annotations

import pytest

from opbench.analysis.aggregate import RULES, aggregate, unplanned, unscored
from opbench.types import OP_SUBTYPES

ALL = dict(zip(OP_SUBTYPES, (318, 100, 882, 100, 100, 200), strict=True))
FIRST = dict(zip(OP_SUBTYPES, (159, 50, 450, 50, 50, 100), strict=True))


def scores(*values: float | None) -> dict[str, float | None]:
    return dict(zip(OP_SUBTYPES, values, strict=True))


GPT_BASE = scores(99.94, 99.60, 71.92, 81.00, 83.40, 68.45)
GPT_MEM0 = scores(48.15, 46.20, 55.98, 44.40, 51.00, 22.20)
GEMINI_BASE = scores(99.56, 95.20, 63.45, 88.60, 87.80, 26.40)


def test_category_macro_gives_the_published_average_of_gpt_4o_mini_base() -> None:
    assert aggregate(GPT_BASE, ALL, "category-macro") == pytest.approx(83.10, abs=0.01)


def test_task_mean_gives_the_published_average_of_gpt_4o_mini_mem0() -> None:
    assert aggregate(GPT_MEM0, ALL, "task-mean") == pytest.approx(46.32, abs=0.01)


def test_instance_over_first_speakers_gives_the_published_average_of_gemini_base() -> None:
    assert aggregate(GEMINI_BASE, FIRST, "instance") == pytest.approx(70.55, abs=0.01)


def test_rules_differ_on_numbers_worked_out_by_hand() -> None:
    values = scores(100, 90, 70, 80, 60, 50)
    weights = dict(zip(OP_SUBTYPES, (2, 2, 5, 1, 1, 2), strict=True))
    # sycophancy by count: (80 + 60 + 2·50) / 4 = 60; plain: 190 / 3
    assert aggregate(values, weights, "task-mean") == pytest.approx((100 + 90 + 70 + 60) / 4)
    assert aggregate(values, weights, "instance") == pytest.approx((200 + 180 + 350 + 80 + 60 + 100) / 13)
    assert aggregate(values, weights, "category-macro") == pytest.approx((95 + 70 + 190 / 3) / 3)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_planned_subtype_without_score_makes_the_average_missing_not_lower(rule: str, missing: float | None) -> None:
    values = scores(100, missing, 70, 80, 60, 50)
    assert aggregate(values, ALL, rule) is None  # type: ignore[arg-type]
    assert unscored(values, ALL) == ("baiting",)


def test_an_unplanned_subtype_takes_no_part() -> None:
    weights = {**ALL, "repetition": 0}
    del weights["baiting"]
    values = scores(100, None, None, 80, 60, 50)
    assert aggregate(values, weights, "task-mean") == pytest.approx((100 + 60) / 2)
    assert aggregate(values, weights, "instance") == pytest.approx((318 * 100 + 8000 + 6000 + 10000) / 718)
    assert aggregate(values, weights, "category-macro") == pytest.approx((100 + 190 / 3) / 2)
    assert unplanned(weights) == ("baiting", "repetition")


@pytest.mark.parametrize("rule", RULES)
def test_nothing_planned_is_missing(rule: str) -> None:
    assert aggregate(GPT_BASE, {}, rule) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
def test_a_zero_is_a_score(rule: str) -> None:
    assert aggregate(scores(0, 0, 0, 0, 0, 0), ALL, rule) == 0.0  # type: ignore[arg-type]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no aggregation rule 'mean'"):
        aggregate(GPT_BASE, ALL, "mean")  # type: ignore[arg-type]
