"""A study that is killed at any moment ends like one that wasn't."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from opbench.store.database import open_store
from opbench.store.reading import run_ids, run_status
from tests.running.study import PLANNED, hold, outcome, reply, start, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

KILLS = 10


def _records(url: str) -> int:
    store = open_store(url)
    try:
        return sum(run_status(store, run).done for run in run_ids(store))
    finally:
        store.close()


def test_killed_at_ten_random_moments_and_resumed(home: Path, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    moments = random.Random(seed)
    with ScriptedEndpoint(reply=reply, latency_s=0.05) as endpoint:
        environment = use_endpoint(home, endpoint, timeout_s=60)
        calm_url, killed_url = (f"sqlite:///{tmp_path / name}.sqlite3" for name in ("calm", "killed"))
        calm = start(environment, calm_url, concurrency=4)
        said, _ = calm.communicate(timeout=120)
        assert calm.returncode == 0, said.decode()
        calm_requests = endpoint.ledger.total
        wanted = outcome(open_store(calm_url))
        assert wanted["record count"] == PLANNED

        seen: list[int] = []
        while len(seen) < KILLS:
            before = _records(killed_url)
            if not seen:
                hold(endpoint, calm_requests + 100)
            process = start(environment, killed_url, concurrency=4)
            # The moments are counted from the first new record on, so that they fall into the work, not the start.
            deadline = time.monotonic() + 60
            while _records(killed_url) == before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(moments.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            endpoint.held = None
            seen.append(_records(killed_url))
        last = start(environment, killed_url)
        said, _ = last.communicate(timeout=120)
        assert last.returncode == 0, f"seed {seed}: {said.decode()}"
        ended = outcome(open_store(killed_url))
        for part, value in wanted.items():
            assert ended[part] == value, f"{part} differ; seed {seed}, records at the kills: {seen}"
        assert seen == sorted(seen), "a killed run never loses what was written"
        assert seen[0] < PLANNED, f"seed {seed}: the run was over before the first kill"
        # What was in flight is asked again, at most: 4 instances of at most 5 calls each, ten times.
        assert endpoint.ledger.total - calm_requests <= calm_requests + KILLS * 4 * 5


def test_ctrl_c_finishes_what_is_in_flight(home: Path, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=0.2) as endpoint:
        environment = use_endpoint(home, endpoint, timeout_s=60)
        hold(endpoint, 60)
        url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        process = start(environment, url, concurrency=4)
        while _records(url) == 0 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
        endpoint.held = None
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 1, "incomplete"
        assert b"finishing what is in flight" in said
        done = _records(url)
        assert 0 < done < PLANNED
        with open_store(url).begin() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM workers").scalar_one() == 0
        assert endpoint.ledger.closed_by_client == 0, "no request was broken off"


def test_a_second_ctrl_c_leaves_at_once(home: Path, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=30) as endpoint:
        environment = use_endpoint(home, endpoint, timeout_s=60)
        process = start(environment, f"sqlite:///{tmp_path / 'store.sqlite3'}")
        while endpoint.ledger.total < 1 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None, "the first one waits for what is in flight"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=5)
        assert process.returncode == 130


def test_two_starts_at_once_are_one_run(home: Path, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply, latency_s=0.05) as endpoint:
        environment = use_endpoint(home, endpoint)
        url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        both = [start(environment, url) for _ in range(2)]
        ends = [(process.communicate(timeout=120)[0].decode(), process.returncode) for process in both]
        assert sorted(code for _, code in ends) == [0, 2], ends
        refused = next(said for said, code in ends if code == 2)
        assert "is being worked on by process" in refused
        assert _records(url) == PLANNED


def test_the_same_study_again_does_nothing(home: Path, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        environment = use_endpoint(home, endpoint)
        url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        for _ in range(2):
            process = start(environment, url)
            said, _ = process.communicate(timeout=120)
            assert process.returncode == 0, said.decode()
        requests = endpoint.ledger.total
        process = start(environment, url)
        process.communicate(timeout=120)
        assert endpoint.ledger.total == requests
