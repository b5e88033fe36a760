"""Who comes for a review alone: with a personal link, or signed in and invited without any role here.

They see the review page and nothing else. Whoever it is is asked of the store at every run and every press: a link that
was taken back opens nothing, in no tab.
"""

from __future__ import annotations

import streamlit as st

from opbench.review import links
from opbench.store.reviews import Reviewer, get_review
from pages.shared import access, link, parts, results, review_link, review_work

PAGE = "review"
_REFUSED = "This link to a review isn't valid any more, or isn't whole. Ask whoever sent it for a new one."
_WHICH = "guest-review"


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


def _by_link() -> bool:
    person = linked()
    if person is None:
        review_link.drop()
        st.error(_REFUSED, icon=":material/link_off:")
        return False
    review_work.head(person)
    st.button("Leave the review", key="leave-review", icon=":material/logout:", on_click=review_link.drop)
    review_work.panel(linked)
    return True


def linked() -> Reviewer | None:
    """Whose personal link this tab has, as of now."""
    secret = review_link.secret()
    return None if secret is None else links.by_secret(results.opened().store, secret)


def _by_sign_in() -> bool:
    if access.may_read() or not access.signed_in_name():
        return False
    ...
