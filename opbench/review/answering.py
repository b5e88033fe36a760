"""Saying something of an item, and taking it back. Entries are only added, so nothing that was said is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, func, select, update

from opbench.errors import UsageError
from opbench.review.assigning import hold
from opbench.review.choosing import first_of
from opbench.review.deciding import decide_answers, settle
from opbench.review.links import taking_part
from opbench.review.spec import Decision, Said
from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.store.review_answers import standing_answers
from opbench.store.reviews import SENIOR_PLACE, Reviewer, storable

_LONGEST_PRESS = 64


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of an answer. `repeated` when the same press had arrived before: it is one answer."""

    repeated: bool
    decision: Decision


def answer(store: Store, reviewer_id: str, item: str, press: str, said: Said) -> Answered:
    """Keep somebody's answer to an item that they were given; `press` is the task's.

    An answer that comes after the item went back to the pool takes its place again; where others have answered
    meanwhile, it counts beside theirs. A second answer of the same person replaces the first.

    Raises:
        UsageError: they left, the review is closed or gone, they were never given the item, or another senior
            adjudicates it.
    """
    if said.verdict is None:
        raise UsageError("say which response is over-personalised: A, B, neither or both.")
    if not press or len(press) > _LONGEST_PRESS:
        raise UsageError("the answer lacks the mark of its showing. Reload the page.")
    with store.begin() as connection:
        person, spec = taking_part(connection, reviewer_id)
        if _arrived(connection, person, item, press):
            # Nothing is new: a candidate that another review has decided since keeps that decision.
            return Answered(
                True, decide_answers(standing_answers(connection, person.review_id, item), spec.per_item)[0]
            )
        now = store_time(connection)
        _take_place(connection, person, item, now)
        write(connection, person, item, said, press, first_of(spec.seed, item, person.id), now)
        return Answered(False, settle(connection, person.review_id, item, spec.per_item))


def undo(store: Store, reviewer_id: str, item: str | None = None) -> str | None:
    """Take back somebody's newest answer; the item is in their hand again. Returns it, or None where there is nothing
    to take back. With `item` only an answer to that one: a key that is pressed twice takes one answer back.

    Raises:
        UsageError: they left, the review is closed or gone, or the senior has decided the item.
    """
    a, g = s.review_answers.c, s.review_assignments.c
    with store.begin() as connection:
        person, spec = taking_part(connection, reviewer_id)
        mine = select(g.item).where(g.reviewer_id == person.id, g.released_at.is_(None), g.answered_at.is_not(None))
        if item is not None:
            mine = mine.where(g.item == item)
        found = connection.scalar(
            select(a.item)
            .where(a.reviewer_id == person.id, a.verdict.is_not(None), a.item.in_(mine))
            .order_by(a.id.desc())
            .limit(1)
        )
        if found is None:
            return None
        _not_adjudicated(connection, person, found)
        now = store_time(connection)
        taken_back = Said(verdict=None)
        write(connection, person, found, taken_back, uuid4().hex, first_of(spec.seed, found, person.id), now)
        it = (g.review_id == person.review_id, g.item == found, g.reviewer_id == person.id)
        connection.execute(update(s.review_assignments).where(*it).values(answered_at=None, assigned_at=now))
        settle(connection, person.review_id, found, spec.per_item)
        return str(found)


def write(
    connection: Connection, person: Reviewer, item: str, said: Said, press: str, first: str, made_at: float
) -> None:
    """Add an entry, and mark the item as answered where the entry says something. The review is locked."""
    g = s.review_assignments.c
    row: dict[str, Any] = {
        "review_id": person.review_id,
        "item": item,
        "reviewer_id": person.id,
        "verdict": said.verdict,
        "base_score": said.base_score,
        "memory_score": said.memory_score,
        "comment": storable(said.comment),
        "flagged": said.flagged,
        "first": first,
        "seconds": said.seconds,
        "press": press,
        # To the microsecond, as files tell it.
        "made_at": round(made_at, 6),
    }
    connection.execute(s.review_answers.insert().values(**row))
    it = (g.review_id == person.review_id, g.item == item, g.reviewer_id == person.id)
    if said.verdict is not None:
        connection.execute(update(s.review_assignments).where(*it).values(answered_at=made_at))


def _arrived(connection: Connection, person: Reviewer, item: str, press: str) -> bool:
    a = s.review_answers.c
    row = connection.execute(select(a.reviewer_id, a.item).where(a.press == press)).first()
    if row is None:
        return False
    if (row.reviewer_id, row.item) != (person.id, item):
        raise UsageError("the mark of this showing belongs to another answer. Reload the page.")
    return True


def _take_place(connection: Connection, person: Reviewer, item: str, now: float) -> None:
    """Make sure that the item is the person's to answer; one that went back is theirs again."""
    g = s.review_assignments.c
    of_item = (g.review_id == person.review_id, g.item == item)
    mine = connection.execute(select(g.place, g.released_at).where(*of_item, g.reviewer_id == person.id)).first()
    if mine is None:
        raise UsageError(f"item '{item[:80]}' wasn't given to you. Reload the page.")
    if mine.released_at is None:
        if (mine.place == SENIOR_PLACE) != (person.role == "senior"):
            raise UsageError("your role in this review has changed. Reload the page.")
        return
    if person.role == "senior":
        others = (*of_item, g.place == SENIOR_PLACE, g.released_at.is_(None))
        if mine.place != SENIOR_PLACE or connection.scalar(select(func.count()).where(*others)):
            raise UsageError("another adjudicator has this item by now. Reload the page for the next one.")
    elif mine.place == SENIOR_PLACE:
        raise UsageError("your role in this review has changed. Reload the page.")
    hold(connection, person, item, now)


def _not_adjudicated(connection: Connection, person: Reviewer, item: str) -> None:
    answers = standing_answers(connection, person.review_id, item)
    if any(answer.senior and answer.reviewer_id != person.id for answer in answers):
        raise UsageError("the adjudicator has decided this item by now: your answer to it stays.")
