"""Giving out items: what somebody has in hand, and else the next that is free for them.

An item is in hand until it is answered or given back: by its holder, by their leaving, or by itself when it was held
for longer than the review's `hours` and somebody asks. The senior gets what is disputed, one at a time, and nothing
that they were given as a reviewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args
from uuid import uuid4

from sqlalchemy import Connection, and_, func, or_, select, update

from opbench.review.choosing import Place, choose, first_of
from opbench.review.deciding import decide_answers
from opbench.review.links import release_in, taking_part
from opbench.review.spec import Content, ReviewSpec, Said, Side, Verdict
from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.store.review_answers import Standing, by_item, standing_answers
from opbench.store.reviews import SENIOR_PLACE, Reviewer, content_in, get_review, lock, reviewer_in

#: Which response is over-personalised, as the panel asks it.
Choice = Literal["a", "b", "neither", "both"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


@dataclass(frozen=True, slots=True)
class Note:
    """What a reviewer wrote, for the senior: without name or verdict. `swapped` when the writer saw A and B the other
    way round."""

    comment: str
    flagged: bool
    swapped: bool


@dataclass(frozen=True, slots=True)
class Task:
    """An item in somebody's hand, as they see it. `press` goes back with the answer."""

    item: str
    user: str
    subtype: str
    press: str
    first: Side
    """Which response is A: not for showing."""
    content: Content
    senior: bool = False
    notes: tuple[Note, ...] = ()
    said: Said | None = None
    """What they said before, when they took it back."""

    @property
    def a(self) -> str:
        return self.content.base if self.first == "base" else self.content.memory

    @property
    def b(self) -> str:
        return self.content.memory if self.first == "base" else self.content.base

    def verdict(self, choice: Choice) -> Verdict:
        """The verdict that a choice between A and B means."""
        if choice in ("neither", "both"):
            return cast(Verdict, choice)
        other: Side = "memory" if self.first == "base" else "base"
        return self.first if choice == "a" else other

    def choice(self, verdict: Verdict) -> Choice:
        """The choice that a verdict was."""
        return next(choice for choice in CHOICES if self.verdict(choice) == verdict)

    def saying(
        self,
        choice: Choice,
        *,
        a: float | None = None,
        b: float | None = None,
        comment: str = "",
        flagged: bool = False,
        seconds: float | None = None,
    ) -> Said:
        """An answer in the panel's words; `a` and `b` are the responses' scores, 0 to 1."""
        base, memory = (a, b) if self.first == "base" else (b, a)
        return Said(
            verdict=self.verdict(choice),
            base_score=base,
            memory_score=memory,
            comment=comment,
            flagged=flagged,
            seconds=seconds,
        )


@dataclass(frozen=True, slots=True)
class Outlook:
    """How much there is for somebody."""

    answered: int
    in_hand: int
    free: int
    """Items that could be theirs and aren't yet; for the senior: disputed ones."""
    elsewhere: int
    """Items that may come to them later: they are in others' hands, or for the senior not disputed yet."""
    closed: bool
    left: bool


def next_task(store: Store, reviewer_id: str) -> Task | None:
    """What they have in hand, the newest first, or else the next item; None when there is nothing now (`outlook`).

    Raises:
        UsageError: they left, or the review is closed or gone.
    """
    with store.begin() as connection:
        held = _in_hand(connection, reviewer_in(connection, reviewer_id))
        if held is not None:
            return held
    with store.begin() as connection:
        person, spec = taking_part(connection, reviewer_id)
        now = store_time(connection)
        _release_stale(connection, person, spec, now)
        item = _disputed(connection, person, spec, now) if person.role == "senior" else _free(connection, person, spec)
        if not item:
            return None
        hold(connection, person, item, now)
        return _task(connection, person, spec, item)


def outlook(store: Store, reviewer_id: str) -> Outlook:
    """How much somebody answered, and how much is left for them.

    Raises:
        UsageError: nobody of that id.
    """
    with store.begin() as connection:
        person = reviewer_in(connection, reviewer_id)
    review = get_review(store, person.review_id)
    g = s.review_assignments.c
    with store.begin() as connection:
        mine = (g.reviewer_id == reviewer_id, g.released_at.is_(None))
        answered, in_hand = connection.execute(
            select(func.count().filter(g.answered_at.is_not(None)), func.count().filter(g.answered_at.is_(None))).where(
                *mine
            )
        ).one()
        if person.role == "senior":
            free, elsewhere = _left_for_senior(connection, person, review.spec)
        else:
            places = [place for place in _places(connection, person) if not place.check and not place.mine]
            free = sum(place.taken < review.spec.per_item for place in places)
            held = _held_by_others(connection, person)
            elsewhere = sum(place.taken >= review.spec.per_item and place.item in held for place in places)
    return Outlook(answered, in_hand, free, elsewhere, review.closed_at is not None, person.left_at is not None)


def release(store: Store, reviewer_id: str) -> int:
    """Give back what somebody has in hand, without an answer; the number of items. They may come back to them.

    Raises:
        UsageError: nobody of that id.
    """
    with store.begin() as connection:
        lock(connection, reviewer_in(connection, reviewer_id).review_id)
        return release_in(connection, reviewer_id, store_time(connection))


def hold(connection: Connection, person: Reviewer, item: str, now: float) -> None:
    """Put an item into somebody's hand, at the first place that is free; late answers get one beyond those that are
    wanted. The review is locked."""
    g = s.review_assignments.c
    of_item = (g.review_id == person.review_id, g.item == item)
    place = SENIOR_PLACE
    if person.role != "senior":
        others = (*of_item, g.released_at.is_(None), g.reviewer_id != person.id)
        taken = set(connection.scalars(select(g.place).where(*others)))
        place = next(number for number in range(len(taken) + 1) if number not in taken)
    values = {"place": place, "assigned_at": now, "released_at": None, "answered_at": None}
    it = (*of_item, g.reviewer_id == person.id)
    if not connection.execute(update(s.review_assignments).where(*it).values(**values)).rowcount:
        row = {"review_id": person.review_id, "item": item, "reviewer_id": person.id, **values}
        connection.execute(s.review_assignments.insert().values(**row))


def _in_hand(connection: Connection, person: Reviewer) -> Task | None:
    """What they hold, where nothing is to be changed for it; None where giving out has to look."""
    if person.left_at is not None:
        return None
    g, r = s.review_assignments.c, s.reviews.c
    review = connection.execute(select(r.spec, r.closed_at).where(r.id == person.review_id)).first()
    if review is None or review.closed_at is not None:
        return None
    spec = ReviewSpec.model_validate(review.spec)
    old = store_time(connection) - spec.hours * 3600
    item = connection.scalar(
        select(g.item)
        .where(g.reviewer_id == person.id, g.released_at.is_(None), g.answered_at.is_(None), g.assigned_at >= old)
        .order_by(g.assigned_at.desc(), g.item)
        .limit(1)
    )
    if item is None or (person.role == "senior" and not _is_disputed(connection, person, spec, item)):
        return None
    return _task(connection, person, spec, item)


def _is_disputed(connection: Connection, person: Reviewer, spec: ReviewSpec, item: str) -> bool:
    answers = standing_answers(connection, person.review_id, item)
    return decide_answers(answers, spec.per_item)[0] == "disputed"


def _release_stale(connection: Connection, person: Reviewer, spec: ReviewSpec, now: float) -> None:
    g = s.review_assignments.c
    stale = (g.released_at.is_(None), g.answered_at.is_(None), g.assigned_at < now - spec.hours * 3600)
    connection.execute(
        update(s.review_assignments).where(g.review_id == person.review_id, *stale).values(released_at=now)
    )


def _free(connection: Connection, person: Reviewer, spec: ReviewSpec) -> str:
    held = _held(connection, person)
    if held:
        return held[0]
    return choose(_places(connection, person), spec.per_item, spec.check_every, spec.seed, person.id)


def _disputed(connection: Connection, person: Reviewer, spec: ReviewSpec, now: float) -> str:
    """The first disputed item that nobody adjudicates; what they hold that isn't disputed any more goes back."""
    waiting = _waiting(connection, person, spec)
    held = _held(connection, person)
    still = [item for item in held if item in waiting]
    if still:
        return still[0]
    release_in(connection, person.id, now)
    return next(iter(sorted(waiting, key=waiting.__getitem__)), "")


def _held(connection: Connection, person: Reviewer) -> Sequence[str]:
    g = s.review_assignments.c
    mine = (g.reviewer_id == person.id, g.released_at.is_(None), g.answered_at.is_(None))
    return connection.scalars(select(g.item).where(*mine).order_by(g.assigned_at.desc(), g.item)).all()


def _waiting(connection: Connection, person: Reviewer, spec: ReviewSpec) -> dict[str, int]:
    """Disputed items with their ordinals that this senior may adjudicate: not reviewed by them, in no other's hand."""
    i, g = s.review_items.c, s.review_assignments.c
    said = by_item(standing_answers(connection, person.review_id))
    disputed = {item for item, answers in said.items() if decide_answers(answers, spec.per_item)[0] == "disputed"}
    refused = or_(
        and_(g.reviewer_id == person.id, g.place != SENIOR_PLACE),
        and_(g.reviewer_id != person.id, g.place == SENIOR_PLACE, g.released_at.is_(None)),
    )
    disputed -= set(connection.scalars(select(g.item).where(g.review_id == person.review_id, refused)))
    query = select(i.item, i.ordinal).where(i.review_id == person.review_id, i.known.is_(None))
    return {row.item: row.ordinal for row in connection.execute(query) if row.item in disputed}


def _left_for_senior(connection: Connection, person: Reviewer, spec: ReviewSpec) -> tuple[int, int]:
    i = s.review_items.c
    held = _held(connection, person)
    waiting = sum(item not in held for item in _waiting(connection, person, spec))
    said = by_item(standing_answers(connection, person.review_id))
    query = select(i.item).where(i.review_id == person.review_id, i.known.is_(None))
    open_items = sum(
        decide_answers(said.get(item, []), spec.per_item)[0] == "open" for item in connection.scalars(query)
    )
    return waiting, open_items


def _places(connection: Connection, person: Reviewer) -> list[Place]:
    i, g = s.review_items.c, s.review_assignments.c
    # Seniors' places don't count, but who adjudicated an item doesn't review it.
    taken = func.count().filter(and_(g.released_at.is_(None), g.place != SENIOR_PLACE, g.reviewer_id != person.id))
    kept = or_(g.released_at.is_(None), g.place == SENIOR_PLACE)
    mine = func.count().filter(and_(g.reviewer_id == person.id, kept))
    given_back = func.count().filter(and_(g.reviewer_id == person.id, g.released_at.is_not(None)))
    query = (
        select(i.item, i.ordinal, i.user_id, i.subtype, i.known.is_not(None), taken, mine, given_back)
        .select_from(s.review_items)
        .outerjoin(s.review_assignments, and_(g.review_id == i.review_id, g.item == i.item))
        .where(i.review_id == person.review_id)
        .group_by(i.item, i.ordinal, i.user_id, i.subtype, i.known)
    )
    return [
        Place(item, ordinal, user, subtype, bool(check), taken, bool(mine), bool(given_back))
        for item, ordinal, user, subtype, check, taken, mine, given_back in connection.execute(query)
    ]


def _held_by_others(connection: Connection, person: Reviewer) -> set[str]:
    g = s.review_assignments.c
    query = select(g.item).where(
        g.review_id == person.review_id,
        g.reviewer_id != person.id,
        g.place != SENIOR_PLACE,
        g.released_at.is_(None),
        g.answered_at.is_(None),
    )
    return set(connection.scalars(query))


def _task(connection: Connection, person: Reviewer, spec: ReviewSpec, item: str) -> Task:
    i, a = s.review_items.c, s.review_answers.c
    row = connection.execute(select(i.user_id, i.subtype).where(i.review_id == person.review_id, i.item == item)).one()
    first = first_of(spec.seed, item, person.id)
    notes: tuple[Note, ...] = ()
    if person.role == "senior":
        answers = standing_answers(connection, person.review_id, item)
        notes = tuple(_note(answer, first) for answer in answers if answer.comment or answer.flagged)
    before = connection.execute(
        select(a.verdict, a.base_score, a.memory_score, a.comment, a.flagged, a.seconds)
        .where(a.review_id == person.review_id, a.item == item, a.reviewer_id == person.id, a.verdict.is_not(None))
        .order_by(a.id.desc())
        .limit(1)
    ).first()
    return Task(
        item=item,
        user=row.user_id,
        subtype=row.subtype,
        press=uuid4().hex,
        first=first,
        content=content_in(connection, person.review_id, item),
        senior=person.role == "senior",
        notes=notes,
        said=None if before is None else _said(before),
    )


def _note(answer: Standing, first: Side) -> Note:
    return Note(answer.comment, answer.flagged, answer.first != first)


def _said(row: Any) -> Said:
    return Said(
        verdict=row.verdict,
        base_score=row.base_score,
        memory_score=row.memory_score,
        comment=row.comment,
        flagged=row.flagged,
        seconds=row.seconds,
    )
