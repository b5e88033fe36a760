"""A Ray of this machine for as long as a run lasts, where there is no cluster to join.

It is the child of a guard (this file as a program), which ends it and removes its folder when the pipe to the guard
breaks: Ray by itself leaves processes behind when the one that started it is killed. The guard and all that it starts
are a process group of their own, so that Ctrl-C in a terminal is the leader's alone. What Ray writes (sockets, logs,
the token without which nobody is let in) lies in that folder, which only its owner can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from opbench.errors import UsageError

PREFIX = "opbench-ray-"
#: Bytes that a socket's path may have, less those that Ray puts between our folder and its end
#: (`/session_2026-11-30_09-44-04_578201_4194304/sockets/plasma_store`).
_LONGEST_FOLDER = 103 - 66
#: Bytes of Ray's object store, the least that it takes: workers talk through the run's store.
_OBJECTS = 80 * 1024 * 1024
_ENDS_WITHIN_S = 20.0


class LocalRay:
    """A running Ray with room for `workers`; `address` is what the leader connects to, with
    `environment` set before it loads Ray."""

    def __init__(self, workers: int, environment: Mapping[str, str]) -> None:
        """`environment` is that of Ray and of its workers: nothing secret belongs into it.

        Raises:
            UsageError: Ray doesn't start; says what it said.
        """
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_parent()))
        token = self._folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": str(token)}
        told = {**environment, **self.environment, "RAY_USAGE_STATS_ENABLED": "0"}
        with (self._folder / "guard.log").open("wb") as log:
            self._guard = subprocess.Popen(
                # -I: a folder of modules must not become part of Ray's path.
                [sys.executable, "-I", __file__, str(self._folder), str(workers)],
                env={name: value for name, value in told.items() if value is not None},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        try:
            said = json.loads(self._guard.stdout.readline() or b"{}")
            self.address = str(said["address"])
        except (ValueError, KeyError):
            reason = _last_line(self._folder / "guard.log")
            self.close()
            raise UsageError(
                f"--ray: no Ray could be started on this machine ({reason or 'it ended without a word'}). Give the "
                "address of a cluster (--ray HOST:PORT), or leave --ray out and use --workers."
            ) from None
        except BaseException:  # Ctrl-C
            self.close()
            raise

    def close(self) -> None:
        """End it, with all that runs in it."""
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._guard.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _parent() -> Path:
    """Where the folder is made: for temporary files, unless that is too long a path for Ray's sockets in it."""
    usual = Path(tempfile.gettempdir())
    return usual if len(os.fsencode(usual / f"{PREFIX}12345678")) <= _LONGEST_FOLDER else Path("/tmp")


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:300]
    return ""


# --- the guard -------------------------------------------------------------------------------------------------------


def guard(folder: Path, workers: int) -> None:
    """Start Ray in `folder`, tell its address in a line of JSON, and end it when stdin ends."""
    import importlib

    ray = importlib.import_module("ray")
    try:
        context = ray.init(
            address="local",
            num_cpus=workers,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=_OBJECTS,
            log_to_driver=False,
            _temp_dir=str(folder),
        )
        sys.stdout.write(json.dumps({"address": context.address_info["gcs_address"]}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        # What didn't end by itself, and the guard: its group holds nothing else.
        os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    guard(Path(sys.argv[1]), int(sys.argv[2]))
