"""An ingestion as a process of its own: started with its keys, found again, stopped, and never started twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.running.detached import KEPT
from opbench.running.launch_ingestion import Order, launch, started, stop

KEY = "sk-typed-in-the-session"
ORDER = Order(("mem0", "memu"), ("sample-1/Ana", "sample-1/Ben"), "gpt-4o-mini", "minilm", "sample", 1.5)
#: Says whether it has the key, then works until it is asked to end.
PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped as asked"))
print("key" if os.environ.get("SOME_KEY") == sys.argv[1] else "no key", flush=True)
time.sleep(600)
"""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was started: another program in the place of `opbench memory ingest`, ended with the test."""
    made: list[Any] = []
    real = subprocess.Popen

    def popen(command: list[str], **more: Any) -> Any:
        made.append(command)
        process = real([sys.executable, "-c", PROGRAM, KEY], **more)
        made.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", popen)
    yield made
    for process in made[1::2]:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)


def until(said: Any) -> None:
    deadline = time.monotonic() + 20
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_command_says_the_same_as_the_order() -> None:
    assert ORDER.command() == (
        "opbench memory ingest mem0 memu --users sample-1/Ana,sample-1/Ben --extractor gpt-4o-mini --embedder minilm "
        "--data sample --budget 1.5"
    )
    assert Order(("mem0",)).command() == "opbench memory ingest mem0 --embedder minilm"


def test_it_is_found_again_by_whoever_looks_and_ends_when_asked(home: Path, processes: list[Any]) -> None:
    made = launch(ORDER, {"SOME_KEY": SecretStr(KEY)})
    assert processes[0][1:] == ["-m", "opbench", *ORDER.arguments()]
    until(lambda: made.last_words() == ["key"])
    (found,) = started()
    assert (found.order, found.pid, found.working) == (ORDER, made.pid, True)
    assert found.concerns("mem0", "sample-1/Ben")
    assert not found.concerns("mem0", "sample-1/Cleo")
    assert not found.concerns("memos", "sample-1/Ben")
    stop(found)
    until(lambda: not started()[0].working)
    assert started()[0].last_words() == ["key", "stopped as asked"]
    # Its number may be another's by now: nobody is asked to end for it.
    stop(started()[0])


def test_the_key_is_in_no_file_and_no_argument(home: Path, processes: list[Any]) -> None:
    made = launch(ORDER, {"SOME_KEY": SecretStr(KEY)})
    until(lambda: made.last_words() == ["key"])
    assert KEY not in " ".join(processes[0])
    for file in home.rglob("*"):
        assert not file.is_file() or KEY not in file.read_text(encoding="utf-8", errors="replace")


def test_a_killed_one_counts_as_ended(home: Path, processes: list[Any]) -> None:
    made = launch(ORDER)
    os.kill(made.pid, signal.SIGKILL)
    until(lambda: not started()[0].working)


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [
        (Order(("mem0",), ("sample-1/Ana",)), True),
        (Order(("memu", "memos")), True),
        (Order(("mem0",), ("sample-1/Cleo",)), False),
        (Order(("memos",), ("sample-1/Ana",)), False),
    ],
)
def test_two_never_take_in_the_same(home: Path, processes: list[Any], other: Order, overlaps: bool) -> None:
    launch(ORDER)
    if overlaps:
        with pytest.raises(UsageError, match=r"is ingesting mem(0|u) already"):
            launch(other)
        assert len(started()) == 1
    else:
        launch(other)
        assert [each.working for each in started()] == [True, True]


def test_nothing_chosen_starts_nothing(home: Path, processes: list[Any]) -> None:
    with pytest.raises(UsageError, match="choose at least one memory system"):
        launch(Order(()))
    assert processes == []


def test_a_home_that_cant_be_written_is_said(home: Path, processes: list[Any]) -> None:
    home.mkdir()
    (home / "ingestions").write_text("in the way")
    with pytest.raises(UsageError, match=r"ingestions: can't be written .*OPBENCH_HOME"):
        launch(ORDER)
    assert processes == []


def test_a_damaged_file_is_passed_over(home: Path, processes: list[Any]) -> None:
    launch(ORDER)
    (home / "ingestions" / "00000000-000000-aaaaaa.json").write_text('{"pid": "x"')
    assert len(started()) == 1


def test_only_some_ended_ones_are_kept(home: Path, processes: list[Any]) -> None:
    for number in range(8):
        made = launch(Order((f"system-{number}",)))
        os.kill(made.pid, signal.SIGKILL)
        until(lambda: not any(each.working for each in started()))
    assert len(started()) <= KEPT + 1
    assert len(list((home / "logs").iterdir())) == len(started())
