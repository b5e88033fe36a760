"""Stores that can be taken away: a small disk, and a PostgreSQL server of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import _free_port, _tool

PASSWORD = "pg-planted-7Qd2vXwe91"
_AS_USER = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


class SmallDisk:
    """A file system of so many bytes, in memory."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))

    def grow(self, size: int) -> None:
        _mount("-o", f"remount,size={size}", str(self.folder))

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def may_mount() -> bool:
    """Whether this machine lets us have a small disk: root may, in most containers."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            SmallDisk(Path(folder) / "disk", 1 << 20).close()
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


class Postgres:
    """A server with a password, that can be stopped and started."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="opbench-soak-pg-"))
        self.port = _free_port()
        self._data = self.folder / "data"
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if _AS_USER:
            for place in (self.folder, secret):
                shutil.chown(place, "postgres")
        self._run("initdb", "-D", str(self._data), "-U", "opbench", "-A", "scram-sha-256", f"--pwfile={secret}")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://opbench:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "-l", str(self.folder / "log"), "start")

    def stop(self, how: str = "fast") -> None:
        """`fast` breaks the connections off in order, `immediate` is a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-m", how, "-w", "stop")

    def dump(self) -> bytes:
        """All that is in it, as SQL."""
        environment = dict(os.environ) | {"PGPASSWORD": PASSWORD}
        command = [_tool("pg_dump"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "opbench", "postgres"]
        return subprocess.run(command, check=True, capture_output=True, env=environment).stdout

    def close(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, tool: str, *arguments: str, check: bool = True) -> None:
        subprocess.run([*_AS_USER, _tool(tool), *arguments], check=check, stdout=subprocess.DEVNULL, cwd="/")


@contextmanager
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        yield server
    finally:
        server.close()
