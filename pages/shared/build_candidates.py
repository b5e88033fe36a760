"""The Build page's candidates: found by what they are and what became of them, each with why and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis.builds import narrowed
from opbench.construction.spec import State
from opbench.figures import theme
from opbench.sharing.visible import one_line, visible
from opbench.types import OP_SUBTYPES
from pages.shared import builds, link, parts

PAGE_SIZE = 10
_CELL = 300
_ALL_USERS, _ALL_REASONS, _ALL_GENERATORS = "all users", "anyone", "all generators"
STATES: dict[State, tuple[Any, str, str]] = {
    "candidate": ("gray", "hourglass_empty", "not filtered yet"),
    "kept": ("blue", "filter_alt", "kept"),
    "dropped": ("orange", "filter_alt_off", "dropped"),
    "accepted": ("green", "check_circle", "accepted"),
    "rejected": ("red", "cancel", "rejected"),
}
#: What decided, as people read it.
DECIDERS = {
    "format": "format",
    "length": "length",
    "template": "repeated beginning",
    "duplicate": "near-duplicate",
    "true-memory": "true after all",
    "personal": "needs personalisation",
    "review": "review",
}


def decider(name: str | None) -> str:
    """What decided of a candidate, as people read it; empty when nothing has."""
    return "" if not name else DECIDERS.get(name, name)


def browse(build_id: str) -> None:
    """All candidates, by user, subtype, state, what decided and text."""
    parts.heading("The questions, the dropped ones too")
    whole = builds.candidates(build_id)
    if whole.empty:
        st.info("No question is written yet: profiles and topics come first.", icon=":material/hourglass_empty:")
        return
    found, wanted = _filters(whole)
    st.markdown(f"**{len(found):,} of {len(whole):,} questions**")
    if found.empty:
        st.info("No question fits. Take a filter away, or search for other words.", icon=":material/search_off:")
        return
    _page_of(found, wanted)


def _filters(whole: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Any, ...]]:
    states: dict[str, str] = {name: label for name, (_, _, label) in STATES.items() if name in set(whole["state"])}
    subtypes = {name: theme.name(name) for name in OP_SUBTYPES if name in set(whole["subtype"])}
    # In the filters' order, as in the funnel.
    deciders = {
        name: decider(name) for name in [*DECIDERS, *whole["decided_by"].dropna()] if name in set(whole["decided_by"])
    }
    writers = list(dict.fromkeys(whole["generator"]))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        state = link.some_of("State", list(states), "state", names=states, placeholder="all", width=260)
        subtype = link.some_of("Subtype", list(subtypes), "subtype", names=subtypes, placeholder="all", width=260)
        user = link.one_of("User", [_ALL_USERS, *dict.fromkeys(whole["user"])], "user", width=220)
        by = link.one_of(
            "Decided by",
            [_ALL_REASONS, *deciders],
            "by",
            names={_ALL_REASONS: _ALL_REASONS, **deciders},
            width=200,
            help="The filter that dropped a question, or the review.",
        )
        generator = _ALL_GENERATORS
        if len(writers) > 1:
            generator = link.one_of("Generator", [_ALL_GENERATORS, *writers], "generator", width=200)
        says = link.text("Words in the question or the reason", "says", width=280)
    found = narrowed(
        whole,
        states=state,
        subtypes=subtype,
        user=None if user == _ALL_USERS else user,
        decided_by=None if by == _ALL_REASONS else by,
        generator=None if generator == _ALL_GENERATORS else generator,
        says=says,
    )
    return found, (tuple(state), tuple(subtype), user, by, generator, says)


def _page_of(frame: pd.DataFrame, wanted: Sequence[Any]) -> None:
    pages = -(-len(frame) // PAGE_SIZE)
    # Another filter begins at its first page; a link's own page is kept.
    if st.session_state.get("browsed-candidates", wanted) != wanted:
        st.session_state["part"] = 1
    st.session_state["browsed-candidates"] = wanted
    for given in st.query_params.get_all("part"):
        if not given.isdecimal() or not 1 <= int(given[:9]) <= pages:
            link.say(f"The link asks for part {given[:20]} of {pages:,}; it was left out.")
    listed, below = st.container(), st.container()
    with below:
        page = st.pagination(pages, key="part", bind="query-params") if pages > 1 else 1
    start = PAGE_SIZE * (min(page, pages) - 1)
    shown = frame.iloc[start : start + PAGE_SIZE]
    with listed:
        for row in shown.to_dict("records"):
            _one(row)
        with st.expander("As a table", icon=":material/table:"):
            _table(shown, frame)


def _one(row: dict[Any, Any]) -> None:
    color, icon, label = STATES[row["state"]]
    with st.container(border=True):
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.badge(label, color=color, icon=f":material/{icon}:")
            st.badge(parts.plain(theme.name(row["subtype"])), color="violet")
            if row["kind"]:
                st.badge(parts.plain(row["kind"]), color="gray")
            if row["decided_by"]:
                st.badge(f"by {parts.plain(decider(row['decided_by']))}", color="gray")
            if row["explanation"] or row["details"]:
                with st.popover("More", type="tertiary", help="The explanation, and what the decision rests on"):
                    if row["explanation"]:
                        st.text(visible(row["explanation"]))
                    if row["details"]:
                        st.json(row["details"], expanded=2)
        st.text(visible(row["question"]))
        if row["reason"]:
            st.caption(f"Why: {parts.plain(row['reason'])}")
        if row["falsifies"]:
            st.caption(f"The memory that it falsifies: {parts.plain(row['falsifies'])}")
        about = [
            f"user {row['user']}",
            *([f"topic {row['topic']}"] if row["topic"] else []),
            *([f"subtopic {row['subtopic']}"] if row["subtopic"] else []),
            f"written by {row['generator']}",
            *([f"turns {', '.join(row['evidence'])}"] if row["evidence"] else []),
        ]
        st.caption(parts.plain(" · ".join(about)))


def _table(shown: pd.DataFrame, whole: pd.DataFrame) -> None:
    text = st.column_config.TextColumn
    columns: dict[str, Any] = {
        "user": text("user", width=130),
        "subtype": text("subtype", width=110),
        "state": text("state", width=80),
        "decided_by": text("decided by", width=110),
        "question": text("question", width=320),
        "reason": text("why", width=280),
        "falsifies": text("falsifies", width=220),
        "generator": text("generator", width=130),
        "id": text("id", width=130),
    }
    told = shown.assign(
        subtype=[theme.name(name) for name in shown["subtype"]],
        decided_by=[decider(name) for name in shown["decided_by"]],
        **{name: [one_line(each or "", _CELL) for each in shown[name]] for name in ("question", "reason", "falsifies")},
    )
    flat = whole.assign(evidence=[" ".join(each) for each in whole["evidence"]]).drop(columns=["details"])
    parts.table(told, columns, "candidates", flat, ["question", "reason", "falsifies"])
    parts.remark(f"The table shows this page; the download has all {len(whole):,} that fit.")
