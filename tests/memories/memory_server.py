"""A scripted memory server: keeps what it is sent, answers and fails as it is told."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Reply = tuple[int, bytes, dict[str, str]]


def reply(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return status, body, {"Content-Type": "application/json"} | (headers or {})


class MemoryServer:
    """On a free loopback port while the context lasts. One memory a message; found by shared words.

    `script` holds replies to the next requests whatever they ask: None answers as usual, a number of seconds waits
    before it does, "reset" closes the connection.
    """

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.script: list[Reply | float | str | None] = []
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        """(path, body, headers) in order of arrival."""
        self.memories: dict[str, list[dict[str, Any]]] = {}
        self.taken_in: dict[str, int] = {}
        self.lists = True
        """Whether ingest answers with the memories, or with their number."""
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer._handle(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sent(self, path: str) -> list[dict[str, Any]]:
        return [body for where, body, _ in self.requests if where == path]

    def _handle(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self._lock:
            self.requests.append((handler.path, body, dict(handler.headers)))
            scripted = self.script.pop(0) if self.script else None
        if scripted == "reset":
            handler.close_connection = True
            return
        if isinstance(scripted, float):
            time.sleep(scripted)
            scripted = None
        status, data, headers = scripted if isinstance(scripted, tuple) else self._answer(handler, body)
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Reply:
        if self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            return reply({"error": f"{handler.headers.get('Authorization')} isn't right"}, 401)
        with self._lock:
            kept = self.memories.setdefault(body["user"], [])
            if handler.path == "/search":
                asked = set(body["query"].split())
                found = sorted(kept, key=lambda each: -len(asked & set(each["text"].split())))
                return reply({"memories": found[: body["k"]], "count": len(kept)})
            messages = body["session"]["messages"]
            new = [{"text": each["content"], "date": body["session"]["date"]} for each in messages]
            if body["id"] not in self.taken_in:
                self.taken_in[body["id"]] = len(new)
                kept += new
            return reply({"memories": new if self.lists else len(new)})
