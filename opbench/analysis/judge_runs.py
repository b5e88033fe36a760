"""The three runs of the judge by LoCoMo's protocol memos: accuracy of each run, then mean and spread over the runs.

As MemOS's evaluation has it: of each run the share of CORRECT over all questions that this run has judged (every
question weighs the same), then the mean and the population standard deviation of these shares. The spread is that of
the judge alone: the answers are the same in all runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.grids import KEY, Bools, Floats, Grid, score_grid
from opbench.protocol import JUDGE_RUNS, RUN_METRICS
from opbench.store.rundata import RunData
from opbench.types import LOCOMO_CATEGORIES

ALL = "all"
RUNS = tuple(f"run_{number}" for number in range(1, JUDGE_RUNS + 1))
#: What `judge_runs` says of the judge's runs, in points.
RUN_COLUMNS = ["run_mean", "run_std", *RUNS, "run_judgements_missing"]
JUDGE_RUN_COLUMNS = [*KEY, "category", "n_planned", *RUN_COLUMNS, *(f"n_{run}" for run in RUNS)]


def has_judge_runs(data: RunData) -> bool:
    """Whether the run's LoCoMo questions are judged in several runs: protocol memos with an LLM judge."""
    return data.study.protocol == "memos" and data.study.judge != "offline"


def judge_runs(data: RunData, first_only: bool = False, judge: str | None = None) -> pd.DataFrame:
    """One row a configuration and planned category, and one with the category `all`; columns as in `JUDGE_RUN_COLUMNS`.

    `run_1` to `run_3` are points, `n_run_1` to `n_run_3` the questions that they are over; `run_mean` and `run_std` are
    over the runs that there are, NaN when there is none. `run_judgements_missing` counts judgements of responses that
    failed or couldn't be read: with any, the runs are over different questions.

    Raises:
        UsageError: several judges and none named.
    """
    grids = [score_grid(data, "locomo", metric, first_only, judge) for metric in RUN_METRICS]
    category = grids[0].instances["subtype"].to_numpy()
    responses = _responses(data, grids[0])
    there = [name for name in LOCOMO_CATEGORIES.values() if name in set(category)]
    rows: list[dict[str, Any]] = []
    for column, key in enumerate(grids[0].keys):
        values: Floats = np.stack([grid.values[:, column] for grid in grids])
        for name in (*there, ALL):
            of_it = np.ones(len(category), dtype=np.bool_) if name == ALL else category == name
            judged = values[:, of_it]
            counts = (~np.isnan(judged)).sum(axis=1)
            accuracies = np.array([np.nanmean(run) if n else np.nan for run, n in zip(judged, counts, strict=True)])
            known = accuracies[~np.isnan(accuracies)]
            rows.append(
                {
                    **dict(zip(KEY, key, strict=True)),
                    "category": name,
                    "n_planned": int(of_it.sum()),
                    "run_mean": float(known.mean()) if len(known) else np.nan,
                    "run_std": float(known.std()) if len(known) else np.nan,
                    **dict(zip(RUNS, accuracies, strict=True)),
                    "run_judgements_missing": JUDGE_RUNS * int(responses[of_it, column].sum()) - int(counts.sum()),
                    **{f"n_{run}": int(n) for run, n in zip(RUNS, counts, strict=True)},
                }
            )
    return pd.DataFrame(rows, columns=JUDGE_RUN_COLUMNS)


def _responses(data: RunData, grid: Grid) -> Bools:
    """Which records of the grid (instances × keys) have a response to judge."""
    records = data.records_with("status")
    done = pd.MultiIndex.from_frame(records.loc[records["status"] == "done", [*KEY, "instance"]])
    names = grid.instances["instance"]
    answered: Bools = np.zeros((len(names), len(grid.keys)), dtype=np.bool_)
    for column, key in enumerate(grid.keys):
        answered[:, column] = pd.MultiIndex.from_arrays([*([part] * len(names) for part in key), names]).isin(done)
    return answered
