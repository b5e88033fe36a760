"""LoCoMo tables of a run: by category and overall, with paired changes. All scores in points, 0 to 100."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.compare import Change, group_means, reference_of
from opbench.analysis.grids import KEY, Bools, Grid, Ints, Key, score_grid
from opbench.analysis.intervals import single_part
from opbench.store.rundata import RunData
from opbench.study import NO_MITIGATION
from opbench.types import LOCOMO_CATEGORIES

METRICS = {"correct": "judged correct", "f1": "token F1", "bleu1": "BLEU-1", "rougeL": "ROUGE-L"}
CATEGORIES = tuple(LOCOMO_CATEGORIES.values())
ADVERSARIAL = LOCOMO_CATEGORIES[5]

LOCOMO_COLUMNS = [
    *KEY,
    "metric",
    "metric_label",
    *CATEGORIES,
    "overall",
    "n_planned",
    "n_scored",
    "adversarial_n_planned",
    "adversarial_n_scored",
    "left_out",
    "missing",
    "change_points",
    "change_relative",
    "n_paired",
    "pairing",
]


def headline_metric(data: RunData, judge: str | None = None) -> str:
    """`correct` when an LLM judges, `f1` when the offline judge does (it can't tell whether an answer is right)."""
    return "f1" if (judge or data.study.judge) == "offline" else "correct"


def metric_label(metric: str, judge: str | None) -> str:
    """What a LoCoMo score is, e.g. `judged correct (gpt-4o-mini)`."""
    label = METRICS.get(metric, metric)
    return f"{label} ({judge})" if judge and metric == "correct" else label


def locomo_table(
    data: RunData, metric: str | None = None, first_only: bool = False, judge: str | None = None
) -> pd.DataFrame:
    """One row a configuration, in the study's order; columns as in `LOCOMO_COLUMNS`.

    `metric` None means `headline_metric`. Categories are means over their scored questions; `overall` is the mean
    over all scored questions but the adversarial ones (the usual protocol), which stand apart. `change_points` and
    `change_relative` (%) are of `overall` against the same memory system without post-processor, over the questions
    that both have scored (`n_paired`). What is missing is NaN, with the reason in `missing` or `pairing`. `left_out`
    names the categories that the slice has none of, so that `overall` is over the rest.

    Raises:
        UsageError: several judges and none named.
    """
    name = metric or headline_metric(data, judge)
    grid = score_grid(data, "locomo", name, first_only, judge)
    label = metric_label(name, grid.judge)
    category = pd.Index(CATEGORIES).get_indexer(pd.Index(grid.instances["subtype"])).astype(np.intp)
    usual = _usual(grid)
    planned = np.bincount(category, minlength=len(CATEGORIES))
    left_out = ", ".join(unplanned_categories(grid))
    pairs = [(key, reference_of(key)) for key in grid.keys if key[2] != NO_MITIGATION]
    changes = dict(zip((key for key, _ in pairs), locomo_changes(grid, pairs), strict=True))
    rows: list[dict[str, Any]] = []
    for column, key in enumerate(grid.keys):
        scored = ~np.isnan(grid.values[:, column])
        means, counts = group_means(grid.values[:, [column]], category, scored, len(CATEGORIES))
        in_overall = scored & usual
        gone = [each for at, each in enumerate(CATEGORIES) if planned[at] and not counts[at]]
        missing = f"nothing scored: {', '.join(gone)}" if gone else ""
        if not len(grid.instances):
            missing = "the slice has no LoCoMo question"
        change = changes.get(key, Change.missing("reference"))
        rows.append(
            {
                **dict(zip(KEY, key, strict=True)),
                "metric": name,
                "metric_label": label,
                **{each: means[at, 0] for at, each in enumerate(CATEGORIES)},
                "overall": grid.values[in_overall, column].mean() if in_overall.any() else np.nan,
                "n_planned": int(usual.sum()),
                "n_scored": int(in_overall.sum()),
                "adversarial_n_planned": int((~usual).sum()),
                "adversarial_n_scored": int((scored & ~usual).sum()),
                "left_out": left_out,
                "missing": missing,
                "change_points": change.points,
                "change_relative": change.relative,
                "n_paired": change.n,
                "pairing": change.note,
            }
        )
    return pd.DataFrame(rows, columns=LOCOMO_COLUMNS)


def unplanned_categories(grid: Grid) -> tuple[str, ...]:
    """The categories of the overall mean that a slice with LoCoMo questions has none of: not empty means a partial
    mean."""
    there = set(grid.instances["subtype"])
    return tuple(each for each in CATEGORIES if there and each != ADVERSARIAL and each not in there)


def locomo_changes(grid: Grid, pairs: Sequence[tuple[Key, Key]]) -> list[Change]:
    """Changes of the overall mean from each pair's second configuration (the reference) to its first, over the
    questions that both have; adversarial ones don't count."""
    usual = _usual(grid)
    owner, _ = pd.factorize(grid.instances["user"])
    return [_change(grid, key, reference, usual, owner) for key, reference in pairs]


def _change(grid: Grid, key: Key, reference: Key, usual: Bools, owner: Ints) -> Change:
    column, other = grid.column(key), grid.column(reference)
    if column is None or other is None:
        return Change.missing(f"not in the study: {' · '.join(reference if other is None else key)}")
    pair = grid.values[:, [column, other]]
    shared = usual & ~np.isnan(pair).any(axis=1)
    if not shared.any():
        return Change.missing("nothing scored by both")
    value, base = pair[shared].mean(axis=0)
    sums = single_part(pair[shared].T, owner[shared], "LoCoMo")
    return Change.between(float(value), float(base), int(shared.sum()), "paired", sums, np.ones(1))


def _usual(grid: Grid) -> Bools:
    """Which questions count in the overall score."""
    usual: Bools = grid.instances["subtype"].to_numpy() != ADVERSARIAL
    return usual
