"""Reviewing: the next item, what is said of it, and back. Every press is in the store before the next item comes.

`who` is asked at every draw and every press: whoever has left, or lost their link, gets and says nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import streamlit as st
from pydantic import ValidationError

from opbench.errors import OpbenchError, UsageError
from opbench.review.answering import answer, undo
from opbench.review.assigning import CHOICES, Choice, Outlook, Task, next_task, outlook
from opbench.store.reviews import Reviewer, ReviewRow
from pages.shared import parts, results, review_panel
from pages.shared.review_panel import Heard

Who = Callable[[], Reviewer | None]
_TASK, _HEARD = "review-task", "review-heard"
_GONE = "You take no part in this review any more. Ask whoever runs it."


@st.fragment
def panel(review: ReviewRow, who: Who) -> None:
    """The three panels with the next item; a fragment, so that the next item is there at once."""
    person = who()
    if person is None:
        st.rerun()
    state = st.session_state
    store = results.opened().store
    try:
        task = next_task(store, person.id)
    except UsageError:
        task = None
    state[_TASK] = task
    ahead = outlook(store, person.id)
    left = ahead.in_hand + ahead.free
    review_panel.draw(
        person.id,
        task,
        # About: what others take meanwhile isn't left, and spot checks come on top.
        place=f"{ahead.answered:,} answered" + (f", about {left:,} left" if left else ""),
        share=ahead.answered / max(ahead.answered + left, 1),
        undo=ahead.answered > 0 and not ahead.closed,
        waiting=_waiting(ahead, person.role == "senior"),
        guidance=review.spec.guidance,
        heard=state.get(_HEARD),
        on_said=lambda: _take(who),
    )
    if task is None and not ahead.closed:
        st.button("Look again", key="review-again", icon=":material/refresh:")


def _take(who: Who) -> None:
    """What was pressed, as a component's callback."""
    said = review_panel.said()
    press = str(said.get("press", ""))
    try:
        person = who()
        if person is None:
            raise UsageError(_GONE)
        st.session_state[_HEARD] = Heard(press, True, _do(person, said, press))
    except ValidationError as error:
        fault = error.errors()[0]
        st.session_state[_HEARD] = Heard(press, False, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")
    except OpbenchError as error:
        st.session_state[_HEARD] = Heard(press, False, f"Not saved: {error}")


def _do(person: Reviewer, said: Mapping[str, Any], press: str) -> str:
    store = results.opened().store
    if said.get("deed") == "undo":
        return "Nothing to take back" if undo(store, person.id) is None else "Taken back"
    task: Task | None = st.session_state.get(_TASK)
    if task is None or task.item != said.get("item"):
        raise UsageError("this item isn't the one shown any more. Reload the page.")
    if said.get("verdict") not in CHOICES:
        raise UsageError("choose A, B, neither or both.")
    spoken = task.saying(
        cast(Choice, said["verdict"]),
        a=said.get("a"),
        b=said.get("b"),
        comment=said.get("comment") or "",
        flagged=bool(said.get("flagged")),
        seconds=said.get("seconds"),
    )
    answer(store, person.id, task.item, press, spoken)
    return "Saved"


def _waiting(ahead: Outlook, senior: bool) -> str:
    if ahead.closed:
        return "This review is closed: it takes no more answers. Thank you."
    if ahead.elsewhere and senior:
        return f"Nothing is disputed now; {ahead.elsewhere:,} items are still being reviewed. Look again later."
    if ahead.elsewhere:
        return f"Nothing is free for you now; {ahead.elsewhere:,} items are in others' hands and may come back."
    return f"All done: you answered {ahead.answered:,}. Thank you."


def head(review: ReviewRow, person: Reviewer) -> None:
    """The page's head for somebody who reviews."""
    parts.title("Which of the two responses is over-personalised?")
    role = "adjudicator" if person.role == "senior" else "reviewer"
    st.caption(f"{parts.plain(review.name)} · {parts.plain(person.name)}, {role}")
