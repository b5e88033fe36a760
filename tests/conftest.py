"""What all tests share: a home of their own, and a real PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

import opbench.judges.registry as judges
import opbench.memories.registry as memories
from mitigations import registry as methods
from opbench import plugins
from opbench.settings import settings
from opbench.store import database
from opbench.store.database import Store, open_store

DATA = os.environ.get("OPBENCH_DATA", "")


_MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """A page that is run in this process puts a module of `app.py` in the place of `__main__`. Processes that
    `multiprocessing` starts afterwards would run the dashboard's entry first, which takes recorded studies into the
    store."""
    sys.modules["__main__"] = _MAIN
    yield
    sys.modules["__main__"] = _MAIN


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every test has its own home: no store, cache or fetched data of the person who runs the tests. What plugins an
    earlier one loaded is no part of its studies' hashes, and what they registered isn't known any more."""
    folder = tmp_path / "home"
    monkeypatch.setenv("OPBENCH_HOME", str(folder))
    for name in ("OPBENCH_DATA", "OPBENCH_STORE", "OPBENCH_MODELS", "OPBENCH_MEMORIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(plugins, "_loaded", {})
    for registry, table in ((methods, "_methods"), (memories, "_FACTORIES"), (judges, "_REGISTERED")):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    settings.cache_clear()
    yield folder
    settings.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """New SQLite files begin as a copy of one that the migrations made once in this session; then they are opened as
    ever. Other processes, PostgreSQL and stores of earlier versions know nothing of it."""
    folder = tmp_path_factory.mktemp("template")
    made = folder / "store.sqlite3"
    open_store(f"sqlite:///{made}").close()
    upgrade = database._upgrade

    def copied(engine: Engine, label: str) -> None:
        file = database._sqlite_file(engine)
        if file is not None and not file.exists():
            part = folder / uuid.uuid4().hex
            shutil.copyfile(made, part)
            # Whole from the first moment on, and never in the place of another's.
            with contextlib.suppress(OSError):
                os.link(part, file)
            part.unlink()
        upgrade(engine, label)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_upgrade", copied)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the real benchmark data its tests are left out and said to be; in CI they are never left out."""
    if DATA or os.environ.get("CI"):
        return
    of_data = [item for item in items if "real_data" in getattr(item, "fixturenames", ())]
    if of_data:
        config.hook.pytest_deselected(items=of_data)
        items[:] = [item for item in items if item not in of_data]
        print(
            f"\n{len(of_data)} tests of the real benchmark data are left out: OPBENCH_DATA isn't set (README, 'Data')"
        )


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real benchmark data with the published figures beside it; `.ci/run` sets it."""
    assert DATA, "OPBENCH_DATA isn't set"
    return Path(DATA).resolve()


@pytest.fixture
def use_real_data(real_data: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Make the settings find the real data."""
    monkeypatch.setenv("OPBENCH_DATA", str(real_data))
    settings.cache_clear()
    return real_data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tool(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    path = str(found[0]) if found else shutil.which(name)
    assert path, f"these tests need PostgreSQL's {name}: tools/test-needs.sh says how to install it"
    return path


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server that belongs to this test session."""
    # PostgreSQL refuses to run as root, so as root it runs as the user that Debian's package made for it.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="opbench-pg-"))
    if as_user:
        shutil.chown(folder, "postgres")
    data, port = folder / "data", _free_port()
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/"}
    try:
        subprocess.run([*as_user, _tool("initdb"), "-D", str(data), "-U", "opbench", "-A", "trust"], **quiet)  # type: ignore[call-overload]
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        subprocess.run(
            [*as_user, _tool("pg_ctl"), "-D", str(data), "-w", "-o", options, "-l", str(folder / "log"), "start"],
            **quiet,  # type: ignore[call-overload]
        )
        yield f"postgresql+psycopg://opbench@127.0.0.1:{port}"
    finally:
        subprocess.run([*as_user, _tool("pg_ctl"), "-D", str(data), "-m", "immediate", "stop"], check=False, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _database(server: str) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:12]}"
    admin = create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield f"{server}/{name}"
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new store's URL, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.sqlite3'}"
    else:
        with _database(request.getfixturevalue("postgres_server")) as url:
            yield url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = open_store(store_url)
    yield opened
    opened.close()
