"""Reviews in the store: made, found, closed and deleted, with their items and reviewers.

Whatever changes a review locks its row first (`lock`), so that of two who press at once the second sees what the first
did, on SQLite and PostgreSQL alike. The index `uq_review_assignments_place` would refuse what slipped through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from pydantic import ValidationError
from sqlalchemy import Connection, Row, delete, func, select, update

from opbench.errors import StoreError, UsageError
from opbench.review.spec import Content, ReviewerRole, ReviewSpec
from opbench.store import schema as s
from opbench.store.database import Store, store_time

LONGEST_NAME = 200
#: Of the places of an item the one that belongs to whoever adjudicates it.
SENIOR_PLACE = -1


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """A review. `items` are those that it decides of, `checks` its spot checks; times are Unix seconds."""

    id: str
    name: str
    run_id: str
    build_id: str | None
    spec: ReviewSpec
    maker: str
    created_at: float
    closed_at: float | None
    items: int
    checks: int


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item as it is written. `known` is a spot check's verdict."""

    item: str
    user: str
    subtype: str
    content: Content
    candidate: str | None = None
    known: str | None = None


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Somebody who takes part in a review, by a personal link, by sign-in, or by answers made elsewhere."""

    id: str
    review_id: str
    name: str
    role: ReviewerRole
    by_link: bool
    sign_in: str | None
    joined_at: float
    left_at: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def lock(connection: Connection, review_id: str, *, open_only: bool = False) -> ReviewSpec:
    """Let nobody else change the review until the transaction ends; the review's settings.

    Raises:
        UsageError: it was deleted, or with `open_only` it is closed.
    """
    r = s.reviews.c
    # Changes nothing, and locks the row.
    if not connection.execute(update(s.reviews).where(r.id == review_id).values(name=r.name)).rowcount:
        raise UsageError(f"no review '{review_id[:40]}'. It was deleted, or is in another store.")
    row = connection.execute(select(r.name, r.spec, r.closed_at).where(r.id == review_id)).one()
    if open_only and row.closed_at is not None:
        raise UsageError(f"review '{row.name}' is closed: it takes no more answers. 'opbench review reopen' opens it.")
    return _spec(review_id, row.spec)


def save_review(
    store: Store,
    review_id: str,
    *,
    name: str,
    run_id: str,
    build_id: str | None,
    spec: ReviewSpec,
    maker: str,
    items: Sequence[ItemRow],
) -> None:
    """Write a new review with its items, in order, in one transaction."""
    with store.begin() as connection:
        save_review_in(
            connection, review_id, name=name, run_id=run_id, build_id=build_id, spec=spec, maker=maker, items=items
        )


def save_review_in(
    connection: Connection,
    review_id: str,
    *,
    name: str,
    run_id: str,
    build_id: str | None,
    spec: ReviewSpec,
    maker: str,
    items: Sequence[ItemRow],
) -> None:
    """As `save_review`, in a transaction that has more to write."""
    row = {
        "id": review_id,
        "name": named(name, "the review"),
        "run_id": run_id,
        "build_id": build_id,
        "spec": spec.model_dump(mode="json"),
        "maker": maker,
        "created_at": store_time(connection),
        "closed_at": None,
    }
    connection.execute(s.reviews.insert().values(**row))
    rows = [
        {
            "review_id": review_id,
            "item": item.item,
            "ordinal": ordinal,
            "user_id": item.user,
            "subtype": item.subtype,
            "candidate": item.candidate,
            "content": item.content.model_dump(mode="json"),
            "known": item.known,
        }
        for ordinal, item in enumerate(items)
    ]
    if rows:
        connection.execute(s.review_items.insert(), rows)


def named(name: str, what: str) -> str:
    """A name in one line.

    Raises:
        UsageError: there is none.
    """
    name = " ".join(storable(name).split())[:LONGEST_NAME]
    if not name:
        raise UsageError(f"{what} needs a name.")
    return name


def storable(text: str) -> str:
    """The text without NUL and halves of characters, which a database refuses."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def review_list(store: Store) -> list[ReviewRow]:
    """All reviews, newest first."""
    with store.begin() as connection:
        return [_row(row) for row in connection.execute(_reviews())]


def get_review(store: Store, review_id: str) -> ReviewRow:
    """Raises UsageError when there is none of that id."""
    with store.begin() as connection:
        row = connection.execute(_reviews().where(s.reviews.c.id == review_id)).first()
    if row is None:
        raise UsageError(f"no review '{review_id[:40]}'. It was deleted, or is in another store.")
    return _row(row)


def find_review(store: Store, wanted: str | None) -> str:
    """The id of the review whose id begins with, or whose name is, `wanted`; of the newest when None.

    Raises:
        UsageError: none, or more than one.
    """
    r = s.reviews.c
    with store.begin() as connection:
        rows = connection.execute(select(r.id, r.name).order_by(r.created_at.desc(), r.id)).all()
    if not rows:
        raise UsageError("there is no review in this store yet. Make one with 'opbench review create'.")
    if wanted is None:
        return str(rows[0].id)
    fitting = [row.id for row in rows if row.id == wanted] or [
        row.id for row in rows if row.id.startswith(wanted) or row.name == wanted
    ]
    if len(fitting) == 1:
        return str(fitting[0])
    if not fitting:
        raise UsageError(f"no review '{wanted[:80]}'. There are: {', '.join(row.name for row in rows[:10])}.")
    raise UsageError(f"'{wanted[:80]}' fits {len(fitting)} reviews: {', '.join(fitting[:10])}. Give more of the id.")


def rename_review(store: Store, review_id: str, name: str) -> None:
    """Raises UsageError: no such review, or no name."""
    name = named(name, "the review")
    with store.begin() as connection:
        lock(connection, review_id)
        connection.execute(update(s.reviews).where(s.reviews.c.id == review_id).values(name=name))


def close_review(store: Store, review_id: str) -> None:
    """Take no more answers; what was said and decided stays."""
    _set_closed(store, review_id, True)


def reopen_review(store: Store, review_id: str) -> None:
    """Take answers again."""
    _set_closed(store, review_id, False)


def delete_review(store: Store, review_id: str) -> None:
    """Delete a review with its items, links and answers. What it decided of a build's candidates stays with them."""
    with store.begin() as connection:
        lock(connection, review_id)
        connection.execute(delete(s.reviews).where(s.reviews.c.id == review_id))


def item_content(store: Store, review_id: str, item: str) -> Content:
    """Raises UsageError when the review has no such item."""
    with store.begin() as connection:
        return content_in(connection, review_id, item)


def content_in(connection: Connection, review_id: str, item: str) -> Content:
    i = s.review_items.c
    found = connection.scalar(select(i.content).where(i.review_id == review_id, i.item == item))
    if found is None:
        raise UsageError(f"review {review_id} has no item '{item[:80]}'.")
    return Content.model_validate(found)


def reviewers_of(store: Store, review_id: str) -> list[Reviewer]:
    """Everybody who takes or took part, in the order in which they came."""
    r = s.reviewers.c
    with store.begin() as connection:
        rows = connection.execute(select(s.reviewers).where(r.review_id == review_id).order_by(r.joined_at, r.id)).all()
    return [reviewer_of_row(row) for row in rows]


def get_reviewer(store: Store, reviewer_id: str) -> Reviewer:
    """Raises UsageError when there is none of that id."""
    with store.begin() as connection:
        return reviewer_in(connection, reviewer_id)


def find_reviewer(store: Store, review_id: str, wanted: str) -> Reviewer:
    """Somebody by name, id or sign-in.

    Raises:
        UsageError: nobody.
    """
    people = reviewers_of(store, review_id)
    for person in people:
        if wanted in (person.name, person.id, person.sign_in):
            return person
    names = ", ".join(person.name for person in people[:20]) or "nobody yet: invite somebody"
    raise UsageError(f"no reviewer '{wanted[:80]}' in this review. There are: {names}.")


def reviewer_in(connection: Connection, reviewer_id: str) -> Reviewer:
    row = connection.execute(select(s.reviewers).where(s.reviewers.c.id == reviewer_id)).first()
    if row is None:
        raise UsageError("you don't take part in this review any more: it was deleted.")
    return reviewer_of_row(row)


def reviewer_of_row(row: Row[Any]) -> Reviewer:
    return Reviewer(
        row.id,
        row.review_id,
        row.name,
        cast(ReviewerRole, row.role),
        row.link_sha256 is not None,
        row.sign_in,
        row.joined_at,
        row.left_at,
    )


def _set_closed(store: Store, review_id: str, closed: bool) -> None:
    r = s.reviews.c
    with store.begin() as connection:
        lock(connection, review_id)
        at = store_time(connection) if closed else None
        same = r.closed_at.is_(None) if closed else r.closed_at.is_not(None)
        connection.execute(update(s.reviews).where(r.id == review_id, same).values(closed_at=at))


def _reviews() -> Any:
    r, i = s.reviews.c, s.review_items.c
    of = select(func.count()).select_from(s.review_items).where(i.review_id == r.id)
    items, checks = of.where(i.known.is_(None)), of.where(i.known.is_not(None))
    columns = (s.reviews, items.scalar_subquery().label("items"), checks.scalar_subquery().label("checks"))
    return select(*columns).order_by(r.created_at.desc(), r.id)


def _row(row: Row[Any]) -> ReviewRow:
    return ReviewRow(
        row.id,
        row.name,
        row.run_id,
        row.build_id,
        _spec(row.id, row.spec),
        row.maker,
        row.created_at,
        row.closed_at,
        row.items,
        row.checks,
    )


def _spec(review_id: str, stored: Any) -> ReviewSpec:
    try:
        return ReviewSpec.model_validate(stored)
    except ValidationError as error:
        raise StoreError(
            f"review {review_id}: its settings can't be read ({error.errors()[0]['msg']}). It was made by another "
            "version of the workbench, or the store was changed by hand."
        ) from None
