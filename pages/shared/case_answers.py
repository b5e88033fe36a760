"""The answers of a case side by side, renewed while they come; and the case in numbers for tables and exports."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from opbench.models import Registry
from opbench.sharing.sheet import Words
from opbench.sharing.visible import visible
from opbench.study import BASE
from pages.shared import (
    access,
    case_column,
    case_editing,
    case_leaving_out,
    case_live,
    collecting,
    memory,
    parts,
    texts,
    wording,
)
from pages.shared.case_view import CaseView, of_live

#: Seconds between two looks at a case at work.
EVERY_S = 0.4
#: Columns in a row: of more, a line holds too few words.
_IN_A_ROW = 3


def watch(registry: Registry, *, working: bool) -> None:
    """The case at work in this browser session, renewed until nothing is at work."""
    st.fragment(access.watched(_watched), run_every=EVERY_S if working else None)(registry, working)


def _watched(registry: Registry, was_working: bool) -> None:
    live = case_live.current()
    if live is None:
        return
    working = live.working
    if working:
        memory.hold()
    elif was_working:
        memory.release()
    if was_working != working:
        # What can be done with a finished case stands outside of this fragment.
        st.rerun()
    view = of_live(live, registry, access.may_edit())
    if live.error:
        st.error(parts.plain(visible(live.error)), icon=":material/error:")
    _steer(view)
    asked(view, collect_it=False)
    grid(view, registry)
    case_leaving_out.draw(view)


def _steer(view: CaseView) -> None:
    """How far it is, and the button that ends it."""
    live = view.live
    assert live is not None
    over = sum(outcome.over for outcome in view.outcomes)
    st.header("Answers", anchor="answers")
    if not live.working:
        if view.asks and any(outcome.state != "done" for outcome in view.outcomes):
            _offer_again(view)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{over} of {len(view.outcomes)} columns, {wording.duration(live.seconds)} so far")
        if view.asks and st.button("Cancel", key="case-cancel", icon=":material/stop:", type="primary"):
            live.cancel()
            st.rerun()


def _offer_again(view: CaseView) -> None:
    if st.button(
        "Ask again",
        key="case-again",
        icon=":material/replay:",
        help="What was answered isn't asked a second time, nor paid.",
    ):
        case_live.ask(view.spec)
        st.rerun()


def asked(view: CaseView, collect_it: bool = True) -> None:
    """The question, and whose it is."""
    spec = view.spec
    with st.container(border=True):
        if collect_it:
            texts.show("Question", spec.question, "case-question")
        else:
            st.markdown("**Question**")
            st.text(texts.cut(visible(spec.question), "case-question"))
        where = " · ".join(filter(None, (spec.user, spec.instance, spec.published, f"judged as {spec.subtype}")))
        st.caption(parts.plain(where))


def grid(view: CaseView, registry: Registry) -> None:
    """All columns, a few in a row; on a narrow window one below the other."""
    seconds = view.live.seconds if view.live is not None and view.live.working else None
    places = range(len(view.outcomes))
    for start in range(0, len(places), _IN_A_ROW):
        row = places[start : start + _IN_A_ROW]
        # The last row's are as wide as those above them.
        wide = st.columns(min(_IN_A_ROW, len(places)), gap="medium")
        for place, drawn in zip(row, wide, strict=False):
            with drawn.container(border=True, height="stretch"):
                without = partial(case_editing.without, view, place) if view.asks else None
                leave_out = partial(case_leaving_out.button, view, place, registry) if view.asks else None
                case_column.draw(view, place, seconds, leave_out, without)


def collect(view: CaseView) -> None:
    """The case in numbers as a table, and its texts for the export."""
    rows = [_row(view, place) for place in range(len(view.outcomes))]
    frame = pd.DataFrame(rows)
    parts.heading("In numbers")
    columns: dict[str, Any] = {
        "column": st.column_config.TextColumn("column", width=230),
        "state": st.column_config.TextColumn("outcome", width=90),
        "score": st.column_config.NumberColumn("score (0–1)", format="%.2f", width=80),
        "retrieved": st.column_config.NumberColumn("memories", width=75),
        "in_prompt": st.column_config.NumberColumn("lines in the prompt", width=110),
        "retrieval_ms": st.column_config.NumberColumn("retrieval, ms", format="%.0f", width=90),
        "post_ms": st.column_config.NumberColumn("post-processing, ms", format="%.0f", width=120),
        "response_ms": st.column_config.NumberColumn("response, ms", format="%.0f", width=95),
        "reused": st.column_config.TextColumn("reused", width=130, help="Stages whose calls were made before"),
        "prompt_tokens": st.column_config.NumberColumn("tokens in", format="localized", width=80),
        "completion_tokens": st.column_config.NumberColumn("tokens out", format="localized", width=85),
        "cost_usd": st.column_config.NumberColumn("cost", format="$%.4f", width=75, help="By list price"),
    }
    parts.table(frame, columns, "case-columns", frame, ["response", "reason", "error"])
    if not view.comparable:
        collecting.sheet().marks.append("not comparable with the paper")
    collecting.add(Words("Question", visible(view.spec.question)))


def _row(view: CaseView, place: int) -> dict[str, Any]:
    column, outcome = view.column(place), view.outcomes[place]
    times = {f"{stage}_ms": outcome.milliseconds.get(stage) for stage in ("retrieval", "post", "response")}
    return {
        "column": view.names[place],
        "model": column.model,
        "memory": column.memory,
        "mitigation": column.mitigation,
        "state": outcome.state if outcome.error_kind is None else f"{outcome.state}: {outcome.error_kind}",
        "score": outcome.score,
        "reason": outcome.scores[0].reason if outcome.scores else None,
        "retrieved": None if column.memory == BASE or outcome.retrieved is None else len(outcome.retrieved),
        "in_prompt": None if column.memory == BASE or outcome.context is None else len(outcome.context),
        **times,
        "reused": ", ".join(stage for stage, was in outcome.reused.items() if was),
        "prompt_tokens": outcome.prompt_tokens,
        "completion_tokens": outcome.completion_tokens,
        "cost_usd": outcome.cost_usd,
        "first_text_ms": outcome.first_text_ms,
        "total_ms": outcome.total_ms,
        "finish_reason": outcome.finish_reason,
        "post_state": outcome.post_state,
        "response": outcome.response,
        "error": outcome.error,
    }


def provenance(view: CaseView) -> None:
    """What the numbers rest on."""
    known = {"case": view.spec.digest, "judge": view.spec.judge, "all": view.provenance}
    collecting.sheet().provenance |= known
    with st.expander("Provenance: data, models, prompts, judge, commit", icon=":material/fingerprint:"):
        st.json({"spec": view.spec.model_dump(mode="json", exclude_defaults=True), **view.provenance}, expanded=1)
