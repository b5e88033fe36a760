"""The program that runs in MemOS's own environment: requests in on stdin, replies out on stdout, a line of JSON each.

    python -I opbench/memories/sidecar/inside BASE

`BASE` is the folder for whatever MemOS writes by itself. First line out: `{"ready": …}` or `{"failed": reason}`. Then
`{"id", "method", "params"}` in, `{"id", "result"}` or `{"id", "error"}` out, in any order. It ends when stdin ends,
when the process that started it is gone, or when it is idle for a minute. Standard library and MemOS only.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

IDLE_S = 60.0
"""Seconds without an open store after which the program ends."""
WORKERS = 32


def only_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: whatever the libraries try, no connection leaves this machine."""
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if host is None or host in ("localhost", b"localhost"):
        return
    try:
        local = ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        local = False
    if not local:
        print(f"refused a connection to {host!r}", file=sys.stderr, flush=True)
        raise PermissionError(f"connections beyond this machine are off: {host!r}")


class Stores:
    """The open stores and what can be done with them."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._postgres: Any = None
        self._numbers = iter(range(1, sys.maxsize))

    def __len__(self) -> int:
        return len(self._open)

    def open(self, kind: str, folder: str, settings: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            handle = f"s{next(self._numbers)}"
            if kind == "tree" and self._postgres is None:
                from postgres import Postgres  # type: ignore[import-not-found]

                self._postgres = Postgres()
        store: Any
        if kind == "tree":
            from tree import TreeStore  # type: ignore[import-not-found]

            store = TreeStore(Path(folder), settings, self._postgres, handle)
        else:
            from general import GeneralStore  # type: ignore[import-not-found]

            store = GeneralStore(Path(folder), settings)
        with self._lock:
            self._open[handle] = store
        return {"store": handle}

    def add(self, store: str, session: dict[str, Any]) -> dict[str, int]:
        added: dict[str, int] = self._open[store].add(session)
        return added

    def search(self, store: str, query: str, k: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._open[store].search(query, k) if k > 0 else []
        return found

    def memories(self, store: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._open[store].memories()
        return found

    def close(self, store: str) -> None:
        with self._lock:
            opened = self._open.pop(store, None)
        if opened is not None:
            opened.close()

    def broken(self) -> bool:
        """Whether the database is gone, and what is open with it."""
        return self._postgres is not None and not self._postgres.alive()

    def end(self) -> None:
        if self._postgres is not None:
            self._postgres.stop()


class Program:
    """Reads requests and answers them from a pool of threads."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests = requests
        self._replies = replies
        self._lock = threading.Lock()
        self._stores = Stores()
        self._under_way = 0
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="request")

    def say(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            self._replies.write(data)
            self._replies.flush()

    def run(self) -> None:
        parent, buffered, idle_since = os.getppid(), b"", time.monotonic()
        while True:
            readable, _, _ = select.select([self._requests], [], [], 2.0)
            if os.getppid() != parent:
                break
            if not readable:
                if len(self._stores) or self._under_way:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > IDLE_S:
                    break
                continue
            idle_since = time.monotonic()
            piece = os.read(self._requests.fileno(), 1 << 16)
            if not piece:
                break
            *lines, buffered = (buffered + piece).split(b"\n")
            for line in lines:
                with self._lock:
                    self._under_way += 1
                self._pool.submit(self._answer, json.loads(line))
        self._stores.end()

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            method: Callable[..., Any] = getattr(self._stores, request["method"])
            reply = {"id": request["id"], "result": method(**request["params"])}
        except BaseException as error:  # noqa: BLE001  (told to who asked; the program goes on)
            traceback.print_exc()
            reply = {"id": request["id"], "error": f"{type(error).__name__}: {error}"}
        finally:
            with self._lock:
                self._under_way -= 1
        if self._stores.broken():
            os._exit(1)  # whoever asked gets a new process, with all stores as they were
        self.say(reply)


def main() -> None:
    # MemOS and its libraries print; the pipe must carry nothing but replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.addaudithook(only_loopback)
    program = Program(requests, replies)
    try:
        import memos
        from memos.memories.factory import MemoryFactory  # noqa: F401  (the slow import, before the first request)
    except Exception as error:  # noqa: BLE001  (told to who started it)
        traceback.print_exc()
        program.say({"failed": f"{type(error).__name__}: {error}"})
        raise SystemExit(1) from None
    # At INFO it logs every prompt and reply.
    for name in ("", "memos"):
        logging.getLogger(name).setLevel(logging.WARNING)
    program.say({"ready": {"memos": memos.__version__, "pid": os.getpid()}})
    try:
        program.run()
    finally:
        # Threads may hang in a model call that nobody waits for any more.
        os._exit(0)


if __name__ == "__main__":
    main()
