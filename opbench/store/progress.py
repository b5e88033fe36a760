"""How far each configuration of a run is, and how fast it goes."""

from __future__ import annotations

import time

import pandas as pd
from sqlalchemy import func, select

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.reading import RunStatus

_WINDOW_S = 60.0


def by_configuration(store: Store, status: RunStatus) -> pd.DataFrame:
    """`status.by_configuration` with what the run's last minute says of each configuration.

    Further columns: rate (records a second; NaN when nothing works on the run), seconds_left (NaN where that can't be
    told), kinds (its errors by kind, `3 × timeout, 1 × auth`; empty without).
    """
    frame = status.by_configuration.copy()
    key = (s.configurations.c.model, s.configurations.c.memory, s.configurations.c.mitigation)
    mine = s.configurations.c.run_id == status.run_id
    recent: dict[tuple[str, str, str], int] = {}
    now = time.time()
    span = max(1.0, min(_WINDOW_S, now - status.worker.get("started_at", now)))
    with store.begin() as connection:
        if status.working:
            counted = connection.execute(
                select(*key, func.count())
                .join(s.records, s.records.c.configuration_id == s.configurations.c.id)
                .where(mine, s.records.c.run_id == status.run_id, s.records.c.finished_at >= now - span)
                .group_by(*key)
            )
            recent = {(row[0], row[1], row[2]): row[3] for row in counted}
        failed = connection.execute(
            select(*key, s.records.c.error_kind, func.count())
            .join(s.records, s.records.c.configuration_id == s.configurations.c.id)
            .where(mine, s.records.c.run_id == status.run_id, s.records.c.status == "error")
            .group_by(*key, s.records.c.error_kind)
            .order_by(func.count().desc())
        ).all()
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for model, memory, mitigation, kind, count in failed:
        kinds.setdefault((model, memory, mitigation), []).append(f"{count} × {kind}")
    names = list(zip(frame["model"], frame["memory"], frame["mitigation"], strict=True))
    missing = float("nan")
    frame["rate"] = [recent.get(name, 0) / span if status.working else missing for name in names]
    waiting = frame["planned"] - frame["done"] - frame["errors"]
    frame["seconds_left"] = [
        0.0 if left == 0 else left / rate if rate > 0 else missing
        for left, rate in zip(waiting, frame["rate"], strict=True)
    ]
    frame["kinds"] = [", ".join(kinds.get(name, [])) for name in names]
    return frame
