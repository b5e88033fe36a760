"""What a build's work took, and its candidates, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import get_args

import pandas as pd

from opbench.construction.spec import STAGES, State
from opbench.errors import UsageError
from opbench.store.builds import Candidate, Unit
from opbench.types import OP_SUBTYPES

#: Columns of `work`.
WORK = (
    "stage",
    "role",
    "model",
    "units",
    "done",
    "failed",
    "repaired",
    "calls",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "seconds",
    "untold",
)
#: Columns of `candidate_frame`.
CANDIDATE = (
    "id",
    "user",
    "subtype",
    "kind",
    "topic",
    "subtopic",
    "question",
    "state",
    "decided_by",
    "reason",
    "explanation",
    "falsifies",
    "evidence",
    "generator",
    "unit",
    "prompt_sha256",
    "details",
)


def work(units: Iterable[Unit]) -> pd.DataFrame:
    """What was asked of models, a row a stage, role and model: columns as in `WORK`.

    `calls` are those that the units rest on, reused ones included. Tokens, dollars (by list price) and seconds (calls
    one after the other) are sums of what is known, NaN where nothing is; `untold` counts units that called a model
    whose cost isn't known, so that a sum of a part passes for none of the whole.
    """
    rows = pd.DataFrame(
        [
            {
                "stage": unit.stage,
                "role": unit.role,
                "model": unit.model,
                "done": unit.status == "done",
                "failed": unit.status == "failed",
                "repaired": unit.repaired,
                "calls": len(unit.calls),
                "tokens_in": unit.prompt_tokens,
                "tokens_out": unit.completion_tokens,
                "cost_usd": unit.cost_usd,
                "seconds": None if unit.duration_ms is None else unit.duration_ms / 1000,
                "untold": bool(unit.calls) and unit.cost_usd is None,
            }
            for unit in units
        ],
        columns=[name for name in WORK if name != "units"],
    ).astype(dict.fromkeys(("tokens_in", "tokens_out", "cost_usd", "seconds"), "float64"))
    if rows.empty:
        return pd.DataFrame(columns=list(WORK))
    groups = rows.groupby(["stage", "role", "model"], sort=False)
    counted = groups[["done", "failed", "repaired", "calls", "untold"]].sum()
    known = groups[["tokens_in", "tokens_out", "cost_usd", "seconds"]].sum(min_count=1)
    frame = counted.join(known).assign(units=groups.size()).reset_index()
    order = {stage: place for place, stage in enumerate(STAGES)}
    return frame.sort_values(
        ["stage", "role", "model"], key=lambda column: column.map(order) if column.name == "stage" else column
    )[list(WORK)].reset_index(drop=True)


def candidate_frame(candidates: Iterable[Candidate]) -> pd.DataFrame:
    """Candidates in the build's order: columns as in `CANDIDATE`; what a candidate hasn't is None."""
    rows = [asdict(each) | {"user": each.user_id} for each in candidates]
    frame = pd.DataFrame(rows, columns=["user_id", "ordinal", *CANDIDATE], dtype=object)
    return frame[list(CANDIDATE)]


def check_narrowing(
    frame: pd.DataFrame,
    *,
    states: Sequence[str] = (),
    subtypes: Sequence[str] = (),
    user: str | None = None,
    decided_by: str | None = None,
    generator: str | None = None,
) -> None:
    """See that `narrowed` is asked for what can be.

    Raises:
        UsageError: there is no such state or subtype, or no candidate of that user, decision or generator.
    """
    known: dict[str, Sequence[str]] = {"state": get_args(State), "subtype": OP_SUBTYPES}
    for column, several in (("state", states), ("subtype", subtypes)):
        for each in several:
            if each not in known[column]:
                raise UsageError(f"no {column} '{each[:40]}'; there are {', '.join(known[column])}.")
    for column, one in (("user", user), ("decided_by", decided_by), ("generator", generator)):
        there = list(dict.fromkeys(frame[column].dropna()))
        if one is not None and one not in there:
            what = column.replace("_", " ")
            raise UsageError(f"no candidate's {what} is '{one[:80]}'; there are {', '.join(there[:12]) or 'none'}.")


def narrowed(
    frame: pd.DataFrame,
    *,
    states: Sequence[str] = (),
    subtypes: Sequence[str] = (),
    user: str | None = None,
    decided_by: str | None = None,
    generator: str | None = None,
    says: str = "",
) -> pd.DataFrame:
    """The rows of a `candidate_frame` that fit all that is asked; empty and None ask nothing.

    `says` is looked for in question, reason and the falsified memory; upper and lower case are the same.
    """
    fits = pd.Series(True, index=frame.index)
    for column, several in (("state", states), ("subtype", subtypes)):
        if several:
            fits &= frame[column].isin(several)
    for column, one in (("user", user), ("decided_by", decided_by), ("generator", generator)):
        if one is not None:
            fits &= frame[column] == one
    if says:
        texts = frame[["question", "reason", "falsifies"]].fillna("").astype(str)
        fits &= texts.apply(lambda column: column.str.contains(says, case=False, regex=False)).any(axis=1)
    return frame[fits]


def failed(units: Iterable[Unit]) -> pd.DataFrame:
    """The units that failed: unit, model, again (`yes` when the next start does it again) and reason."""
    rows = [
        {
            "unit": each.unit,
            "model": each.model,
            "again": "yes" if each.retriable else "no",
            "reason": each.reason or "",
        }
        for each in units
        if each.status == "failed"
    ]
    return pd.DataFrame(rows, columns=["unit", "model", "again", "reason"])
