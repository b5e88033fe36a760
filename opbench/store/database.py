"""Opening the store: engine, SQLite's settings, migrations."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import orjson
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, extract, func, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from opbench.errors import StoreBroken, StoreError

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 26011372  # any fixed number: PostgreSQL's advisory lock while the schema is upgraded


#: Seconds between two tries to reach a database server that was there before.
_AGAIN_S = 0.25


class Store:
    """An open store with the current schema. Safe to share between threads."""

    def __init__(self, engine: Engine, label: str, patience_s: float = 0.0) -> None:
        """`patience_s`: how long `patiently` waits for a server that went away."""
        self.engine = engine
        self.label = label
        """The URL without password, for messages."""
        self.patience_s = patience_s
        self._file = _sqlite_file(engine)
        self._inode = None if self._file is None else _inode(self._file)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction: committed at the end, rolled back on any error.

        Raises:
            StoreBroken: the server broke the connection off, or can't be reached any more.
            StoreError: the database refused or vanished; one line that says what it said.
        """
        # SQLite would go on writing into a file that has no name any more.
        if self._file is not None and _inode(self._file) != self._inode:
            raise StoreError(
                f"store {self.label}: the file was moved or removed while it was open. Put it back, with the files "
                f"{self._file.name}-wal and {self._file.name}-shm if they are there, and start again."
            )
        try:
            with self.engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise _refused(self.label, error, self._file is None) from error

    def patiently(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work`, done again from its beginning while the database server is restarted or away, for as long as this
        store was opened to wait. It must do the same when it is done twice: the server may have gone after it had
        committed and before it could say so.

        Raises:
            StoreError: as `begin`.
        """
        until, told = time.monotonic() + self.patience_s, False
        while True:
            try:
                return work(*args, **kwargs)
            except StoreBroken as broken:
                if time.monotonic() > until:
                    # What is tidied up at the end doesn't wait as long again.
                    self.patience_s = 0.0
                    raise
                if not told:
                    log.warning("%s This process waits for it, up to %.0f minutes.", broken, self.patience_s / 60)
                    told = True
                time.sleep(_AGAIN_S)

    async def in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `patiently`, in a thread of its own."""
        return await asyncio.to_thread(partial(self.patiently, work, *args, **kwargs))

    def close(self) -> None:
        self.engine.dispose()


def store_time(connection: Connection) -> float:
    """The store's clock, in Unix seconds: heartbeats are written and judged by it, since machines' clocks differ. That
    of SQLite, a file of one machine, is the machine's."""
    if connection.dialect.name != "postgresql":
        return time.time()
    return float(connection.execute(select(extract("epoch", func.clock_timestamp()))).scalar_one())


def _sqlite_file(engine: Engine) -> Path | None:
    name = engine.url.database
    return Path(name) if engine.dialect.name == "sqlite" and name and name != ":memory:" else None


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _refused(label: str, error: DBAPIError, server: bool = False) -> StoreError:
    said = " ".join(str(error.orig).split())
    # A connection that can't be made has nothing that could be invalidated.
    broken = server and isinstance(error, OperationalError) and (error.connection_invalidated or _no_server(error))
    kind = StoreBroken if broken else StoreError
    return kind(f"store {label}: {said}. Is the database there, writable and not full?")


def _no_server(error: DBAPIError) -> bool:
    """Whether a server couldn't be reached, or takes nobody in at present: none of its states is an SQL one."""
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state.startswith(("57P", "08"))


def _set_up_sqlite(connection: Any, _record: object, *, patience_s: float) -> None:
    if isinstance(connection, sqlite3.Connection):
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # NORMAL survives a killed process; only a power cut may cost the last commits, never the file.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute(f"PRAGMA busy_timeout={patience_s * 1000:.0f}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()


#: Seconds that a person waits for another process's writing before it is an error; a run at work rather waits long
#: than lose the answers in its hands.
PATIENCE_S, PATIENCE_OF_A_RUN_S = 30.0, 1800.0


def open_store(url: str, *, patience_s: float = PATIENCE_S) -> Store:
    """Open the store at an SQLAlchemy URL, creating and upgrading its schema where needed.

    `patience_s`: how long a write to SQLite waits while another process writes, and `Store.patiently` for a server
    that went away.

    Raises:
        StoreError: the URL is malformed, the database can't be reached, or its schema is newer than this program.
    """
    try:
        parsed = make_url(url)
        # Parameters may hold a password too.
        label = parsed.set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        raise StoreError(
            "OPBENCH_STORE isn't a database URL. Use sqlite:////path/file.sqlite3 or postgresql+psycopg://user@host/database."
        ) from None
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        try:
            Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"store {label}: can't make its folder ({error.strerror}). Set OPBENCH_HOME.") from error
    try:
        engine = create_engine(parsed, pool_pre_ping=True, json_serializer=_json)
    except (NoSuchModuleError, ModuleNotFoundError):
        raise StoreError(
            f"store {label}: no such kind of database here. Use sqlite:///… or postgresql+psycopg://…"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", partial(_set_up_sqlite, patience_s=patience_s))
    try:
        _upgrade(engine, label)
    except DBAPIError as error:
        raise _refused(label, error) from error
    return Store(engine, label, patience_s)


def _json(value: Any) -> str:
    """What a JSON column holds."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # Halves of characters, keys that are no text, and integers beyond 64 bits, which JSON can hold.
        return json.dumps(value)


def _upgrade(engine: Engine, label: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    head = script.get_current_head()
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current == head:
        return
    if current is not None and current not in {revision.revision for revision in script.walk_revisions()}:
        raise StoreError(f"store {label}: made by a newer version of the workbench ({current}). Update, then open it.")
    with engine.begin() as connection:
        # Two processes that open a new store at once: the second waits here and then finds nothing to do.
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _MIGRATION_LOCK})
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
