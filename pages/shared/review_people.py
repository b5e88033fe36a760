"""Who reviews: how far each is, and for editors invitations, new links, roles and leaving."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from opbench.figures import theme
from opbench.review import deciding, links
from opbench.store.reviews import LONGEST_NAME, Reviewer, ReviewRow, find_reviewer, reviewers_of
from pages.shared import access, parts, results, review_link

_INVITED, _ROUND = "review-invited", "review-invitations"
ROLES = {"reviewer": "reviewer", "senior": "adjudicator"}


def table(review: ReviewRow) -> None:
    """A row a person."""
    frame = deciding.by_reviewer(results.opened().store, review.id)
    if frame.empty:
        st.info("Nobody is invited yet.", icon=":material/group:")
        return
    shown = frame.assign(
        reviewer=[parts.as_label(each) for each in frame["reviewer"]],
        role=[ROLES[each] for each in frame["role"]],
        last=[_when(each) for each in frame["last_at"]],
    )
    columns: dict[str, Any] = {
        "reviewer": "name",
        "role": "role",
        "state": "state",
        "access": "comes by",
        "answers": st.column_config.NumberColumn("answers", help="That count, without spot checks"),
        "checks": st.column_config.NumberColumn("spot checks"),
        "in_hand": st.column_config.NumberColumn("in hand", help="Given out and not answered"),
        "flagged": st.column_config.NumberColumn("flagged"),
        "last": "last answer (UTC)",
    }
    parts.table(shown, columns, "reviewers", frame)


def steer(review: ReviewRow) -> None:
    """Invite, and change who takes part: for editors."""
    _show_link()
    _invite(review)
    people = reviewers_of(results.opened().store, review.id)
    if people:
        with st.expander("Change who takes part", icon=":material/manage_accounts:"):
            _change(review, people)


def _show_link() -> None:
    given = st.session_state.get(_INVITED)
    if not given:
        return
    name, address = given
    with st.container(border=True):
        st.markdown(f"**The personal link of {parts.plain(name)}.** It is shown this once: copy it and send it.")
        parts.code(address)
        st.caption("Whoever has it reviews as them, and sees nothing else. A new link makes this one void.")
        st.button("I have it", key="review-link-taken", on_click=lambda: st.session_state.pop(_INVITED, None))


def _invite(review: ReviewRow) -> None:
    turn = st.session_state.get(_ROUND, 0)
    row = st.form(f"review-invite-{review.id}-{turn}", border=True)
    with row, st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.text_input("Name", max_chars=LONGEST_NAME, width=220, autocomplete="off")
        role = st.selectbox("Role", list(ROLES), format_func=ROLES.__getitem__, width=160)
        sign_in = st.text_input(
            "Signs in as",
            max_chars=LONGEST_NAME,
            width=260,
            autocomplete="off",
            placeholder="empty: a personal link",
            help="The e-mail address that they sign in with; “local” is you, where nobody signs in.",
        )
        pressed = st.form_submit_button("Invite", type="primary", icon=":material/person_add:")
    if not pressed:
        return
    access.demand_edit()
    invited = links.invite(
        results.opened().store,
        review.id,
        name,
        role="senior" if role == "senior" else "reviewer",
        sign_in=sign_in.strip() or None,
    )
    st.session_state[_ROUND] = turn + 1
    _tell(invited.reviewer, invited.secret)
    st.rerun()


def _change(review: ReviewRow, people: list[Reviewer]) -> None:
    row = st.form(f"review-change-{review.id}", border=False)
    with row, st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Who", [each.name for each in people], format_func=parts.as_label, width=220)
        renew = st.form_submit_button(
            "New link", icon=":material/autorenew:", help="The old one is void from then. Brings back who left."
        )
        leave = st.form_submit_button(
            "Take out", icon=":material/person_remove:", help="Their answers stay; what they had in hand goes back."
        )
        turn = st.form_submit_button("Change the role", icon=":material/swap_horiz:")
    if not (renew or leave or turn):
        return
    access.demand_edit()
    store = results.opened().store
    person = find_reviewer(store, review.id, name)
    if renew:
        _tell(person, links.renew(store, person.id))
    elif leave:
        links.leave(store, person.id)
    else:
        links.set_role(store, person.id, "reviewer" if person.role == "senior" else "senior")
    st.rerun()


def _tell(person: Reviewer, secret: str | None) -> None:
    if secret is not None:
        st.session_state[_INVITED] = (person.name, review_link.address(secret))


def _when(seconds: float) -> str:
    return theme.MISSING if pd.isna(seconds) else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
