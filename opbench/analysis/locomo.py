"""LoCoMo tables of a run: by category and overall, with paired changes. All scores in points, 0 to 100.

A run's questions are asked and scored by one of two protocols (`opbench.protocol`), and metrics are that protocol's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.compare import Change, group_means, reference_of
from opbench.analysis.grids import KEY, Bools, Grid, Ints, Key, score_grid
from opbench.analysis.intervals import single_part
from opbench.analysis.judge_runs import ALL, RUN_COLUMNS, has_judge_runs, judge_runs
from opbench.errors import UsageError
from opbench.protocol import METRICS, headline_metric, metric_label
from opbench.store.rundata import RunData
from opbench.study import NO_MITIGATION
from opbench.types import LOCOMO_CATEGORIES

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


def locomo_table(
    data: RunData, metric: str | None = None, first_only: bool = False, judge: str | None = None
) -> pd.DataFrame:
    """One row a configuration, in the study's order; columns as in `LOCOMO_COLUMNS`.

    `metric` None means `headline_metric`. Categories are means over their scored questions; `overall` is the mean
    over all scored questions but the adversarial ones (the usual protocol), which stand apart. `change_points` and
    `change_relative` (%) are of `overall` against the same memory system without post-processor, over the questions
    that both have scored (`n_paired`). What is missing is NaN, with the reason in `missing` or `pairing`. `left_out`
    names the categories that the slice has none of, so that `overall` is over the rest.

    By protocol memos there follow `context_tokens` (mean over the questions that have an answer), and with an LLM judge
    `judge_runs.RUN_COLUMNS`, over all categories. `overall` is then the mean over questions of the mean over the runs
    that judged it: `run_mean`, unless judgements are missing.

    Raises:
        UsageError: several judges and none named, or the metric isn't one of the run's protocol.
    """
    name = metric or headline_metric(data.study, judge)
    if name not in METRICS[data.study.protocol]:
        raise UsageError(
            f"run {data.run_id} has no LoCoMo metric '{name}': by protocol {data.study.protocol} there are "
            f"{', '.join(METRICS[data.study.protocol])}."
        )
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
    frame = pd.DataFrame(rows, columns=LOCOMO_COLUMNS)
    if data.study.protocol == "memos":
        frame = frame.merge(_context_tokens(data, grid), on=KEY, how="left")
    if has_judge_runs(data):
        runs = judge_runs(data, first_only, judge)
        frame = frame.merge(runs.loc[runs["category"] == ALL, [*KEY, *RUN_COLUMNS]], on=KEY, how="left")
    return frame


def _context_tokens(data: RunData, grid: Grid) -> pd.DataFrame:
    """Mean tokens of the memories in the prompt by configuration, over the grid's questions that have an answer."""
    records = data.records_with("counts")
    records = records[records["instance"].isin(grid.instances["instance"])]
    tokens = [counts.get("context_tokens") if isinstance(counts, dict) else None for counts in records["counts"]]
    told = records[KEY].assign(context_tokens=np.array(tokens, dtype=np.float64))
    return told.groupby(KEY, sort=False)["context_tokens"].mean().reset_index()


def locomo_notes(data: RunData) -> list[str]:
    """What must be said beside LoCoMo's numbers of a run, a sentence each: what they may be compared with."""
    if data.study.protocol == "uniform":
        return [
            "The paper's LoCoMo scores were made with MemOS's evaluation (B.4), which protocol memos follows; these "
            "are by protocol uniform."
        ]
    notes = [
        "LoCoMo by protocol memos: asked and scored as in MemOS's evaluation, with prompts written anew; not "
        "comparable with protocol uniform."
    ]
    if has_judge_runs(data):
        notes.append(
            "Runs: the judge is asked three times about each answer; mean and population standard deviation of the "
            "three accuracies, over all categories."
        )
    return notes


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
