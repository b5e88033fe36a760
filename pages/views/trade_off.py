"""The trade-off of the paper's figure 6: what a post-processor does to OP-Bench and, at the same time, to LoCoMo."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import published
from opbench.analysis.tradeoff import UNITS
from opbench.figures import theme
from opbench.figures.tradeoff import tradeoff_heatmap
from opbench.store.reading import RunStatus
from pages.shared import link, parts, results, view


def show_changes(frame: pd.DataFrame, unit: str, mark: str, name: str) -> None:
    """Figure and table side by side, with the same numbers."""
    picture, numbers = st.columns([10, 11], gap="small")
    with picture:
        figure = tradeoff_heatmap(frame, unit, mark, "Change by post-processor")
        parts.chart(figure, name, "Change on OP-Bench over change on LoCoMo; the table holds the same numbers")
    shown = parts.named(frame).assign(
        op_of=[f"{n:.0f} of {of:.0f}" for n, of in zip(frame["op_n"], frame["op_n_planned"], strict=True)],
        locomo_of=[f"{n:.0f} of {of:.0f}" for n, of in zip(frame["locomo_n"], frame["locomo_n_planned"], strict=True)],
    )
    columns: dict[str, Any] = {
        "memory": st.column_config.TextColumn("memory", width=60),
        "mitigation": st.column_config.TextColumn("post-processor", width=100),
        "op_change": st.column_config.NumberColumn("OP-Bench", format="%+.1f", help=f"Change in {unit}", width=75),
        "op_of": st.column_config.TextColumn("n", help="Paired instances of those planned", width=65),
        "locomo_change": st.column_config.NumberColumn("LoCoMo", format="%+.1f", help=f"Change in {unit}", width=70),
        "locomo_of": st.column_config.TextColumn("n ", help="Paired questions of those planned", width=65),
    }
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    if frame["op_n"].isna().all():
        del columns["op_of"], columns["locomo_of"]
    if {*frame["op_note"], *frame["locomo_note"]} - {"", "paired"}:
        columns |= {"op_note": "OP-Bench: remark", "locomo_note": "LoCoMo: remark"}
    with numbers:
        parts.table(shown, columns, name, frame)
        metrics = ", ".join(sorted(set(frame["locomo_metric"])))
        st.caption(
            f"Change against the same memory system without post-processor, {unit}. "
            f"OP-Bench: higher is less over-personalised. LoCoMo: higher is better recall; metric: {metrics}."
        )


def show_published() -> None:
    link.check("kind", list(UNITS))
    parts.published_marks()
    show_changes(published.tradeoff(), published.UNIT_NOT_TOLD, theme.provenance(published=True), "trade-off-published")
    st.caption(
        "GPT-4o-mini, as printed: the averaging rule and the speakers can't be chosen for published changes. "
        "Choose a run under “Results of” to see measured ones."
    )
    parts.published_provenance(
        "The paper calls the changes relative and draws them as “+20.0 %”; whether they are points or percent "
        "of the memory system isn't told.",
        "The averages behind them were made by more than one rule (`opbench audit`).",
    )


def show_run(current: view.View, status: RunStatus) -> None:
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    first = ["first speakers only"] if current.first_only else []
    parts.run_marks(status, data, f"rule: {current.rule}", *first)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = link.one_of(
            "Changes in",
            list(UNITS),
            "kind",
            kind="segmented",
            help="Points: difference of two scores from 0 to 100. Relative: that difference in percent of the memory "
            "system's own score.",
        )
        frame = parts.pick_model(results.tradeoff(status.run_id, seen, current.rule, kind, current.first_only))
    if frame.empty:
        st.info(
            "This run has no post-processor to compare: launch a study with “none” and at least one post-processor, "
            "on a memory system other than BASE.",
            icon=":material/info:",
        )
        st.page_link("pages/views/launch.py", label="To the Launch page", icon=":material/play_circle:")
    elif frame[["op_change", "locomo_change"]].isna().all(axis=None):
        reasons = sorted({*frame["op_note"], *frame["locomo_note"]} - {""})
        parts.nothing_yet(f"Nothing can be compared yet: {'; '.join(reasons)}.")
    else:
        mark = theme.provenance(recorded=status.recorded, comparable=data.comparable)
        show_changes(frame, UNITS[kind], mark, "trade-off")
        parts.say_left_out(frame)
    parts.run_provenance(status, data, rule=current.rule, speakers="first only" if current.first_only else "all")


parts.title("Does a post-processor stop over-personalisation, and what does it cost in personalisation?")
looked_at = view.current()
if looked_at.status is None:
    show_published()
else:
    show_run(looked_at, looked_at.status)
