"""Who takes part in a review: invited by a personal link or by the name that they sign in with.

A link's secret has 256 bits and is told once; the store has its SHA-256 alone. Whoever leaves loses the link, what they
had in hand goes back to the pool, and what they answered stays.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from dataclasses import dataclass, field

from sqlalchemy import Connection, and_, func, or_, select, update

from opbench.access import folded
from opbench.errors import UsageError
from opbench.review.spec import ReviewerRole, ReviewSpec
from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.store.reviews import Reviewer, lock, named, reviewer_in, reviewer_of_row

_SECRET_BYTES = 32
#: Signs of a secret: 32 bytes in base64 without padding.
SECRET_LENGTH = 43
#: Signs of a reviewer's name: it stands in tables and above every item.
LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Invited:
    """Somebody new. `secret` is the personal link's: nobody can find it out later. None for who signs in."""

    reviewer: Reviewer
    secret: str | None = field(default=None, repr=False)


def link_path(secret: str) -> str:
    """What an invitation's address ends with, after the dashboard's own. The secret stands behind `#`, so that browsers
    send it to no server: it is in no log and no referrer. The page takes it out of the address bar."""
    return f"/review#reviewer={secret}"


def invite(
    store: Store, review_id: str, name: str, *, role: ReviewerRole = "reviewer", sign_in: str | None = None
) -> Invited:
    """Let somebody take part: by a personal link, or by the name `sign_in` as the dashboard knows who signed in.

    Raises:
        UsageError: no such review, or somebody of that name, or with that sign-in, takes part already; or the name is
            too long for a table.
    """
    name = named(name, "a reviewer")
    if len(name) > LONGEST_NAME:
        raise UsageError(f"the name is too long: give at most {LONGEST_NAME} signs.")
    sign_in = None if sign_in is None else folded(named(sign_in, "a sign-in"))
    secret = secrets.token_urlsafe(_SECRET_BYTES) if sign_in is None else None
    r = s.reviewers.c
    with store.begin() as connection:
        lock(connection, review_id)
        there = connection.execute(
            select(r.name, r.left_at).where(
                r.review_id == review_id, or_(r.name == name, and_(r.sign_in.is_not(None), r.sign_in == sign_in))
            )
        ).first()
        if there is not None:
            mend = "left: bring them back with 'opbench review renew'" if there.left_at else "takes part already"
            raise UsageError(f"{there.name} {mend}.")
        row = {
            "id": uuid.uuid4().hex,
            "review_id": review_id,
            "name": name,
            "role": role,
            "link_sha256": None if secret is None else _digest(secret),
            "sign_in": sign_in,
            "joined_at": store_time(connection),
            "left_at": None,
        }
        connection.execute(s.reviewers.insert().values(**row))
        return Invited(reviewer_in(connection, str(row["id"])), secret)


def renew(store: Store, reviewer_id: str) -> str | None:
    """A new link's secret; the old link is void from now. Brings somebody back who left. None for who signs in.

    Raises:
        UsageError: nobody of that id.
    """
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    with store.begin() as connection:
        person = _locked(connection, reviewer_id)
        by_sign_in = person.sign_in is not None
        values = {"left_at": None, "link_sha256": None if by_sign_in else _digest(secret)}
        connection.execute(update(s.reviewers).where(s.reviewers.c.id == reviewer_id).values(**values))
    return None if by_sign_in else secret


def leave(store: Store, reviewer_id: str) -> int:
    """Take somebody out: their link is void and how many items they had in hand goes back to the pool. Their answers
    stay.

    Raises:
        UsageError: nobody of that id.
    """
    with store.begin() as connection:
        _locked(connection, reviewer_id)
        now = store_time(connection)
        r = s.reviewers.c
        connection.execute(
            update(s.reviewers)
            .where(r.id == reviewer_id)
            .values(left_at=func.coalesce(r.left_at, now), link_sha256=None)
        )
        return release_in(connection, reviewer_id, now)


def set_role(store: Store, reviewer_id: str, role: ReviewerRole) -> None:
    """Make somebody a reviewer or the senior. What they had in hand goes back; as the senior they get no item that they
    were given as a reviewer, and the other way round.

    Raises:
        UsageError: nobody of that id.
    """
    with store.begin() as connection:
        if _locked(connection, reviewer_id).role == role:
            return
        release_in(connection, reviewer_id, store_time(connection))
        connection.execute(update(s.reviewers).where(s.reviewers.c.id == reviewer_id).values(role=role))


def by_secret(store: Store, secret: str) -> Reviewer | None:
    """Whose link it is; None when it is nobody's, or nobody's any more."""
    if len(secret) != SECRET_LENGTH or not secret.isascii():
        return None
    digest = _digest(secret)
    with store.begin() as connection:
        row = connection.execute(select(s.reviewers).where(s.reviewers.c.link_sha256 == digest)).first()
    if row is None or not hmac.compare_digest(str(row.link_sha256), digest) or row.left_at is not None:
        return None
    return reviewer_of_row(row)


def by_sign_in(store: Store, name: str) -> list[Reviewer]:
    """In which reviews somebody who signed in takes part, newest review first; closed ones come too."""
    r = s.reviewers.c
    query = (
        select(s.reviewers)
        .join(s.reviews, s.reviews.c.id == r.review_id)
        .where(r.sign_in == name, r.left_at.is_(None))
        .order_by(s.reviews.c.created_at.desc())
    )
    with store.begin() as connection:
        return [reviewer_of_row(row) for row in connection.execute(query)]


def release_in(connection: Connection, reviewer_id: str, now: float) -> int:
    """Give back what somebody has in hand; the number of items."""
    g = s.review_assignments.c
    mine = (g.reviewer_id == reviewer_id, g.released_at.is_(None), g.answered_at.is_(None))
    return connection.execute(update(s.review_assignments).where(*mine).values(released_at=now)).rowcount


def taking_part(connection: Connection, reviewer_id: str) -> tuple[Reviewer, ReviewSpec]:
    """Somebody who hasn't left, and the settings of the review, which is locked and open.

    Raises:
        UsageError: they have, or the review is closed or gone.
    """
    person = reviewer_in(connection, reviewer_id)
    spec = lock(connection, person.review_id, open_only=True)
    # Asked again: they may have left while this waited for the lock.
    person = reviewer_in(connection, reviewer_id)
    if person.left_at is not None:
        raise UsageError(f"{person.name} has left this review: the link is void. Ask whoever runs it for a new one.")
    return person, spec


def _locked(connection: Connection, reviewer_id: str) -> Reviewer:
    lock(connection, reviewer_in(connection, reviewer_id).review_id)
    return reviewer_in(connection, reviewer_id)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
