"""People's scores of a review as responses that judges can be set against (paper, A.4.2: both responses of each
question, each scored by several people)."""

from __future__ import annotations

from sqlalchemy import select

from opbench.calibration.spec import Rated, Response
from opbench.review.spec import Content, Side
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.review_answers import answers_frame

SIDES: tuple[Side, Side] = ("base", "memory")


def rated(store: Store, review_id: str) -> list[Rated]:
    """Both responses of every item in its order, `<item>|base` and `<item>|memory`, with all that reviewers and seniors
    scored (may be nothing). Spot checks aren't among them: they are no responses of the run.

    A response's `pair` is its item. BASE retrieved nothing and saw nothing.
    """
    said = answers_frame(store, review_id)
    human: dict[tuple[str, Side], list[tuple[str, float]]] = {}
    for side in SIDES:
        given = said[said[f"{side}_score"].notna()]
        for item, who, value in zip(given["item"], given["reviewer"], given[f"{side}_score"], strict=True):
            human.setdefault((str(item), side), []).append((str(who), float(value)))
    i = s.review_items.c
    query = (
        select(i.item, i.user_id, i.subtype, i.content)
        .where(i.review_id == review_id, i.known.is_(None))
        .order_by(i.ordinal)
    )
    with store.begin() as connection:
        rows = connection.execute(query).all()
    found = []
    for row in rows:
        content = Content.model_validate(row.content)
        for side in SIDES:
            response = _response(row.item, row.user_id, row.subtype, content, side)
            human_of = tuple(human.get((row.item, side), ()))
            found.append(Rated(item=f"{row.item}|{side}", response=response, human=human_of))
    return found


def _response(item: str, user: str, subtype: str, content: Content, side: Side) -> Response:
    remembered = side == "memory"
    return Response(
        question=content.question,
        response=content.memory if remembered else content.base,
        subtype=subtype,
        user=user,
        profile=content.profile,
        memories=tuple(memory.text for memory in content.memories if memory.relevant) if remembered else (),
        context=content.context if remembered else (),
        facts=tuple(memory.text for memory in content.memories if memory.fact),
        explanation=content.explanation,
        pair=item,
    )
