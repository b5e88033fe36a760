"""Replies that no honest endpoint sends: each is an answer or a failure of ours, and all of it can be stored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opbench.errors import ModelError
from opbench.models import ModelClient, load_registry
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.reading import run_status
from opbench.study import Study
from opbench.types import ChatRequest, Message

Reply = tuple[int, dict[str, str], bytes]
ASKED = ChatRequest("hostile", (Message("user", "How are you?"),))


@contextmanager
def endpoint(reply: Callable[[Any], Reply]) -> Iterator[str]:
    """The base URL of an endpoint that answers every request so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = reply(self.headers)
            self.send_response(status)
            for name, value in ({"content-type": "application/json"} | headers).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def registry(folder: Path, url: str, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "models.toml"
    entry = {"base_url": url, "served": "hostile", "attempts": 2, "first_wait_s": 0.01, "max_wait_s": 0.01} | more
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    prices = ["price_in = 1.0", "price_out = 1.0"]
    embedder = ["", '[embedders."hostile"]', *lines, prices[0]]
    file.write_text("\n".join(['[models."hostile"]', *lines, *prices, *embedder]))
    return file


def answer(content: Any = "Fine.", **more: Any) -> bytes:
    body: dict[str, Any] = {
        "model": "hostile",
        "choices": [{"message": {"content": content}, "finish_reason": more.pop("finish_reason", "stop")}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    return json.dumps(body | more).encode()


def said(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind"),
    [
        (200, {}, b"[" * 200_000, "bad_reply"),
        (500, {}, b"[" * 200_000, "server"),
        (200, {}, b'{"choices": [{"message": {"content": ' + b"9" * 5000 + b"}}]}", "bad_reply"),
        (429, {"retry-after": "Mon, 01 Jan 0001 00:00:00 +2300"}, said("slow down"), "rate_limit"),
        (400, {}, said("no \ud800 such \0 \x1b[31mthing"), "bad_request"),
    ],
)
async def test_what_cannot_be_read_is_a_failure(
    tmp_path: Path, status: int, headers: dict[str, str], body: bytes, kind: str
) -> None:
    with endpoint(lambda _: (status, headers, body)) as url:
        async with ModelClient(load_registry(registry(tmp_path, url))) as client:
            with pytest.raises(ModelError) as failed:
                await client.complete(ASKED)
    assert failed.value.kind == kind
    assert "\0" not in str(failed.value)
    str(failed.value).encode()


async def test_an_answer_is_cut_to_what_can_be_stored(tmp_path: Path) -> None:
    body = answer(
        "half \ud800 and \0",
        finish_reason="stop \ud800" + "x" * 100,
        model="\ud800" + "y" * 5000,
        usage={"prompt_tokens": 10**30, "completion_tokens": 7},
    )
    with endpoint(lambda _: (200, {}, body)) as url:
        async with ModelClient(load_registry(registry(tmp_path, url))) as client:
            result = await client.complete(ASKED)
            names = client.stats.answered_as["hostile"]
    assert result.text == "half ? and \ufffd"
    assert result.finish_reason == "stop ?" + "x" * 26, "32 signs, as the column has"
    assert (result.prompt_tokens, result.completion_tokens) == (None, 7)
    assert names == {"?" + "y" * 199}


@pytest.mark.parametrize("row", [{"index": 1e400, "embedding": [1.0]}, {"index": 0, "embedding": [10**400]}])
async def test_vectors_out_of_range_are_a_failure(tmp_path: Path, row: dict[str, Any]) -> None:
    with endpoint(lambda _: (200, {}, json.dumps({"data": [row]}).encode())) as url:
        async with ModelClient(load_registry(registry(tmp_path, url))) as client:
            with pytest.raises(ModelError) as failed:
                await client.embed("hostile", ["a"])
    assert failed.value.kind == "bad_reply"


async def test_a_run_outlives_them_in_every_store(store: Store, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight kinds of reply, one after the other: no record is lost, and no key is anywhere."""
    key = "Zx9-planted-secret-key-7741"
    monkeypatch.setenv("HOSTILE_KEY", key)
    long = "\x1b[31m\u202e" + "=1+1 <script> " * 15_000
    turn = iter(range(10**6))

    def reply(headers: Any) -> Reply:
        echo = f"refused {headers['authorization']} \ud800\0\x1b]0;title\x07"
        kinds: list[Reply] = [
            (200, {}, answer(long)),
            (200, {}, answer(f"You sent {headers['authorization']}.", model=headers["authorization"])),
            (200, {}, answer("x", finish_reason="\ud800" * 100, usage={"prompt_tokens": 10**30})),
            (400, {}, said(echo)),
            (401, {}, said(echo)),
            (500, {}, echo.encode("utf-8", "replace")),
            (200, {}, b"[" * 100_000),
            (429, {"retry-after": "0.01"}, said(echo)),
        ]
        return kinds[next(turn) % len(kinds)]

    with endpoint(reply) as url:
        file = registry(home, url, key_env="HOSTILE_KEY")
        monkeypatch.setenv("OPBENCH_MODELS", str(file))
        settings.cache_clear()
        study = Study(models=("hostile",), memories=("base",), judge="offline", data="sample", limit=21)
        prepared = prepare(study)
        try:
            progress = await execute(store, prepared, concurrency=3, on_progress=lambda progress: None)
        finally:
            await prepared.aclose()
    status = run_status(store, prepared.run_id)
    assert progress.done == status.planned == status.done + status.errors
    assert status.done > 0
    assert status.errors > 0
    with store.begin() as connection:
        for table in s.metadata.sorted_tables:
            for row in connection.execute(select(table)):
                assert key not in str(row), table.name
                assert key[4:14] not in str(row), table.name
        longest = max(len(text or "") for text in connection.scalars(select(s.records.c.response)))
    assert longest == len(long)
