"""What reviewers said, read from the store: the answers that count, and what is known of each item."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
from sqlalchemy import Connection, Select, and_, func, select

from opbench.review.spec import Verdict
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.reviews import SENIOR_PLACE

ANSWERS = (
    "item",
    "reviewer",
    "role",
    "user",
    "subtype",
    "verdict",
    "base_score",
    "memory_score",
    "seconds",
    "flagged",
    "made_at",
    "known",
    "comment",
    "first",
)


@dataclass(frozen=True, slots=True)
class Standing:
    """An answer that counts: a reviewer's newest for the item, not taken back."""

    item: str
    reviewer_id: str
    senior: bool
    verdict: Verdict
    flagged: bool
    comment: str
    first: str


def answers_frame(store: Store, review_id: str) -> pd.DataFrame:
    """A row an answer that counts, spot checks too, oldest first: `ANSWERS`.

    role: reviewer or senior, as it was for this item. verdict: base, memory, neither or both is over-personalised.
    Scores 0 to 1, higher is less over-personalised; seconds from showing to answering; NaN where not given. made_at in
    Unix seconds. known: a spot check's verdict, else None. first: which response stood as A.
    """
    a, i, r, g = s.review_answers.c, s.review_items.c, s.reviewers.c, s.review_assignments.c
    columns = (
        a.item,
        r.name.label("reviewer"),
        (g.place == SENIOR_PLACE).label("role"),
        i.user_id.label("user"),
        i.subtype,
        a.verdict,
        a.base_score,
        a.memory_score,
        a.seconds,
        a.flagged,
        a.made_at,
        i.known,
        a.comment,
        a.first,
    )
    query = (
        _counting(review_id, *columns)
        .join(s.review_items, and_(i.review_id == a.review_id, i.item == a.item))
        .join(s.reviewers, r.id == a.reviewer_id)
        .order_by(a.id)
    )
    with store.begin() as connection:
        frame = pd.DataFrame(connection.execute(query).all(), columns=list(ANSWERS))
    frame["role"] = frame["role"].map(lambda senior: "senior" if senior else "reviewer").astype(object)
    frame["known"] = frame["known"].astype(object).where(frame["known"].notna(), None)
    kinds = dict.fromkeys(("base_score", "memory_score", "seconds", "made_at"), "float64") | {"flagged": "bool"}
    return frame.astype(kinds)


def answers_version(store: Store, review_id: str) -> int:
    """The id of the review's newest entry, 0 when there is none: changes when somebody answered or took back."""
    a = s.review_answers.c
    with store.begin() as connection:
        return int(connection.scalar(select(func.max(a.id)).where(a.review_id == review_id)) or 0)


def standing_answers(connection: Connection, review_id: str, item: str | None = None) -> list[Standing]:
    """The answers that count, of one item or of all, oldest first."""
    a, g = s.review_answers.c, s.review_assignments.c
    senior = (g.place == SENIOR_PLACE).label("senior")
    query = _counting(review_id, a.item, a.reviewer_id, senior, a.verdict, a.flagged, a.comment, a.first, item=item)
    return [
        Standing(row.item, row.reviewer_id, bool(row.senior), cast(Verdict, row.verdict), *row[4:])
        for row in connection.execute(query.order_by(a.id))
    ]


def entries(connection: Connection, review_id: str) -> list[dict[str, Any]]:
    """Every entry in order, those taken back and those that take back too: columns of `schema.review_answers` without
    keys, with reviewer (name) and place."""
    a, r, g = s.review_answers.c, s.reviewers.c, s.review_assignments.c
    told = (column for column in s.review_answers.c if column.name not in ("id", "review_id", "reviewer_id"))
    query = (
        select(*told, r.name.label("reviewer"), g.place)
        .select_from(s.review_answers)
        .join(s.reviewers, r.id == a.reviewer_id)
        .join(s.review_assignments, _same_assignment())
        .where(a.review_id == review_id)
        .order_by(a.id)
    )
    return [dict(row) for row in connection.execute(query).mappings()]


def by_item(answers: Iterable[Standing]) -> dict[str, list[Standing]]:
    """The answers of each item."""
    found: dict[str, list[Standing]] = {}
    for answer in answers:
        found.setdefault(answer.item, []).append(answer)
    return found


def _counting(review_id: str, *columns: Any, item: str | None = None) -> Select[Any]:
    a = s.review_answers.c
    newest = select(func.max(a.id)).where(a.review_id == review_id)
    if item is not None:
        newest = newest.where(a.item == item)
    newest = newest.group_by(a.item, a.reviewer_id)
    return (
        select(*columns)
        .select_from(s.review_answers)
        .join(s.review_assignments, _same_assignment())
        .where(a.id.in_(newest), a.verdict.is_not(None))
    )


def _same_assignment() -> Any:
    a, g = s.review_answers.c, s.review_assignments.c
    return and_(g.review_id == a.review_id, g.item == a.item, g.reviewer_id == a.reviewer_id)
