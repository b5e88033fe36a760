"""MemOS's process: it starts once, answers in any order, and whoever dies, nothing is lost, doubled or left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import MemoryFault
from opbench.memories.library import Library
from opbench.memories.sidecar import client
from opbench.memories.sidecar.client import PROGRAM, Process, Refused, Sidecar
from opbench.memories.systems.memos import MemosLibrary
from opbench.memories.systems.memos_tree import MemosTreeLibrary
from opbench.settings import ROOT, settings
from tests.memories.contract import ROMEO, session
from tests.memories.driven import Desk, desk
from tests.memories.memos_process import extraction
from tests.scripted_endpoint import ScriptedEndpoint

FACTS = ["John keeps bees on the roof.", "Maria bakes bread on Sundays."]
TALK = session(3, "I keep bees now.", "On the roof?")
BOTH = pytest.mark.parametrize("make", [MemosLibrary, MemosTreeLibrary])
Make = Callable[[], Library]


@pytest.fixture
def running(memos: Path) -> Iterator[Sidecar]:
    """This test's own process, as the libraries find it."""
    yield client.sidecar(memos)
    client.end_all()


@pytest.fixture
def endpoint() -> Any:
    with ScriptedEndpoint(reply=lambda body: extraction(FACTS)) as served:
        yield served


@pytest.fixture
async def at(endpoint: ScriptedEndpoint, home: Path) -> AsyncIterator[Desk]:
    async with desk(endpoint, home) as opened:
        yield opened


@BOTH
async def test_after_its_process_was_killed_a_store_goes_on_in_the_next(
    make: Make, running: Sidecar, at: Desk, tmp_path: Path
) -> None:
    async with at.open(make(), tmp_path, ROMEO) as (store, _):
        await store.add(TALK)
        first = running.process().pid
        before = await store.memories()
        found = await store.search("bees", 2)
        os.kill(first, signal.SIGKILL)
        assert await store.memories() == before
        again = await store.search("bees", 2)
        assert [(each.text, each.date) for each in again] == [(each.text, each.date) for each in found]
        assert running.process().pid != first
        await store.add(session(4, "And a cat.", "Nice."))
        assert len(await store.memories()) == 4
    assert _state(first) is None, "no zombie"


@BOTH
async def test_an_add_that_its_death_interrupts_fails_and_is_not_repeated(
    make: Make, running: Sidecar, at: Desk, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    async with at.open(make(), tmp_path, ROMEO) as (store, _):
        endpoint.latency_s = 1.0
        adding = asyncio.create_task(store.add(TALK))
        await _until(lambda: any("messages" in body for body in endpoint.ledger.bodies))
        os.kill(running.process().pid, signal.SIGKILL)
        with pytest.raises(MemoryFault, match=r"c-1/John: MemOS's process died \(log: .*memos\.log\)"):
            await adding
        endpoint.latency_s = 0.0
        assert await store.memories() == []
        assert len(endpoint.ledger.bodies) == 2, "the embedder's dimensions and the one extraction"


async def test_without_its_database_the_process_ends_and_the_next_has_the_store(
    running: Sidecar, at: Desk, tmp_path: Path
) -> None:
    async with at.open(MemosTreeLibrary(), tmp_path, ROMEO) as (store, _):
        await store.add(TALK)
        first = running.process().pid
        for server in _servers(first):
            os.kill(server, signal.SIGKILL)
        assert len(await store.memories()) == 2
        assert running.process().pid != first


@BOTH
async def test_calls_of_many_stores_are_answered_side_by_side(
    make: Make, running: Sidecar, at: Desk, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.latency_s = 0.3
    async with contextlib.AsyncExitStack() as stack:
        stores = []
        for number in range(4):
            folder = tmp_path / str(number)
            await asyncio.to_thread(folder.mkdir)
            stores.append((await stack.enter_async_context(at.open(make(), folder, ROMEO)))[0])
        talks = [session(number + 1, f"Talk {number}.", "Yes.") for number in range(4)]
        await asyncio.gather(*(store.add(talk) for store, talk in zip(stores, talks, strict=True)))
        assert endpoint.ledger.most_at_once > 1
        for number, store in enumerate(stores):
            assert {memory.date for memory in await store.memories()} == {f"{number + 1} May 2023"}
    assert len({running.process().pid}) == 1


def test_it_ends_with_its_stdin_and_takes_its_database_along(memos: Path, tmp_path: Path) -> None:
    process = Process(memos, tmp_path, tmp_path / "log")
    process.wait_ready()
    process.ask("open", kind="tree", folder=str(tmp_path), settings=_settings()).result(60)
    servers = _servers(process.pid)
    assert len(servers) >= 2, "the guard and PostgreSQL"
    folders = _server_folders(servers)
    process.end(20)
    _wait(lambda: not any(_state(each) for each in servers))
    assert not any(folder.exists() for folder in folders)


def test_it_does_not_outlive_us_when_we_are_killed(memos: Path, tmp_path: Path, home: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from opbench.memories.sidecar.client import Process
process = Process(Path({str(memos)!r}), Path({str(tmp_path)!r}), Path({str(tmp_path / "log")!r}))
process.wait_ready()
process.ask("open", kind="tree", folder={str(tmp_path)!r}, settings={_settings()!r}).result(60)
print(process.pid, flush=True)
time.sleep(600)
"""
    ours = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert ours.stdout is not None
    its = int(ours.stdout.readline())
    servers = _servers(its)
    assert len(servers) >= 2
    ours.kill()
    ours.communicate()
    _wait(lambda: not any(_state(each) for each in (its, *servers)))
    assert not any(folder.exists() for folder in _server_folders(servers))


def test_a_database_whose_guard_was_killed_is_cleared_at_the_next_start(memos: Path) -> None:
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(PROGRAM)!r})
import postgres
first = postgres.Postgres()
folder = first.address()["host"]
server = int(open(folder + "/data/postmaster.pid").readline())
first._guard.kill()
first._guard.wait()
print(os.path.exists("/proc/%d" % server), os.path.exists(folder))
second = postgres.Postgres()
print(os.path.exists(folder), second.alive())
try:
    state = open("/proc/%d/stat" % server).read().rpartition(")")[2].split()[0]
except FileNotFoundError:
    state = "gone"
print(state in ("gone", "Z"))
second.stop()
"""
    told = subprocess.run([memos, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert told.stdout.split() == ["True", "True", "False", "True", "True"], told.stderr


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_database_starts_whatever_the_umask_and_however_long_the_path_for_temporary_files(
    umask: int, memos: Path, tmp_path: Path
) -> None:
    long = tmp_path / ("t" * 100)  # a socket's path has 103 bytes at most
    long.mkdir()
    script = f"""
import os, sys
os.umask({umask})
sys.path.insert(0, {str(PROGRAM)!r})
import postgres
server = postgres.Postgres()
print(server.alive(), len(server.address()["host"]) < 90)
server.stop()
print(os.path.exists(server.address()["host"]))
"""
    told = subprocess.run(
        [memos, "-I", "-c", script], capture_output=True, text=True, check=False, env={"TMPDIR": str(long)}
    )
    assert told.stdout.split() == ["True", "True", "False"], told.stderr


def test_a_database_that_does_not_start_says_why(memos: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("LOG: starting\nFATAL: no room for it\nLOG: database system is shut down\n")
    script = f"""
import sys; from pathlib import Path
sys.path.insert(0, {str(PROGRAM)!r})
import postgres
print(postgres._last_line(Path({str(log)!r})))
"""
    told = subprocess.run([memos, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert told.stdout == "FATAL: no room for it\n", told.stderr


def test_what_the_library_prints_goes_to_the_log(memos: Path, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "memos.log"
    process = Process(memos, tmp_path, log)
    process.wait_ready()
    with pytest.raises(Refused, match="AttributeError"):
        process.ask("no_such_method").result(10)
    process.end(20)
    assert "no_such_method" in log.read_text()
    assert "Traceback" in log.read_text()


def test_no_connection_leaves_the_machine(memos: Path, tmp_path: Path) -> None:
    """The process's own guard, under what the libraries use for their connections."""
    script = f"""
import runpy, sys, socket
hook = runpy.run_path({str(PROGRAM / "__main__.py")!r}, run_name="program")["only_loopback"]
sys.addaudithook(hook)
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
socket.create_connection(("localhost", server.getsockname()[1])).close()
import urllib.request, httpx
for ask in (
    lambda: socket.create_connection(("192.0.2.1", 9), 1),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9)),
    lambda: urllib.request.urlopen("http://example.org/", timeout=1),
    lambda: httpx.get("https://192.0.2.1/", timeout=1),
):
    try:
        ask()
        print("connected")
    except Exception as error:
        print(type(error).__name__, str(error))
"""
    told = subprocess.run([memos, "-I", "-c", script], capture_output=True, text=True, check=False)
    lines = told.stdout.splitlines()
    assert len(lines) == 4, told.stderr
    assert all("connections beyond this machine are off" in line for line in lines), lines


def test_nothing_of_our_environment_reaches_it_but_what_it_needs(
    memos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "CUSTOM_LOGGER_URL", "HTTPS_PROXY", "NACOS_SERVER_ADDR", "OPBENCH_STORE"):
        monkeypatch.setenv(name, "http://192.0.2.1/secret")
    process = Process(memos, tmp_path / "base", tmp_path / "log")
    process.wait_ready()
    held = Path(f"/proc/{process.pid}/environ").read_bytes()
    where = Path(f"/proc/{process.pid}/cwd").resolve()
    process.end(20)
    assert b"192.0.2.1" not in held
    assert where == tmp_path / "base"
    assert {file.name for file in tmp_path.iterdir()} == {"base", "log"}


def test_a_start_that_fails_is_told_in_one_line_with_the_log(tmp_path: Path, home: Path) -> None:
    broken = Sidecar(Path(sys.executable), tmp_path, tmp_path / "memos.log")  # our environment, without MemOS
    with pytest.raises(MemoryFault) as told:
        broken.process()
    line = str(told.value)
    assert "MemOS's process didn't start: ModuleNotFoundError: No module named 'memos'" in line
    assert line.endswith(f"(log: {tmp_path / 'memos.log'})")
    assert "\n" not in line
    with pytest.raises(MemoryFault, match=r"didn't start: .*No such file"):
        Sidecar(tmp_path / "no-python", tmp_path, tmp_path / "memos.log").process()
    ends = tmp_path / "ends.sh"
    ends.write_text("#!/bin/sh\necho out of memory >&2\nexit 137\n")
    ends.chmod(0o755)
    with pytest.raises(MemoryFault, match="didn't start: out of memory"):
        Sidecar(ends, tmp_path, tmp_path / "memos.log").process()


def test_a_long_log_is_put_aside(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOG_BYTES", 10)
    log = tmp_path / "memos.log"
    log.write_text("twelve bytes")
    with pytest.raises(MemoryFault):
        Sidecar(Path(shutil.which("false") or ""), tmp_path, log).process()
    assert (tmp_path / "memos.old.log").read_text() == "twelve bytes"
    assert log.read_text() == ""


async def test_it_is_shared_and_kept_in_the_home(running: Sidecar, memos: Path, home: Path) -> None:
    assert client.sidecar(memos) is running
    assert running.log == settings().home / "logs" / "memos.log"
    process = running.process()
    assert running.process() is process
    assert running.log.exists()


def _settings() -> dict[str, Any]:
    return {
        "base_url": "http://127.0.0.1:1/v1",
        "key": "k",
        "model": "m",
        "embedder": "e",
        "dimensions": 8,
        "max_tokens": 10,
    }


def _children(parent: int) -> list[int]:
    told = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in told.splitlines()]
    return [int(child) for child, of in pairs if int(of) == parent]


def _servers(process: int) -> list[int]:
    """The guard of PostgreSQL, PostgreSQL, and its own processes."""
    found = _children(process)
    for each in found:
        found += _children(each)
    return found


def _server_folders(servers: list[int]) -> set[Path]:
    """Folders of databases among the processes' arguments; none of processes that are gone."""
    found = set()
    for each in servers:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            found |= {Path(word.decode()) for word in words if b"/opbench-memos-pg-" in word and b"/data" not in word}
    return found


def _state(process: int) -> str | None:
    """`S`, `R`, `Z`…; None when there is no such process. Orphans' zombies are whoever reaps them."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
    return None if state == "Z" and not _ours(process) else state


def _ours(process: int) -> bool:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()


def _wait(reached: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)


async def _until(reached: Callable[[], bool]) -> None:
    await asyncio.to_thread(_wait, reached)
