"""An OpenAI-compatible provider that answers and fails by a seed, and keeps a log of every request: a program.

    python -m tests.soak.provider '{"seed": 1, "faults": {"hang": 0.01}}'

It prints its URL. What happens to the nth request of a body is a function of seed, body and n, so the same run meets
the same faults again. Storms and the dead time begin at a request's number. An answer's text names the answer:
`{body's hash}.{n}` in letters, so that an answer in a store is told from another one to the same body.
`GET /ledger` gives the log, `POST /plan` takes another plan.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import uvloop

#: Whole answers, for which a provider takes money.
ANSWERS = frozenset({"answer", "mistyped", "length", "refusal", "blank"})
#: What the client tells of a request that is refused for ever, by the fault.
REASONS = {
    "filter_answer": "content_filter",
    "filter_400": "content_filter",
    "too_long": "too_long",
    "unauthorized": "auth",
    "rate_limit": "rate_limit",
    "server": "server",
    "empty_choices": "bad_reply",
    "html": "bad_reply",
    "half": "connection",
    "hang": "timeout",
}
#: Faults of an attempt: the next one is another throw. `length`, `refusal`, `blank` and `mistyped` are answers.
HEALING: dict[str, float] = {
    "rate_limit": 0.002,
    "server": 0.02,
    "unavailable": 0.002,
    "error_in_200": 0.01,
    "bad_gateway": 0.01,
    "malformed": 0.01,
    "half": 0.01,
    "html": 0.01,
    "empty_choices": 0.01,
    "reset": 0.01,
    "mistyped": 0.01,
    "length": 0.01,
    "refusal": 0.005,
    "blank": 0.01,
    "hang": 0.0008,
    "drip": 0.0008,
}
REFUSAL = "I can't help with that conversation"
_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")
_WORDS = ("amber", "bridge", "cedar", "delta", "ember", "forest", "grain", "harbor", "island", "kettle", "lantern")
_HEAD = b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n"
_JSON, _HTML = b"application/json", b"text/html; charset=utf-8"
_DRIP_S = 0.25


@dataclass
class Plan:
    """What goes wrong."""

    seed: int = 0
    faults: dict[str, float] = field(default_factory=dict)
    """Share of attempts by fault; an attempt of the same body later is another throw."""
    forever: dict[str, float] = field(default_factory=dict)
    """Share of bodies by fault: these fail in every attempt."""
    storms: list[tuple[int, float]] = field(default_factory=list)
    """(number of a request, seconds): it and all that come within so long get 429."""
    retry_after_s: float = 0.05
    """What every 429 asks to wait."""
    dead: tuple[int, float] | None = None
    """(number of a request, seconds): nobody listens from then on, for so long; open connections are reset."""
    latency_s: float = 0.0


def name_of(digest: str, number: int) -> str:
    """How the nth answer to a body calls itself."""
    return f"{digest}.{number:x}".translate(_LETTERS)


def digest_of(body: dict[str, Any]) -> str:
    """The name of a body in the log."""
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _throw(point: str) -> float:
    return int.from_bytes(hashlib.sha256(point.encode()).digest()[:8], "big") / 2**64


def _choose(at: float, shares: dict[str, float]) -> str | None:
    for name, share in shares.items():
        if at < share:
            return name
        at -= share
    return None


class Provider:
    """The log, and what is sent for a body."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.requests = 0
        self.bodies: dict[str, dict[str, Any]] = {}
        self.connections: set[Connection] = set()
        self.server: asyncio.Server | None = None
        self.port = 0
        self._storm = 0.0

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]

    async def die(self, seconds: float) -> None:
        assert self.server is not None
        self.server.close()
        for connection in list(self.connections):
            # Closed and not aborted: what it counts as answered goes out.
            connection.transport.close()
        await asyncio.sleep(seconds)
        await self.listen()

    def fault(self, digest: str, number: int) -> str | None:
        """What happens to a body's nth request; None when it is answered."""
        plan = self.plan
        if plan.storms and self.requests >= plan.storms[0][0]:
            self._storm = time.monotonic() + plan.storms.pop(0)[1]
        if time.monotonic() < self._storm:
            return "storm"
        if plan.forever:
            lasting = _choose(_throw(f"{plan.seed}:{digest}:ever"), plan.forever)
            if lasting is not None:
                return lasting
        return _choose(_throw(f"{plan.seed}:{digest}:{number}"), plan.faults) if plan.faults else None

    def take(self, connection: Connection, path: bytes, content: bytes, authorization: str) -> None:
        """A request for an answer or for vectors."""
        body = orjson.loads(content)
        digest = digest_of(body)
        role = "embed" if path.endswith(b"embeddings") else "judge" if "judge" in body["model"] else "chat"
        known = self.bodies.get(digest)
        if known is None:
            known = self.bodies[digest] = {"role": role, "model": body["model"], "events": []}
        events: list[list[Any]] = known["events"]
        number = len(events) + 1
        self.requests += 1
        if self.plan.dead is not None and self.requests >= self.plan.dead[0]:
            seconds, self.plan.dead = self.plan.dead[1], None
            known["events"].append([time.monotonic(), "dead"])
            connection.dying = asyncio.ensure_future(self.die(seconds))
            return
        fault = self.fault(digest, number)
        if role == "embed" and fault in ("length", "refusal", "blank", "filter_answer", "empty_choices", "filter_400"):
            fault = None
        if fault in self.plan.forever:
            known["body"] = body
        event: list[Any] = [time.monotonic(), fault or "answer"]
        events.append(event)
        if self.plan.latency_s:
            asyncio.get_running_loop().call_later(
                self.plan.latency_s, self._late, connection, event, role, body, digest, number, authorization
            )
        else:
            self.send(connection, fault, role, body, digest, number, authorization)

    def _late(
        self,
        connection: Connection,
        event: list[Any],
        role: str,
        body: dict[str, Any],
        digest: str,
        number: int,
        authorization: str,
    ) -> None:
        if connection.transport.is_closing():
            event[1] = "gone"
            return
        event[0] = time.monotonic()
        fault = None if event[1] == "answer" else event[1]
        self.send(connection, fault, role, body, digest, number, authorization)

    def send(
        self,
        connection: Connection,
        fault: str | None,
        role: str,
        body: dict[str, Any],
        digest: str,
        number: int,
        authorization: str,
    ) -> None:
        """The bytes of an answer or of a fault."""
        reply = _reply
        asked = b"Retry-After: %g\r\n" % self.plan.retry_after_s
        transport = connection.transport
        match fault:
            case None:
                transport.write(reply(200, answer(role, body, digest, number)))
            case "mistyped":
                transport.write(reply(200, answer(role, body, digest, number), kind=_HTML))
            case "length" | "refusal" | "blank" | "filter_answer" | "empty_choices":
                transport.write(reply(200, answer(role, body, digest, number, fault)))
            case "storm" | "rate_limit":
                transport.write(reply(429, _error("Rate limit reached", "rate_limit_exceeded"), more=asked))
            case "server":
                transport.write(reply(500, _error("The server had an error", "server_error")))
            case "unavailable":
                transport.write(reply(503, _error("Overloaded", "overloaded"), more=asked))
            case "error_in_200":
                transport.write(reply(200, _error("Upstream failed", 502)))
            case "bad_gateway":
                transport.write(reply(502, b"<html><h1>502 Bad Gateway</h1></html>", kind=_HTML))
            case "html":
                transport.write(reply(200, b"<html>Sign in to the network</html>", kind=_HTML))
            case "malformed":
                whole = answer(role, body, digest, number)
                transport.write(reply(200, whole[: len(whole) * 2 // 3]))
            case "half":
                whole = reply(200, answer(role, body, digest, number))
                transport.write(whole[:-40])
                transport.close()
            case "filter_400":
                said = "The response was filtered due to the prompt triggering content management policy"
                transport.write(reply(400, _error(said, "content_filter")))
            case "too_long":
                said = "This model's maximum context length is 10 tokens"
                transport.write(reply(400, _error(said, "context_length_exceeded")))
            case "unauthorized":
                said = f"Incorrect API key provided: {authorization} ({authorization[:9]}****). Bearer {authorization}"
                transport.write(reply(401, _error(said, "invalid_api_key")))
            case "drip":
                transport.write(_HEAD % (200, _JSON, 100_000, b""))
                self._drip(connection)
            case "hang":
                pass
            case "reset":
                transport.abort()
            case _:
                raise ValueError(fault)

    def _drip(self, connection: Connection) -> None:
        if not connection.transport.is_closing():
            connection.transport.write(b" ")
            asyncio.get_running_loop().call_later(_DRIP_S, self._drip, connection)


def _reply(status: int, content: bytes, *, kind: bytes = _JSON, more: bytes = b"") -> bytes:
    return _HEAD % (status, kind, len(content), more) + content


def _error(message: str, code: str | int) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": "error", "param": None, "code": code}})


def tokens(body: dict[str, Any], text: str) -> tuple[int, int]:
    """Tokens of prompt and answer as this provider counts them."""
    return sum(len(message["content"]) for message in body["messages"]) // 4 + 1, len(text) // 4 + 1


def text_of(role: str, body: dict[str, Any], digest: str, number: int) -> str:
    """What the nth answer to a body says."""
    name = name_of(digest, number)
    if role == "judge":
        value = int(digest[:4], 16) % 101
        if "WRONG" in body["messages"][-1]["content"]:
            return f"Answer {name}.\nVerdict: {'CORRECT' if value % 2 else 'WRONG'}"
        return f"Answer {name}.\nScore: {value / 100:.2f}"
    words = " ".join(_WORDS[int(sign, 16) % len(_WORDS)] for sign in digest).capitalize()
    if "revised answer" in body["messages"][-1]["content"].lower():
        return f"Critique: it tells more than was asked.\nRevised answer: {words} {name}."
    return f"{words} {name}."


def answer(role: str, body: dict[str, Any], digest: str, number: int, fault: str | None = None) -> bytes:
    """A reply's JSON."""
    if role == "embed":
        return _vectors(body)
    text, finish = text_of(role, body, digest, number), "stop"
    match fault:
        case "blank":
            text = ""
        case "length":
            text, finish = f"{name_of(digest, number)} {text[:20]}", "length"
        case "refusal":
            text = f"{REFUSAL}, {name_of(digest, number)}."
        case "filter_answer":
            text, finish = "", "content_filter"
    message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    taken, made = tokens(body, text)
    return orjson.dumps(
        {
            "id": name_of(digest, number),
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [] if fault == "empty_choices" else [message],
            "usage": {"prompt_tokens": taken, "completion_tokens": made, "total_tokens": taken + made},
        }
    )


def _vectors(body: dict[str, Any]) -> bytes:
    rows = []
    for index, text in enumerate([body["input"]] if isinstance(body["input"], str) else body["input"]):
        vector = [(byte - 127.5) / 128 for byte in hashlib.sha256(text.encode()).digest()]
        rows.append({"object": "embedding", "index": index, "embedding": vector})
    return orjson.dumps({"object": "list", "data": rows, "model": body["model"], "usage": {"prompt_tokens": len(rows)}})


class Connection(asyncio.Protocol):
    """HTTP/1.1 with kept connections: as much of it as an API client needs."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.dying: asyncio.Future[None] | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self.transport = cast(asyncio.Transport, transport)
        self.provider.connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self.provider.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            fields = head.lower()
            at = fields.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            content, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            path = head.split(b" ", 2)[1]
            at = fields.find(b"authorization: bearer ")
            authorization = head[at + 22 :].split(b"\r\n", 1)[0].decode() if at >= 0 else ""
            self._take(path, content, authorization)

    def _take(self, path: bytes, content: bytes, authorization: str) -> None:
        provider = self.provider
        if path.endswith((b"/chat/completions", b"/embeddings")):
            provider.take(self, path, content, authorization)
        elif path == b"/ledger":
            whole = {"requests": provider.requests, "bodies": provider.bodies}
            self.transport.write(_reply(200, orjson.dumps(whole)))
        elif path == b"/count":
            self.transport.write(_reply(200, b"%d" % provider.requests))
        elif path == b"/plan":
            provider.plan = Plan(**orjson.loads(content))
            self.transport.write(_reply(200, b"{}"))
        else:
            self.transport.write(_reply(404, b'{"detail": "Not Found"}'))


async def _serve(plan: Plan) -> None:
    provider = Provider(plan)
    await provider.listen()
    print(f"http://127.0.0.1:{provider.port}/v1", flush=True)
    # Its end is the end of the one who started it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve(Plan(**orjson.loads(sys.argv[1]))))
