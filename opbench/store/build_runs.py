"""Runs on what builds made: which run is of which build, and which instance of it is which candidate."""

from __future__ import annotations

from sqlalchemy import select

from opbench.benchmarks.built import build_of
from opbench.store import schema as s
from opbench.store.database import Store


def runs_of_build(store: Store, build_id: str) -> list[str]:
    """Ids of the runs on a build's questions, newest first."""
    of_build = s.runs.c.study["data"].as_string().startswith(f"build:{build_id}:")
    with store.begin() as connection:
        return list(
            connection.scalars(
                select(s.runs.c.id).where(s.SHOWN, of_build).order_by(s.runs.c.created_at.desc(), s.runs.c.id)
            )
        )


def build_of_run(store: Store, run_id: str) -> str | None:
    """The build whose questions a run asks; None when they are of no build, or of one that isn't in this store."""
    with store.begin() as connection:
        study = connection.scalar(select(s.runs.c.study).where(s.runs.c.id == run_id))
        named = None if study is None else build_of(str(study.get("data", "")))
        return None if named is None else connection.scalar(select(s.builds.c.id).where(s.builds.c.id == named))


def candidates_of_run(store: Store, run_id: str) -> dict[str, str]:
    """Instance id -> candidate id of a run on a build's questions; {} for any other run.

    They meet in user, subtype and question: an export says nothing else of a candidate that could change with the
    candidates beside it. Of two with the same three, the first in the build's order.
    """
    build_id = build_of_run(store, run_id)
    if build_id is None:
        return {}
    i, c = s.instances.c, s.candidates.c
    with store.begin() as connection:
        known: dict[tuple[str, str, str], str] = {}
        rows = connection.execute(
            select(c.user_id, c.subtype, c.question, c.id).where(c.build_id == build_id).order_by(c.ordinal)
        )
        for user, subtype, question, candidate in rows:
            known.setdefault((user, subtype, question), candidate)
        instances = connection.execute(
            select(i.instance_id, i.user_id, i.subtype, i.question).where(i.run_id == run_id, i.benchmark == "op")
        ).all()
    found = ((name, known.get((user, subtype, question))) for name, user, subtype, question in instances)
    return {name: candidate for name, candidate in found if candidate is not None}
