"""The embedded model's server is killed in the middle of a study: another one takes its place."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from sqlalchemy import func, select

from opbench.store import schema as s
from opbench.store.reading import run_ids, run_status
from tests.soak.process import Starter
from tests.soak.provider import Plan
from tests.soak.world import World


class Embedded(World):
    """Eight records of the embedded model, long enough to be killed in."""

    @property
    def arguments(self) -> list[str]:
        return [
            "run",
            "--models=smollm2-135m",
            "--memories=base",
            "--mitigations=none",
            "--benchmarks=op",
            "--subtypes=fully-irrelevant",
            "--judge=offline",
            "--embedder=vectors",
            "--data=sample",
            "--max-tokens=64",
        ]


def test_its_records_are_done_all_the_same(tmp_path: Path) -> None:
    starter = Starter()
    with Embedded("embedded server", tmp_path, starter, Plan(), models=1) as world:
        store = world.open()
        process = world.start(concurrency=1)
        world.wait_for(process, lambda: bool(run_ids(store)) and run_status(store, run_ids(store)[0]).done >= 1)
        (state,) = world.home.glob("cache/embedded/*/state.json")
        pid = int(json.loads(state.read_text())["pid"])
        os.kill(pid, signal.SIGKILL)
        assert process.wait() == 0, process.said()
        status = world.status()
        assert (status.done, status.errors, status.planned, status.complete) == (8, 0, 8, True)
        with store.begin() as connection:
            assert connection.scalar(select(func.count()).select_from(s.calls)) == 8
            assert connection.scalar(select(func.count()).select_from(s.record_calls)) == 8
        store.close()
