"""People's review: two responses side by side, by keyboard; and what the one who runs it sees."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from opbench.errors import OpbenchError
from opbench.store.reviews import Reviewer, ReviewRow, review_list
from pages.shared import (
    access,
    collecting,
    link,
    parts,
    results,
    review_agreement,
    review_door,
    review_files,
    review_making,
    review_people,
    review_progress,
    review_work,
)

_SAID, _CHOSEN = "review-said", "review-next"
SECTIONS = {
    "items": "My items",
    "progress": "Progress",
    "agreement": "Agreement",
    "people": "People",
    "files": "Export and import",
    "new": "New review",
}


def tell(section: Callable[[], None]) -> None:
    """Draw a section; what goes wrong in it is said there, and the page goes on."""
    try:
        section()
    except OpbenchError as error:
        st.error(parts.plain(str(error)), icon=":material/error:")


def look_at(review_id: str, sentence: str = "") -> None:
    """Draw the page anew with another review; none: with the newest."""
    st.session_state[_CHOSEN] = review_id
    if sentence:
        st.session_state[_SAID] = sentence
    st.rerun()


def sections(review: ReviewRow, person: Reviewer | None) -> list[str]:
    """Which parts this visitor sees. Whoever reviews sees no other's answer while the review is open."""
    if person is not None and review.closed_at is None and not access.may_edit():
        return ["items", "progress"]
    mine = ["items"] if person is not None else []
    return [*mine, "progress", "agreement", "people", "files", *(["new"] if access.may_edit() else [])]


def show_progress(review: ReviewRow, person: Reviewer | None) -> None:
    review_progress.counts(review.id)
    if person is not None and not access.may_edit():
        return
    review_progress.strata(review)
    parts.heading("What waits for the adjudicator")
    review_progress.waiting(review)
    review_progress.decisions(review)
    if access.may_edit():
        review_progress.steer(review, look_at)


def show_people(review: ReviewRow) -> None:
    review_people.table(review)
    if access.may_edit():
        review_people.steer(review)


def make() -> None:
    tell(lambda: review_making.form(look_at))
    tell(lambda: review_files.take_review(look_at))


def choose(reviews: list[ReviewRow]) -> ReviewRow:
    """The review that is looked at, in the link."""
    by_name = {f"{review.name} · {review.id[:6]}": review for review in reviews}
    names = list(by_name)
    if (wanted := st.session_state.pop(_CHOSEN, None)) is not None:
        fitting = [name for name, review in by_name.items() if review.id == wanted]
        st.session_state["review"] = fitting[0] if fitting else names[0]
        if fitting and "section" in st.session_state:
            del st.session_state["section"]
    return by_name[link.one_of("Review", names, "review", width=420)]


def show() -> None:
    if sentence := st.session_state.pop(_SAID, ""):
        st.success(parts.plain(sentence), icon=":material/check:")
    reviews = review_list(results.opened().store)
    if not reviews:
        st.info(
            "No review is here yet. A review takes a run's responses, BASE's and those of a memory system, and people "
            "say which of the two is over-personalised.",
            icon=":material/info:",
        )
        if access.may_edit():
            make()
        return
    review = choose(reviews)
    collecting.sheet().marks.append(f"review {review.id}")
    person = review_door.signed_in(review.id)
    offered = sections(review, person)
    section = link.one_of("Show", offered, "section", kind="segmented", names=SECTIONS, label_visibility="collapsed")
    if section != "new":
        review_progress.facts(review)
    draw = {
        "items": lambda: review_work.panel(review, partial(review_door.signed_in, review.id)),
        "progress": lambda: show_progress(review, person),
        "agreement": lambda: review_agreement.draw(review),
        "people": lambda: show_people(review),
        "files": lambda: review_files.draw(review, look_at),
        "new": make,
    }
    if section == "items" and access.may_edit():
        st.caption("You run this review as well: look at the other parts when you are through with your items.")
    tell(draw[section])


parts.title("Which of the two responses is over-personalised?")
tell(show)
