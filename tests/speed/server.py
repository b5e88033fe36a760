"""The benchmark's scripted endpoint: OpenAI's wire format, as fast as one process of Python serves it.

    python -m tests.speed.server

prints its base URL. A generation is answered with a sentence and a judge's request with a score or verdict line; both
depend on the model's name and the messages alone. `GET /ledger` tells what was asked since `GET /anew/SECONDS`, which
sets its latency. It knows no faults: for those there is `tests.scripted_endpoint`, which serves a tenth as many
requests.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

ROOT = Path(__file__).parents[2]
_WORDS = (
    *("amber", "bridge", "cedar", "delta", "ember", "forest", "grain", "harbour", "island", "kettle", "lantern"),
    *("meadow", "needle", "orchard", "pebble"),
)
_SENTENCE = 16
_DIMENSIONS = 384
#: Slices of a second in which requests are counted.
SLICES = 10
_HEAD_END = b"\r\n\r\n"


def answer(model: str, messages: list[dict[str, Any]]) -> str:
    """A sentence of 16 words; for judge prompts of the pack `own` it is the reason before a score or a verdict."""
    text = "\n".join(message["content"] for message in messages)
    digest = zlib.crc32(f"{model}\n{text}".encode())
    words = [_WORDS[(digest >> (number % 28)) % len(_WORDS)] for number in range(_SENTENCE)]
    sentence = " ".join(words).capitalize()
    # A judge's reasons are hardly ever the same: what is worked out once for equal replies must not help.
    if "Score: <number" in text:
        return f"{sentence}.\nScore: {digest % 101 / 100:.2f}"
    if "Label: CORRECT" in text:
        return f"{sentence}.\nLabel: {'CORRECT' if digest % 2 else 'WRONG'}"
    return f"{sentence} {digest}."


def reply(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The reply's JSON for a request's."""
    if path.endswith("/embeddings"):
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        rows = [{"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(texts)]
        tokens = sum(text.count(" ") + 1 for text in texts)
        return {
            "object": "list",
            "data": rows,
            "model": body["model"],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    text = answer(body["model"], body["messages"])
    taken = sum(message["content"].count(" ") + 1 for message in body["messages"])
    given = text.count(" ") + 1
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given},
    }


def vector(text: str) -> list[float]:
    """384 numbers, as MiniLM has; texts that share words lie nearer to each other."""
    found = [0.01] * _DIMENSIONS
    for word in text.lower().split():
        found[zlib.crc32(word.encode()) % _DIMENSIONS] += 1.0
    return found


class Ledger:
    """Requests that were answered."""

    def __init__(self) -> None:
        self.answered = 0
        self.slices: Counter[int] = Counter()
        """By tenths of a second of the loop's clock."""
        self.first_at: float | None = None
        """When the first request came, as `time.time` tells it."""
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0

    def book(self, now: float) -> None:
        self.answered += 1
        self.slices[int(now * SLICES)] += 1

    def counts(self) -> dict[str, Any]:
        first = min(self.slices, default=0)
        return {
            "answered": self.answered,
            "first_at": self.first_at,
            "connections": self.connections,
            "most_at_once": self.most_at_once,
            "slices": [self.slices[each] for each in range(first, max(self.slices, default=first - 1) + 1)],
        }


@dataclass(slots=True)
class Script:
    """What the server does now."""

    latency_s: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)


class _Connection(asyncio.Protocol):
    """HTTP/1.1 of one kept-alive connection, a request at a time."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has its methods, and isn't of its class.
        self._transport = cast("asyncio.Transport", transport)
        self._script.ledger.connections += 1

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(_HEAD_END)) >= 0:
            head = bytes(self._read[:end])
            lower = head.lower()
            at = lower.find(b"content-length:")
            length = 0 if at < 0 else int(lower[at + 15 :].split(b"\r\n", 1)[0])
            whole = end + len(_HEAD_END) + length
            if len(self._read) < whole:
                return
            body = bytes(self._read[end + len(_HEAD_END) : whole])
            del self._read[:whole]
            method, path, _ = head.split(b" ", 2)
            self._take(method.decode(), path.decode(), body)

    def _take(self, method: str, path: str, body: bytes) -> None:
        if method == "GET":
            self._send(200, orjson.dumps(self._told(path)))
            return
        if self._script.ledger.first_at is None:
            self._script.ledger.first_at = time.time()
        self._script.ledger.at_once += 1
        self._script.ledger.most_at_once = max(self._script.ledger.most_at_once, self._script.ledger.at_once)
        if self._script.latency_s:
            self._loop.call_later(self._script.latency_s, self._answer, path, body)
        else:
            self._answer(path, body)

    def _told(self, path: str) -> dict[str, Any]:
        if path == "/ledger":
            return self._script.ledger.counts()
        if path.startswith("/anew/"):
            self._script.latency_s = float(path.removeprefix("/anew/"))
            self._script.ledger = Ledger()
            return {}
        return {"object": "list", "data": [{"id": "scripted", "object": "model"}]}

    def _answer(self, path: str, body: bytes) -> None:
        self._script.ledger.at_once = self._script.ledger.at_once - 1
        try:
            status, data = 200, orjson.dumps(reply(path, orjson.loads(body)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            status, data = 400, orjson.dumps({"error": {"message": f"{type(error).__name__}: {error}", "code": None}})
        self._script.ledger.book(self._loop.time())
        self._send(status, data)

    def _send(self, status: int, data: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        if not self._transport.is_closing():
            self._transport.write(head.encode() + data)


async def _serve(ready: Callable[[str], None]) -> None:
    script = Script()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(script), "127.0.0.1", 0, backlog=1024)
    ready(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    await server.serve_forever()


class Server:
    """A running server, seen from another process."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Base URL, as a registry has it."""

    def ledger(self) -> dict[str, Any]:
        """answered, first_at, connections, most_at_once, and in `slices` the answers of each tenth of a second."""
        return dict(self._get("/ledger"))

    def anew(self, latency_s: float = 0.0) -> None:
        """Count from nothing, and answer after so many seconds from now on. Nothing may be under way."""
        self._get(f"/anew/{latency_s}")

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + path, timeout=10) as told:
            return json.load(told)


@contextmanager
def running() -> Iterator[Server]:
    """The server in a process of its own while the block lasts."""
    command = [sys.executable, "-m", "tests.speed.server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout
            yield Server(process.stdout.readline().strip())
        finally:
            process.terminate()


def main() -> None:
    uvloop.run(_serve(lambda url: print(url, flush=True)))


if __name__ == "__main__":
    main()
