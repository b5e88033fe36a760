"""What people think of a response: their score and note, beside the judge's, with the history."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import streamlit as st

from opbench.errors import OpbenchError
from opbench.figures import theme
from opbench.sharing.visible import one_line
from opbench.store import human
from opbench.store.record import Record, sha256_of
from pages.shared import access, parts, results

_GIVEN = "scores-given"
_WHEN = "%Y-%m-%d %H:%M UTC"


def draw(record: Record, side: str) -> None:
    """The scores that people gave this record, and for editors a form to add one."""
    st.markdown("**People**")
    entries = human.history(results.opened().store, record.run_id, record.key, record.instance)
    if entries:
        rows = [
            {
                "score": entry.value,
                "note": one_line(entry.note if entry.value is not None else f"withdrawn. {entry.note}", 400),
                "by": one_line(entry.rater, 80),
                "at": datetime.fromtimestamp(entry.made_at, UTC).strftime(_WHEN),
                "counts": "yes"
                if entry.current
                else ("no" if entry.of_this_response else "no: of an earlier response"),
            }
            for entry in entries
        ]
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            column_config={"score": st.column_config.NumberColumn("score (0–1)", format="%.2f")},
            placeholder=theme.MISSING,
            alt="scores that people gave to this response, newest first",
        )
        st.caption("Newest first; nothing is overwritten. The newest score of each person counts.")
    else:
        st.caption("Nobody has scored this response yet.")
    if record.response is None:
        return
    if not access.may_edit():
        st.caption("To score responses, sign in as an editor.")
        return
    _form(record, side, any(entry.current and entry.rater == access.name() for entry in entries))


def _form(record: Record, side: str, mine: bool) -> None:
    seen = sha256_of(record.response or "")
    # The key holds the response's hash: what was typed about one response is never sent for another.
    of = f"{side}-{record.instance}-{'-'.join(record.key)}-{seen[:12]}-{st.session_state.get(_GIVEN, 0)}"
    with st.form(f"rate-{of}", border=True, enter_to_submit=False):
        value = st.number_input(
            "Your score",
            0.0,
            1.0,
            None,
            0.05,
            format="%.2f",
            key=f"value-{of}",
            placeholder="0 to 1",
            width=160,
            help="As the judge scores: 1 is no over-personalisation (OP-Bench), or a right answer (LoCoMo).",
        )
        note = st.text_area("Note", max_chars=human.LONGEST_NOTE, key=f"note-{of}", height=80)
        with st.container(horizontal=True):
            keep = st.form_submit_button("Keep score", type="primary", icon=":material/check:")
            withdraw = mine and st.form_submit_button("Withdraw mine", icon=":material/undo:")
    if keep and value is None:
        st.warning("Give a number from 0 to 1.", icon=":material/error:")
    elif keep:
        _save(record, float(value or 0.0), note, seen)
    elif withdraw:
        _save(record, None, note, seen)


def _save(record: Record, value: float | None, note: str, seen: str) -> None:
    access.demand_edit()
    try:
        human.rate(
            results.opened().store,
            record.run_id,
            record.key,
            record.instance,
            value,
            note=note,
            rater=access.name(),
            response_sha256=seen,
        )
    except OpbenchError as error:
        st.error(parts.plain(str(error)), icon=":material/error:")
        return
    st.session_state[_GIVEN] = st.session_state.get(_GIVEN, 0) + 1  # an empty form next
    st.rerun()
