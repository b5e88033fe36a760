"""Scores that people give to responses, beside the judge's. They are only ever added: the table is their history.

A rater's newest entry for a record counts; a value of None withdraws what the rater said before. An entry belongs to
the response that was read, by its SHA-256: when the record is made again with another response, it is one of an
earlier response.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import pandas as pd
from sqlalchemy import and_, func, select

from opbench.errors import UsageError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.record import Key, configuration_id, sha256_of
from opbench.store.search import is_headline
from opbench.study import Study

LONGEST_NOTE = 2_000
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class HumanScore:
    """One entry. `current` when it is its rater's newest and about the response that the record has now."""

    id: int
    value: float | None
    note: str
    rater: str
    made_at: float
    response_sha256: str
    of_this_response: bool
    current: bool


def rate(
    store: Store,
    run_id: str,
    key: Key,
    instance_id: str,
    value: float | None,
    *,
    note: str = "",
    rater: str,
    response_sha256: str | None = None,
) -> int:
    """Add a person's score (0 to 1; None withdraws) and return the entry's id.

    `response_sha256` is of the response that the person read; None takes the one that is there now.

    Raises:
        UsageError: no such record, no response to score, a value outside 0 to 1, nothing to withdraw, or the
            record has been made again since it was read.
    """
    if value is not None and not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise UsageError(f"score {value:g}: give a number from 0 to 1.")
    if len(note) > LONGEST_NOTE:
        raise UsageError(f"the note has {len(note):,} signs: give at most {LONGEST_NOTE:,}.")
    rater = " ".join(rater.split())[:_LONGEST_NAME]
    if not rater:
        raise UsageError("the score needs a name: say who gives it.")
    h, r = s.human_scores.c, s.records.c
    with store.begin() as connection:
        of = configuration_id(connection, run_id, key)
        response = connection.scalar(select(r.response).where(r.configuration_id == of, r.instance_id == instance_id))
        if response is None:
            raise UsageError(
                f"{instance_id[:80]} under {' · '.join(key)} has no response to score: it failed, isn't made yet, "
                "or came without texts."
            )
        now = sha256_of(response)
        if response_sha256 not in (None, now):
            raise UsageError("the response was made again since you read it. Read the new one, then score it.")
        mine = and_(h.run_id == run_id, h.configuration_id == of, h.instance_id == instance_id, h.rater == rater)
        if value is None and connection.scalar(select(h.value).where(mine).order_by(h.id.desc()).limit(1)) is None:
            raise UsageError(f"{rater} has no score here to withdraw.")
        entry = {
            "run_id": run_id,
            "configuration_id": of,
            "instance_id": instance_id,
            "response_sha256": now,
            "value": value,
            "note": note,
            "rater": rater,
            "made_at": time.time(),
        }
        return int(connection.execute(s.human_scores.insert().values(**entry).returning(h.id)).scalar_one())


def history(store: Store, run_id: str, key: Key, instance_id: str) -> list[HumanScore]:
    """All entries for a record, newest first."""
    h, r = s.human_scores.c, s.records.c
    with store.begin() as connection:
        of = configuration_id(connection, run_id, key)
        response = connection.scalar(select(r.response).where(r.configuration_id == of, r.instance_id == instance_id))
        rows = connection.execute(
            select(h.id, h.value, h.note, h.rater, h.made_at, h.response_sha256)
            .where(h.run_id == run_id, h.configuration_id == of, h.instance_id == instance_id)
            .order_by(h.id.desc())
        ).all()
    now = None if response is None else sha256_of(response)
    entries: list[HumanScore] = []
    seen: set[str] = set()
    for row in rows:
        newest = row.rater not in seen
        seen.add(row.rater)
        same = row.response_sha256 == now
        entries.append(HumanScore(*row, same, newest and same and row.value is not None))
    return entries


def human_scores(store: Store, run_id: str, study: Study) -> pd.DataFrame:
    """All entries of a run, newest first.

    Columns: instance, benchmark, user, subtype, model, memory, mitigation, value (0 to 1; NaN: withdrawn), note,
    rater, made_at (Unix seconds), response_sha256, current (bool, as in `HumanScore`), judge_score (0 to 1, NaN when
    missing; of the response that the record has now).
    """
    h, i, c, r = s.human_scores.c, s.instances.c, s.configurations.c, s.records.c
    newest = select(func.max(h.id)).where(h.run_id == run_id).group_by(h.configuration_id, h.instance_id, h.rater)
    query = (
        select(
            h.instance_id.label("instance"),
            i.benchmark,
            i.user_id.label("user"),
            i.subtype,
            c.model,
            c.memory,
            c.mitigation,
            h.value,
            h.note,
            h.rater,
            h.made_at,
            h.response_sha256,
            h.id.in_(newest).label("newest"),
            s.scores.c.value.label("judge_score"),
            r.response,
        )
        .select_from(s.human_scores)
        .join(s.configurations, c.id == h.configuration_id)
        .join(s.instances, and_(i.run_id == h.run_id, i.instance_id == h.instance_id))
        .outerjoin(s.records, and_(r.configuration_id == h.configuration_id, r.instance_id == h.instance_id))
        .outerjoin(s.scores, is_headline(s.scores, study, i.benchmark))
        .where(h.run_id == run_id)
        .order_by(h.id.desc())
    )
    with store.begin() as connection:
        result = connection.execute(query)
        frame = pd.DataFrame(result.all(), columns=list(result.keys()))
    now = frame["response"].map(lambda text: sha256_of(text) if isinstance(text, str) else "")
    value = frame["value"].astype("float64")
    current = frame["newest"].astype(bool) & (now == frame["response_sha256"]) & value.notna()
    frame = frame.assign(value=value, judge_score=frame["judge_score"].astype("float64"), current=current)
    return frame.drop(columns=["newest", "response"])


def newest(store: Store, run_id: str) -> int:
    """The id of the run's newest entry, 0 when there is none: changes when somebody gave or withdrew a score."""
    with store.begin() as connection:
        return int(
            connection.scalar(select(func.max(s.human_scores.c.id)).where(s.human_scores.c.run_id == run_id)) or 0
        )
