"""Answers that were made elsewhere, written into a review: each once, and none over what somebody said here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, select, update

from opbench.errors import UsageError
from opbench.review.answering import write
from opbench.review.assigning import hold
from opbench.review.choosing import first_of
from opbench.review.deciding import settle
from opbench.review.entries import Entry, digest
from opbench.review.spec import ReviewerRole, ReviewSpec, Said
from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.store.reviews import SENIOR_PLACE, Reviewer, lock, named, reviewer_in, reviewer_of_row

_MOST_TOLD = 100
_AT_A_TIME = 500


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import. Conflicts are sentences; they weren't written."""

    new: int
    known: int
    """Entries that were there already."""
    conflicts: tuple[str, ...]
    reviewers: tuple[str, ...]
    """Names of people who are in the review since."""


def add(store: Store, review_id: str, entries: Sequence[Entry], *, file: str, replace: bool = False) -> Imported:
    """Write answers into a review, all in one transaction. With `replace` an answer takes the place of what the same
    person said of the item before; without it that is a conflict.

    Raises:
        UsageError: no such review, or an item that it doesn't have; nothing is written then.
    """
    with store.begin() as connection:
        return add_in(connection, review_id, entries, file=file, replace=replace)


def add_in(
    connection: Connection, review_id: str, entries: Sequence[Entry], *, file: str, replace: bool = False
) -> Imported:
    """As `add`, in a transaction that has more to write."""
    spec = lock(connection, review_id)
    work = _Work(connection, review_id, spec, entries, replace)
    for entry in entries:
        if entry.item not in work.items:
            raise UsageError(f"{file}, line {entry.line}: item '{entry.item[:80]}' isn't in this review.")
    for entry in entries:
        work.take(entry, f"{file}, line {entry.line}")
    for item in sorted(work.touched):
        settle(connection, review_id, item, spec.per_item)
    told = work.conflicts[:_MOST_TOLD]
    if len(work.conflicts) > len(told):
        told.append(f"… and {len(work.conflicts) - len(told):,} more")
    return Imported(work.new, work.known, tuple(told), tuple(work.came))


class _Work:
    """An import at work, with what the review has read once."""

    def __init__(
        self, connection: Connection, review_id: str, spec: ReviewSpec, entries: Sequence[Entry], replace: bool
    ) -> None:
        self.connection, self.review_id, self.spec, self.replace = connection, review_id, spec, replace
        self.new = self.known = 0
        self.conflicts: list[str] = []
        self.came: list[str] = []
        self.touched: set[str] = set()
        self.now = store_time(connection)
        i, r, a, g = s.review_items.c, s.reviewers.c, s.review_answers.c, s.review_assignments.c
        self.items = set(connection.scalars(select(i.item).where(i.review_id == review_id)))
        people = connection.execute(select(s.reviewers).where(r.review_id == review_id))
        self.people = {row.name: reviewer_of_row(row) for row in people}
        rows = connection.execute(select(s.review_answers).where(a.review_id == review_id).order_by(a.id)).all()
        self.presses = {row.press: (row.item, row.reviewer_id, _said(row)) for row in rows}
        #: What counts by item and person, and what was there before this import.
        self.standing = {(row.item, row.reviewer_id): _said(row) for row in rows}
        self.before = {key for key, said in self.standing.items() if said.verdict is not None}
        held = connection.execute(select(s.review_assignments).where(g.review_id == review_id)).all()
        self.places = {(row.item, row.reviewer_id): row.place for row in held if row.released_at is None}
        self.elsewhere = _elsewhere(connection, review_id, [entry.mark for entry in entries])
        self.roles = {(row.item, row.reviewer_id): row.place == SENIOR_PLACE for row in held}

    def take(self, entry: Entry, place: str) -> None:
        mark, there = self._mark(entry)
        senior = entry.role == "senior"
        if there is not None:
            if there[2] != entry.said or there[0] != entry.item:
                self.conflicts.append(f"{place}: the entry is here already and says something else")
            else:
                self.known += 1
            return
        person = self._person(entry)
        key = (entry.item, person.id)
        said = self.standing.get(key)
        if entry.said.verdict is None and (said is None or said.verdict is None):
            return  # not answered yet: there is nothing to take back
        if self.roles.get(key, senior) != senior:
            self.conflicts.append(f"{place}: {person.name} has another role for {entry.item[:80]} here")
            return
        if key in self.before:
            if not entry.entry and self.standing[key] == entry.said:
                self.known += 1
                return
            if not self.replace:
                self.conflicts.append(f"{place}: {person.name} has said something else of {entry.item[:80]}")
                return
        if senior and any(
            of == SENIOR_PLACE and at[0] == entry.item and at[1] != person.id for at, of in self.places.items()
        ):
            self.conflicts.append(f"{place}: somebody else adjudicates {entry.item[:80]} here")
            return
        self._write(entry, person, mark)

    def _write(self, entry: Entry, person: Reviewer, mark: str) -> None:
        key = (entry.item, person.id)
        made_at = self.now if entry.made_at is None else entry.made_at
        if key not in self.places:
            hold(self.connection, person, entry.item, made_at)
            self.places[key] = SENIOR_PLACE if person.role == "senior" else 0
            self.roles[key] = person.role == "senior"
        first = entry.first or first_of(self.spec.seed, entry.item, person.id)
        write(self.connection, person, entry.item, entry.said, mark, first, made_at)
        if entry.said.verdict is None:
            g = s.review_assignments.c
            it = (g.review_id == self.review_id, g.item == entry.item, g.reviewer_id == person.id)
            values = {"answered_at": None, "released_at": made_at}
            self.connection.execute(update(s.review_assignments).where(*it).values(**values))
            del self.places[key]
        self.standing[key] = entry.said
        self.presses[mark] = (entry.item, person.id, entry.said)
        self.touched.add(entry.item)
        self.new += 1

    def _mark(self, entry: Entry) -> tuple[str, tuple[str, str, Said] | None]:
        """The entry's own mark, or where another review has that one, one of this review; and what is here by it."""
        own = digest(self.review_id, entry.mark)
        for mark in (entry.mark, own):
            if mark in self.presses:
                return mark, self.presses[mark]
        return (own if entry.mark in self.elsewhere else entry.mark), None

    def _person(self, entry: Entry) -> Reviewer:
        name = named(entry.reviewer, "a reviewer")
        if name not in self.people:
            new = join(self.connection, self.review_id, name, entry.role, self.now)
            self.people[name] = reviewer_in(self.connection, new)
            self.came.append(name)
        # For this entry they are what they were when they gave it.
        return dataclasses.replace(self.people[name], role=entry.role)


def join(connection: Connection, review_id: str, name: str, role: ReviewerRole, now: float) -> str:
    """The id of somebody new who answers elsewhere: without link and sign-in."""
    row = {
        "id": uuid4().hex,
        "review_id": review_id,
        "name": name,
        "role": role,
        "link_sha256": None,
        "sign_in": None,
        "joined_at": now,
        "left_at": None,
    }
    connection.execute(s.reviewers.insert().values(**row))
    return str(row["id"])


def _elsewhere(connection: Connection, review_id: str, marks: Sequence[str]) -> set[str]:
    """Those of the marks that other reviews have: a copy's in the store of its original."""
    a = s.review_answers.c
    found: set[str] = set()
    for start in range(0, len(marks), _AT_A_TIME):
        some = marks[start : start + _AT_A_TIME]
        found |= set(connection.scalars(select(a.press).where(a.press.in_(some), a.review_id != review_id)))
    return found


def _said(row: Any) -> Said:
    return Said.model_validate({name: getattr(row, name) for name in Said.model_fields})
