"""The trade-off of the paper's figure 6: what a post-processor does to OP-Bench and, at the same time, to LoCoMo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

import mitigations
from opbench.analysis.aggregate import Rule, unplanned
from opbench.analysis.compare import Change, Kind, change_intervals, op_board, op_change, reference_of
from opbench.analysis.grids import KEY, Bools, Floats, Key, score_grid
from opbench.analysis.intervals import LEVEL, holm
from opbench.analysis.locomo import locomo_changes, unplanned_categories
from opbench.protocol import headline_metric, metric_label
from opbench.store.rundata import RunData
from opbench.study import BASE, NO_MITIGATION

UNITS: dict[Kind, str] = {"points": "points", "relative": "% of the memory system"}

Verdict = Literal["better", "worse", "not distinguishable", "can't be told", ""]
#: The memory system that draws at random, and BASE, as controls of another memory system.
RANDOM = "random"
CONTROL_SYSTEMS = {RANDOM: "random memories", BASE: "no memory (BASE)"}

_OF_BENCHMARK = ["change", "low", "high", "points", "p", "p_holm", "verdict", "users", "interval_note"]
_COUNTS = ["n", "n_planned", "note"]
OP_CHANGE_COLUMNS = [f"op_{name}" for name in (*_OF_BENCHMARK, *_COUNTS)]
LOCOMO_CHANGE_COLUMNS = [f"locomo_{name}" for name in (*_OF_BENCHMARK, *_COUNTS)]
TRADEOFF_COLUMNS = [
    *KEY,
    "control",
    *OP_CHANGE_COLUMNS,
    "left_out",
    *LOCOMO_CHANGE_COLUMNS,
    "locomo_metric",
    "pareto",
    "beaten_by",
    "unit",
    "source",
    "comparable",
]


def tradeoff(
    data: RunData,
    rule: Rule,
    kind: Kind = "points",
    first_only: bool = False,
    metric: str | None = None,
    judge: str | None = None,
) -> pd.DataFrame:
    """One row a configuration with a post-processor, then the controls; columns as in `TRADEOFF_COLUMNS`.

    For each benchmark (`op_`, `locomo_`): `change` is paired, against the same memory system without post-processor,
    in points or in percent of it (`kind`, told in `unit`), NaN where missing with the reason in `note`; `low` and
    `high` are its 95 % interval over users; `points`, `p`, Holm's `p_holm` and the `verdict` are of the change in
    points whatever `kind`; `users` are those with a paired instance; `interval_note` says why there is no interval.
    `left_out` names the OP-Bench subtypes that the slice has none of, the notes those of both benchmarks. `pareto`:
    it gains on one benchmark, and no other post-processor of the same model and memory system, nor going without, is
    as good on both and better on one.
    `beaten_by` names the controls that are. `control` rows are post-processors of that family, and what becomes of a
    memory system when random memories or none (BASE) take its place. Holm corrects each benchmark's post-processors,
    and its controls, by themselves. `source` is `measured`; `comparable` is the run's.

    Raises:
        UsageError: several judges and none named.
    """
    board = op_board(data, first_only, judge)
    name = metric or headline_metric(data.study, judge)
    grid = score_grid(data, "locomo", name, first_only, judge)
    weights = board.weights
    left_out = ", ".join(unplanned(weights))
    n_planned, n_questions = sum(weights.values()), int((grid.instances["subtype"] != "adversarial").sum())
    compared = list(_compared(board.grid.keys))
    # An average over some of the subtypes is said to be one, wherever it stands.
    partial, partly = (
        f"without {names}" if names else "" for names in (left_out, ", ".join(unplanned_categories(grid)))
    )
    op = [op_change(board, key, reference, rule) for _, (key, reference, _) in compared]
    if not n_planned:
        op = [Change.missing("the slice has no OP-Bench instance")] * len(compared)

    def locomo() -> list[dict[str, Any]]:
        changes = locomo_changes(grid, [(key, reference) for _, (key, reference, _) in compared])
        if not len(grid.instances):
            changes = [Change.missing("the slice has no LoCoMo question")] * len(compared)
        return list(_told(changes, kind, "locomo"))

    rows: list[dict[str, Any]] = [
        {
            **dict(zip(KEY, method, strict=True)),
            "control": control,
            **of_op,
            "op_n_planned": n_planned,
            "op_note": ", ".join(part for part in (of_op["op_note"], partial) if part),
            "left_out": left_out,
            **of_locomo,
            "locomo_n_planned": n_questions,
            "locomo_note": ", ".join(part for part in (of_locomo["locomo_note"], partly) if part),
        }
        for (method, (_, _, control)), of_op, of_locomo in zip(
            compared,
            _told(op, kind, "op"),
            # OP-Bench's averaging rule changes nothing here.
            data.keep(("LoCoMo's changes", name, kind, first_only, judge), locomo),
            strict=True,
        )
    ]
    frame = pd.DataFrame(rows, columns=[*KEY, "control", *OP_CHANGE_COLUMNS, "left_out", *LOCOMO_CHANGE_COLUMNS])
    frame = frame.assign(
        locomo_metric=metric_label(name, grid.judge), unit=UNITS[kind], source="measured", comparable=data.comparable
    )
    for benchmark in ("op", "locomo"):
        for control in (False, True):
            of_family = frame["control"].to_numpy(dtype=np.bool_) == control
            frame.loc[of_family, f"{benchmark}_p_holm"] = holm(frame.loc[of_family, f"{benchmark}_p"].to_numpy(float))
        frame[f"{benchmark}_verdict"] = [
            verdict(points, p)
            for points, p in zip(frame[f"{benchmark}_points"], frame[f"{benchmark}_p_holm"], strict=True)
        ]
    return with_front(frame)[TRADEOFF_COLUMNS]


def verdict(points: float, p: float) -> Verdict:
    """What a change and its corrected p come to; nothing when there is no change to judge."""
    if np.isnan(points):
        return ""
    if np.isnan(p):
        return "can't be told"
    if p > 1.0 - LEVEL:
        return "not distinguishable"
    return "better" if points > 0 else "worse"


def with_front(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame (controls last) with `pareto` and `beaten_by`, from `op_points` and `locomo_points`."""
    scores = frame[["op_points", "locomo_points"]].to_numpy(dtype=np.float64).round(9)  # no gain by rounding
    control, names = frame["control"].to_numpy(dtype=np.bool_), frame["mitigation"].to_numpy()
    pareto, beaten_by = np.zeros(len(frame), dtype=np.bool_), np.full(len(frame), "", dtype=object)
    systems = frame.groupby(["model", "memory"], sort=False).ngroup().to_numpy()
    for system in range(systems.max(initial=-1) + 1):
        rows = np.flatnonzero(systems == system)
        methods, controls = rows[~control[rows]], rows[control[rows]]
        # What gains nothing anywhere isn't worth its time, even where it loses nothing.
        gains = np.any(scores[methods] > 0, axis=1)
        pareto[methods] = gains & front(np.vstack([scores[methods], [0.0, 0.0]]))[:-1]
        for row in methods:
            beaten_by[row] = ", ".join(names[controls[_dominates(scores[controls], scores[row])]])
    return frame.assign(pareto=pareto, beaten_by=beaten_by)


def front(scores: Floats) -> Bools:
    """Which rows (two scores each, more is better) no other row dominates; a row with a missing score isn't on it."""
    told: Bools = ~np.any(np.isnan(scores), axis=1)
    return np.array([told[at] and not _dominates(scores, row).any() for at, row in enumerate(scores)], dtype=np.bool_)


def _dominates(scores: Floats, row: Floats) -> Bools:
    """Which of `scores` are at least as good as `row` on both and better on one."""
    found: Bools = np.all(scores >= row, axis=1) & np.any(scores > row, axis=1)
    return found


def _compared(keys: Sequence[Key]) -> Iterator[tuple[Key, tuple[Key, Key, bool]]]:
    """Of each row: what it is called; what is compared with what, and whether it is a control. Controls come last."""
    controls = []
    for key in keys:
        if key[2] == NO_MITIGATION:
            continue
        row = key, (key, reference_of(key), is_control(key[2]))
        if row[1][2]:
            controls.append(row)
        else:
            yield row
    systems = [key for key in keys if key[2] == NO_MITIGATION and key[1] not in CONTROL_SYSTEMS]
    for model, memory, none in systems:
        for system, label in CONTROL_SYSTEMS.items():
            if (model, system, none) in keys:
                controls.append(((model, memory, label), ((model, system, none), (model, memory, none), True)))
    yield from controls


def is_control(mitigation: str) -> bool:
    """Whether a post-processor is none that anybody would use, but one that a method has to beat."""
    try:
        return mitigations.get(mitigation).family == "control"
    except (mitigations.UnknownMitigation, mitigations.BrokenPlugin):
        return False  # a recorded study's own method, which isn't here


def _told(changes: Sequence[Change], kind: Kind, benchmark: str) -> Iterator[dict[str, Any]]:
    tested = change_intervals(changes)
    shown = tested if kind == "points" else change_intervals(changes, kind)
    for change, test, ends in zip(changes, tested, shown, strict=True):
        values = {
            "change": getattr(change, kind),
            "low": ends.low,
            "high": ends.high,
            "points": change.points,
            "p": test.p,
            "users": test.n_users,
            "interval_note": "" if np.isnan(change.points) else ends.reason,
            "n": change.n,
            "note": change.note,
        }
        yield {f"{benchmark}_{name}": value for name, value in values.items()}
