"""Saved cases: saving one, the list of them with their links, renaming, deleting, and the file to pass on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import pandas as pd
import streamlit as st

from opbench.cases.saved import CaseRow, SavedCase
from opbench.figures import theme
from opbench.sharing.case_html import case_html
from opbench.sharing.visible import one_line, visible
from opbench.store import cases as kept
from pages.shared import access, chosen_models, parts, results
from pages.shared.case_view import CaseView

#: The saved case that a link opens.
CASE = "case"
_SAVED = "case-just-saved"
_CELL = 160
TEXTS_HELP = "The benchmarks' sentences may not be passed on freely. Left out, a file says so."


def link_of(case_id: str) -> str:
    """The address that opens a saved case."""
    address = urlsplit(st.context.url or "")
    return urlunsplit(address._replace(path=address.path or "/", query=urlencode({CASE: case_id}), fragment=""))


def save_form(view: CaseView) -> None:
    """Name, note and the button that saves the case at work, once nothing is at work any more; and the link to it."""
    live = view.live
    if live is None or not view.asks:
        return
    st.header("Keep it", anchor=False)
    with st.form("case-save", border=True):
        name = st.text_input("Name", max_chars=kept.LONGEST_NAME, key="case-save-name", placeholder="what it shows")
        note = st.text_area("Note", max_chars=kept.LONGEST_NOTE, key="case-save-note", height=80)
        pressed = st.form_submit_button("Save", type="primary", icon=":material/bookmark_add:", key="case-save-button")
    if pressed:
        access.demand_edit()
        case_id = kept.save_case(
            results.opened().store,
            name=name,
            note=note,
            spec=view.spec,
            outcomes=view.outcomes,
            ablations=view.ablations,
            provenance=view.provenance,
            maker=access.name(),
            keys=chosen_models.typed_keys(),
        )
        st.session_state[_SAVED] = (case_id, live.parts[0].session.id)
    saved = st.session_state.get(_SAVED)
    if saved is not None and saved[1] == live.parts[0].session.id:
        st.success("Saved: its link opens it as it is now, and asks no model.", icon=":material/bookmark_added:")
        parts.code(link_of(saved[0]))
        # No page link: one to the page that is open leaves the address as it was.
        st.button(
            "Open the saved case", key="case-open", icon=":material/open_in_new:", on_click=_open, args=(saved[0],)
        )


def head(case: SavedCase) -> None:
    """Above an opened case: what it is, and what can be done with it."""
    with st.container(horizontal=True, gap="small"):
        st.badge("saved case", icon=":material/bookmark:", color="blue")
        for mark in case.marks:
            st.badge(parts.plain(mark), color="orange" if "not comparable" in mark else "gray")
    st.header(parts.plain(case.name), anchor=False)
    st.caption(f"Kept as it was on {_when(case.made_at)} by {parts.plain(case.maker)}; nothing is asked to show it.")
    if case.note:
        st.text(visible(case.note))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if st.button("All cases", icon=":material/arrow_back:", key="case-close"):
            leave()
        with st.popover("Export", icon=":material/draft:", width="content"):
            with_texts = st.toggle("With questions, memories and responses", key="case-texts", help=TEXTS_HELP)
            st.download_button(
                "As HTML",
                partial(_html, case, link_of(case.id), with_texts),
                file_name=f"case-{case.id}.html",
                mime="text/html",
                icon=":material/download:",
                key="case-html",
                on_click="ignore",
                help="One file that opens anywhere, offline.",
            )
        if access.may_edit():
            _steer(case.id, case.name, case.note)


def _html(case: SavedCase, link: str, with_texts: bool) -> bytes:
    return case_html(case, link=link, with_texts=with_texts).encode()


def _steer(case_id: str, name: str, note: str) -> None:
    store = results.opened().store
    with st.popover("Rename", icon=":material/edit:", width="content"):
        new_name = st.text_input("Name", name, max_chars=kept.LONGEST_NAME, key=f"case-name-{case_id}")
        new_note = st.text_area("Note", note, max_chars=kept.LONGEST_NOTE, key=f"case-note-{case_id}")
        if st.button("Rename", key=f"case-rename-{case_id}", icon=":material/check:"):
            access.demand_edit()
            kept.rename_case(store, case_id, new_name, note=new_note)
            st.rerun()
    with st.popover("Delete", icon=":material/delete:", width="content"):
        st.caption("For good, for everybody. Case books that hold it will say that it is gone.")
        if st.button("Delete this case", key=f"case-delete-{case_id}", icon=":material/delete_forever:"):
            access.demand_edit()
            kept.delete_case(store, case_id)
            leave()


def leave() -> None:
    """Close the opened case."""
    st.query_params.pop(CASE, None)
    st.rerun()


def listed() -> list[CaseRow]:
    return kept.list_cases(results.opened().store)


def show_list(rows: list[CaseRow]) -> None:
    """All saved cases; a row opens one."""
    parts.heading("Saved cases")
    if not rows:
        st.info("No case is saved yet. Ask one above, and save it below its answers.", icon=":material/bookmark:")
        return
    frame = pd.DataFrame([_row(row) for row in rows])
    shown = frame.assign(
        name=[one_line(row.name, 80) for row in rows],
        question=[one_line(row.question, _CELL) for row in rows],
        made_at=pd.to_datetime(frame["made_at"], unit="s", utc=True),
    )
    columns: dict[str, Any] = {
        "name": st.column_config.TextColumn("name", width=180),
        "question": st.column_config.TextColumn("question", width=260),
        "user": st.column_config.TextColumn("user", width=130),
        "columns": st.column_config.NumberColumn("columns", width=70),
        "scores": st.column_config.TextColumn("scores", width=130, help="0 to 1, in the order of the columns"),
        "left_one_out": st.column_config.NumberColumn("leave-one-outs", width=95),
        "maker": st.column_config.TextColumn("by", width=110),
        "made_at": st.column_config.DatetimeColumn("at (UTC)", format="YYYY-MM-DD HH:mm", width=130),
        "problem": st.column_config.TextColumn("problem", width=200),
    }
    if not any(row.damage for row in rows):
        del columns["problem"]
    st.caption("Tick a row to open the case; its address is then the link to it.")
    parts.table(
        shown,
        columns,
        "saved-cases",
        frame,
        ["name", "question", "note"],
        key="case-list",
        on_select=_opener(rows),
        selection_mode="single-row",
        height="content" if len(rows) < 12 else 420,
    )


def _opener(rows: list[CaseRow]) -> Callable[[], None]:
    def open_selected() -> None:
        chosen = st.session_state["case-list"]["selection"]["rows"]
        if chosen and chosen[0] < len(rows):
            _open(rows[chosen[0]].id)

    return open_selected


def _open(case_id: str) -> None:
    st.query_params[CASE] = case_id


def _row(row: CaseRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "note": row.note,
        "question": row.question,
        "user": row.user,
        "instance": row.instance,
        "published": row.published,
        "columns": len(row.columns) if row.damage is None else None,
        "scores": " · ".join(theme.MISSING if score is None else f"{score:.2f}" for score in row.scores),
        "left_one_out": row.left_one_out if row.damage is None else None,
        "marks": "; ".join(row.marks),
        "maker": row.maker,
        "made_at": row.made_at,
        "problem": row.damage,
    }


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
