"""Who comes for a review alone: with a personal link, or signed in and invited without any role here.

They see the review page and nothing else. Whoever it is is asked of the store at every run and every press: a link that
was taken back opens nothing, in no tab.
"""

from __future__ import annotations

import streamlit as st

from opbench.review import links
from opbench.review.assigning import release
from opbench.store.reviews import Reviewer, get_review
from pages.shared import access, collecting, link, parts, results, review_link, review_work

PAGE = "review"
_REFUSED = "This personal link isn't valid any more, or isn't whole. Ask whoever sent it for a new one."


def guest_at(path: str) -> bool:
    """Whether the visitor of this page is such a guest; then all that there is to see is drawn.

    Raises:
        StoreError: the store can't be opened.
    """
    if path != PAGE:
        if review_link.secret():
            # The tab keeps it: back on the review page the link is found again.
            review_link.set_aside()
            st.rerun()
        return False
    review_link.read()
    if review_link.secret():
        return _by_link()
    return _by_sign_in()


def linked() -> Reviewer | None:
    """Whose personal link this tab has, as of now."""
    secret = review_link.secret()
    return None if secret is None else links.by_secret(results.opened().store, secret)


def _by_link() -> bool:
    person = linked()
    if person is None:
        review_link.drop()
        if access.may_read():
            link.say(_REFUSED)
            st.rerun()
        st.error(_REFUSED, icon=":material/link_off:")
        return False
    _draw(person, linked)
    st.button(
        "Leave",
        key="review-leave",
        icon=":material/logout:",
        on_click=_leave,
        help="What you have in hand goes back to the others; your answers stay. Your link brings you back.",
    )
    return True


def _leave() -> None:
    person = linked()
    if person is not None:
        release(results.opened().store, person.id)
    review_link.drop()


def _by_sign_in() -> bool:
    visitor = access.who()
    if visitor.role != "nobody" or not (visitor.signed_in and visitor.name):
        return False
    invited = {each.review_id: each for each in links.by_sign_in(results.opened().store, visitor.name)}
    if not invited:
        return False
    names = {key: get_review(results.opened().store, key).name for key in invited}
    chosen = next(iter(invited))
    if len(invited) > 1:
        chosen = st.selectbox("Review", list(invited), format_func=names.__getitem__, key="review-guest")
    _draw(invited[chosen], lambda: signed_in(chosen))
    st.caption(parts.plain(visitor.name))
    access.sign_out_button()
    return True


def signed_in(review_id: str) -> Reviewer | None:
    """Who has signed in, as a reviewer of this review, as of now."""
    visitor = access.who()
    if not visitor.name:
        return None
    people = links.by_sign_in(results.opened().store, visitor.name)
    return next((each for each in people if each.review_id == review_id), None)


def _draw(person: Reviewer, who: review_work.Who) -> None:
    collecting.begin(PAGE)
    review = get_review(results.opened().store, person.review_id)
    review_work.head(review, person)
    review_work.panel(review, who)
