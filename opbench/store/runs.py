"""What a run is: read without the frames of `reading`, whose library (pandas, 70 MB) a worker has no use for."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Study

#: How the reason of a repetition score begins that is missing because the embedder failed.
EMBEDDER_FAILED = "embedder "


def run_study(store: Store, run_id: str) -> tuple[Study, dict[str, Any]]:
    """The study of a run and its provenance."""
    with store.begin() as connection:
        row = connection.execute(select(s.runs.c.study, s.runs.c.provenance).where(s.runs.c.id == run_id)).one()
    return Study.model_validate(row.study), row.provenance
