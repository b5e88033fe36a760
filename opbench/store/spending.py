"""What a run has spent, and what its records took: read from its calls, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, select

from opbench.store import schema as s
from opbench.store.database import Store

if TYPE_CHECKING:
    import pandas as pd

#: Records that a quote looks at: more would make it no better, only slower.
_MEASURED = 2000


def spent(store: Store, run_id: str) -> float:
    """US dollars that the run's own calls cost by list price: those on which its records rest, that were made since
    it began and that no other run's record was the first to need. Calls without a known price count nothing."""
    mine, others = s.record_calls.alias(), s.record_calls.alias()
    my_records, other_records = s.records.alias(), s.records.alias()
    used = (
        select(mine.c.call_key)
        .join(my_records, my_records.c.id == mine.c.record_id)
        .where(my_records.c.run_id == run_id, mine.c.stage != "retrieval")
    )
    paid_elsewhere = exists().where(
        others.c.call_key == s.calls.c.key,
        others.c.reused.is_(False),
        other_records.c.id == others.c.record_id,
        other_records.c.run_id != run_id,
    )
    begun = select(s.runs.c.created_at).where(s.runs.c.id == run_id).scalar_subquery()
    query = select(func.sum(s.calls.c.cost_usd)).where(
        s.calls.c.key.in_(used), s.calls.c.cost_usd > 0, s.calls.c.made_at >= begun, ~paid_elsewhere
    )
    with store.begin() as connection:
        return float(connection.scalar(query) or 0.0)


def measured_calls(store: Store, run_id: str) -> pd.DataFrame:
    """The model calls of the run's first done records, a row a use, in the order of the records.

    Columns: record, model, memory, mitigation, benchmark, instance, stage (post, response, judge; None for a record
    that took no call), key, asked (the model that was asked), tokens_in, tokens_out, usd (None where the price is
    unknown), seconds.
    """
    first = (
        select(s.records.c.id)
        .where(s.records.c.run_id == run_id, s.records.c.status == "done")
        .order_by(s.records.c.id)
        .limit(_MEASURED)
        .subquery()
    )
    columns: dict[str, Any] = {
        "record": s.records.c.id,
        "model": s.configurations.c.model,
        "memory": s.configurations.c.memory,
        "mitigation": s.configurations.c.mitigation,
        "benchmark": s.instances.c.benchmark,
        "instance": s.records.c.instance_id,
        "stage": s.record_calls.c.stage,
        "key": s.record_calls.c.call_key,
        "asked": s.calls.c.model,
        "tokens_in": s.calls.c.prompt_tokens,
        "tokens_out": s.calls.c.completion_tokens,
        "usd": s.calls.c.cost_usd,
        "seconds": s.calls.c.duration_ms / 1000.0,
    }
    query = (
        select(*(column.label(name) for name, column in columns.items()))
        .select_from(s.records)
        .join(first, first.c.id == s.records.c.id)
        .join(s.configurations, s.configurations.c.id == s.records.c.configuration_id)
        .join(
            s.instances,
            (s.instances.c.run_id == s.records.c.run_id) & (s.instances.c.instance_id == s.records.c.instance_id),
        )
        .outerjoin(
            s.record_calls, (s.record_calls.c.record_id == s.records.c.id) & (s.record_calls.c.stage != "retrieval")
        )
        .outerjoin(s.calls, s.calls.c.key == s.record_calls.c.call_key)
        .order_by(s.configurations.c.id, s.records.c.id, s.record_calls.c.ordinal)
    )
    with store.begin() as connection:
        rows = connection.execute(query).all()
    # Its 70 MB are no worker's need, which asks only what was spent.
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype(dict.fromkeys(("tokens_in", "tokens_out", "usd", "seconds"), "float64"))
