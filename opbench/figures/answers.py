"""What a trade-off comes to, in sentences: which post-processors are worth choosing, what each brings and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.intervals import LEVEL
from opbench.analysis.tradeoff import RANDOM, UNITS
from opbench.figures import theme
from opbench.study import BASE, NO_MITIGATION

NONE_PUBLISHED = "No intervals are published"


@dataclass(frozen=True)
class Answer:
    """Plain text (no Markdown, no HTML) for one model and memory system."""

    head: str
    """E.g. `Mem0 · gpt-4o-mini, as published`."""
    sentences: tuple[str, ...]


def answers(frame: pd.DataFrame) -> list[Answer]:
    """One answer for each model and memory system of a priced trade-off frame, in its order.

    Random memories are a control: they have an answer only where they are all there is.
    """
    found = []
    frame = without_random(frame)
    for (model, memory), group in frame.groupby(["model", "memory"], sort=False):
        methods = group[~group["control"].astype(bool)]
        if len(methods):
            published = ", as published" if (methods["source"] == "published").all() else ""
            head = f"{theme.name(str(memory))} · {model}{published}"
            found.append(Answer(head, tuple(_sentences(methods))))
    return found


def without_random(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without the memory system that draws at random, unless there is no other."""
    others = frame[frame["memory"] != RANDOM]
    return others if len(others) else frame


def _sentences(methods: pd.DataFrame) -> list[str]:
    told = methods.dropna(subset=["op_points", "locomo_points"]).sort_values("op_points", ascending=False)
    chosen = told[told["pareto"].astype(bool)].to_dict("records")
    sentences = []
    if chosen:
        unit = "in points" if methods["unit"].iloc[0] == UNITS["points"] else "in percent"
        if (methods["source"] == "published").all():
            unit = "as printed"
        sentences.append(f"On the Pareto front (changes {unit}): {'; '.join(map(_brings, chosen))}.")
    elif len(told):
        sentences.append("None is on the Pareto front: going without is at least as good on both benchmarks.")
    beaten = told[~told["pareto"].astype(bool)]
    if chosen and len(beaten):
        sentences.append(f"Not on it, since another (or none) is no worse on both and better on one: {_names(beaten)}.")
    for benchmark, name in (("op", "OP-Bench"), ("locomo", "LoCoMo")):
        alike = methods[methods[f"{benchmark}_verdict"] == "not distinguishable"]
        if len(alike):
            users = _users(methods[f"{benchmark}_users"])
            sentences.append(f"Not distinguishable from no post-processor on {name} (n = {users}): {_names(alike)}.")
    missing = methods[methods[["op_points", "locomo_points"]].isna().any(axis=1)]
    if len(missing):
        sentences.append(f"Not to be compared yet on both benchmarks: {_names(missing)}.")
    for controls, weak in methods[methods["beaten_by"] != ""].groupby("beaten_by", sort=False):
        sentences.append(f"No better than the control {_controls(str(controls))}: {_names(weak)}.")
    sentences += _without_interval(methods)
    return sentences


def _brings(row: dict[Any, Any]) -> str:
    changes = ", ".join(
        f"{theme.change(row[f'{benchmark}_change'])}{_within(row, benchmark)} {name}"
        for benchmark, name in (("op", "OP-Bench"), ("locomo", "LoCoMo"))
    )
    seconds = row["seconds"]
    waits = "time not known" if pd.isna(seconds) else f"about {seconds:.1f} s of post-processing"
    return f"{theme.name(row['mitigation'])} {changes}, {waits}"


def _within(row: dict[Any, Any], benchmark: str) -> str:
    low, high = row[f"{benchmark}_low"], row[f"{benchmark}_high"]
    return "" if pd.isna(low) else f" ({theme.span(low, high)})"


def _without_interval(methods: pd.DataFrame) -> list[str]:
    """Why there are no intervals, said once for both benchmarks where it is the same."""
    reasons: dict[str, list[str]] = {}
    for benchmark, name in (("op", "OP-Bench"), ("locomo", "LoCoMo")):
        for reason in dict.fromkeys(methods[f"{benchmark}_interval_note"]):
            if reason:
                reasons.setdefault(str(reason), []).append(name)
    if (methods["source"] == "published").all():
        return [f"{NONE_PUBLISHED}."]
    return [f"No interval on {' and '.join(names)}: {reason}." for reason, names in reasons.items()]


def _names(rows: pd.DataFrame) -> str:
    return ", ".join(theme.name(str(name)) for name in rows["mitigation"])


def _controls(names: str) -> str:
    return " or ".join(f"“{theme.name(name)}”" for name in names.split(", "))


def _users(column: pd.Series) -> str:
    low, high = int(np.nanmin(column)), int(np.nanmax(column))
    return theme.users(high) if low == high else f"{low} to {theme.users(high)}"


def gap_answers(frame: pd.DataFrame) -> list[Answer]:
    """One answer for each model and memory system of a gap table: what the gap is, and what each method does to it."""
    oracles = frame[frame["memory"] == BASE].set_index("model")["op"].to_dict()
    found = []
    systems = without_random(frame[frame["memory"] != BASE])
    for (model, memory), group in systems.groupby(["model", "memory"], sort=False):
        published = ", as published" if (group["source"] == "published").all() else ""
        head = f"{theme.name(str(memory))} · {model}{published}"
        system = group.loc[group["mitigation"] == NO_MITIGATION, "op"]
        sentences = [_gap(oracles.get(model, np.nan), float(system.iloc[0]) if len(system) else np.nan)]
        methods = group[(group["mitigation"] != NO_MITIGATION) & ~group["control"].astype(bool)]
        closed = methods.dropna(subset=["gap_closed"]).sort_values("gap_closed", ascending=False)
        for sign, word in ((True, "Closes"), (False, "Widens it or leaves it")):
            rows = closed[(closed["gap_closed"] > 0) == sign].to_dict("records")
            if rows:
                sentences.append(f"{word}: {'; '.join(map(_closes, rows))}.")
        for reason, rows_of in methods[methods["gap_closed"].isna()].groupby("words", sort=False):
            sentences.append(f"No share for {_names(rows_of)}: {reason}.")
        for reason, rows_of in closed[closed["interval_note"] != ""].groupby("interval_note", sort=False):
            of = "" if len(rows_of) == len(closed) else f" for {_names(rows_of)}"
            sentences.append(f"{NONE_PUBLISHED}." if published else f"No interval{of}: {reason}.")
        found.append(Answer(head, tuple(sentences)))
    return found


def _gap(oracle: float, system: float) -> str:
    if np.isnan(oracle) or np.isnan(system):
        return "The gap isn't known."
    if oracle <= system:
        return f"There is no gap: {theme.points(system)} points, the oracle {theme.points(oracle)}."
    return f"{theme.points(system)} points, {theme.points(oracle - system)} below the oracle's {theme.points(oracle)}."


def _closes(row: dict[Any, Any]) -> str:
    remarks = []
    if not pd.isna(row["gap_low"]):
        remarks.append(f"{theme.share(row['gap_low'])} to {theme.share(row['gap_high'])}")
    if row["gap_p_holm"] > 1.0 - LEVEL:
        remarks.append("not distinguishable from none")
    return f"{theme.name(row['mitigation'])} {theme.share(row['gap_closed'])}" + (
        f" ({', '.join(remarks)})" if remarks else ""
    )
