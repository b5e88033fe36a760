"""Several processes that share a run end as a sole one does, whoever of them dies when."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from opbench.errors import StoreError
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.leases import take_away
from opbench.store.reading import RunStatus, run_ids, run_status
from opbench.store.runs import run_study
from opbench.store.writing import set_request
from tests.running import team_study as team
from tests.running.study import PLANNED, hold, outcome, reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

CONCURRENCY = 6
#: Two heartbeats: by then a request has reached every worker.
_SEEN_S = 4.0
#: Calls that an instance in hand may have made when its worker is killed.
CALLS = 5


@dataclass
class Scene:
    home: Path
    endpoint: ScriptedEndpoint
    environment: dict[str, str]
    url: str
    store: Store

    def begin(self, *flags: str, **fields: Any) -> Any:
        return team.begin(self.environment, self.url, f"--concurrency={CONCURRENCY}", *flags, **fields)

    @property
    def sent_twice(self) -> int:
        """Chat requests that were sent though the same had been sent before."""
        return sum(count - 1 for count in team.chats(self.endpoint).values())

    @property
    def run_id(self) -> str:
        return run_ids(self.store)[0]


SQLITE, POSTGRESQL = (pytest.mark.parametrize("store_url", [kind], indirect=True) for kind in ("sqlite", "postgresql"))


@pytest.fixture
def scene(home: Path, tmp_path: Path, store_url: str) -> Iterator[Scene]:
    """A store, and an endpoint that takes its time."""
    with ScriptedEndpoint(reply=reply, latency_s=0.1) as endpoint:
        environment = use_endpoint(home, endpoint, price_in=1.0, price_out=2.0, timeout_s=60)
        store = open_store(store_url)
        yield Scene(home, endpoint, environment, store_url, store)
        store.close()


@pytest.fixture(scope="module")
def sole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a sole process leaves of the study; the endpoint answers by what it is asked alone."""
    import asyncio

    folder = tmp_path_factory.mktemp("sole")
    with pytest.MonkeyPatch.context() as patch, ScriptedEndpoint(reply=reply) as endpoint:
        patch.setenv("OPBENCH_HOME", str(folder))
        patch.setenv("OPBENCH_MODELS", "")
        use_endpoint(folder, endpoint, price_in=1.0, price_out=2.0)
        store = open_store(f"sqlite:///{folder / 'store.sqlite3'}")
        asyncio.run(run_here(store, CONCURRENCY))
        found = outcome(store)
        store.close()
        assert found["record count"] == PLANNED
        assert len(endpoint.ledger.bodies) > PLANNED
    settings.cache_clear()
    return found


def same(left: dict[str, Any], sole: dict[str, Any]) -> None:
    """All that a run leaves is what a sole process leaves. Keys of calls hold the endpoint's address, which differs."""
    for part in ("records", "record count", "scores", "user scores"):
        assert left[part] == sole[part], part
    assert sorted(left["calls"].values()) == sorted(sole["calls"].values())
    assert sum(left["uses"].values()) == sum(sole["uses"].values())


def tidy(scene: Scene) -> None:
    """Nobody is at work any more, and nobody holds anything."""
    with scene.store.begin() as connection:
        assert connection.scalar(select(func.count()).select_from(s.workers)) == 0
        assert connection.scalar(select(func.count()).select_from(s.leases)) == 0
    assert run_status(scene.store, scene.run_id).complete


@pytest.mark.parametrize(("store_url", "workers"), [("sqlite", 2), ("postgresql", 3)], indirect=["store_url"])
def test_workers_do_what_one_does(scene: Scene, sole: dict[str, Any], workers: int) -> None:
    code, said = team.end(scene.begin(f"--workers={workers}"))
    assert code == 0, said
    same(outcome(scene.store), sole)
    tidy(scene)
    assert scene.sent_twice == 0
    batches = [str(body["input"]) for body in scene.endpoint.ledger.bodies if len(body.get("input", "")) > 1]
    assert len(batches) == len(set(batches)), "an index is made by one worker"
    assert scene.endpoint.ledger.most_at_once <= CONCURRENCY
    with scene.store.begin() as connection:
        loads = set(connection.scalars(select(s.records.c.concurrency)))
    assert max(loads) == CONCURRENCY, "the load is that of all workers together"
    _, provenance = run_study(scene.store, scene.run_id)
    [execution] = provenance["executions"]
    assert (execution["workers"], execution["concurrency"]) == (workers, CONCURRENCY)
    assert execution["embeddings_usd"] > 0
    assert provenance["answered_as"] == {"scripted": ["scripted"]}


@SQLITE
def test_a_killed_worker_is_replaced(scene: Scene, sole: dict[str, Any]) -> None:
    hold(scene.endpoint)
    leader = scene.begin("--workers=3")
    rows = team.until(lambda: len(found := team.members(scene.store)) == 3 and found, leader)
    team.until(lambda: team.records(scene.store) >= 15, leader)
    team.kill(rows[1].pid)
    scene.endpoint.held = None
    code, said = team.end(leader)
    assert code == 0, said
    assert f"(process {rows[1].pid}) was killed by signal 9. Another takes its place." in said
    same(outcome(scene.store), sole)
    tidy(scene)
    assert scene.sent_twice <= CONCURRENCY / 3 * CALLS, "what it had in hand, at the most"


@SQLITE
def test_a_killed_leaders_workers_end_and_the_next_start_goes_on(scene: Scene, sole: dict[str, Any]) -> None:
    hold(scene.endpoint)
    leader = scene.begin("--workers=2")
    rows = team.until(lambda: len(found := team.members(scene.store)) == 2 and found, leader)
    team.until(lambda: team.records(scene.store) >= 10, leader)
    team.kill(leader.pid)
    leader.wait()
    scene.endpoint.held = None
    again = scene.begin("--workers=2")
    code, said = team.end(again)
    assert code == 0, said
    assert not any(team.alive(row.pid) for row in rows)
    same(outcome(scene.store), sole)
    tidy(scene)
    assert scene.sent_twice == 0, "what the workers had in hand is finished, and the next start waits for it"


@POSTGRESQL
def test_two_starts_at_once_are_one_run(scene: Scene, sole: dict[str, Any]) -> None:
    both = [scene.begin("--workers=2") for _ in range(2)]
    ends = [team.end(process) for process in both]
    assert sorted(code for code, _ in ends) == [0, 2], ends
    assert "is being worked on by process" in next(said for code, said in ends if code == 2)
    same(outcome(scene.store), sole)
    tidy(scene)
    assert scene.sent_twice == 0


def counted(status: RunStatus) -> tuple[int, int]:
    """Records that the leader tells, and those of the members together."""
    return status.worker["stats"]["done"], sum(each["done"] for each in status.members)


@SQLITE
def test_pause_go_on_and_stop_reach_all_workers(scene: Scene, sole: dict[str, Any]) -> None:
    hold(scene.endpoint, 50)
    leader = scene.begin("--workers=2")
    team.until(lambda: len(team.members(scene.store)) == 2, leader)
    team.until(lambda: team.records(scene.store) >= 5, leader)
    set_request(scene.store, scene.run_id, "pause")
    time.sleep(_SEEN_S)
    scene.endpoint.held = None
    time.sleep(1.5)  # what was in hand
    paused = team.records(scene.store)
    time.sleep(1.0)
    assert team.records(scene.store) == paused < PLANNED
    status = run_status(scene.store, scene.run_id)
    assert status.working
    assert status.worker["pid"] == leader.pid, "the leader speaks for all"
    assert {each["state"] for each in status.members} == {"at work"}
    team.until(lambda: counted(run_status(scene.store, scene.run_id)) == (paused, paused), leader)
    hold(scene.endpoint, scene.endpoint.ledger.total + 50)
    set_request(scene.store, scene.run_id, "go")
    team.until(lambda: team.records(scene.store) > paused, leader)
    set_request(scene.store, scene.run_id, "stop")
    time.sleep(_SEEN_S)
    scene.endpoint.held = None
    code, said = team.end(leader)
    assert code == 1, said
    status = run_status(scene.store, scene.run_id)
    assert 0 < status.done < PLANNED
    assert (status.working, status.halted) == (False, None)
    code, said = team.end(scene.begin("--workers=2"))
    assert code == 0, said
    same(outcome(scene.store), sole)
    tidy(scene)
    assert scene.sent_twice == 0


@POSTGRESQL
def test_ctrl_c_finishes_what_all_workers_have_in_hand(scene: Scene) -> None:
    hold(scene.endpoint)
    leader = scene.begin("--workers=2")
    team.until(lambda: team.records(scene.store) >= 5, leader)
    leader.send_signal(signal.SIGINT)
    time.sleep(_SEEN_S)
    scene.endpoint.held = None
    code, said = team.end(leader)
    assert code == 1, said
    assert "finishing what is in flight" in said
    assert 0 < team.records(scene.store) < PLANNED
    assert scene.endpoint.ledger.closed_by_client == 0, "no request was broken off"
    assert not team.members(scene.store)


@SQLITE
def test_a_budget_is_all_workers_together(scene: Scene) -> None:
    # Tokens at 1 and 2 dollars a million: the whole study costs a few cents.
    code, said = team.end(scene.begin("--workers=2", "--budget=0.01"))
    assert code == 1, said
    status = run_status(scene.store, scene.run_id)
    assert status.halted is not None
    assert re.match(
        r"Stopped: the budget of \$0\.0100 is (all but )?reached, \$0\.0(099|1\d\d) are spent", status.halted
    )
    _, provenance = run_study(scene.store, scene.run_id)
    with scene.store.begin() as connection:
        spent = connection.scalar(select(func.sum(s.calls.c.cost_usd))) + provenance["executions"][0]["embeddings_usd"]
        dearest = connection.scalar(select(func.max(s.calls.c.cost_usd)))
    assert 0.0099 <= spent <= 0.01 + CONCURRENCY * CALLS * dearest
    assert 0 < status.done < PLANNED


def freeze(store: Store, row: Any) -> None:
    """Stop a worker's process in between two of its transactions."""
    while True:
        os.kill(row.pid, signal.SIGSTOP)
        time.sleep(0.2)
        try:
            with store.begin() as connection:
                connection.execute(select(s.workers.c.id).where(s.workers.c.id == row.id).with_for_update(nowait=True))
                return
        except StoreError:
            os.kill(row.pid, signal.SIGCONT)
            time.sleep(0.05)


@POSTGRESQL
def test_a_stalled_worker_whose_part_was_given_away_writes_nothing(scene: Scene, sole: dict[str, Any]) -> None:
    hold(scene.endpoint)
    leader = scene.begin("--workers=2")
    rows = team.until(lambda: len(found := team.members(scene.store)) == 2 and found, leader)
    team.until(lambda: team.records(scene.store) >= 10, leader)
    stalled = rows[0]
    freeze(scene.store, stalled)
    # As the leader does with a worker that it can't reach.
    take_away(scene.store, stalled.run_id, stalled.id)
    scene.endpoint.held = None
    team.until(lambda: team.records(scene.store) == PLANNED, leader)
    before = outcome(scene.store)
    with scene.store.begin() as connection:
        ids = set(connection.scalars(select(s.records.c.id)))
    os.kill(stalled.pid, signal.SIGCONT)
    code, said = team.end(leader)
    assert code == 0, said
    assert "was silent for so long that its part of the run was given to another" in said
    assert outcome(scene.store)["records"] == before["records"]
    with scene.store.begin() as connection:
        assert set(connection.scalars(select(s.records.c.id))) == ids, "not one record was written over"
    same(outcome(scene.store), sole)
    tidy(scene)


def test_workers_that_die_again_and_again_end_the_run_with_a_sentence(home: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "deadly.py"
    plugin.write_text(
        "import os, signal\n"
        "from mitigations.registry import register\n"
        "class Deadly:\n"
        "    name, label, family, calls, revises = 'deadly', 'Deadly', 'filter', 0, False\n"
        "    prompt_sha256 = 'none'\n"
        "    async def process(self, question, memories, ask, search=None):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    async def revise(self, question, memories, draft, ask, *, system=''):\n"
        "        raise AssertionError\n"
        "register(Deadly())\n"
    )
    with ScriptedEndpoint(reply=reply) as endpoint:
        environment = use_endpoint(home, endpoint)
        url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        flags = ("--workers=2", f"--plugin={plugin}", "--concurrency=2")
        code, said = team.end(team.begin(environment, url, *flags, mitigations=("deadly",), memories=("rag",), limit=4))
        assert code == 1, said
        store = open_store(url)
        status = run_status(store, run_ids(store)[0])
        assert status.halted is not None
        assert status.halted.startswith("Stopped: no worker is left. worker ")
        assert "was killed by signal 9. Start the study again to go on." in status.halted
        assert "It is not replaced." in said
        assert (status.done, status.errors) == (0, 0)


def test_a_probe_and_a_pilot_are_one_processs_work(home: Path, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        environment = use_endpoint(home, endpoint)
        url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        code, said = team.end(team.begin(environment, url, "--workers=2", "--pilot=4"))
        assert code == 0, said
        assert "a pilot is one process's work: it runs without further workers" in said
        code, said = team.end(team.begin(environment, url, "--workers=2", "--latency-probe", limit=1))
        assert code == 0, said
        assert "a latency probe is one process's work" in said
        assert endpoint.ledger.most_at_once <= 8
