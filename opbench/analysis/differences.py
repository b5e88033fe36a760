"""Two configurations side by side, of one run or of two: which instances got better, which worse, by how much.

Paired by instance id. Repetition is a score of a user, not of a response, and is paired by user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.analysis.aggregate import Rule, unplanned
from opbench.analysis.compare import Change, OpBoard, op_board, op_change
from opbench.analysis.grids import KEY, Grid, Key, choose_judge, score_grid
from opbench.analysis.intervals import Interval, paired_difference
from opbench.analysis.locomo import ADVERSARIAL, unplanned_categories
from opbench.errors import UsageError
from opbench.judges.repetition import repetition_score
from opbench.protocol import headline_metric, metric_label
from opbench.store.rundata import RunData
from opbench.study import Study
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES

#: Points below which two scores are the same number.
EQUAL = 1e-9
#: The two sides within a joint run; their own names stand in `Pair`.
_BEFORE: Key = ("before", "", "")
_AFTER: Key = ("after", "", "")

PAIRS_COLUMNS = ["instance", "benchmark", "user", "subtype", "before", "after", "change"]
SUMMARY_COLUMNS = [
    "benchmark",
    "subtype",
    "unit",
    "n_planned",
    "n_paired",
    "better",
    "worse",
    "equal",
    "before",
    "after",
    "change",
    "low",
    "high",
    "p",
    "n_users",
    "reason",
]


@dataclass(frozen=True)
class Side:
    """A configuration of a run."""

    data: RunData
    key: Key

    @property
    def label(self) -> str:
        return " · ".join(self.key)


@dataclass(frozen=True)
class Pair:
    """Both sides' scores over the instances that both plan, in points."""

    before: Side
    after: Side
    op: OpBoard
    locomo: Grid
    metric: str
    """LoCoMo's metric that is compared."""
    only_before: int
    """Instances that only the first run plans."""
    only_after: int
    remarks: tuple[str, ...]


def pair(before: Side, after: Side, first_only: bool = False) -> Pair:
    """Lay two configurations side by side; each run's scores are those of its own judge and embedder.

    Raises:
        UsageError: one of them isn't in its run.
    """
    for side in (before, after):
        if side.key not in {tuple(row) for row in side.data.configurations[KEY].itertuples(index=False)}:
            raise UsageError(f"run {side.data.run_id} has no configuration {side.label}.")
    joint = _joint(before, after)
    metric, about_metric = _metric(before.data.study, after.data.study)
    board, grid = op_board(joint, first_only), score_grid(joint, "locomo", metric, first_only)
    remarks = about_metric if len(grid.instances) else []
    partial = (unplanned(board.weights) if any(board.weights.values()) else ()), unplanned_categories(grid)
    for average, gone in zip(("OP-Bench average", "LoCoMo mean"), partial, strict=True):
        if gone:
            remarks.append(f"The {average} is over a part of the benchmark: not both plan {', '.join(gone)}.")
    mine, theirs = (set(_planned(side.data, first_only)["instance"]) for side in (before, after))
    return Pair(
        before,
        after,
        board,
        grid,
        metric,
        len(mine - theirs),
        len(theirs - mine),
        tuple(remarks),
    )


def _metric(before: Study, after: Study) -> tuple[str, list[str]]:
    """LoCoMo's metric that is compared, and what must be said of it.

    Of two protocols none is: a metric of the first has no scores in the second, so that nothing is paired.
    """
    metrics = headline_metric(before), headline_metric(after)
    if before.protocol != after.protocol:
        return metrics[0], [
            f"LoCoMo isn't compared: one run is by protocol {before.protocol}, the other by {after.protocol}, and they "
            "ask and score differently."
        ]
    if metrics[0] == metrics[1]:
        return metrics[0], []
    metric = headline_metric(before, "offline")
    return metric, [f"LoCoMo is compared by {metric_label(metric)}, since only one of the two has an LLM judge."]


def pairs(pair: Pair) -> pd.DataFrame:
    """One row an instance that both have scored, in the slice's order; columns as in `PAIRS_COLUMNS`, points.

    Repetition isn't here: it has no score of an instance (`repetition_pairs`).
    """
    frames = [_rows(grid) for grid in (pair.op.grid, pair.locomo)]
    return pd.concat(frames, ignore_index=True)[PAIRS_COLUMNS]


def repetition_pairs(pair: Pair) -> pd.DataFrame:
    """One row a user whose repetition both have: user, n (responses), before, after, change (points)."""
    values, n, _ = pair.op.repetition.paired([0, 1])
    frame = pd.DataFrame({"user": pair.op.repetition.users, "n": n.astype(int)})
    frame = frame.assign(before=values[:, 0], after=values[:, 1], change=values[:, 1] - values[:, 0])
    return frame[frame["change"].notna()].reset_index(drop=True)


def summary(pair: Pair) -> pd.DataFrame:
    """One row a subtype or category that both plan; columns as in `SUMMARY_COLUMNS`.

    `unit` is `instance`, or `user` for repetition; better, worse and equal count units. `before`, `after` and `change`
    are means over the paired units in points; `low`, `high` and `p` are of `change`, clustered by user, NaN with the
    `reason` when they can't be told. The last LoCoMo row, `all`, is over all questions but adversarial ones.
    """
    rows: list[dict[str, Any]] = []
    of_instance, of_user = pairs(pair), repetition_pairs(pair)
    plan = pd.concat([pair.op.grid.instances, pair.locomo.instances])
    for benchmark, subtypes in (("op", OP_SUBTYPES), ("locomo", tuple(LOCOMO_CATEGORIES.values()))):
        for subtype in subtypes:
            planned = plan[(plan["benchmark"] == benchmark) & (plan["subtype"] == subtype)]
            if planned.empty:
                continue
            if subtype == "repetition":
                rows.append(_summary_row("op", subtype, "user", planned["user"].nunique(), of_user))
            else:
                mine = of_instance[(of_instance["benchmark"] == benchmark) & (of_instance["subtype"] == subtype)]
                rows.append(_summary_row(benchmark, subtype, "instance", len(planned), mine))
    usual = plan[(plan["benchmark"] == "locomo") & (plan["subtype"] != ADVERSARIAL)]
    if len(usual):
        mine = of_instance[(of_instance["benchmark"] == "locomo") & (of_instance["subtype"] != ADVERSARIAL)]
        rows.append(_summary_row("locomo", "all", "instance", len(usual), mine))
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def op_average_change(pair: Pair, rule: Rule) -> Change:
    """Change of the OP-Bench average by the rule, over what both have scored."""
    return op_change(pair.op, _AFTER, _BEFORE, rule)


def largest(frame: pd.DataFrame, n: int = 10) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `n` that got better and the `n` that got worse by most; of equal changes the first in the slice's order."""
    better = frame[frame["change"] > EQUAL].sort_values("change", ascending=False, kind="stable").head(n)
    worse = frame[frame["change"] < -EQUAL].sort_values("change", kind="stable").head(n)
    return better, worse


def _rows(grid: Grid) -> pd.DataFrame:
    frame = grid.instances.assign(before=grid.values[:, 0], after=grid.values[:, 1])
    frame = frame.assign(change=frame["after"] - frame["before"])
    return frame[frame["change"].notna()]


def _summary_row(benchmark: str, subtype: str, unit: str, planned: int, frame: pd.DataFrame) -> dict[str, Any]:
    change = frame["change"]
    interval: Interval = paired_difference(frame["after"].to_numpy(), frame["before"].to_numpy(), list(frame["user"]))
    counts = {"better": change > EQUAL, "worse": change < -EQUAL, "equal": change.abs() <= EQUAL}
    return {
        "benchmark": benchmark,
        "subtype": subtype,
        "unit": unit,
        "n_planned": planned,
        "n_paired": len(frame),
        **{name: int(which.sum()) for name, which in counts.items()},
        **{name: frame[name].mean() if len(frame) else np.nan for name in ("before", "after", "change")},
        "low": interval.low,
        "high": interval.high,
        "p": interval.p,
        "n_users": interval.n_users,
        "reason": interval.reason if len(frame) else "nothing scored by both",
    }


def _planned(data: RunData, first_only: bool) -> pd.DataFrame:
    return data.instances[data.instances["first_speaker"].astype(bool)] if first_only else data.instances


def _joint(before: Side, after: Side) -> RunData:
    """Both sides as the two configurations of one run over the instances that both plan.

    Judges and embedders get one name, so that each side's scores are those of its own.
    """
    judge = before.data.study.judge
    shared = before.data.instances
    shared = shared[shared["instance"].isin(after.data.instances["instance"])].reset_index(drop=True)
    sides = ((before, _BEFORE), (after, _AFTER))

    def both(read: Callable[[Side], pd.DataFrame], by_user: bool | None = None) -> pd.DataFrame:
        """`by_user`: whether the rows are scores of users; None for records, which no judge made."""
        found = []
        for side, key in sides:
            rows = read(side)
            rows = rows[(rows[KEY] == list(side.key)).all(axis=1)]
            if by_user is not None:
                study = side.data.study
                preferred = (study.judge, study.embedder) if by_user else (study.judge,)
                own = choose_judge(rows["judge"].unique().tolist(), preferred, f"run {side.data.run_id}")
                rows = rows[rows["judge"] == own].assign(judge=judge)
            found.append(rows.assign(**dict(zip(KEY, key, strict=True))))
        return pd.concat([rows for rows in found if len(rows)] or found[:1], ignore_index=True)

    def records(columns: tuple[str, ...] | None = None) -> pd.DataFrame:
        return both(lambda side: side.data.records if columns is None else side.data.records_with(*columns))

    def scores(metric: str | None = None) -> pd.DataFrame:
        return both(lambda side: side.data.scores if metric is None else side.data.scores_of(metric), by_user=False)

    return RunData(
        run_id=before.data.run_id,
        name="",
        study=before.data.study,
        provenance={},
        recorded=False,
        text_left_out=False,
        comparable=False,
        instances=shared,
        configurations=pd.DataFrame([_BEFORE, _AFTER], columns=KEY),
        records=records,
        scores=scores,
        user_scores=lambda: both(lambda side: _of_shared(side, shared), by_user=True),
        vectors=lambda: _vectors(sides, shared),
    )


def _of_shared(side: Side, shared: pd.DataFrame) -> pd.DataFrame:
    """The side's scores of users; repetition made anew where a user has answered questions that only this run plans.

    Without embeddings the stored scores stand, and the pairing finds that they rest on other responses.
    """
    scores, vectors = side.data.user_scores, side.data.vectors
    scores = scores[(scores[KEY] == list(side.key)).all(axis=1)].reset_index(drop=True)
    asked, common = (frame[frame["subtype"] == "repetition"] for frame in (side.data.instances, shared))
    more = set(asked.loc[~asked["instance"].isin(common["instance"]), "user"])
    if not vectors or not more:
        return scores

    def answers(to: pd.DataFrame, user: str) -> list[npt.NDArray[np.float32]]:
        found = (vectors.get((*side.key, name)) for name in to.loc[to["user"] == user, "instance"])
        return [vector for vector in found if vector is not None]

    values, counts = scores["value"].to_numpy(dtype=np.float64).copy(), scores["n"].to_numpy().copy()
    for place, (user, metric) in enumerate(zip(scores["user"], scores["metric"], strict=True)):
        # Only where the stored score rests on the embeddings that are there can it be made anew from them.
        if metric == "repetition" and user in more and len(answers(asked, user)) == counts[place]:
            mine = answers(common, user)
            value = repetition_score(np.stack(mine)) if len(mine) > 1 else None
            values[place], counts[place] = np.nan if value is None else value, len(mine)
    return scores.assign(value=values, n=counts)


def _vectors(
    sides: Sequence[tuple[Side, Key]], shared: pd.DataFrame
) -> dict[tuple[str, str, str, str], npt.NDArray[np.float32]] | None:
    """Embeddings of both sides' responses to repetition questions; None when one side has none, or other ones."""
    if len({side.data.study.embedder for side, _ in sides}) > 1:
        return None
    asked = list(shared.loc[shared["subtype"] == "repetition", "instance"])
    found: dict[tuple[str, str, str, str], npt.NDArray[np.float32]] = {}
    for side, key in sides:
        vectors = side.data.vectors
        if not vectors:
            return None
        mine = {name: vectors.get((*side.key, name)) for name in asked}
        found |= {(*key, name): vector for name, vector in mine.items() if vector is not None}
    return found
