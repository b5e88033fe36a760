"""A study done by several processes, which can be watched and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from opbench.store import schema as s
from opbench.store.database import Store
from tests.running.study import STUDY
from tests.scripted_endpoint import ScriptedEndpoint

WAIT_S = 120.0


def command(*flags: str, **fields: Any) -> list[str]:
    """`opbench run` of the study."""
    given = [
        f"--{key.replace('_', '-')}={','.join(value) if isinstance(value, tuple) else value}"
        for key, value in (STUDY | fields).items()
    ]
    return [sys.executable, "-m", "opbench", "run", *given, *flags]


def begin(environment: dict[str, str], url: str, *flags: str, **fields: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*flags, **fields),
        env=environment | {"OPBENCH_STORE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code and what it said."""
    said, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, said.decode()


def until(true: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    """Wait for something, and what it is."""
    deadline = time.monotonic() + WAIT_S
    while not (found := true()):
        assert time.monotonic() < deadline, "it didn't come"
        assert process is None or process.poll() is None, end(process)
        time.sleep(0.02)
    return found


def records(store: Store) -> int:
    with store.begin() as connection:
        return len(connection.execute(select(s.records.c.id)).all())


def members(store: Store) -> list[Any]:
    """The rows of the members."""
    with store.begin() as connection:
        return list(connection.execute(select(s.workers).where(s.workers.c.leader.is_not(None))))


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def chats(endpoint: ScriptedEndpoint) -> Counter[str]:
    """How often each chat request was sent."""
    return Counter(json.dumps(body, sort_keys=True) for body in endpoint.ledger.bodies if "messages" in body)
