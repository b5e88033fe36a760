"""A build that is killed twice ends like one that wasn't: with a scripted model, and with the embedded one, which is
held to the schema by a grammar."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from sqlalchemy import func, select

from opbench.construction.building import build, start
from opbench.construction.loading import read_source
from opbench.construction.progress import read_progress
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.builds import find_build, read_candidates, read_units
from opbench.store.database import Store, open_store
from tests.construction.writer import scripted_spec, write
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

ROLES = ["--extractor=scripted", "--generators=scripted", "--similarity=scripted", "--checker=scripted"]
FEW = ["--topics=1", "--irrelevant=1", "--baiting=2", "--fact=1", "--value=1", "--fine=1", "--coarse=1"]
FLAGS = ["--conversations=sample", *ROLES, "--embedder=scripted", *FEW, "--subtopics=1", "--repetition=2"]
UNITS = 28


def begin(environment: dict[str, str], *flags: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "opbench", "build", "run", *flags, "--no-filter"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_for(store: Store, units: int, process: subprocess.Popen[bytes], seconds: float) -> int:
    """Until so many units are done; how many are."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with store.begin() as connection:
            done = int(connection.execute(select(func.count()).select_from(s.build_units)).scalar_one())
        if done >= units:
            return done
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0].decode())
        time.sleep(0.02)
    raise AssertionError(f"not {units} units in {seconds:.0f} s")


def _beyond(endpoint: ScriptedEndpoint, most: int) -> bool:
    return endpoint.ledger.total > most


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_killed_twice_and_resumed_nothing_is_lost_or_paid_twice(home: Path) -> None:
    with ScriptedEndpoint(reply=write, latency_s=0.02) as endpoint:
        environment = use_endpoint(home, endpoint, timeout_s=60)
        calm = open_store(f"sqlite:///{home}/calm.sqlite3")
        whole = start(calm, scripted_spec(), read_source("sample"))
        asyncio.run(build(calm, whole))
        assert endpoint.ledger.total == UNITS
        store = open_store(settings().store_url)
        kept: list[int] = []
        for more in (8, 10):
            most = endpoint.ledger.total + more
            endpoint.held = partial(_beyond, endpoint, most)
            process = begin(environment, *FLAGS, "--concurrency=4")
            kept.append(wait_for(store, (kept or [0])[-1] + more - 4, process, 120))
            kill(process)
            endpoint.held = None
            [first] = {find_build(store)}
        in_flight = 2 * 4
        last = begin(environment, first)
        said, _ = last.communicate(timeout=120)
        assert last.returncode == 0, said.decode()
        assert kept[0] < kept[1] < UNITS, "killed in the middle of the work, and nothing is lost"
        assert UNITS <= endpoint.ledger.total - UNITS <= UNITS + in_flight
    progress = read_progress(store, first)
    assert (progress.done, progress.failed, progress.worker, progress.halted) == (UNITS, 0, None, None)
    assert read_candidates(store, first) == read_candidates(calm, whole)


def test_the_embedded_model_builds_under_a_grammar_and_is_killed_twice(home: Path) -> None:
    few = ["--topics=1", "--fact=2", "--subtopics=1", "--repetition=2", "--max-tokens=900"]
    flags = ["--conversations=sample", "--users=sample-1/Corvin", "--subtypes=fact,repetition", *few]
    home.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | {"OPBENCH_HOME": str(home)}
    store = open_store(settings().store_url)
    for moment in (1, 3):
        process = begin(environment, *flags, "--concurrency=1")
        wait_for(store, moment, process, 180)
        kill(process)
    build_id = find_build(store)
    before = read_units(store, build_id)
    last = begin(environment, build_id)
    said, _ = last.communicate(timeout=180)
    units = read_units(store, build_id)
    assert before.items() <= units.items(), "what was done is as it was"
    made = read_candidates(store, build_id)
    # What so small a model writes makes little sense; that it has the shape is the grammar's doing. It may hand the
    # prompt's example back, which is refused.
    refused = {unit.reason for unit in units.values() if unit.status == "failed"}
    assert refused <= {"it is copied from the prompt's example"}
    assert last.returncode == (1 if refused else 0), said.decode()
    assert len(units) == 5 or refused
    with store.begin() as connection:
        answers = list(connection.scalars(select(s.calls.c.response)))
    assert all(isinstance(json.loads(answer), dict) for answer in answers)
    assert made
    assert all(len(each.question) >= 12 for each in made)
    assert all(unit.cost_usd == 0.0 and unit.completion_tokens for unit in units.values())
