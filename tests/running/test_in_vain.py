"""A run whose model answers nobody stops, rather than to fail record by record; where other models answer and none of
them needs it, only its records are left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opbench.errors import ModelError
from opbench.models.in_vain import InVain
from opbench.running.jobs import Job
from opbench.running.silent import Silent, left_out
from opbench.store.database import Store, open_store
from opbench.store.reading import run_ids, run_status
from opbench.study import Configuration
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


@pytest.mark.parametrize("flags", [(), (f"--workers={WORKERS}",)], ids=["alone", "team"])
def test_only_the_records_of_the_model_that_answers_nobody_are_left(
    home: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"
    with (
        ScriptedEndpoint(reply=reply) as good,
        ScriptedEndpoint(reply=reply, faults={"unauthorized": 1.0}, persistent=True) as refusing,
    ):
        environment = use_endpoint(home, good) | {"KEY_OF_NOBODY": KEY}
        file = home / "models.toml"
        # The first in the plan's order, and the judge is the other one.
        file.write_text(
            file.read_text() + refusing.registry_toml("first", key_env="KEY_OF_NOBODY").partition("[embedders")[0]
        )
        both = ("first", "scripted")
        command = team.command(f"--concurrency={AT_A_TIME}", *flags, models=both, memories=("base", "random"), limit=8)
        planned = 4 * 16

        def run() -> tuple[int, str]:
            done = subprocess.run(command, env=environment | {"OPBENCH_STORE": url}, capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        code, said = run()
        store = open_store(url)
        status = run_status(store, run_ids(store)[0])
        assert code == 1
        assert status.halted is not None
        assert status.halted.startswith("Stopped for first alone, the other models' records are done: 2")
        assert "the endpoint refused the key in KEY_OF_NOBODY" in status.halted
        assert status.halted.endswith(" What is left waits for the next start.")
        assert said.rstrip().endswith(status.halted)
        assert KEY not in said
        table = status.by_configuration
        done = {model: int(table[table["model"] == model]["done"].sum()) for model in both}
        assert done == {"first": 0, "scripted": planned}
        workers = WORKERS if flags else 1
        assert 20 <= refusing.ledger.total <= workers * 20 + AT_A_TIME
        assert status.errors + status.waiting == planned
        assert status.waiting > 0
        assert status.error_kinds == {"auth": status.errors}

        refusing.faults.clear()
        asked = good.ledger.total
        code, said = run()
        status = run_status(store, run_ids(store)[0])
        assert (code, status.done, status.errors, status.halted) == (0, 2 * planned, 0, None), said
        store.close()
        # The other model has nothing to do then but to judge the records that were left.
        chats = [str(body) for body in good.ledger.bodies[asked:] if "messages" in body]
        assert all("WRONG" in chat or "core" in chat for chat in chats)


def silence(*models: str) -> Silent:
    """Of two models that answer and one that answers and judges, those were refused twenty times."""
    watch = InVain()
    for name in models:
        for _ in range(20):
            watch.failed(name, ModelError(f"{name}: no key.", kind="auth", model=name, attempts=0))
    return Silent(watch, {f"ModelSpec {name}": name for name in ("a", "b", "both")}, {"both"})


def job(model: str, record: int | None = None) -> Job:
    return Job(1, Configuration(model, "base", "none"), None, record)  # type: ignore[arg-type]


def test_while_all_answer_nothing_is_passed_over() -> None:
    silent = silence()
    assert silent.reason_to_halt() is None
    assert not silent.passes_over(job("a"))


def test_a_model_that_only_answers_is_passed_over() -> None:
    silent = silence("ModelSpec a")
    assert silent.reason_to_halt() is None
    assert [silent.passes_over(each) for each in (job("a"), job("b"), job("a", record=7))] == [True, False, False]
    assert left_out(silent.models(), ["a"]) == (
        "Stopped for a alone, the other models' records are done: 20 calls failed in a row. ModelSpec a: no key. "
        "What is left waits for the next start."
    )
    assert left_out(silent.models(), []) is None, "it had no record to do"


@pytest.mark.parametrize("needed", ["ModelSpec judge", "ModelSpec both", "EmbedderSpec a"])
def test_what_all_records_need_ends_the_run(needed: str) -> None:
    silent = silence(needed)
    assert not silent.passes_over(job("a"))
    assert silent.reason_to_halt() == (
        f"Stopped: 20 calls failed in a row. {needed}: no key. What is left waits for the next start."
    )


def test_when_the_last_one_falls_silent_the_run_ends() -> None:
    silent = silence("ModelSpec a", "ModelSpec b")
    assert silent.reason_to_halt() is None
    silent = Silent(silent.in_vain, {"ModelSpec a": "a", "ModelSpec b": "b"}, {"offline", ""})
    assert silent.reason_to_halt() == (
        "Stopped: 20 calls failed in a row. ModelSpec a: no key. 20 calls failed in a row. ModelSpec b: no key. "
        "What is left waits for the next start."
    )
