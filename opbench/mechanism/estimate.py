"""What measuring attention will take: records that aren't read yet, and the pace at which a model read before."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median

from sqlalchemy import select

from opbench.mechanism.measuring import Plan
from opbench.store import schema as s
from opbench.store.attention import readers, stored_texts
from opbench.store.database import Store

#: Readings by which a pace is told, and gaps between two that are a pause, not a reading.
_NEWEST = 200
_PAUSE_S = 300.0


def label_of(reader: str) -> str:
    """The name that a reading model's readings begin with: of a folder its last part."""
    return Path(reader).expanduser().name[:60]


def left(store: Store, chosen: Plan, reader: str) -> int:
    """How many records of a plan aren't read yet by a model of that name; without loading it, so one whose weights
    have changed counts as the same."""
    known: set[int] = set()
    for each in readers(store, chosen.run_id):
        if each.name.rpartition("@")[0] == label_of(reader):
            known |= set(stored_texts(store, chosen.run_id, each.name))
    return sum(each.record not in known for each in chosen.records)


def seconds_a_record(store: Store, reader: str) -> float | None:
    """The median time between two readings of a model of that name, of any run; None before there are two."""
    a = s.attention.c
    # The label may hold signs that LIKE takes for others.
    query = (
        select(a.made_at)
        .where(a.reader.startswith(f"{label_of(reader)}@", autoescape=True))
        .order_by(a.made_at.desc())
        .limit(_NEWEST)
    )
    with store.begin() as connection:
        times = list(connection.scalars(query))
    gaps = [later - earlier for later, earlier in pairwise(times) if later - earlier < _PAUSE_S]
    return median(gaps) if gaps else None
