"""Two columns of a case side by side: the words that differ, and what the change did to score, time and tokens."""

from __future__ import annotations

import streamlit as st

from opbench.cases.telling import differences, parent_of
from pages.shared import case_text, parts
from pages.shared.case_view import CaseView


def draw(view: CaseView) -> None:
    """The choice of two columns that answered, and their difference; nothing where fewer than two did."""
    answered = [place for place, outcome in enumerate(view.outcomes) if outcome.state == "done" and outcome.response]
    if len(answered) < 2:
        return
    parts.heading("What differs")
    first, second = _first_choice(view, answered)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        # Another choice to begin with once a further column has answered: the key has their number.
        before = _choose("From", view, answered, first, f"case-before-{len(answered)}")
        after = _choose("To", view, answered, second, f"case-after-{len(answered)}")
    left, right = st.columns(2, gap="medium")
    one, other = view.outcomes[before], view.outcomes[after]
    case_text.beside(left, right, (view.names[before], one.response), (view.names[after], other.response))
    if one.response == other.response:
        st.caption("The two responses are the same text.")
    frame = differences(one, other)
    columns = {
        "what": st.column_config.TextColumn("what"),
        "before": st.column_config.NumberColumn("from", format="%.2f"),
        "after": st.column_config.NumberColumn("to", format="%.2f"),
        "change": st.column_config.NumberColumn("change", format="%+.2f"),
    }
    parts.table(frame, columns, "case-difference", frame)
    parts.remark("n = 1 answer each. A reused call keeps the time that it took when it was made.")


def _first_choice(view: CaseView, answered: list[int]) -> tuple[int, int]:
    """The newest changed column beside the one that it came from, else the first two."""
    for place in reversed(answered):
        parent = parent_of(view.spec, place)
        if parent in answered and parent is not None:
            return parent, place
    return answered[0], answered[1]


def _choose(label: str, view: CaseView, answered: list[int], first: int, key: str) -> int:
    return int(
        st.selectbox(
            label,
            answered,
            answered.index(first),
            format_func=lambda place: parts.as_label(view.names[place]),
            key=key,
            width=330,
        )
    )
