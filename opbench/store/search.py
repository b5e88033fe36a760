"""Finding records of a run: filtered and put in order by the database, read a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select
from sqlalchemy.orm import aliased

from opbench.errors import UsageError
from opbench.protocol import headline_metric
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.record import sha256_of
from opbench.study import Study
from opbench.types import Benchmark

Ids = npt.NDArray[np.int64]
Order = Literal["instance", "lowest score", "highest score", "slowest", "newest"]
ORDERS: tuple[Order, ...] = get_args(Order)
Outcome = Literal["done", "failed", "scored", "without a score"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
STATES = ("kept", "nothing", "revised", "unchanged", "failed")

#: Any of these finds any other: the benchmark's files and models mix straight and curly quotes.
_QUOTES = str.maketrans(dict.fromkeys("'‘’\"“”", "_"))
_ESCAPE = "\\"


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for; an empty part means: whatever."""

    models: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()
    mitigations: tuple[str, ...] = ()
    benchmark: Benchmark | None = None
    users: tuple[str, ...] = ()
    subtypes: tuple[str, ...] = ()
    first_only: bool = False
    low: float = 0.0
    """Score from here, 0 to 1. Records without a score of their own are left out when `low` > 0 or `high` < 1."""
    high: float = 1.0
    outcome: Outcome | None = None
    """`without a score` is a done record whose judge gave none; repetition, scored by user, isn't meant."""
    error_kinds: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    """What the post-processor's state is, of STATES."""
    text: str = ""
    """In the question or the response; upper and lower case, straight and curly quotes are the same."""
    human: bool | None = None
    """Whether somebody's score stands beside the judge's."""
    order: Order = "instance"


def found(store: Store, run_id: str, study: Study, search: Search) -> Ids:
    """The ids of all records that fit, in order. They hold for a moment: a record that is made again has a new one."""
    with store.begin() as connection:
        query = _ids(connection, run_id, study, search)
        # The driver's own rows: SQLAlchemy's take as long for a hundred thousand as the search itself.
        rows = connection.execute(query).cursor.fetchall()
    return np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))


def hits(store: Store, study: Study, ids: Sequence[int], texts: bool = True) -> pd.DataFrame:
    """The records of `ids`, in that order; those that are gone are left out.

    Columns: instance, benchmark, user, subtype, model, memory, mitigation, score (0 to 1, NaN when missing), reason
    (the judge's, or why the score is missing), status, error_kind, error, state, human (newest score that a person
    gave, NaN when none), response_ms, total_ms (of the stages that happened), cost_usd and, with `texts`, question and
    response.
    """
    r, i, c = s.records.c, s.instances.c, s.configurations.c
    text_columns = (i.question, r.response) if texts else ()
    score = aliased(s.scores)
    columns = (
        r.id,
        r.configuration_id,
        r.instance_id.label("instance"),
        i.benchmark,
        i.user_id.label("user"),
        i.subtype,
        c.model,
        c.memory,
        c.mitigation,
        score.c.value.label("score"),
        score.c.reason,
        r.status,
        r.error_kind,
        r.error,
        r.state,
        r.response_ms,
        _total_ms().label("total_ms"),
        r.cost_usd,
        *text_columns,
    )
    rows: list[dict[str, Any]] = []
    with store.begin() as connection:
        for start in range(0, len(ids), 500):
            page = [int(each) for each in ids[start : start + 500]]
            query = (
                select(*columns)
                .select_from(s.records)
                .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
                .join(s.configurations, c.id == r.configuration_id)
                .outerjoin(score, is_headline(score, study, i.benchmark))
                .where(r.id.in_(page))
            )
            rows += [dict(row) for row in connection.execute(query).mappings()]
        people = _people(connection, rows)
    names = [column.key for column in columns]
    frame = pd.DataFrame(rows, columns=names).set_index("id")
    frame = frame.reindex([int(each) for each in ids if int(each) in frame.index])
    keys = zip(frame["configuration_id"], frame["instance"], strict=True)
    frame["human"] = pd.Series([people.get(key) for key in keys], index=frame.index, dtype="float64")
    numbers = ("score", "response_ms", "total_ms", "cost_usd")
    return frame.drop(columns="configuration_id").reset_index(drop=True).astype(dict.fromkeys(numbers, "float64"))


def names_of(store: Store, run_id: str) -> dict[str, list[str]]:
    """What there is to choose from: `users` and `subtypes` in the slice's order, and `error_kinds`."""
    i, r = s.instances.c, s.records.c
    with store.begin() as connection:
        rows = connection.execute(select(i.user_id, i.subtype).where(i.run_id == run_id).order_by(i.ordinal)).all()
        kinds = connection.scalars(
            select(r.error_kind).where(r.run_id == run_id, r.status == "error").distinct().order_by(r.error_kind)
        ).all()
    return {
        "users": list(dict.fromkeys(row.user_id for row in rows)),
        "subtypes": list(dict.fromkeys(row.subtype for row in rows)),
        "error_kinds": [str(kind) for kind in kinds if kind],
    }


def place_of(store: Store, run_id: str, key: tuple[str, str, str], instance_id: str) -> int | None:
    """The id, for the moment, of the record of a configuration (model, memory, mitigation); None when there is none."""
    c, r = s.configurations.c, s.records.c
    query = (
        select(r.id)
        .join(s.configurations, c.id == r.configuration_id)
        .where(r.run_id == run_id, r.instance_id == instance_id)
        .where(c.model == key[0], c.memory == key[1], c.mitigation == key[2])
    )
    with store.begin() as connection:
        return connection.scalar(query)


def check(search: Search) -> None:
    """Raises UsageError for a range of scores that isn't one."""
    if not (0.0 <= search.low <= search.high <= 1.0):
        raise UsageError(f"scores from {search.low:g} to {search.high:g}: give a range within 0 and 1, lowest first.")


def _ids(connection: Connection, run_id: str, study: Study, search: Search) -> Select[Any]:
    check(search)
    r, i, c = s.records.c, s.instances.c, s.configurations.c
    score = aliased(s.scores)
    conditions: list[ColumnElement[bool]] = [r.run_id == run_id]
    chosen: list[ColumnElement[bool]] = [c.run_id == run_id]
    for column, names in ((c.model, search.models), (c.memory, search.memories), (c.mitigation, search.mitigations)):
        if names:
            chosen.append(column.in_(names))
    if len(chosen) > 1:
        conditions.append(r.configuration_id.in_(connection.scalars(select(c.id).where(*chosen)).all()))
    if search.benchmark:
        conditions.append(i.benchmark == search.benchmark)
    if search.users:
        conditions.append(i.user_id.in_(search.users))
    if search.subtypes:
        conditions.append(i.subtype.in_(search.subtypes))
    if search.first_only:
        conditions.append(i.first_speaker)
    if search.error_kinds:
        conditions.append(r.error_kind.in_(search.error_kinds))
    if search.states:
        conditions.append(r.state.in_(search.states))
    if search.low > 0.0:
        conditions.append(score.c.value >= search.low)
    if search.high < 1.0:
        conditions.append(score.c.value <= search.high)
    conditions += _outcome(search.outcome, score)
    if search.text:
        sqlite = connection.dialect.name == "sqlite"
        asked = select(i.instance_id).where(i.run_id == run_id, _contains(i.question, search.text, sqlite))
        conditions.append(or_(r.instance_id.in_(asked), _contains(r.response, search.text, sqlite)))
    if search.human is not None:
        given = r.id.in_(_with_a_human_score(run_id))
        conditions.append(given if search.human else ~given)
    query = select(r.id).select_from(s.records)
    query = query.join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
    if (
        search.low > 0.0
        or search.high < 1.0
        or search.outcome in ("scored", "without a score")
        or "score" in search.order
    ):
        query = query.outerjoin(score, is_headline(score, study, i.benchmark))
    return query.where(*conditions).order_by(*_order(search.order, score), i.ordinal, r.configuration_id)


def is_headline(score: Any, study: Study, benchmark: ColumnElement[str]) -> ColumnElement[bool]:
    metric = case((benchmark == "op", "score"), else_=headline_metric(study))
    return and_(score.c.record_id == s.records.c.id, score.c.judge == study.judge, score.c.metric == metric)


def _outcome(outcome: Outcome | None, score: Any) -> list[ColumnElement[bool]]:
    if outcome is None:
        return []
    if outcome == "scored":
        return [score.c.value.is_not(None)]
    done = s.records.c.status == ("error" if outcome == "failed" else "done")
    if outcome == "without a score":
        return [done, score.c.value.is_(None), s.instances.c.subtype != "repetition"]
    return [done]


def _order(order: Order, score: Any) -> list[ColumnElement[Any]]:
    r = s.records.c
    if order == "lowest score":
        return [score.c.value.asc().nulls_last()]
    if order == "highest score":
        return [score.c.value.desc().nulls_last()]
    if order == "slowest":
        return [_total_ms().desc().nulls_last()]
    if order == "newest":
        return [r.finished_at.desc()]
    return []


def _total_ms() -> ColumnElement[Any]:
    """The sum of the stages that happened, as `opbench.analysis.latency` has it; null when none did."""
    stages = (s.records.c.retrieval_ms, s.records.c.post_ms, s.records.c.response_ms)
    retrieval, post, response = (func.coalesce(stage, 0.0) for stage in stages)
    return case((or_(*(stage.is_not(None) for stage in stages)), retrieval + post + response))


def _contains(column: ColumnElement[str | None], text: str, sqlite: bool) -> ColumnElement[bool]:
    escaped = text
    for sign in (_ESCAPE, "%", "_"):
        escaped = escaped.replace(sign, _ESCAPE + sign)
    if not sqlite:
        return column.ilike(f"%{escaped.translate(_QUOTES)}%", escape=_ESCAPE)
    # SQLite's LIKE looks past upper and lower case by itself, but of A to Z only.
    ways = {escaped} if escaped.isascii() else {escaped, escaped.lower(), escaped.upper()}
    return or_(*(column.like(f"%{way.translate(_QUOTES)}%", escape=_ESCAPE) for way in sorted(ways)))


def _newest_of_each(run_id: str) -> Select[Any]:
    h = s.human_scores.c
    of_rater = (h.configuration_id, h.instance_id, h.rater)
    return select(func.max(h.id)).where(h.run_id == run_id).group_by(*of_rater)


def _with_a_human_score(run_id: str) -> Select[Any]:
    h, r = s.human_scores.c, s.records.c
    same = and_(r.configuration_id == h.configuration_id, r.instance_id == h.instance_id)
    query = select(r.id).join(s.human_scores, same)
    return query.where(h.id.in_(_newest_of_each(run_id)), h.value.is_not(None))


def _people(connection: Connection, rows: Sequence[dict[str, Any]]) -> dict[tuple[int, str], float]:
    """The newest score that a person gave to the response that is there now, by configuration and instance; withdrawn
    ones, and those of an earlier response, are none."""
    if not rows:
        return {}
    h, r = s.human_scores.c, s.records.c
    run_of = select(s.configurations.c.run_id).where(s.configurations.c.id == rows[0]["configuration_id"])
    run_id = str(connection.scalar(run_of))
    newest = (
        select(h.configuration_id, h.instance_id, h.value, h.response_sha256, r.response)
        .join(s.records, and_(r.configuration_id == h.configuration_id, r.instance_id == h.instance_id))
        .where(h.id.in_(_newest_of_each(run_id)), h.value.is_not(None))
    )
    return {
        (row.configuration_id, row.instance_id): row.value
        for row in connection.execute(newest.order_by(h.id))
        if row.response is not None and sha256_of(row.response) == row.response_sha256
    }
