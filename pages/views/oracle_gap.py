"""The oracle gap of the paper's figure 7: how near each post-processor brings a memory system to BASE."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis.aggregate import Rule
from opbench.analysis.gap import AVERAGE, gap_table, published_gap
from opbench.analysis.published import MITIGATION_MODEL
from opbench.analysis.tradeoff import UNITS
from opbench.figures import theme
from opbench.figures.answers import gap_answers
from opbench.figures.gap import gap_closed, oracle_gap
from opbench.store.reading import RunStatus
from opbench.study import NO_MITIGATION
from opbench.types import OP_SUBTYPES
from pages.shared import answering, link, parts, results, view

SUBTYPES = {AVERAGE: AVERAGE} | {name: theme.name(name) for name in OP_SUBTYPES}


@st.cache_data(max_entries=32, show_spinner="Working out the gaps…")
def gaps(run_id: str, seen: results.Stamp, rule: Rule, first_only: bool, subtype: str | None) -> pd.DataFrame:
    return gap_table(results.run_data(run_id, seen), rule, first_only, subtype)


def pick_subtype() -> str | None:
    """The subtype that is chosen; None for the average."""
    chosen = link.one_of("Measured on", list(SUBTYPES), "subtype", names=SUBTYPES, width=180)
    return None if chosen == AVERAGE else chosen


def show_gap(frame: pd.DataFrame, measured_on: str, mark: str, name: str) -> None:
    """The answer in words, the two figures, and the table with the same numbers."""
    answering.say(gap_answers(frame))
    what = "OP-Bench average" if measured_on == AVERAGE else f"OP-Bench, {measured_on}"
    parts.chart(
        oracle_gap(frame, mark, f"{what}, against the oracle"),
        name,
        f"{what} by memory system and post-processor, with BASE as a line; the table holds the same numbers",
    )
    if (frame["mitigation"] != NO_MITIGATION).any():
        parts.chart(
            gap_closed(frame, mark, "Gap closed"),
            f"{name}-closed",
            "Share of the gap that each post-processor closes, with its interval; the table holds the same numbers",
        )
    show_table(frame, name)
    parts.remark(
        "The oracle is BASE: the same model without any memory. 0 % is the memory system as it is, 100 % the oracle; "
        "below 0 % is worse than no post-processor. A gap that isn't there can't be closed and has no share."
    )


def show_table(frame: pd.DataFrame, name: str) -> None:
    spans = [
        theme.MISSING if pd.isna(low) else f"{theme.share(low)} to {theme.share(high)}"
        for low, high in zip(frame["gap_low"], frame["gap_high"], strict=True)
    ]
    shown = parts.named(frame).assign(
        closed=100 * frame["gap_closed"],
        span=spans,
        scored=[theme.scored(*each) for each in zip(frame["n_scored"], frame["n_planned"], strict=True)],
    )
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        "memory": "memory",
        "mitigation": "post-processor",
        "op": number("OP-Bench", format="%.1f", help="In points, 0 to 100"),
        "closed": number("gap closed", format="%.0f %%", help="(method − memory system) / (oracle − memory system)"),
        "span": text("95 %", help="Interval over users drawn anew"),
        "words": text("in words"),
        "scored": text("n", help="Scored instances of those planned"),
        "gap_n": number("paired n", format="%d", help="Scored by method, system and oracle"),
        "gap_users": number("users", format="%d", help="Users with a paired instance"),
        "interval_note": text("no interval because"),
    }
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    if frame["n_scored"].isna().all():
        for untold in ("scored", "gap_n", "gap_users", "span", "interval_note"):
            del columns[untold]
    elif not frame["interval_note"].any():
        del columns["interval_note"]
    parts.table(shown, columns, name, frame)


def show_published() -> None:
    parts.published_marks()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = link.one_of(
            "Figure 6's changes read as",
            list(UNITS),
            "kind",
            kind="segmented",
            help="The paper doesn't say which they are, and prints no numbers for figure 7: these are worked out from "
            "table 2 and figure 6.",
        )
        subtype = pick_subtype()
        frame = published_gap(kind, subtype)
        models = ["all models", *dict.fromkeys(frame["model"])]
        model = link.one_of("Model", models, "model", default=MITIGATION_MODEL, width=180)
        frame = answering.pick_memory(frame if model == "all models" else frame[frame["model"] == model], "system")
    mark = theme.provenance(published=True)
    show_gap(frame, SUBTYPES[subtype or AVERAGE], mark, "oracle-gap-published")
    parts.remark(
        "The printed averages are as they are: BASE and RAG are averaged by another rule than Mem0, MemU and MemOS "
        "(opbench audit), so these gaps are between unlike averages, and the rule can't be chosen here. Changes by "
        "post-processors are published for the average of GPT-4o-mini alone; no intervals are published."
    )
    parts.published_provenance(
        "Worked out from table 2 (averages) and figure 6 (changes); figure 7 itself prints no numbers."
    )


def show_run(current: view.View, status: RunStatus) -> None:
    link.check("kind", list(UNITS))
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    first = ["first speakers only"] if current.first_only else []
    parts.run_marks(status, data, f"rule: {current.rule}", *first)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        subtype = pick_subtype()
        frame = parts.pick_model(gaps(status.run_id, seen, current.rule, current.first_only, subtype))
        frame = answering.pick_memory(frame, "system")
    if frame["op"].isna().all():
        reasons = "; ".join(sorted(set(frame["missing"]) - {""}))
        parts.nothing_yet(f"No OP-Bench score yet: {reasons}.")
    else:
        mark = theme.provenance(recorded=status.recorded, comparable=data.comparable)
        show_gap(frame, SUBTYPES[subtype or AVERAGE], mark, "oracle-gap")
    parts.say_left_out(frame)
    parts.run_provenance(status, data, rule=current.rule, speakers="first only" if current.first_only else "all")


parts.title("How near does a post-processor bring an agent to one without memories to misuse?")
looked_at = view.current()
if looked_at.status is None:
    show_published()
else:
    show_run(looked_at, looked_at.status)
