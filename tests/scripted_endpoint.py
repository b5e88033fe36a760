"""An OpenAI-compatible endpoint that answers and fails by a script, for tests.

    with ScriptedEndpoint(faults={"server": 0.1, "hang": 0.05}, seed=1) as endpoint:
        registry_file.write_text(endpoint.registry_toml())

Every answer is a function of the request. Whether an attempt fails, and how, is a function of seed, request and
attempt number, so the same run meets the same faults again. Also a program of its own, which prints its URL:
`python -m tests.scripted_endpoint --faults 0.2 --seed 1` (its ledger: GET /ledger).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Literal, Self, get_args

Fault = Literal[
    "rate_limit",  # 429 with Retry-After
    "server",  # 500
    "malformed",  # 200 whose JSON breaks off, with the length that was promised
    "truncated",  # Content-Length promises more than is sent
    "hang",  # no answer until the client gives up
    "drip",  # a byte at a time, for ever
    "html",  # 200 with a web page, as a proxy sends it
    "reset",  # the connection is closed without an answer
    "empty",  # an answer without content
    "refusal",  # an answer that no score can be read from
    "content_filter",  # an answer that the provider's filter cut
    "unauthorized",  # 401 that quotes the key
    "not_found",  # 404
    "quota",  # 429 that waiting doesn't heal
    "too_long",  # 400: beyond the context window
    "stream_error",  # a stream that tells an error after its first pieces; 500 to who doesn't stream
]
Streaming = Literal[
    "yes",
    "without_done",  # the stream ends without saying so
    "ignored",  # the answer comes in one piece
    "refused",  # 400 to who wants a stream
    "options_refused",  # 400 to who wants the usage in the stream
]
#: The faults of issue 2: those that a retry heals, and the two that arrive as answers.
MIXED: tuple[Fault, ...] = ("rate_limit", "server", "malformed", "truncated", "hang", "empty", "refusal")
#: What happens in the middle of a stream; all else comes before it.
_STREAMED: tuple[Fault | None, ...] = (
    None,
    "empty",
    "refusal",
    "content_filter",
    "truncated",
    "hang",
    "malformed",
    "stream_error",
)
REFUSAL = "I'm sorry, but I can't help with rating this conversation."
_WORDS = ("amber", "bridge", "cedar", "delta", "ember", "forest", "grain", "harbor", "island", "kettle", "lantern")

Reply = Callable[[dict[str, Any]], str]


def default_reply(body: dict[str, Any]) -> str:
    """A score line for whoever asks for a score, else a sentence; both depend on the messages alone."""
    digest = hashlib.sha256(_canonical(body.get("messages"))).digest()
    text = " ".join(str(message.get("content", "")) for message in body["messages"]).lower()
    if "score" in text and re.search(r"\b0(\.0)?\b.*\b1(\.0)?\b", text, re.S):
        return f"Score: {digest[0] % 101 / 100:.2f}"
    return " ".join(_WORDS[byte % len(_WORDS)] for byte in digest[:12]).capitalize() + "."


@dataclass
class Ledger:
    """What reached the endpoint. Requests are counted under `request_hash`."""

    requests: Counter[str] = field(default_factory=Counter)
    """Chat and embedding requests, failed ones included."""
    answered: Counter[str] = field(default_factory=Counter)
    """Requests that got a complete answer with status 200, those with the faults `empty` and `refusal` included."""
    faults: Counter[str] = field(default_factory=Counter)
    """Attempts that failed, by fault."""
    closed_by_client: int = 0
    """Connections that the client closed while it was owed an answer."""
    connections: int = 0
    """Connections that were opened."""
    most_at_once: int = 0
    """Most requests under way at the same time."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the chat and embedding requests, in order of arrival."""

    @property
    def total(self) -> int:
        return self.requests.total()

    def counts(self) -> dict[str, Any]:
        """All but the bodies, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "bodies"} | {
            "total": self.total
        }


class ScriptedEndpoint:
    """The endpoint on a free loopback port, in a thread of its own while the context lasts.

    `faults`: share of attempts (0 to 1) by fault. With `persistent`, a request that fails once always fails so.
    `script`: faults of the first attempts whatever the request, None for an answer; `faults` apply after it.
    """

    def __init__(
        self,
        *,
        faults: Mapping[Fault, float] | None = None,
        script: list[Fault | None] | None = None,
        seed: int = 0,
        persistent: bool = False,
        reply: Reply = default_reply,
        latency_s: float = 0.0,
        streaming: Streaming = "yes",
        piece_s: float = 0.0,
        usage: bool = True,
        retry_after: str = "0.05",
        models: tuple[str, ...] = ("scripted",),
        port: int = 0,
    ) -> None:
        self.faults: dict[Fault, float] = dict(faults or {})
        self.script = list(script or [])
        self.seed = seed
        self.persistent = persistent
        self.reply = reply
        self.latency_s = latency_s
        self.streaming = streaming
        self.piece_s = piece_s
        """Seconds before each piece of a stream but the first."""
        self.usage = usage
        """Whether answers tell their token counts."""
        self.retry_after = retry_after
        self.models = models
        self.held: Callable[[], bool] | None = None
        """Nothing is answered while it is true: a process is in the middle of its work then, however quick it is."""
        self.refused: Callable[[dict[str, Any]], bool] | None = None
        """Chat requests that are answered with a 400: of an argument that this endpoint doesn't know."""
        self.ledger = Ledger()
        self.url = ""
        self._port = port
        self._lock = threading.Lock()
        self._at_once = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the scripted endpoint didn't start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def registry_toml(self, name: str = "scripted", **override: float | int | str) -> str:
        """A registry file for a model and an embedder `name` at this endpoint, with short waits; `override` wins."""
        waits = {"timeout_s": 2.0, "first_wait_s": 0.01, "max_wait_s": 0.2}
        model = {"base_url": self.url, "served": self.models[0], "price_in": 1.0, "price_out": 2.0, **waits, **override}
        embedder = {key: value for key, value in model.items() if key not in ("price_out", "limit_parameter", "vllm")}
        lines = []
        for group, entry in (("models", model), ("embedders", embedder)):
            lines += [f'[{group}."{name}"]', *(f"{key} = {json.dumps(value)}" for key, value in entry.items()), ""]
        return "\n".join(lines)

    def fault(self, request: str, attempt: int) -> Fault | None:
        """The fault of the request's nth attempt (from 1), by the seed."""
        point = f"{self.seed}:{request}:{0 if self.persistent else attempt}"
        at = int.from_bytes(hashlib.sha256(point.encode()).digest()[:8], "big") / 2**64
        for fault, share in self.faults.items():
            if at < share:
                return fault
            at -= share
        return None

    # --- serving ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", self._port)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._lock:
            self.ledger.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        match method, path.split("?")[0]:
            case "GET", "/v1/models":
                listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}
                return await _send(writer, 200, listed)
            case "GET", "/ledger":
                return await _send(writer, 200, self.ledger.counts())
            case "POST", "/v1/chat/completions" | "/v1/embeddings":
                body = json.loads(content)
                return await self._answer(path, body, headers, reader, writer)
        return await _send(writer, 404, {"detail": "Not Found"})

    async def _answer(
        self,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        request = request_hash(body)
        with self._lock:
            ledger = self.ledger
            ledger.requests[request] += 1
            ledger.bodies.append(body)
            number = ledger.requests[request]
            fault = self.script.pop(0) if self.script else self.fault(request, number)
            if fault is not None:
                ledger.faults[fault] += 1
            self._at_once += 1
            ledger.most_at_once = max(ledger.most_at_once, self._at_once)
        try:
            if self.latency_s and not await self._owed(reader, self.latency_s):
                return False
            while self.held is not None and self.held():
                if not await self._owed(reader, 0.02):
                    return False
            if path.endswith("embeddings"):
                answer = _embeddings(body)
            else:
                text = {"empty": "", "refusal": REFUSAL}.get(fault or "") if fault else None
                answer = _chat(body, self.reply(body) if text is None else text)
                if not self.usage:
                    del answer["usage"]
                if (body.get("stream") and self._refuses(body)) or (self.refused is not None and self.refused(body)):
                    return await _send(writer, 400, _error("Unrecognized request argument", code="unknown_parameter"))
                if body.get("stream") and self.streaming != "ignored" and fault in _STREAMED:
                    if fault in (None, "empty", "refusal"):
                        with self._lock:
                            ledger.answered[request] += 1
                    return await self._stream(fault, answer, body, reader, writer)
            if fault is None or fault in ("empty", "refusal"):
                with self._lock:
                    ledger.answered[request] += 1
                return await _send(writer, 200, answer)
            return await self._fail(fault, answer, headers, reader, writer)
        except ConnectionError:
            # It closed the connection while a piece was being written.
            with self._lock:
                ledger.closed_by_client += 1
            return False
        finally:
            with self._lock:
                self._at_once -= 1

    def _refuses(self, body: dict[str, Any]) -> bool:
        return self.streaming == "refused" or (self.streaming == "options_refused" and "stream_options" in body)

    async def _stream(
        self,
        fault: Fault | None,
        answer: dict[str, Any],
        body: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """The answer word by word; each event comes in two halves."""
        head = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        writer.write("\r\n".join(["HTTP/1.1 200 X", *(f"{k}: {v}" for k, v in head.items()), "", ""]).encode())
        text = answer["choices"][0]["message"]["content"]
        words = re.findall(r"\s*\S+\s*$|\s*\S+", text) if text else []
        for number, word in enumerate(words):
            if number and self.piece_s and not await self._owed(reader, self.piece_s):
                return False
            if number == 2 and fault == "truncated":
                return False
            if number == 2 and fault == "hang":
                await self._owed(reader, 3600)
                return False
            if number == 2 and fault in ("malformed", "stream_error"):
                error = json.dumps(_error("The server had an error", code=None))
                await _event(writer, error if fault == "stream_error" else error[:-9])
                break
            await _event(writer, json.dumps(_chunk(answer, {"content": word}), ensure_ascii=False))
        finish = "content_filter" if fault == "content_filter" else "stop"
        if fault not in ("malformed", "stream_error"):
            await _event(writer, json.dumps(_chunk(answer, {}, finish)))
            if "usage" in answer and "stream_options" in body:
                await _event(writer, json.dumps(_chunk(answer, None) | {"usage": answer["usage"]}))
            if self.streaming != "without_done":
                await _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _fail(
        self,
        fault: Fault,
        answer: dict[str, Any],
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        match fault:
            case "rate_limit":
                body = _error("Rate limit reached", code="rate_limit_exceeded")
                return await _send(writer, 429, body, {"Retry-After": self.retry_after})
            case "quota":
                return await _send(writer, 429, _error("You exceeded your current quota", code="insufficient_quota"))
            case "server" | "stream_error":
                return await _send(writer, 500, _error("The server had an error", code=None))
            case "unauthorized":
                given = headers.get("authorization", "").removeprefix("Bearer ")
                masked = f"{given[:8]}********{given[-4:]}"
                message = f"Incorrect API key provided: {given} ({masked}; Bearer {given})"
                return await _send(writer, 401, _error(message, code="invalid_api_key"))
            case "not_found":
                return await _send(writer, 404, _error("The model does not exist", code="model_not_found"))
            case "too_long":
                message = "This model's maximum context length is 10 tokens"
                return await _send(writer, 400, _error(message, code="context_length_exceeded"))
            case "content_filter":
                answer["choices"][0] |= {"finish_reason": "content_filter", "message": {"content": None}}
                return await _send(writer, 200, answer)
            case "malformed":
                data = json.dumps(answer).encode()
                return await _send(writer, 200, data[: len(data) * 2 // 3])
            case "html":
                return await _send(writer, 200, b"<html>Sign in to the network</html>", {"Content-Type": "text/html"})
            case "truncated":
                data = json.dumps(answer).encode()
                writer.write(_head(200, len(data), {}) + data[: len(data) // 2])
                await writer.drain()
                return False
            case "drip":
                writer.write(_head(200, 1_000_000, {}))
                while await self._owed(reader, 0.05):
                    writer.write(b" ")
                    await writer.drain()
                return False
            case "hang":
                await self._owed(reader, 3600)
                return False
            case _:
                return False

    async def _owed(self, reader: asyncio.StreamReader, seconds: float) -> bool:
        """Let time pass; False, and counted, when the client closes the connection meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await reader.read(1)
        except TimeoutError:
            return True
        except ConnectionError:
            pass
        with self._lock:
            self.ledger.closed_by_client += 1
        return False


def request_hash(body: dict[str, Any]) -> str:
    """The name of a request in the ledger: its whole body, hashed."""
    return hashlib.sha256(_canonical(body)).hexdigest()[:16]


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


def _chat(body: dict[str, Any], text: str) -> dict[str, Any]:
    prompt = sum(len(str(message.get("content", "")).split()) for message in body["messages"])
    tokens = len(text.split())
    return {
        "id": f"chatcmpl-{request_hash(body)}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
    }


def _chunk(answer: dict[str, Any], delta: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {name: answer[name] for name in ("id", "created", "model")}
    return head | {"object": "chat.completion.chunk", "choices": choices, "usage": None}


async def _event(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    for part in (event[: len(event) // 2], event[len(event) // 2 :]):
        writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        await writer.drain()


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    # Last row first: the order is in `index`, and a client that ignores it must fail.
    rows = [{"object": "embedding", "index": i, "embedding": bag_of_words(text)} for i, text in enumerate(texts)]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": rows[::-1], "model": body.get("model"), "usage": usage}


def bag_of_words(text: str, dimensions: int = 32) -> list[float]:
    """A vector (not of length 1) whose cosine grows with shared words."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.sha256(word.encode()).digest()
        for i in range(dimensions):
            vector[i] += math.sin(1 + digest[i % 32] + 256 * (i // 32))
    return vector


def _error(message: str, *, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": code or "server_error", "param": None, "code": code}}


def _head(status: int, length: int, headers: dict[str, str]) -> bytes:
    fields = {"Content-Type": "application/json", "Content-Length": str(length)} | headers
    return "\r\n".join([f"HTTP/1.1 {status} X", *(f"{k}: {v}" for k, v in fields.items()), "", ""]).encode()


async def _send(writer: asyncio.StreamWriter, status: int, body: object, headers: dict[str, str] | None = None) -> bool:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(_head(status, len(data), headers or {}) + data)
    await writer.drain()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible endpoint.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0, help="share of attempts that fail, over --kinds evenly")
    parser.add_argument("--kinds", default=",".join(MIXED), help=f"faults, of: {', '.join(get_args(Fault))}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    args = parser.parse_args()
    kinds = args.kinds.split(",")
    faults = {kind: args.faults / len(kinds) for kind in kinds}
    with ScriptedEndpoint(faults=faults, seed=args.seed, latency_s=args.latency, port=args.port) as endpoint:
        print(endpoint.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
