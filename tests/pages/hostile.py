"""A run in which everything that comes from models, files and people is written to do harm."""

from __future__ import annotations

import copy
from typing import Any

from sqlalchemy import select, update

from opbench.store import schema as s
from opbench.store.database import Store
from tests.pages.made_run import write_run

RUN = "hostile0"
#: Markup, Markdown, formulas, colours of a terminal, and a mark that turns the writing round.
NASTY = (
    '=1+1 <script>alert(1)</script><img src="http://example.invalid/i.png" onerror="alert(1)"> '
    "![p](http://example.invalid/p.png) [l](javascript:alert(1)) **bold** $x^2$ :red[r] :material/skull: "
    '<a href="javascript:alert(1)">a</a> \x1b[31mred\x1b[0m \u202egnp.exe'
)
LONG = (NASTY + "\n" + "word " * 40 + "\n") * 450
"""About 200 KB."""


def write_hostile_run(store: Store) -> str:
    """`made_run` with its texts, names, reasons and labels replaced; one response is 200 KB."""
    assert len(LONG.encode()) > 200_000
    write_run(store, RUN, name=NASTY, failed=2, left=1)
    with store.begin() as connection:
        row = connection.execute(select(s.runs.c.study, s.runs.c.provenance).where(s.runs.c.id == RUN)).one()
        study, provenance = copy.deepcopy(row.study), copy.deepcopy(row.provenance)
        study["name"] = NASTY
        for key in ("data_source", "git_commit"):
            provenance[key] = NASTY
        provenance["data"] = {NASTY: NASTY}
        connection.execute(update(s.runs).where(s.runs.c.id == RUN).values(study=study, provenance=provenance))
        connection.execute(update(s.instances).values(question=NASTY, answer=NASTY))
        memory = [{"text": NASTY, "date": NASTY, "score": 0.5}]
        connection.execute(
            update(s.records).values(
                response=NASTY,
                draft=NASTY,
                critique=NASTY,
                retrieved=memory,
                context=[{"text": NASTY, "date": NASTY, "sources": [0]}],
                state_reason=NASTY,
            )
        )
        connection.execute(update(s.records).where(s.records.c.status == "error").values(error=NASTY, response=None))
        first = select(s.records.c.id).where(s.records.c.status == "done").limit(1).scalar_subquery()
        connection.execute(update(s.records).where(s.records.c.id == first).values(response=LONG))
        connection.execute(update(s.scores).values(reason=NASTY, raw=NASTY))
        connection.execute(update(s.user_scores).values(reason=NASTY))
    return RUN


def strings(value: Any) -> list[str]:
    """All texts in a JSON value, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [found for key, each in value.items() for found in (str(key), *strings(each))]
    if isinstance(value, list | tuple):
        return [found for each in value for found in strings(each)]
    return []
