"""What a review decides of an item from what was said of it, and how far it is (paper, A.3.1).

The paper keeps a question only if the response with memory was found inappropriate relative to BASE. So reviewers who
all say `memory` accept it, and all `neither` (both fine) rejects it. Everything else waits for the senior: verdicts
that differ, any flag, and also all `base` or all `both`: BASE saw no memories, so either is odd enough for a second
look. The senior's verdict decides: `memory` accepts, anything else rejects. Decisions are computed from the answers,
never kept; only a build's candidates are told theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import Connection, and_, func, select, update

from opbench.review.spec import Decision, Verdict
from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.store.review_answers import Standing, by_item, standing_answers
from opbench.store.reviews import get_review

#: `candidates.decided_by` of what a review decided.
BY = "review"
#: Verdicts in words.
TOLD: dict[Verdict, str] = {
    "memory": "with memory",
    "base": "BASE",
    "neither": "neither",
    "both": "both",
}
ITEMS = ("item", "ordinal", "user", "subtype", "candidate", "known", "answers", "decision", "reason")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a review is. `open` + `disputed` + `accepted` + `rejected` = `items`; spot checks are counted apart."""

    items: int
    open: int
    disputed: int
    accepted: int
    rejected: int
    places: int
    """Answers of reviewers that are wanted: items × reviewers an item."""
    answers: int
    """Reviewers' answers that count; may be more than `places` when some came late or from elsewhere."""
    missing: int
    """Places without an answer."""
    in_hand: int
    stale: int
    """Of those in hand: held longer than the review's `hours`; they go to the next who asks."""
    checks: int
    """Answers to spot checks."""


def decide(
    verdicts: Sequence[Verdict], flagged: bool, per_item: int, senior: Verdict | None = None
) -> tuple[Decision, str]:
    """The decision, and why in a sentence.

    `verdicts` are the reviewers' that count; `flagged` whether any of them flagged it; `senior` the adjudicator's.
    """
    if senior is not None:
        said = "found" if senior == "memory" else "didn't find"
        reason = f"the adjudicator {said} the response with memory inappropriate relative to BASE ({TOLD[senior]})"
        return ("accepted" if senior == "memory" else "rejected"), reason
    if len(verdicts) < per_item:
        return "open", f"{len(verdicts)} of {per_item} reviewers have answered"
    if flagged:
        return "disputed", "a reviewer flagged it"
    kinds = set(verdicts)
    if len(kinds) > 1:
        return "disputed", f"reviewers differ: {', '.join(TOLD[verdict] for verdict in sorted(verdicts))}"
    if kinds == {"memory"}:
        return "accepted", f"all {len(verdicts)} reviewers found the response with memory alone over-personalised"
    if kinds == {"neither"}:
        return "rejected", f"all {len(verdicts)} reviewers found both responses fine"
    return "disputed", f"all {len(verdicts)} reviewers said {TOLD[verdicts[0]]}, though BASE saw no memories"


def decide_answers(answers: Iterable[Standing], per_item: int) -> tuple[Decision, str]:
    """As `decide`, of the answers to one item that count."""
    answers = list(answers)
    said = [answer for answer in answers if not answer.senior]
    seniors = [answer.verdict for answer in answers if answer.senior]
    flagged = any(answer.flagged for answer in said)
    return decide([answer.verdict for answer in said], flagged, per_item, seniors[-1] if seniors else None)


def settle(connection: Connection, review_id: str, item: str, per_item: int) -> Decision:
    """Decide an item, and tell the candidate that it came from. The review is locked."""
    decision, reason = decide_answers(standing_answers(connection, review_id, item), per_item)
    i, r = s.review_items.c, s.reviews.c
    found = connection.execute(
        select(i.candidate, i.known, r.build_id, r.name)
        .join(s.reviews, r.id == i.review_id)
        .where(i.review_id == review_id, i.item == item)
    ).one()
    if found.candidate is not None and found.build_id is not None and found.known is None:
        _tell(connection, review_id, found, decision, reason)
    return decision


def _tell(connection: Connection, review_id: str, found: Any, decision: Decision, reason: str) -> None:
    """The newest decision counts where several reviews look at a candidate; one that is taken back leaves it kept."""
    c = s.candidates.c
    it = and_(c.build_id == found.build_id, c.id == found.candidate)
    row = connection.execute(select(c.state, c.decided_by, c.details).where(it)).first()
    if row is None or row.state not in ("kept", "accepted", "rejected"):
        return
    values: dict[str, Any]
    if decision in ("accepted", "rejected"):
        values = {"state": decision, "decided_by": BY, "reason": reason, "details": _details(review_id, found.name)}
    elif row.decided_by == BY and (row.details or {}).get("review") == review_id:
        values = {"state": "kept", "decided_by": None, "reason": None, "details": None}
    else:
        return
    connection.execute(update(s.candidates).where(it).values(**values))


def _details(review_id: str, name: str) -> dict[str, str]:
    return {"review": review_id, "name": name}


def items_frame(store: Store, review_id: str) -> pd.DataFrame:
    """A row an item in its order, spot checks too: `ITEMS`.

    answers: reviewers' that count. known: a spot check's verdict, else None; a spot check has no decision (None).
    """
    per_item = get_review(store, review_id).spec.per_item
    i = s.review_items.c
    query = (
        select(i.item, i.ordinal, i.user_id, i.subtype, i.candidate, i.known)
        .where(i.review_id == review_id)
        .order_by(i.ordinal)
    )
    with store.begin() as connection:
        rows = connection.execute(query).all()
        said = by_item(standing_answers(connection, review_id))
    told = []
    for row in rows:
        answers = said.get(row.item, [])
        given = sum(not answer.senior for answer in answers)
        decision, reason = (None, None) if row.known is not None else decide_answers(answers, per_item)
        told.append((*row, given, decision, reason))
    return pd.DataFrame(told, columns=list(ITEMS)).astype(
        {"candidate": object, "known": object, "decision": object, "reason": object}
    )


def progress(store: Store, review_id: str) -> Progress:
    """How far the review is."""
    spec = get_review(store, review_id).spec
    frame = items_frame(store, review_id)
    items, checks = frame[frame["known"].isna()], frame[frame["known"].notna()]
    g = s.review_assignments.c
    with store.begin() as connection:
        old = store_time(connection) - spec.hours * 3600
        in_hand, stale = connection.execute(
            select(func.count(), func.count().filter(g.assigned_at < old)).where(
                g.review_id == review_id, g.released_at.is_(None), g.answered_at.is_(None)
            )
        ).one()
    counts = items["decision"].value_counts()
    return Progress(
        items=len(items),
        **{name: int(counts.get(name, 0)) for name in ("open", "disputed", "accepted", "rejected")},
        places=len(items) * spec.per_item,
        answers=int(items["answers"].sum()),
        missing=int((spec.per_item - items["answers"]).clip(lower=0).sum()),
        in_hand=in_hand,
        stale=stale,
        checks=int(checks["answers"].sum()),
    )


def by_stratum(store: Store, review_id: str) -> pd.DataFrame:
    """A row a user and subtype: user, subtype, items, open, disputed, accepted, rejected."""
    frame = items_frame(store, review_id)
    frame = frame[frame["known"].isna()]
    names = ["open", "disputed", "accepted", "rejected"]
    counts = pd.crosstab([frame["user"], frame["subtype"]], frame["decision"]).reindex(columns=names, fill_value=0)
    counts.insert(0, "items", counts.sum(axis=1))
    return counts.rename_axis(columns=None).reset_index()


def queue(store: Store, review_id: str) -> pd.DataFrame:
    """What waits for the senior, in order: item, user, subtype, reason, question."""
    frame = items_frame(store, review_id)
    frame = frame[frame["decision"] == "disputed"][["item", "user", "subtype", "reason"]].reset_index(drop=True)
    i = s.review_items.c
    with store.begin() as connection:
        rows = connection.execute(select(i.item, i.content).where(i.review_id == review_id, i.item.in_(frame["item"])))
        questions = {row.item: str(row.content["question"]) for row in rows}
    return frame.assign(question=frame["item"].map(questions))


def by_reviewer(store: Store, review_id: str) -> pd.DataFrame:
    """A row a person: reviewer, role, state (active or left), access (link, sign-in or elsewhere), answers (that count,
    without spot checks), checks, in_hand, flagged, last_at (Unix s, NaN for none)."""
    p, g, i, a = s.reviewers.c, s.review_assignments.c, s.review_items.c, s.review_answers.c
    held = and_(g.released_at.is_(None), g.answered_at.is_(None))
    mine = select(
        g.reviewer_id,
        func.count().filter(and_(g.answered_at.is_not(None), i.known.is_(None))).label("answers"),
        func.count().filter(and_(g.answered_at.is_not(None), i.known.is_not(None))).label("checks"),
        func.count().filter(held).label("in_hand"),
    ).join(s.review_items, and_(i.review_id == g.review_id, i.item == g.item))
    counted = mine.where(g.review_id == review_id).group_by(g.reviewer_id).subquery()
    newest = select(func.max(a.id)).where(a.review_id == review_id).group_by(a.item, a.reviewer_id)
    said = (
        select(
            a.reviewer_id,
            func.count().filter(and_(a.id.in_(newest), a.flagged, a.verdict.is_not(None))).label("flagged"),
            func.max(a.made_at).label("last_at"),
        )
        .where(a.review_id == review_id)
        .group_by(a.reviewer_id)
        .subquery()
    )
    query = (
        select(
            p.name.label("reviewer"),
            p.role,
            p.left_at.is_not(None).label("state"),
            p.link_sha256.is_not(None).label("access"),
            p.sign_in,
            func.coalesce(counted.c.answers, 0).label("answers"),
            func.coalesce(counted.c.checks, 0).label("checks"),
            func.coalesce(counted.c.in_hand, 0).label("in_hand"),
            func.coalesce(said.c.flagged, 0).label("flagged"),
            said.c.last_at,
        )
        .outerjoin(counted, counted.c.reviewer_id == p.id)
        .outerjoin(said, said.c.reviewer_id == p.id)
        .where(p.review_id == review_id)
        .order_by(p.joined_at, p.id)
    )
    with store.begin() as connection:
        result = connection.execute(query)
        frame = pd.DataFrame(result.all(), columns=list(result.keys()))
    access = [
        "link" if link else "elsewhere" if sign_in is None else "sign-in"
        for link, sign_in in zip(frame["access"], frame["sign_in"], strict=True)
    ]
    state = ["left" if left else "active" for left in frame["state"]]
    return frame.assign(access=access, state=state, last_at=frame["last_at"].astype("float64")).drop(columns="sign_in")
