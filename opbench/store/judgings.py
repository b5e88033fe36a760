"""Sets of responses with people's scores, and what judges said of them or of a run's responses afterwards.

A set is known by the digest of what is in it: the same file brought twice is one set. A judging is known by what is
judged and by all that determines the judge's numbers, so whoever starts the same one again goes on with it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import and_, bindparam, case, delete, func, select

from opbench.calibration.spec import Rated, Response
from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.record import sha256_of
from opbench.store.writing import CallRow, insert_calls, insert_ignore

_ID_LENGTH = 12
#: Columns of `read_judgements`.
JUDGEMENT_COLUMNS = (
    "judging",
    "item",
    "repeat",
    "response_sha256",
    "metric",
    "value",
    "reason",
    "raw",
    "retriable",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "duration_ms",
    "reused",
    "made_at",
)
#: Columns of `run_scores`; the first seven are those of `RunData.scores`.
RUN_SCORE_COLUMNS = ("model", "memory", "mitigation", "instance", "judge", "metric", "value", "reason")


@dataclass(frozen=True, slots=True)
class SetRow:
    """A set as lists name it."""

    id: str
    name: str
    source: dict[str, Any]
    """`kind` (`SourceKind`) and what tells where it is from."""
    maker: str
    made_at: float
    items: int
    rated: int
    """Items that somebody scored."""

    @property
    def kind(self) -> str:
        return str(self.source.get("kind", ""))


@dataclass(frozen=True, slots=True)
class JudgingRow:
    """A judge over a set or a run as lists name it, with what it took. Sums are None where a part isn't known."""

    id: str
    set_id: str | None
    run_id: str | None
    judge: str
    label: str
    provenance: dict[str, Any]
    digest: str
    repeats: int
    """Repeats that were asked for so far."""
    created_at: float
    judgements: int
    missing: int
    """Judgements without a value."""
    retriable: int
    """Those of them that the next start asks again."""
    reused: int
    """Judgements all of whose calls were there before."""
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """By list price, reused calls included: what the judging costs whoever makes it anew. 0 for judges by rule."""
    seconds: float | None
    """Time that the calls took one after the other; reused ones count with the time that they took."""


@dataclass(frozen=True, slots=True)
class JudgementRow:
    """One judgement to be written; fields as in `schema.judgements`."""

    item: str
    repeat: int
    response_sha256: str
    metric: str
    value: float | None
    reason: str | None
    raw: str | None
    retriable: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    duration_ms: float | None
    reused: bool | None
    made_at: float


def item_of(configuration_id: int, instance_id: str) -> str:
    """What a judgement of a run's record is kept under."""
    return f"{configuration_id}|{instance_id}"


def digest_of(value: object) -> str:
    """SHA-256 (hex) of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- Sets ---------------------------------------------------------------------------------------------------------


def save_set(store: Store, name: str, source: Mapping[str, Any], items: Sequence[Rated], maker: str) -> str:
    """Keep a set and return its id; one with the same items from the same source is that set, whatever its name.

    Raises:
        UsageError: no item, or two of one name.
    """
    if not items:
        raise UsageError(f"{name}: there is no response in it.")
    names = [each.item for each in items]
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise UsageError(f"{name}: the item {twice[:80]} is there twice; name each once.")
    rows = [
        {
            "item": each.item,
            "ordinal": ordinal,
            "user_id": each.response.user,
            "subtype": each.response.subtype,
            "content": each.response.model_dump(mode="json"),
            "human": [list(score) for score in each.human],
        }
        for ordinal, each in enumerate(items)
    ]
    identity = digest_of([source.get("kind"), source.get("run") or source.get("review") or "", rows])[:_ID_LENGTH]
    head = {"id": identity, "name": name, "source": dict(source), "maker": maker, "made_at": time.time()}
    with store.begin() as connection:
        insert_ignore(connection, s.response_sets, [head])
        insert_ignore(connection, s.response_set_items, [{"set_id": identity, **row} for row in rows])
    return identity


def set_list(store: Store) -> list[SetRow]:
    """All sets, newest first."""
    c, i = s.response_sets.c, s.response_set_items.c
    with store.begin() as connection:
        heads = connection.execute(select(s.response_sets).order_by(c.made_at.desc(), c.id)).all()
        counts: dict[str, list[int]] = {}
        for set_id, human in connection.execute(select(i.set_id, i.human)):
            count = counts.setdefault(set_id, [0, 0])
            count[0] += 1
            count[1] += bool(human)
    return [SetRow(row.id, row.name, row.source, row.maker, row.made_at, *counts.get(row.id, [0, 0])) for row in heads]


def find_set(store: Store, wanted: str | None) -> SetRow:
    """The set whose id begins with, or whose name is, `wanted`; the newest when None.

    Raises:
        UsageError: none, or more than one.
    """
    known = set_list(store)
    if not known:
        raise UsageError("there is no set of responses in this store yet. Make one with 'opbench judges sets add'.")
    if wanted is None:
        return known[0]
    hits = [row for row in known if row.id == wanted] or [
        row for row in known if row.id.startswith(wanted) or row.name == wanted
    ]
    if len(hits) == 1:
        return hits[0]
    if not hits:
        there = ", ".join(f"{row.id} ({row.name})" for row in known[:10])
        raise UsageError(f"no set '{wanted[:80]}'. There are: {there}.")
    raise UsageError(f"'{wanted[:80]}' fits {len(hits)} sets: {', '.join(row.id for row in hits)}. Give the id.")


def read_set(store: Store, set_id: str) -> list[Rated]:
    """A set's items in order; empty when there is no such set."""
    i = s.response_set_items.c
    with store.begin() as connection:
        rows = connection.execute(
            select(i.item, i.content, i.human).where(i.set_id == set_id).order_by(i.ordinal)
        ).all()
    return [
        Rated(
            item=row.item,
            response=Response.model_validate(row.content),
            human=tuple((str(rater), float(value)) for rater, value in row.human),
        )
        for row in rows
    ]


def rename_set(store: Store, set_id: str, name: str) -> None:
    """Give a set another name."""
    with store.begin() as connection:
        connection.execute(s.response_sets.update().where(s.response_sets.c.id == set_id).values(name=name))


def delete_set(store: Store, set_id: str) -> None:
    """Delete a set and its judgings; the calls stay in the call store, so a judging made again pays nothing twice."""
    with store.begin() as connection:
        connection.execute(delete(s.response_sets).where(s.response_sets.c.id == set_id))


# --- Judgings -----------------------------------------------------------------------------------------------------


def starting(set_id: str | None, run_id: str | None, provenance: Mapping[str, Any]) -> str:
    """The id that the judging has or would have."""
    return digest_of([set_id, run_id, digest_of(provenance)])[:_ID_LENGTH]


def start_judging(
    store: Store,
    *,
    set_id: str | None = None,
    run_id: str | None = None,
    judge: str,
    label: str,
    provenance: Mapping[str, Any],
    repeats: int,
) -> str:
    """Make the judging, or find the one of the same judge over the same set or run, and return its id. `repeats` only
    ever grow."""
    identity = starting(set_id, run_id, provenance)
    j = s.judgings.c
    row = {
        "id": identity,
        "set_id": set_id,
        "run_id": run_id,
        "judge": judge,
        "label": label,
        "provenance": dict(provenance),
        "digest": digest_of(provenance),
        "repeats": repeats,
        "created_at": time.time(),
    }
    with store.begin() as connection:
        insert_ignore(connection, s.judgings, [row])
        connection.execute(s.judgings.update().where(j.id == identity, j.repeats < repeats).values(repeats=repeats))
    return identity


def judging_list(store: Store, *, set_id: str | None = None, run_id: str | None = None) -> list[JudgingRow]:
    """The judgings of a set, of a run, or all of them; in the order in which they were begun."""
    j, g = s.judgings.c, s.judgements.c

    def known(column: Any) -> Any:
        """The sum, or null where a part isn't known."""
        return case((func.count() == func.count(column), func.sum(column)), else_=None)

    query = (
        select(
            s.judgings,
            func.count(g.item).label("judgements"),
            func.count(g.item).filter(g.value.is_(None)).label("missing"),
            func.count(g.item).filter(g.retriable.is_(True)).label("retriable"),
            func.count(g.item).filter(g.reused.is_(True)).label("reused"),
            known(g.prompt_tokens).label("prompt_tokens"),
            known(g.completion_tokens).label("completion_tokens"),
            known(g.cost_usd).label("cost_usd"),
            known(g.duration_ms).label("duration_ms"),
        )
        .select_from(s.judgings)
        .outerjoin(s.judgements, g.judging_id == j.id)
        .group_by(j.id)
        .order_by(j.created_at, j.id)
    )
    if set_id is not None:
        query = query.where(j.set_id == set_id)
    if run_id is not None:
        query = query.where(j.run_id == run_id)
    with store.begin() as connection:
        rows = connection.execute(query).mappings().all()
    return [
        JudgingRow(
            **{name: row[name] for name in JudgingRow.__slots__ if name != "seconds"},
            seconds=None if row["duration_ms"] is None else row["duration_ms"] / 1000,
        )
        for row in rows
    ]


def find_judging(store: Store, wanted: str) -> JudgingRow:
    """The judging whose id begins with `wanted`.

    Raises:
        UsageError: none, or more than one.
    """
    hits = [row for row in judging_list(store) if row.id.startswith(wanted)]
    if len(hits) == 1:
        return hits[0]
    raise UsageError(f"'{wanted[:80]}' fits {len(hits)} judgings; 'opbench judges list' names them.")


def delete_judging(store: Store, judging_id: str) -> None:
    """Delete a judging with its judgements; the calls stay."""
    with store.begin() as connection:
        connection.execute(delete(s.judgings).where(s.judgings.c.id == judging_id))


def settled(store: Store, judging_id: str) -> dict[tuple[str, int], str]:
    """What needn't be asked again: SHA-256 of the response by (item, repeat), without judgements that failed in
    transport."""
    g = s.judgements.c
    query = select(g.item, g.repeat, g.response_sha256).where(g.judging_id == judging_id, g.retriable.is_(False))
    with store.begin() as connection:
        return {(row.item, row.repeat): row.response_sha256 for row in connection.execute(query)}


def save_judgements(store: Store, judging_id: str, rows: Sequence[JudgementRow], calls: Sequence[CallRow] = ()) -> None:
    """Write judgements in the place of those of the same item and repeat, with the calls that they rest on, in one
    transaction. A judging that was deleted meanwhile keeps its calls only."""
    g = s.judgements.c
    with store.begin() as connection:
        # A write at first: SQLite refuses one after a read when somebody else wrote between the two.
        alive = connection.execute(s.judgings.update().where(s.judgings.c.id == judging_id).values(id=judging_id))
        insert_calls(connection, calls)
        if not alive.rowcount or not rows:
            return
        keys = [{"b_item": row.item, "b_repeat": row.repeat} for row in rows]
        old = and_(g.judging_id == judging_id, g.item == bindparam("b_item"), g.repeat == bindparam("b_repeat"))
        connection.execute(delete(s.judgements).where(old), keys)
        values = [
            {"judging_id": judging_id, **{name: getattr(row, name) for name in JudgementRow.__slots__}} for row in rows
        ]
        insert_ignore(connection, s.judgements, values)


def read_judgements(store: Store, judging_ids: Sequence[str]) -> pd.DataFrame:
    """All judgements of these judgings, by judging, item and repeat; `JUDGEMENT_COLUMNS`, value NaN when missing."""
    g = s.judgements.c
    columns = [g.judging_id.label("judging"), *(g[name] for name in JUDGEMENT_COLUMNS[1:])]
    query = select(*columns).where(g.judging_id.in_(list(judging_ids))).order_by(g.judging_id, g.item, g.repeat)
    with store.begin() as connection:
        rows = connection.execute(query).all()
    frame = pd.DataFrame(rows, columns=list(JUDGEMENT_COLUMNS))
    numbers = ("value", "prompt_tokens", "completion_tokens", "cost_usd", "duration_ms")
    return frame.astype(dict.fromkeys(numbers, "float64"))


def run_scores(store: Store, judging_id: str) -> pd.DataFrame:
    """What a judge says of a run's responses, in the shape of `RunData.scores`: `RUN_SCORE_COLUMNS`, a row a record;
    `judge` is the judging's label, `value` the mean over the repeats that have one (0 to 1; NaN: none has, and `reason`
    says why).

    Judgements of a response that the record has no more are left out.
    """
    g, r, c, j = s.judgements.c, s.records.c, s.configurations.c, s.judgings.c
    given = select(g.item, g.metric, g.value, g.reason, g.response_sha256).where(g.judging_id == judging_id)
    with store.begin() as connection:
        of = connection.execute(select(j.run_id, j.label).where(j.id == judging_id)).first()
        judgements = connection.execute(given.order_by(g.item, g.repeat)).all()
        records = connection.execute(
            select(r.configuration_id, c.model, c.memory, c.mitigation, r.instance_id, r.response)
            .join(s.configurations, c.id == r.configuration_id)
            .where(r.run_id == (of.run_id if of else None), r.status == "done")
            .order_by(r.configuration_id, r.instance_id)
        ).all()
    by_item: dict[str, list[Any]] = {}
    for row in judgements:
        by_item.setdefault(row.item, []).append(row)
    found = []
    for record in records:
        said = by_item.get(item_of(record.configuration_id, record.instance_id), [])
        if not said:
            continue
        now = sha256_of(record.response or "")
        for metric in dict.fromkeys(row.metric for row in said):
            mine = [row for row in said if row.metric == metric and row.response_sha256 == now]
            values = [row.value for row in mine if row.value is not None]
            if mine:
                value = sum(values) / len(values) if values else float("nan")
                reason = None if values else mine[0].reason
                found.append((*record[1:5], of.label if of else "", metric, value, reason))
    return pd.DataFrame(found, columns=list(RUN_SCORE_COLUMNS)).astype({"value": "float64"})
