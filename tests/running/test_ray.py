"""A run on a Ray cluster: a real Ray with several workers, a real PostgreSQL, and one worker killed in the middle."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import make_url, select

from opbench.benchmarks import SAMPLE
from opbench.errors import UsageError
from opbench.plugins import loaded_plugins
from opbench.running import ray_crew
from opbench.running.agreement import differences, fingerprint
from opbench.running.crew import Part
from opbench.running.prepare import Prepared, prepare
from opbench.running.ray_crew import RayCrew
from opbench.running.ray_worker import Orders, Secrets, Worker
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.study import Study
from tests.running.study import PLANNED, STUDY, hold, outcome, reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

KEY, PASSWORD = "sk-planted-in-the-environment", "planted-in-the-address"
WORKERS = 3
#: The most calls that one record takes here: a retrieval's embedding, a filter or a draft and its revision, a judge.
CALLS_A_RECORD = 5

postgresql_only = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)


def start(
    environment: Mapping[str, str], store_url: str, address: str, *flags: str, **study: Any
) -> subprocess.Popen[bytes]:
    """`opbench run --ray` as people start it."""
    fields = STUDY | study
    words = [
        f"--{key.replace('_', '-')}={','.join(value) if isinstance(value, tuple) else value}"
        for key, value in fields.items()
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "opbench", "run", *words, "--ray", address, *flags],
        env={**environment, "OPBENCH_STORE": store_url, "TMPDIR": "/tmp"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def members(store: Store) -> list[Any]:
    """The rows of the workers that are led, with what they did so far."""
    with store.begin() as connection:
        return list(connection.execute(select(s.workers).where(s.workers.c.leader.is_not(None))).all())


def wait_for(process: subprocess.Popen[bytes], what: Any, seconds: float = 150) -> Any:
    """The first true value of `what()` while the process runs."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    said = process.communicate()[0].decode() if process.poll() is not None else "(it is at work)"
    raise AssertionError(f"waited in vain; the process says: {said}")


def folders() -> set[Path]:
    return set(Path("/tmp").glob("opbench-ray-*"))


def processes_of(folder: Path) -> dict[int, bytes]:
    """The arguments and the first environment of the processes that belong to a local Ray in that folder."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "cmdline").read_bytes() + b"\0" + (place / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in told:
            found[int(place.name)] = told
    return found


@postgresql_only
async def test_a_killed_worker_changes_nothing(home: Path, tmp_path: Path, store_url: str) -> None:
    before = folders()
    with ScriptedEndpoint(reply=reply, latency_s=0.1) as endpoint:
        os.environ["SCRIPTED_KEY"] = KEY
        environment = use_endpoint(home, endpoint, key_env="SCRIPTED_KEY", timeout_s=60)
        alone = open_store(f"sqlite:///{tmp_path / 'alone.sqlite3'}")
        await run_here(alone)
        wanted, requests = outcome(alone), endpoint.ledger.total
        alone.close()
        assert wanted["record count"] == PLANNED

        with_password = make_url(store_url).set(password=PASSWORD).render_as_string(hide_password=False)
        store = open_store(store_url)
        hold(endpoint, requests + 100)
        process = start(environment, with_password, "local", f"--workers={WORKERS}", "--concurrency=6")
        try:
            at_work = wait_for(process, lambda: [row for row in members(store) if row.stats.get("done", 0) >= 3])
            (folder,) = folders() - before
            told = processes_of(folder)
            logs = [file for file in folder.rglob("*") if file.is_file()]
            written = {file: file.read_bytes() for file in logs}
            os.kill(at_work[0].pid, signal.SIGKILL)
            endpoint.held = None
            said = process.communicate(timeout=150)[0].decode()
        finally:
            process.kill()
        assert process.returncode == 0, said
        assert re.search(rf"worker \d \(process {at_work[0].pid} on \S+\) was killed. Another takes its place.", said)
        ended = outcome(store)
        for part, value in wanted.items():
            assert ended[part] == value, f"{part} differ after the kill: {said}"
        # Asked once more is at most what the killed worker had in its hands: 2 instances of the 6 at a time.
        assert endpoint.ledger.total - requests <= requests + 2 * CALLS_A_RECORD
        assert members(store) == []
        store.close()

        assert len(told) >= WORKERS, "the guard, Ray's own processes, the workers"
        assert any("worker" in file.name for file in written)
        for secret in (KEY.encode(), PASSWORD.encode()):
            assert not [number for number, text in told.items() if secret in text]
            assert not [file for file, text in written.items() if secret in text]
            assert secret not in said.encode()
        assert (folder.exists(), processes_of(folder)) == (False, {}), "nothing is left behind"


@contextmanager
def another_machine(environment: Mapping[str, str]) -> Iterator[str]:
    """A Ray with workers in another environment, as on machines of a cluster; its address. In a process of its own:
    what a process has once told Ray of tokens it can't take back."""
    code = (
        "import os, sys\n"
        "from opbench.running.ray_local import LocalRay\n"
        "ray = LocalRay(2, os.environ)\n"
        "print(ray.address, ray.environment['RAY_AUTH_TOKEN_PATH'], flush=True)\n"
        "sys.stdin.read()\n"
        "ray.close()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=dict(environment) | {"TMPDIR": "/tmp"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate(timeout=30)


@postgresql_only
def test_a_cluster_set_up_otherwise_is_refused_and_one_set_up_alike_is_used(
    home: Path, tmp_path: Path, store_url: str
) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        environment = use_endpoint(home, endpoint)
        other = tmp_path / "other.toml"
        other.write_text(endpoint.registry_toml("scripted", price_in=3.0))
        with another_machine(environment | {"OPBENCH_HOME": str(tmp_path / "theirs")}) as told:
            address, token = told.split()
            joining = environment | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token}
            # Here the price is another one, which no hash of the study knows.
            refused = start(joining | {"OPBENCH_MODELS": str(other)}, store_url, address, "--workers=1", limit=1)
            said = refused.communicate(timeout=150)[0].decode()
            assert refused.returncode == 2, said
            assert f"worker on {socket.gethostname()}: not the same here as where the run was started: " in said
            assert "registry entry of the model scripted, registry entry of the embedder scripted. " in said
            assert endpoint.ledger.total == 0, "nothing was paid before"
            used = start(joining, store_url, address, "--workers=1", limit=1)
            said = used.communicate(timeout=150)[0].decode()
            assert used.returncode == 0, said
            assert not (tmp_path / "theirs" / "store.sqlite3").exists()
    store = open_store(store_url)
    assert outcome(store)["record count"] == 8, "4 configurations, an instance of each benchmark"
    store.close()


# --- without Ray -----------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(home: Path) -> Prepared:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint)
        return prepare(Study(**STUDY))


def test_sqlite_is_refused_with_reason_and_mend(prepared: Prepared, tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    with pytest.raises(UsageError) as refused:
        RayCrew("auto", store, prepared, concurrency=8)
    store.close()
    for words in ("store.sqlite3 is a file of this one", "OPBENCH_STORE=postgresql+psycopg://", "--workers"):
        assert words in str(refused.value)


@postgresql_only
def test_without_ray_its_installation_is_told(
    prepared: Prepared, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install -r requirements-ray\.txt"):
        RayCrew("auto", store, prepared, concurrency=8)


@postgresql_only
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://127.0.0.1:1", "no cluster is reached there"),
        ("127.0.0.1:1", "no cluster is reached there"),
        ("cluster", "write auto, local, HOST:PORT or ray://HOST:PORT"),
    ],
)
def test_an_address_where_nobody_is(prepared: Prepared, store: Store, address: str, told: str) -> None:
    begun = time.monotonic()
    with pytest.raises(UsageError) as refused:
        RayCrew(address, store, prepared, concurrency=8)
    assert str(refused.value).startswith(f"--ray {address}: ")
    assert told in str(refused.value)
    assert time.monotonic() - begun < 5


def test_auto_is_the_cluster_of_this_machine_where_one_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray_crew._cluster_here() is None
    note = tmp_path / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        note.write_text(address)
        assert ray_crew._cluster_here() == address
    assert ray_crew._cluster_here() is None, "a note of one that is gone"
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert ray_crew._cluster_here() == "head:6379"


def orders(prepared: Prepared, **fields: Any) -> Orders:
    told: dict[str, Any] = {
        "study": prepared.study.model_dump(mode="json"),
        "of": 2,
        "fingerprint": fingerprint(prepared),
        "plugins": (),
        "seen": None,
    }
    return Orders(**told | fields)


def secrets(store_url: str) -> Secrets:
    return Secrets(SecretStr(store_url), {})


async def test_a_machine_with_other_data_says_so(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = orders(prepared)
    theirs = tmp_path / "theirs"
    for file in SAMPLE.rglob("*.json"):
        copy = theirs / file.relative_to(SAMPLE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text() + "\n")
    monkeypatch.setattr("opbench.benchmarks.files.SAMPLE", theirs)
    place = await Worker().ready(told, secrets(settings().store_url))
    assert place.refusal is not None
    assert place.refusal.startswith("not the same here as where the run was started: benchmark data. ")
    assert "OPBENCH_DATA" in place.refusal


def test_another_version_is_named_with_its_number(prepared: Prepared) -> None:
    here = fingerprint(prepared)
    version = next(name for name in here if name.startswith("version of the workbench ("))
    assert differences(here, here) == []
    assert differences(here, here | {version: "edited"}) == [version]
    newer = {name: value for name, value in here.items() if name != version}
    newer |= {"version of the workbench (9.9.9)": "newer", "study as it is prepared there": "another"}
    assert differences(here, newer) == [version]
    assert differences(fingerprint(prepared, code=False), newer) == ["study as it is prepared there"]
    assert differences(here, here | {"study as it is prepared there": "another"}) == ["study as it is prepared there"]


async def test_a_store_that_a_machine_does_not_reach(prepared: Prepared) -> None:
    url = f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:1/none"
    worker = Worker()
    place = await worker.ready(orders(prepared), secrets(url))
    assert place.refusal is not None
    assert "OPBENCH_STORE must hold an address by which this machine reaches it." in place.refusal
    assert PASSWORD not in place.refusal
    said = await worker.work(Part(prepared.run_id, "x", 0, 2, 4), place)
    assert said == f"worker 1 (process {place.pid} on {place.host}) ended: {place.refusal}"


async def test_memories_must_lie_in_a_folder_that_all_share(prepared: Prepared, store_url: str) -> None:
    kept = settings().kept
    kept.mkdir(parents=True)
    place = await Worker().ready(orders(prepared, seen=".seen-1"), secrets(store_url))
    assert place.refusal is not None
    assert place.refusal.startswith(f"{kept} isn't the folder in which the run's memory systems keep")
    (kept / ".seen-1").touch()
    assert (await Worker().ready(orders(prepared, seen=".seen-1"), secrets(store_url))).refusal is None


async def test_plugins_travel_to_machines_that_lack_them(prepared: Prepared, store_url: str, tmp_path: Path) -> None:
    told = [(tmp_path / "not_here.py", b"LOADED = True\n")]
    place = await Worker().ready(orders(prepared, plugins=told), secrets(store_url))
    assert [*loaded_plugins()] == ["not_here.py"]
    assert place.refusal is not None, "the leader had none, so it is another study"
    assert "study as it is prepared there" in place.refusal


def test_secrets_are_in_no_repr() -> None:
    told = Secrets(SecretStr(f"postgresql://me:{PASSWORD}@host/db"), {"SCRIPTED_KEY": SecretStr(KEY)})
    assert KEY not in repr(told)
    assert PASSWORD not in repr(told)


async def test_what_nobody_foresaw_is_told_without_its_text(
    prepared: Prepared, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(PASSWORD)

    monkeypatch.setattr("opbench.running.ray_worker.open_store", broken)
    place = await Worker().ready(orders(prepared), secrets(store_url))
    assert place.refusal is not None
    assert re.fullmatch(r"ZeroDivisionError \(test_ray\.py, line \d+\)\.", place.refusal)


class _Exceptions:
    """The names of Ray's errors, as they derive from each other."""

    class RayError(Exception):
        pass

    class RayActorError(RayError):
        pass

    class NodeDiedError(RayError):
        pass

    class OutOfMemoryError(RayError):
        pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            _Exceptions.RayActorError("The actor died.\nModuleNotFoundError: No module named 'opbench'"),
            "can't start: its machine has no Python package opbench. ",
        ),
        (
            _Exceptions.RayActorError("The actor died because its node has died."),
            "is gone with its machine.",
        ),
        (_Exceptions.NodeDiedError("unreachable"), "is gone with its machine."),
        (_Exceptions.OutOfMemoryError("task was killed"), "was ended by Ray: its machine's memory was full. "),
        (_Exceptions.RayActorError("The actor died unexpectedly.\n\tpid: 1"), "was killed."),
    ],
)
def test_what_became_of_a_worker_is_a_sentence(error: Exception, told: str) -> None:
    ray: Any = SimpleNamespace(exceptions=_Exceptions)
    assert ray_crew._became(ray, error).startswith(told)
