"""The three rules that make one OP-Bench average out of six sub-scores.

The paper's AVG.(OP) column (table 2) mixes all three (`audit.py` shows which row follows which), so a rule
is always chosen, always shown, and one rule serves all rows of a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from opbench.types import OP_CATEGORIES, OP_SUBTYPES

Rule = Literal["task-mean", "instance", "category-macro"]
RULES: tuple[Rule, ...] = ("task-mean", "instance", "category-macro")

#: What each rule does, for pages and `--help`.
RULE_TEXTS: dict[Rule, str] = {
    "task-mean": "mean of the four task groups: fully irrelevant, baiting, repetition, sycophancy (by count within)",
    "instance": "mean over instances: every subtype weighs as much as it has planned instances",
    "category-macro": "mean of the three categories, each the plain mean of its subtypes",
}

_TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "fully-irrelevant": ("fully-irrelevant",),
    "baiting": ("baiting",),
    "repetition": ("repetition",),
    "sycophancy": ("fact", "value", "memory"),
}


def aggregate(subscores: Mapping[str, float | None], weights: Mapping[str, int], rule: Rule) -> float | None:
    """One average over OP-Bench's subtypes, in the unit of `subscores`.

    `weights` are planned instances by subtype; a subtype of weight 0, or that isn't named, wasn't planned and
    takes no part in the rule (`unplanned` names these). A planned subtype without a score (None or NaN) makes
    the average None, never 0. None also when nothing was planned.

    Raises:
        ValueError: no such rule.
    """
    planned = [name for name in OP_SUBTYPES if weights.get(name, 0) > 0]
    scores: dict[str, float] = {}
    for name in planned:
        value = subscores.get(name)
        if value is None or math.isnan(value):
            return None
        scores[name] = float(value)
    if not planned:
        return None
    if rule == "instance":
        return _weighted(scores, weights, planned)
    if rule == "task-mean":
        groups = [[name for name in group if name in scores] for group in _TASK_GROUPS.values()]
        means = [_weighted(scores, weights, group) for group in groups if group]
        return sum(means) / len(means)
    if rule == "category-macro":
        by_category: dict[str, list[float]] = {}
        for name in planned:
            by_category.setdefault(OP_CATEGORIES[name], []).append(scores[name])
        means = [sum(values) / len(values) for values in by_category.values()]
        return sum(means) / len(means)
    raise ValueError(f"no aggregation rule '{rule}'; there are {', '.join(RULES)}")


def coefficients(weights: Mapping[str, int], rule: Rule) -> npt.NDArray[np.float64]:
    """What each of `OP_SUBTYPES` contributes to the average: every rule is a weighted sum of the sub-scores.

    0 for a subtype that isn't planned; they sum to 1.
    """
    ones = [aggregate({each: float(each == name) for each in OP_SUBTYPES}, weights, rule) for name in OP_SUBTYPES]
    return np.array([0.0 if one is None else one for one in ones])


def unplanned(weights: Mapping[str, int]) -> tuple[str, ...]:
    """The subtypes that a slice leaves out; not empty means that an average over it is partial."""
    return tuple(name for name in OP_SUBTYPES if weights.get(name, 0) <= 0)


def unscored(subscores: Mapping[str, float | None], weights: Mapping[str, int]) -> tuple[str, ...]:
    """The planned subtypes without any score: the reason why an average is None."""
    return tuple(
        name
        for name in OP_SUBTYPES
        if weights.get(name, 0) > 0 and ((value := subscores.get(name)) is None or math.isnan(value))
    )


def _weighted(scores: Mapping[str, float], weights: Mapping[str, int], names: Sequence[str]) -> float:
    return sum(scores[name] * weights[name] for name in names) / sum(weights[name] for name in names)
