"""A measurement as a process of its own: its command, found again with its progress, stopped, never started twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from opbench.cli import app
from opbench.errors import UsageError
from opbench.mechanism.attention import progress_line
from opbench.mechanism.launching import AttentionOrder, Order, SimilarityOrder, launch, started, stop
from opbench.running.detached import Progress
from opbench.settings import settings
from opbench.store.database import open_store
from tests.pages.made_run import write_run

KEY = "sk-typed-in-the-session"
RUN = "0123456789ab"
ATTENTION = AttentionOrder(RUN, "smollm2-135m", ("m/base/none", "m/rag/none"), ("fact",), 4)
#: Says what it was told to, then works until it is asked to end.
PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped as asked"))
print("key" if os.environ.get("SOME_KEY") == sys.argv[1] else "no key", flush=True)
for line in sys.argv[2:]:
    print(line, flush=True)
time.sleep(600)
"""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Any]]]:
    """Another program in the place of `opbench`, which says the given lines; called again it gives what was started."""
    made: list[Any] = []
    lines: list[str] = []
    real = subprocess.Popen

    def popen(command: list[str], **more: Any) -> Any:
        made.append(command)
        process = real([sys.executable, "-c", PROGRAM, KEY, *lines], **more)
        made.append(process)
        return process

    def saying(*said: str) -> list[Any]:
        lines[:] = said
        return made

    monkeypatch.setattr(subprocess, "Popen", popen)
    yield saying
    for process in made[1::2]:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)


def until(said: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("order", "command"),
    [
        (
            ATTENTION,
            f"opbench mechanism attention {RUN} --reader smollm2-135m --configurations m/base/none,m/rag/none "
            "--subtypes fact --limit 4",
        ),
        (
            AttentionOrder(RUN, "/models/a model", limit=None),
            f"opbench mechanism attention {RUN} --reader '/models/a model' --all",
        ),
        (SimilarityOrder(RUN), f"opbench mechanism retrieval {RUN} --measure"),
        (SimilarityOrder(RUN, "minilm"), f"opbench mechanism retrieval {RUN} --measure --embedder minilm"),
    ],
)
def test_the_command_says_the_same_as_the_order_and_is_one(order: Order, command: str, home: Path) -> None:
    assert order.command() == command
    # Every flag is one that the command knows: it fails at the run, which isn't there, and not before.
    store = open_store(settings().store_url)
    write_run(store)
    store.close()
    ended = CliRunner().invoke(app, order.arguments())
    assert isinstance(ended.exception, UsageError)
    assert RUN in str(ended.exception)


def test_it_is_found_again_with_its_progress_and_ends_when_asked(home: Path, processes: Any) -> None:
    processes("loading", progress_line(0, 24, None), progress_line(7, 24, 40.4))
    made = launch(ATTENTION, {"SOME_KEY": SecretStr(KEY)})
    assert processes()[0][1:] == ["-m", "opbench", *ATTENTION.arguments()]
    until(lambda: made.progress() == Progress(7, 24, 40.0))
    (found,) = started(RUN)
    assert (found.order, found.pid, found.working) == (ATTENTION, made.pid, True)
    assert started("another") == []
    stop(found)
    until(lambda: not started()[0].working)
    # Lines of progress are no last words.
    assert started()[0].last_words() == ["key", "loading", "stopped as asked"]
    stop(started()[0])


def test_progress_of_similarities_is_read_too(home: Path, processes: Any) -> None:
    processes("16/1,144 retrievals measured", "1,040/1,144 retrievals measured")
    made = launch(SimilarityOrder(RUN, "minilm"))
    until(lambda: made.progress() == Progress(1040, 1144, None))
    assert started()[0].order == SimilarityOrder(RUN, "minilm")


def test_before_its_first_line_there_is_no_progress(home: Path, processes: Any) -> None:
    processes()
    made = launch(ATTENTION)
    until(lambda: made.last_words() == ["no key"])
    assert made.progress() is None


def test_the_key_is_in_no_file_and_no_argument(home: Path, processes: Any) -> None:
    processes()
    made = launch(SimilarityOrder(RUN), {"SOME_KEY": SecretStr(KEY)})
    until(lambda: made.last_words() == ["key"])
    assert KEY not in " ".join(processes()[0])
    for file in home.rglob("*"):
        assert not file.is_file() or KEY not in file.read_text(encoding="utf-8", errors="replace")


def test_the_same_isnt_measured_twice_at_a_time_but_another_is(home: Path, processes: Any) -> None:
    processes()
    first = launch(ATTENTION)
    with pytest.raises(UsageError, match=rf"process {first.pid} is measuring attention of run {RUN} already"):
        launch(AttentionOrder(RUN))
    launch(SimilarityOrder(RUN))
    launch(AttentionOrder("another"))
    assert len(started()) == 3
    assert len(started(RUN)) == 2


def test_a_home_that_cant_be_written_is_said(home: Path, processes: Any) -> None:
    processes()
    home.mkdir(exist_ok=True)
    (home / "measurements").write_text("in the way")
    with pytest.raises(UsageError, match=r"measurements: can't be written .*OPBENCH_HOME"):
        launch(ATTENTION)


def test_a_damaged_file_is_passed_over(home: Path, processes: Any) -> None:
    processes()
    launch(ATTENTION)
    (home / "measurements" / "00000000-000000-aaaaaa.json").write_text('{"pid": 1, "order": {"what": "else"}}')
    (home / "measurements" / "00000000-000000-bbbbbb.json").write_text("{")
    assert len(started()) == 1
