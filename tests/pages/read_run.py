"""A run whose attention was read, written by hand: 12 users, and its numbers are known."""

from __future__ import annotations

import numpy as np
from sqlalchemy import and_, select

from opbench.store import schema as s
from opbench.store.attention import SEGMENTS, Measured, save_attention
from opbench.store.database import Store
from opbench.study import BASE
from tests.pages.wide_run import RAG, WIDE, write_wide

OWN = "smollm2-135m@00000000000000aa/v1"
LAYERS, HEADS = 2, 3
#: Tokens of memory and of query, and how many times a query token's attention a memory token gets, by configuration.
TOKENS = 20, 10
RATIOS = {(RAG, "none"): 3.0, (RAG, "reminder"): 1.5, ("random", "none"): 2.0}


def write_read(store: Store, reader: str = OWN, run_id: str = WIDE) -> str:
    """Write `wide_run`, and readings of BASE, RAG with none and Reminder, and random memories on OP-Bench.

    Of each user's instances the first of a subtype has twice the ratio and the second half of it. The prompt of the
    first record has words.
    """
    write_wide(store, run_id)
    c, r, i = s.configurations.c, s.records.c, s.instances.c
    query = (
        select(r.id, c.memory, c.mitigation, r.instance_id)
        .join(s.configurations, c.id == r.configuration_id)
        .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
        .where(r.run_id == run_id, i.benchmark == "op")
        .order_by(r.configuration_id, i.ordinal)
    )
    with store.begin() as connection:
        rows = connection.execute(query).all()
    for row in rows:
        ratio = RATIOS.get((row.memory, row.mitigation))
        if ratio is not None:
            save_attention(store, row.id, reader, measured(ratio * (2.0 if row.instance_id.endswith("/1") else 0.5)))
        elif row.memory == BASE:
            save_attention(store, row.id, reader, measured(None))
    return run_id


def measured(ratio: float | None) -> Measured:
    """The same in every head and at both positions: a query token gets 1 part, a memory token `ratio` parts, and all
    else of the prompt 30 parts; None: the prompt has no memory."""
    memory, query = (0, TOKENS[1]) if ratio is None else TOKENS
    parts = {"first": 20.0, "instructions": 10.0, "memory": memory * (ratio or 0.0), "query": float(query)}
    shares = np.array([parts.get(name, 0.0) for name in SEGMENTS]) / sum(parts.values())
    counts = {"first": 1, "instructions": 2, "memory": memory, "query": query, "response": 4}
    words = [("first", "<b>first</b>"), ("instructions", "Answer "), ("instructions", "well. ")]
    words += [("memory", f"m{n} ") for n in range(memory)] + [("query", f"q{n} ") for n in range(query)]
    weights = [20.0, 5.0, 5.0, *([ratio or 0.0] * memory), *([1.0] * query)]
    return Measured(
        "0" * 64,
        tuple(counts.get(name, 0) for name in SEGMENTS),
        np.tile(shares, (2, LAYERS, HEADS, 1)).astype(np.float32),
        tuple(words),
        (np.array(weights) / sum(parts.values())).astype(np.float32),
    )
