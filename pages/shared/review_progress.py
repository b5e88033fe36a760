"""How far a review is, what it decided and why, what waits for the adjudicator; and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from opbench.errors import UsageError
from opbench.figures import theme
from opbench.review import deciding
from opbench.sharing.visible import one_line
from opbench.store.reviews import (
    LONGEST_NAME,
    ReviewRow,
    close_review,
    delete_review,
    get_review,
    rename_review,
    reopen_review,
)
from pages.shared import access, parts, results

_EVERY_S = 10


@st.fragment(run_every=_EVERY_S)
@access.watched
def counts(review_id: str) -> None:
    """The numbers, which follow the review by themselves."""
    told = deciding.progress(results.opened().store, review_id)
    with st.container(horizontal=True):
        for name, value, of in (
            ("Answers", told.answers, told.places),
            ("Accepted", told.accepted, told.items),
            ("Rejected", told.rejected, told.items),
            ("Disputed", told.disputed, told.items),
            ("Open", told.open, told.items),
        ):
            st.metric(name, f"{value:,} of {of:,}", width="content")
    stale = f", of these {told.stale:,} for too long" if told.stale else ""
    st.caption(f"In hand: {told.in_hand:,}{stale}. Answers to spot checks, which decide nothing: {told.checks:,}.")


def strata(review: ReviewRow) -> None:
    """Decisions by user and subtype."""
    frame = deciding.by_stratum(results.opened().store, review.id)
    shown = frame.assign(subtype=[theme.name(each) for each in frame["subtype"]])
    columns = {each: each for each in ("user", "subtype", "items", "open", "disputed", "accepted", "rejected")}
    parts.table(shown, columns, "review-by-subtype", frame)
    parts.remark(
        "Accepted: all reviewers found the response with memory alone over-personalised, or the adjudicator did. "
        "Rejected: all found both fine, or the adjudicator didn't. Anything else, and whatever is flagged, is disputed "
        "and waits for the adjudicator (paper, A.3.1)."
    )


def waiting(review: ReviewRow) -> None:
    """What waits for the adjudicator."""
    frame = deciding.queue(results.opened().store, review.id)
    if frame.empty:
        st.caption("Nothing waits for the adjudicator.")
        return
    shown = frame.assign(
        subtype=[theme.name(each) for each in frame["subtype"]],
        question=[one_line(each, 400) for each in frame["question"]],
    )
    columns: dict[str, Any] = {"item": "item", "subtype": "subtype", "reason": "why", "question": "question"}
    parts.table(shown, columns, "review-queue", frame, texts=("question",))


def decisions(review: ReviewRow) -> None:
    """Every item with its decision and the reason."""
    frame = deciding.items_frame(results.opened().store, review.id)
    frame = frame[frame["known"].isna()].drop(columns=["known", "ordinal"])
    shown = frame.assign(subtype=[theme.name(each) for each in frame["subtype"]])
    columns = {"item": "item", "subtype": "subtype", "answers": "answers", "decision": "decision", "reason": "why"}
    with st.expander(f"All {len(frame):,} items with their decisions", icon=":material/list:"):
        parts.table(shown, columns, "review-decisions", frame)


def steer(review: ReviewRow, gone: Callable[[str], None]) -> None:
    """Close, rename, delete: for editors. `gone` is called when there is something else to look at."""
    with st.container(horizontal=True):
        if review.closed_at is None:
            st.button(
                "Close the review",
                key="review-close",
                icon=":material/lock:",
                on_click=access.editing(_close),
                args=(review.id,),
                help="It takes no more answers; what was said and decided stays.",
            )
        else:
            st.button(
                "Open it again",
                key="review-reopen",
                icon=":material/lock_open:",
                on_click=access.editing(_reopen),
                args=(review.id,),
            )
    with st.expander("Rename", icon=":material/edit:"), st.form(f"review-rename-{review.id}", border=False):
        name = st.text_input("Name", review.name, max_chars=LONGEST_NAME)
        if st.form_submit_button("Rename"):
            access.demand_edit()
            rename_review(results.opened().store, review.id, name)
            gone(review.id)
    with st.expander("Delete", icon=":material/delete:"), st.form(f"review-delete-{review.id}", border=False):
        st.markdown("Its items, links and answers go. What it decided of a build's candidates stays with them.")
        typed = st.text_input(f"To delete it, type its id: {review.id}", autocomplete="off")
        if st.form_submit_button("Delete this review", icon=":material/delete_forever:"):
            access.demand_edit()
            if typed.strip() != review.id:
                raise UsageError(f"nothing was deleted: what you typed isn't {review.id}.")
            delete_review(results.opened().store, review.id)
            gone("")


def facts(review: ReviewRow) -> None:
    """What the review is of, in a line."""
    build = f", build {review.build_id}" if review.build_id else ""
    st.caption(
        f"{parts.plain(' · '.join(review.spec.base))} against {parts.plain(' · '.join(review.spec.memory))}; run "
        f"{parts.plain(review.run_id)}{build}; {review.items:,} items, {review.checks:,} spot checks, "
        f"{review.spec.per_item} reviewers an item" + ("; closed." if review.closed_at is not None else ".")
    )


def _close(review_id: str) -> None:
    close_review(results.opened().store, review_id)


def _reopen(review_id: str) -> None:
    reopen_review(results.opened().store, review_id)


def again(review_id: str) -> ReviewRow:
    """The review as it is now."""
    return get_review(results.opened().store, review_id)
