"""What failed in a run, why, and trying it again."""

from __future__ import annotations

from typing import Any

import streamlit as st

from opbench.store import reading
from opbench.store.reading import RunStatus
from pages.shared import access, link, parts, results, steering


def show(run_id: str) -> None:
    """Records without a response and scores that are missing, with their reasons, and the button that tries again."""
    status = results.status(run_id)
    if not (status.errors or status.unscored):
        return
    with st.expander(
        f"Failures: {status.errors + status.unscored:,}", key="failures-box", icon=":material/error:", expanded=True
    ):
        frame = reading.failures(results.opened().store, run_id)
        kinds_there = sorted(set(frame["kind"]))
        kinds = link.some_of("Only of these kinds", kinds_there, "failed", placeholder="all")
        chosen = frame[frame["kind"].isin(kinds)] if kinds else frame
        columns: dict[str, Any] = {
            "kind": st.column_config.TextColumn("kind", help="Kind of error, or the metric that is missing"),
            "reason": st.column_config.TextColumn("reason", width="large"),
            "memory": "memory",
            "mitigation": "post-processor",
            "instance": "instance",
            "model": "model",
        }
        parts.table(parts.named(chosen), columns, "failures", chosen)
        if status.recorded or not access.may_edit():
            return
        if status.working:
            st.caption("When the run has ended, these can be tried again.")
        elif status.errors or status.retriable:
            _offer_to_try_again(status)


def _offer_to_try_again(status: RunStatus) -> None:
    _, last = steering.study_of(status.run_id)
    before = last.get("budget_usd")
    reached = before is not None and steering.spent(status) >= before
    waiting = f" and does the {status.waiting:,} that wait" if status.waiting else ""
    if st.button("Try these again", key="again", icon=":material/replay:", disabled=reached):
        steering.resume(status, before)
    st.caption(
        "The budget is reached: raise it above to go on."
        if reached
        else f"Goes on with the run: tries all failed ones again{waiting}. What is finished stays."
    )
