"""The embedded model's server is killed in the middle of a study: another one takes its place."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from sqlalchemy import func, select

from opbench.store import schema as s
from tests.soak.process import Starter
from tests.soak.provider import Plan
from tests.soak.world import World

_COMPUTING_S, _LOOKING_S = 0.05, 0.1


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
        states = (world.home / "cache" / "embedded").glob
        world.wait_for(process, lambda: any(states("*/state.json")))
        (state,) = states("*/state.json")
        pid = int(json.loads(state.read_text())["pid"])

        def one_is_done() -> bool:
            # It computes for moments only: however quick it is, the study isn't over before somebody looks.
            os.kill(pid, signal.SIGCONT)
            time.sleep(_COMPUTING_S)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(_LOOKING_S)
            return world.status().done >= 1

        world.wait_for(process, one_is_done)
        assert world.status().done < 8
        os.kill(pid, signal.SIGKILL)
        assert process.wait() == 0, process.said()
        status = world.status()
        assert (status.done, status.errors, status.planned, status.complete) == (8, 0, 8, True)
        with store.begin() as connection:
            assert connection.scalar(select(func.count()).select_from(s.calls)) == 8
            assert connection.scalar(select(func.count()).select_from(s.record_calls)) == 8
        store.close()
