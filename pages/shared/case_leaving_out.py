"""Which memory did it: a column asked again without each of its memories, watched, drawn, and told in a sentence."""

from __future__ import annotations

from typing import Any

import streamlit as st

from opbench.cases.estimate import estimate
from opbench.cases.outcome import Ablation, At
from opbench.cases.telling import ablation_table, verdict
from opbench.figures.cases import ablation_bars
from opbench.models import Registry
from opbench.sharing.sheet import Text
from opbench.sharing.visible import one_line
from opbench.study import NO_MITIGATION
from pages.shared import access, collecting, parts, results, wording
from pages.shared.case_view import CaseView

_WHERE: dict[At, str] = {"retrieval": "at the retrieval", "context": "of the prompt"}
_WHERE_HELP = (
    "At the retrieval: the post-processor works again without the memory. Of the prompt: the post-processor's work "
    "stays as it was, and what it made of the memory is left out."
)
_CELL = 300
#: Calls of a model that isn't embedded, beyond which what they take is said first.
FEW_CALLS = 3


def button(view: CaseView, place: int, registry: Registry) -> None:
    """Below a column that is done: what asks it again without each memory in turn."""
    live = view.live
    if live is None or not view.asks or view.outcomes[place].state != "done" or not view.has_memories(place):
        return
    at: At = "retrieval"
    column = view.column(place)
    if column.mitigation != NO_MITIGATION:
        chosen = st.segmented_control(
            "Leave out",
            list(_WHERE),
            format_func=_WHERE.__getitem__,
            default="retrieval",
            required=True,
            key=f"case-at-{place}",
            help=_WHERE_HELP,
        )
        at = "context" if chosen == "context" else "retrieval"
    working = any(each.column == place and each.at == at and not each.over for each in view.ablations)
    if st.button(
        "Which memory did it?",
        key=f"case-leave-{place}",
        icon=":material/person_search:",
        disabled=working,
        help="Asks this column again without each memory in turn.",
    ):
        access.demand_edit()
        live.leave_one_out(place, at)
        st.rerun()
    times = len(view.outcomes[place].retrieved or ()) + (1 if (column.temperature or view.spec.temperature) else 0)
    takes = estimate(results.opened().store, registry, view.spec, [column], times)
    if takes.paid_calls > FEW_CALLS:
        st.caption(f"Up to {takes.calls} calls, {wording.dollars(takes.cost_usd)}.")


def draw(view: CaseView) -> None:
    """Every leave-one-out of the case, in the order of the columns."""
    for ablation in view.ablations:
        _one(view, ablation)


def _one(view: CaseView, ablation: Ablation) -> None:
    name = view.names[ablation.column]
    title = f"Which memory did it? {name}, left out {_WHERE[ablation.at]}"
    key = f"case-left-out-{ablation.column}-{ablation.at}"
    if ablation.over:
        parts.heading(title)
    else:
        st.header(title, anchor=False)
    done = sum(item.outcome.over for item in ablation.items)
    if not ablation.over:
        _progress(view, ablation, done)
    else:
        sentence = verdict(ablation)
        show = st.success if ablation.culprit is not None else st.info
        show(parts.plain(sentence), icon=":material/person_search:")
        collecting.add(Text(sentence))
    if not ablation.items:
        return
    frame = ablation_table(ablation)
    mark = "" if view.comparable else "scores not comparable with the paper"
    parts.chart(
        ablation_bars(frame, mark, f"{name}: each memory left out in turn"),
        key,
        f"{name}: change in score and in response without each of {len(frame)} memories",
    )
    if not ablation.over:
        return
    parts.remark(
        "A bar is one answer without the memory against one with all: causal for this question and model, no average. "
        "Change in response: 1 − cosine of the two responses' embeddings, 0 where they are the same text."
    )
    shown = frame.assign(
        memory=[one_line(text or "", _CELL) for text in frame["memory"]],
        response=[one_line(text, _CELL) for text in frame["response"]],
    )
    columns: dict[str, Any] = {
        "left_out": st.column_config.TextColumn("left out", width=90),
        "memory": st.column_config.TextColumn("memory", width=240),
        "score_without": st.column_config.NumberColumn("score without", format="%.2f", width=90),
        "score_change": st.column_config.NumberColumn("change", format="%+.2f", width=75),
        "similarity": st.column_config.NumberColumn("cosine", format="%.2f", width=70, help="Of the two responses"),
        "response": st.column_config.TextColumn("response without it", width=320),
        "missing": st.column_config.TextColumn("not compared", width=160),
    }
    if frame["missing"].isna().all():
        del columns["missing"]
    parts.table(shown, columns, key, frame, ["memory", "response", "missing"])


def _progress(view: CaseView, ablation: Ablation, done: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        of = len(ablation.items)
        st.progress(done / of if of else 0.0, text=f"{done} of {of} answers" if of else "beginning", width=420)
        if view.asks and st.button(
            "Cancel this", key=f"case-stop-{ablation.column}-{ablation.at}", icon=":material/stop:"
        ):
            assert view.live is not None
            view.live.cancel_ablation(ablation.column, ablation.at)
            st.rerun()
