"""A run whose model answers nobody stops, rather than to fail record by record."""

from __future__ import annotations

import subprocess
from pathlib import Path

from opbench.store.database import Store, open_store
from opbench.store.reading import run_ids, run_status
from tests.running import team_study as team
from tests.running.study import PLANNED, reply, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

AT_A_TIME, WORKERS = 4, 2
KEY = "planted-key-of-nobody-0123456789"


def _run(environment: dict[str, str], url: str, *flags: str) -> tuple[int, str]:
    # Without RAG: its embedder has no key either, and would be refused first.
    command = team.command(f"--concurrency={AT_A_TIME}", *flags, memories=("base", "random"))
    done = subprocess.run(command, env=environment | {"OPBENCH_STORE": url}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_refused_key_stops_all_workers_and_the_right_one_finishes_the_run(home: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    with ScriptedEndpoint(reply=reply, faults={"unauthorized": 1.0}, persistent=True) as endpoint:
        environment = use_endpoint(home, endpoint, key_env="KEY_OF_NOBODY") | {"KEY_OF_NOBODY": KEY}
        code, said = _run(environment, url, f"--workers={WORKERS}")
        store: Store = open_store(url)
        status = run_status(store, run_ids(store)[0])
        assert code == 1
        assert status.halted is not None
        assert "the endpoint refused the key in KEY_OF_NOBODY" in status.halted
        assert status.halted in said
        assert KEY not in said
        # 20 refusals a worker, and what it had in hand then; records that share a call fail together.
        assert 20 <= endpoint.ledger.requests.total() <= WORKERS * 20 + AT_A_TIME
        assert status.waiting > PLANNED // 4
        assert (status.done, status.errors + status.waiting) == (0, PLANNED)

        endpoint.faults.clear()
        code, said = _run(environment, url, f"--workers={WORKERS}")
        status = run_status(store, run_ids(store)[0])
        assert (code, status.done, status.errors, status.halted) == (0, PLANNED, 0, None), said
        store.close()


def test_a_key_that_isnt_set_stops_the_run(home: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    with ScriptedEndpoint(reply=reply) as endpoint:
        environment = use_endpoint(home, endpoint, key_env="KEY_OF_NOBODY")
        _run(environment, url)
        assert not endpoint.ledger.requests
    store = open_store(url)
    status = run_status(store, run_ids(store)[0])
    assert status.halted is not None
    assert "scripted: no key. Set KEY_OF_NOBODY (environment)" in status.halted
    assert status.waiting > PLANNED // 2
    store.close()
