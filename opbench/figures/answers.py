"""What a trade-off comes to, in sentences: which post-processors are worth choosing, what each brings and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.grids import KEY
from opbench.analysis.intervals import LEVEL
from opbench.analysis.tradeoff import RANDOM, UNITS
from opbench.figures import theme
from opbench.study import BASE, NO_MITIGATION

NONE_PUBLISHED = "No intervals are published"
Row = dict[Any, Any]


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
    frame = without_random(frame)
    return [
        Answer(_head(model, memory, methods), tuple(_sentences(methods)))
        for (model, memory), methods in _by_system(frame[~frame["control"].astype(bool)]).items()
    ]


def without_random(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without the memory system that draws at random, unless there is no other."""
    others = frame[frame["memory"] != RANDOM]
    return others if len(others) else frame


def _by_system(frame: pd.DataFrame) -> dict[tuple[str, str], list[Row]]:
    """The rows of each model and memory system, in the frame's order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in frame.to_dict("records"):
        found.setdefault((str(row["model"]), str(row["memory"])), []).append(row)
    return found


def _head(model: str, memory: str, rows: Sequence[Row]) -> str:
    return f"{theme.name(memory)} · {model}{', as published' if _published(rows) else ''}"


def _published(rows: Sequence[Row]) -> bool:
    return all(row["source"] == "published" for row in rows)


def _best_first(rows: Sequence[Row], column: str) -> list[Row]:
    return sorted(rows, key=lambda row: row[column], reverse=True)


def _by(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    """The rows by what they say in `column`, where they say anything; in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row[column]:
            found.setdefault(str(row[column]), []).append(row)
    return found


def _sentences(methods: Sequence[Row]) -> list[str]:
    told = [row for row in methods if not (pd.isna(row["op_points"]) or pd.isna(row["locomo_points"]))]
    missing = [row for row in methods if pd.isna(row["op_points"]) or pd.isna(row["locomo_points"])]
    told = _best_first(told, "op_points")
    chosen, beaten = ([row for row in told if bool(row["pareto"]) == on] for on in (True, False))
    # The front takes the averages as they are, also where an interval holds 0 or there is none.
    alone = "O" if _published(methods) else "By the averages alone, o"
    sentences = []
    if chosen:
        unit = "in points" if methods[0]["unit"] == UNITS["points"] else "in percent"
        unit = "as printed" if _published(methods) else f"{unit}; LoCoMo: {_metrics(methods)}"
        sentences.append(f"{alone}n the Pareto front (changes {unit}): {'; '.join(map(_brings, chosen))}.")
    elif told:
        sentences.append(f"{alone}n the Pareto front is none: going without is at least as good on both benchmarks.")
    if chosen and beaten:
        sentences.append(
            "Not on it, since another (or none) is no worse on both and better on one, or nothing is gained: "
            f"{_names(beaten)}."
        )
    for benchmark, name in (("op", "OP-Bench"), ("locomo", "LoCoMo")):
        alike = [row for row in methods if row[f"{benchmark}_verdict"] == "not distinguishable"]
        if alike:
            users = _users([row[f"{benchmark}_users"] for row in methods])
            sentences.append(f"Not distinguishable from no post-processor on {name} (n = {users}): {_names(alike)}.")
    if missing:
        sentences.append(f"Not to be compared yet on both benchmarks: {_names(missing)}.")
    for controls, weak in _by(methods, "beaten_by").items():
        sentences.append(f"By the averages no better than the control {_controls(controls)}: {_names(weak)}.")
    sentences += _without_interval(methods)
    return sentences


def _metrics(methods: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(str(row["locomo_metric"]) for row in methods))


def _brings(row: Row) -> str:
    changes = ", ".join(
        f"{theme.change(row[f'{benchmark}_change'])}{_within(row, benchmark)} {name}"
        for benchmark, name in (("op", "OP-Bench"), ("locomo", "LoCoMo"))
    )
    seconds = row["seconds"]
    waits: str = "time not known" if pd.isna(seconds) else f"about {seconds:.1f} s of post-processing"
    return f"{theme.name(row['mitigation'])} {changes}, {waits}"


def _within(row: Row, benchmark: str) -> str:
    low, high = row[f"{benchmark}_low"], row[f"{benchmark}_high"]
    return "" if pd.isna(low) else f" ({theme.span(low, high)})"


def _without_interval(methods: Sequence[Row]) -> list[str]:
    """Why there are no intervals, said once for both benchmarks where it is the same."""
    if _published(methods):
        return [f"{NONE_PUBLISHED}."]
    reasons: dict[str, list[str]] = {}
    for benchmark, name in (("op", "OP-Bench"), ("locomo", "LoCoMo")):
        for reason in _by(methods, f"{benchmark}_interval_note"):
            reasons.setdefault(reason, []).append(name)
    return [
        f"No interval on {' and '.join(names)}, so the changes may be chance: {reason}."
        for reason, names in reasons.items()
    ]


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(theme.name(str(row["mitigation"])) for row in rows)


def _controls(names: str) -> str:
    return " or ".join(f"“{theme.name(name)}”" for name in names.split(", "))


def _users(counts: Sequence[float]) -> str:
    low, high = int(np.nanmin(counts)), int(np.nanmax(counts))
    return theme.users(high) if low == high else f"{low} to {theme.users(high)}"


def gap_answers(frame: pd.DataFrame) -> list[Answer]:
    """One answer for each model and memory system of a gap table: what the gap is, and what each method does to it."""
    oracles = frame[frame["memory"] == BASE].set_index("model")["op"].to_dict()
    found = []
    for (model, memory), group in _by_system(without_random(frame[frame["memory"] != BASE])).items():
        system = next((float(row["op"]) for row in group if row["mitigation"] == NO_MITIGATION), np.nan)
        sentences = [_gap(oracles.get(model, np.nan), system)]
        methods = [row for row in group if row["mitigation"] != NO_MITIGATION and not row["control"]]
        closed = _best_first([row for row in methods if not pd.isna(row["gap_closed"])], "gap_closed")
        for sign, word in ((True, "Closes"), (False, "Widens it or leaves it")):
            rows = [row for row in closed if (row["gap_closed"] > 0) == sign]
            if rows:
                sentences.append(f"{word}: {'; '.join(map(_closes, rows))}.")
        for reason, rows in _by([row for row in methods if pd.isna(row["gap_closed"])], "words").items():
            sentences.append(f"No share for {_names(rows)}: {reason}.")
        for reason, rows in _by(closed, "interval_note").items():
            of = "" if len(rows) == len(closed) else f" for {_names(rows)}"
            sentences.append(f"{NONE_PUBLISHED}." if _published(group) else f"No interval{of}: {reason}.")
        found.append(Answer(_head(model, memory, group), tuple(sentences)))
    return found


def _gap(oracle: float, system: float) -> str:
    if np.isnan(oracle) or np.isnan(system):
        return "The gap isn't known."
    if oracle <= system:
        return f"There is no gap: {theme.points(system)} points, the oracle {theme.points(oracle)}."
    return f"{theme.points(system)} points, {theme.points(oracle - system)} below the oracle's {theme.points(oracle)}."


def _closes(row: Row) -> str:
    remarks: list[str] = []
    if not pd.isna(row["gap_low"]):
        remarks.append(f"{theme.share(row['gap_low'])} to {theme.share(row['gap_high'])}")
    if row["gap_p_holm"] > 1.0 - LEVEL:
        remarks.append("not distinguishable from none")
    return f"{theme.name(row['mitigation'])} {theme.share(row['gap_closed'])}" + (
        f" ({', '.join(remarks)})" if remarks else ""
    )


def failed_sentence(frame: pd.DataFrame, found: pd.DataFrame) -> str:
    """Where post-processing failed, for the methods of a trade-off frame: a change of 0 may be no more than that.

    `found`: as `opbench.analysis.postprocessing.failures` makes it. Empty when nothing failed.
    """
    methods = frame[~frame["control"].astype(bool)]
    several = len(methods[["model", "memory"]].drop_duplicates()) > 1
    of = []
    for row in methods[KEY].merge(found, on=KEY).to_dict("records"):
        where = f" on {theme.name(row['memory'])} ({row['model']})" if several else ""
        of.append(f"{theme.name(row['mitigation'])}{where} {theme.scored(row['failed'], row['n'])}")
    return f"Post-processing failed, and changed nothing, in: {', '.join(of)} records." if of else ""
