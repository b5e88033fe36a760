"""What attention comes to, in sentences: more or less on memory than on the query, and what changes that."""

from __future__ import annotations

from typing import Any

import pandas as pd

from opbench.figures import theme
from opbench.figures.answers import Answer, without_random
from opbench.figures.attention import configuration_name, times
from opbench.study import BASE, NO_MITIGATION

Row = dict[Any, Any]
_SURE = 0.05
CHANCE = "without an interval, which may be chance"


def attention_answers(ratios: pd.DataFrame, changes: pd.DataFrame) -> list[Answer]:
    """One answer for each model and memory system: the ratio, what memory takes from the query, what post-processors
    change, and what random memories in the same place have of it.

    `ratios` and `changes` as `opbench.analysis.attention` and `attention_changes` make them. Random memories are a
    control: they have an answer only where they are all there is.
    """
    shown = without_random(ratios[ratios["memory"] != BASE])
    changed = changes.to_dict("records")
    found = []
    for (model, memory), group in shown.groupby(["model", "memory"], sort=False):
        mine = [row for row in changed if (row["model"], row["memory"]) == (model, memory)]
        sentences = [
            *(_ratio(row) for row in group.to_dict("records") if row["mitigation"] == NO_MITIGATION),
            *_against_base(mine),
            *_against_random(mine),
            *_post_processed(group.to_dict("records"), mine),
            *_no_intervals([*group.to_dict("records"), *mine]),
        ]
        found.append(Answer(f"{theme.name(str(memory))} · {model}", tuple(sentences)))
    return found


def _ratio(row: Row) -> str:
    if pd.isna(row["value"]):
        return f"There is no ratio: {row['reason']} in any of {theme.count(row['read'])} records."
    verdict = _against(row, "more than the query", "less than the query", "not distinguishable from as much")
    return f"Per token, memory gets {times(row['value'])} the attention of the query{_rests(row)}: {verdict}."


def _against_base(rows: list[Row]) -> list[str]:
    found = {row["measure"]: row for row in rows if row["kind"] == "memory" and not pd.isna(row["value"])}
    if not found:
        return []
    token, share = found["query per token"], found["query share"]
    return [
        f"With memory in the prompt a query token gets {times(token['value'])} what it gets from the same model in BASE"
        f"{_rests(token, paired=True)}, and the query's share of all attention changes by {points(share)}. Part of "
        "that is length alone: attention always sums to 1."
    ]


def _against_random(rows: list[Row]) -> list[str]:
    found = {row["measure"]: row for row in rows if row["kind"] == "random" and not pd.isna(row["value"])}
    if not found:
        return []
    row = found["ratio"]
    verdict = _against(
        row,
        "the memories that were found draw more than any would in that place",
        "the memories that were found draw less than random ones",
        "not distinguishable from any memories in that place",
    )
    return [f"The ratio is {times(row['value'])} that of random memories{_rests(row, paired=True)}: {verdict}."]


def _post_processed(ratios: list[Row], rows: list[Row]) -> list[str]:
    found: list[str] = []
    for row in rows:
        if row["kind"] != "mitigation" or row["measure"] != "ratio":
            continue
        name = theme.name(str(row["mitigation"]))
        if pd.isna(row["value"]):
            found.append(f"{name}: {row['reason']}.")
            continue
        verdict = _against(row, "raises it", "lowers it", "not distinguishable from no change")
        own = next((each for each in ratios if each["mitigation"] == row["mitigation"]), None)
        stands = "" if own is None or pd.isna(own["value"]) else f", to {times(own['value'])} over all its instances"
        found.append(
            f"{name} changes the ratio by a factor of {row['value']:.2f}{_rests(row, paired=True)}{stands}: {verdict}"
            f"{_failed(own)}."
        )
    return found


def _failed(own: Row | None) -> str:
    if own is None or not own["failed"] > 0:
        return ""
    return f". It failed, and left the prompt as it was, in {theme.scored(own['failed'], own['read'])} records"


def _no_intervals(rows: list[Row]) -> list[str]:
    reasons = {row["reason"] for row in rows if row["reason"] and not pd.isna(row["value"])}
    return [f"No interval: {reason}." for reason in sorted(reasons)]


def _against(row: Row, more: str, less: str, neither: str) -> str:
    """A verdict on a factor, by its interval and, where it is one of several changes, by the corrected chance."""
    if pd.isna(row["low"]):
        if round(row["value"], 2) == 1.0:
            return neither
        return f"{more if row['value'] > 1 else less}, {CHANCE}"
    if row["low"] <= 1 <= row["high"]:
        return neither
    found = more if row["low"] > 1 else less
    if "p_holm" in row and not row["p_holm"] <= _SURE:
        return (
            f"{found} by itself, but not sure among {row['tests']} such changes (Holm's {theme.chance(row['p_holm'])})"
        )
    return found


def _rests(row: Row, *, paired: bool = False) -> str:
    """Interval, n and users, in brackets."""
    n = f"{'paired ' if paired else ''}n = {theme.count(row['n'])}, {theme.users(row['n_users'])}"
    within: str = "" if pd.isna(row["low"]) else f"95 %: {times(row['low'])} to {times(row['high'])}; "
    return f" ({within}{n})"


def points(row: Row) -> str:
    """A difference of shares with its interval, e.g. `−12.3 points (−14.0 to −10.1)`."""
    within: str = "" if pd.isna(row["low"]) else f" ({theme.span(100 * row['low'], 100 * row['high'])})"
    return f"{theme.change(100 * row['value'])} points{within}"


def said(row: Row) -> str:
    """What a row of `changes` has changed by, without its interval: a factor or points."""
    if pd.isna(row["value"]):
        return theme.MISSING
    return times(row["value"]) if row["factor"] else f"{theme.change(100 * row['value'])} points"


def left_without(ratios: pd.DataFrame) -> str:
    """How many records of each configuration have no memory in the prompt and so no ratio; empty when none has."""
    several = ratios["model"].nunique() > 1
    told = [
        f"{configuration_name(row['model'], row['memory'], row['mitigation'], several_models=several)} "
        f"{theme.scored(row['read'] - row['n'], row['read'])}"
        for row in ratios.to_dict("records")
        if row["n"] < row["read"]
    ]
    return f"No ratio, since the prompt has no memory: {', '.join(told)} records." if told else ""
