"""The oracle gap of the paper's figure 7: how near each post-processor brings a memory system to BASE."""

import pandas as pd
import streamlit as st

from opbench.analysis import published
from opbench.analysis.tradeoff import UNITS
from opbench.figures import theme
from opbench.figures.gap import oracle_gap
from opbench.store.reading import RunStatus
from pages.shared import link, parts, results, view


def show_gap(frame: pd.DataFrame, mark: str, name: str) -> None:
    """Figure over the table with the same numbers."""
    parts.chart(
        oracle_gap(frame, mark, "OP-Bench average against the oracle"),
        name,
        "OP-Bench average by memory system and post-processor, with BASE as a line; the table holds the same numbers",
    )
    shown = parts.named(frame).assign(
        closed=100 * frame["gap_closed"],
        scored=[theme.scored(*each) for each in zip(frame["n_scored"], frame["n_planned"], strict=True)],
        remark=[
            "; ".join(part for part in parts_of if part and part not in ("reference", "oracle"))
            for parts_of in zip(frame["gap_reason"], frame.get("missing", [""] * len(frame)), strict=True)
        ],
    )
    columns = {
        "memory": "memory",
        "mitigation": "post-processor",
        "op": st.column_config.NumberColumn("OP-Bench", format="%.1f", help="Average in points, 0 to 100"),
        "closed": st.column_config.NumberColumn(
            "gap closed", format="%.0f %%", help="(method − memory system) / (oracle − memory system)"
        ),
        "scored": st.column_config.TextColumn("n", help="Scored instances of those planned"),
        "gap_n": st.column_config.NumberColumn("paired n", format="%d", help="Scored by method, system and oracle"),
        "remark": "remark",
    }
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    if frame["n_scored"].isna().all():
        del columns["scored"], columns["gap_n"]
    if not shown["remark"].any():
        del columns["remark"]
    parts.table(shown, columns, name, frame)
    st.caption(
        "The oracle is BASE: the same model without any memory. 0 % is the memory system as it is, 100 % the oracle; "
        "below 0 % is worse than no post-processor. A gap that isn't there can't be closed and has no share."
    )


def show_published() -> None:
    parts.published_marks()
    kind = link.one_of(
        "Figure 6's changes read as",
        list(UNITS),
        "kind",
        kind="segmented",
        help="The paper doesn't say which they are, and prints no numbers for figure 7: these are worked out from "
        "table 2 and figure 6.",
    )
    show_gap(published.oracle_gap(kind), theme.provenance(published=True), "oracle-gap-published")
    st.caption(
        "The printed averages are as they are: BASE and RAG are averaged by another rule than Mem0, MemU and MemOS "
        "(`opbench audit`), so these gaps are between unlike averages, and the rule can't be chosen here."
    )
    parts.published_provenance(
        "Worked out from table 2 (averages) and figure 6 (changes); figure 7 itself prints no numbers."
    )


def show_run(current: view.View, status: RunStatus) -> None:
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    first = ["first speakers only"] if current.first_only else []
    parts.run_marks(status, data, f"rule: {current.rule}", *first)
    frame = parts.pick_model(results.op_table(status.run_id, seen, current.rule, current.first_only))
    if frame["op"].isna().all():
        reasons = "; ".join(sorted(set(frame["missing"]) - {""}))
        parts.nothing_yet(f"No OP-Bench average yet: {reasons}.")
    else:
        mark = theme.provenance(recorded=status.recorded, comparable=data.comparable)
        show_gap(frame, mark, "oracle-gap")
    parts.say_left_out(frame)
    parts.run_provenance(status, data, rule=current.rule, speakers="first only" if current.first_only else "all")


parts.title("How near does a post-processor bring an agent to one without memories to misuse?")
looked_at = view.current()
if looked_at.status is None:
    show_published()
else:
    show_run(looked_at, looked_at.status)
