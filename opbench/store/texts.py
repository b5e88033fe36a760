"""Texts of a run's records, read narrowly: what analysis of wording, retrieval and repetition needs beside the numbers
of `RunData`."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
from sqlalchemy import Connection, and_, select

from opbench.errors import UsageError
from opbench.judges.text import strip_thinking
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.frames import CONFIGURATION

COLUMNS = ("model", "memory", "mitigation", "instance", "user", "subtype", "question", "response")
MEMORY_COLUMNS = ("retrieved", "context")


def read_texts(
    store: Store,
    run_id: str,
    *,
    subtypes: Collection[str] = (),
    users: Collection[str] = (),
    memories: bool = False,
) -> pd.DataFrame:
    """A row a done record, by configuration and then in the slice's order: `COLUMNS`, the response without thinking
    blocks. Nothing named means all subtypes, all users.

    With `memories` also `retrieved` (a list of {text, date, score} in rank order; None for BASE) and `context` (the
    lines that the response model saw, {text, date, sources}; None for BASE).

    Raises:
        UsageError: the run's texts were left out.
    """
    r, i = s.records.c, s.instances.c
    columns = [*CONFIGURATION, r.instance_id.label("instance"), i.user_id.label("user"), i.subtype, i.question]
    columns += [r.response, *((r.retrieved, r.context) if memories else ())]
    query = (
        select(*columns)
        .select_from(s.records)
        .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
        .join(s.configurations, s.configurations.c.id == r.configuration_id)
        .where(r.run_id == run_id, r.status == "done")
        .order_by(r.configuration_id, i.ordinal)
    )
    if subtypes:
        query = query.where(i.subtype.in_(list(subtypes)))
    if users:
        query = query.where(i.user_id.in_(list(users)))
    with store.begin() as connection:
        need_texts(connection, run_id)
        rows = connection.execute(query).all()
    frame = pd.DataFrame(rows, columns=[*COLUMNS, *(MEMORY_COLUMNS if memories else ())])
    frame["response"] = [strip_thinking(text or "") for text in frame["response"]]
    if memories:
        # BASE has none: pandas would make NaN of it.
        for name in MEMORY_COLUMNS:
            frame[name] = frame[name].astype(object).where(frame["memory"] != "base", None)
    return frame


def need_texts(connection: Connection, run_id: str) -> None:
    """Raises UsageError when the run's texts were left out."""
    if connection.scalar(select(s.runs.c.text_left_out).where(s.runs.c.id == run_id)):
        raise UsageError(
            f"run {run_id} came without texts (questions, memories, responses), and this rests on them. Work in the "
            "store that made it, or import a bundle that was exported without --no-texts."
        )
