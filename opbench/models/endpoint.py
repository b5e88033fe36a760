"""One model's or embedder's servers as a client asks them: limits, choice of server, connections, retries."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from opbench import addresses
from opbench.errors import ModelError, ModelErrorKind
from opbench.models.embedded import EmbeddedServer
from opbench.models.failures import Failure, explain, scrub
from opbench.models.in_vain import InVain
from opbench.models.limits import Limits, Outcome
from opbench.models.listing import served_models
from opbench.models.registry import Spec
from opbench.models.replicas import Replicas, Server, stray
from opbench.models.retrying import persist
from opbench.models.transport import Transport
from opbench.models.waiting import waited

T = TypeVar("T")
Answer = tuple[T, int | None, Mapping[str, str]]
"""(value, tokens of prompt and answer as the endpoint counts them, the reply's headers)"""
Send = Callable[[Transport], Awaitable[Answer[T]]]
"""Sends one request. Raises Failure."""
OnRetry = Callable[[str, ModelErrorKind, float], None]
"""Called before each wait with the model's name, what went wrong, and the seconds of waiting."""
#: Signs of a key that is taken out of answers too: what local servers are given as a key may be any word.
_SHORTEST_SECRET = 16
_OUTCOMES: dict[ModelErrorKind, Outcome] = {
    "rate_limit": "rate_limit",
    "timeout": "timeout",
    "server": "server",
    "connection": "connection",
}


@dataclass(slots=True)
class ClientStats:
    """What a client has sent so far, for progress displays and provenance."""

    requests: int = 0
    """Requests sent, failed ones and repeated ones included."""
    retries: Counter[ModelErrorKind] = field(default_factory=Counter)
    """Attempts that were followed by another, by what was wrong with them."""
    embedded_tokens: Counter[str] = field(default_factory=Counter)
    """Tokens of embedded texts as the endpoints tell them, by registry name."""
    waited_s: float = 0.0
    """Seconds between attempts, summed over requests."""
    answered_as: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By registry name: the model names that replies carried. Another name than the asked one may be another model."""
    in_vain: InVain = field(default_factory=InVain)
    """Calls that failed for good since the last answer."""

    def shown(self) -> dict[str, Any]:
        """What a worker's row in the store shows of it; JSON values."""
        return {"requests": self.requests, "retries": dict(self.retries), "waited_s": round(self.waited_s, 1)}


def who(spec: Spec) -> str:
    """What calls of a model or an embedder are counted under: the two may have the same name."""
    return f"{type(spec).__name__} {spec.name}"


class Endpoint:
    """Belongs to one event loop; close it with `aclose`."""

    def __init__(
        self,
        spec: Spec,
        key: str | None,
        stats: ClientStats,
        embedded: EmbeddedServer,
        *,
        on_retry: OnRetry | None,
        share: int,
    ) -> None:
        """`share`: this process is one of so many that ask it."""
        self.spec = spec
        self.limits = Limits(
            spec.concurrency,
            spec.requests_per_minute,
            spec.tokens_per_minute,
            share=share,
            longest_wait_s=spec.max_wait_s,
        )
        self.secret = None if key is None or len(key) < _SHORTEST_SECRET else key
        """The key, where it is one that must not be seen in an answer."""
        self.streams = True
        """Whether it hasn't refused to stream so far."""
        self._key = key
        self._who = who(spec)
        self._stats = stats
        self._embedded = embedded
        self._on_retry = on_retry
        self._replicas = Replicas(spec.servers)
        self._open: dict[Server, Transport] = {}
        self._lock = asyncio.Lock()

    async def aclose(self) -> None:
        """Close all connections."""
        async with AsyncExitStack() as stack:
            for transport in self._open.values():
                stack.push_async_callback(transport.aclose)
            self._open.clear()

    async def ask(self, send: Send[T], *, tokens: int, beginning: str = "") -> tuple[T, int]:
        """(value, requests sent): `send` until it succeeds or can't.

        `tokens` is what the request will take at most, for the ceiling of tokens a minute; `beginning` is that of the
        prompt, by which a server is chosen among equally busy ones.

        Raises ModelError when it failed for good.
        """
        sent = 0
        asked = time.perf_counter()

        async def attempt() -> T:
            nonlocal sent
            async with self.limits.permit(tokens) as permit:
                tried: list[Server] = []
                while True:
                    server = self._replicas.choose(beginning, tried)
                    # Before the clocks: the embedded server's start isn't part of the first answer's time.
                    transport = self._open.get(server) or await self._transport(server)
                    sent += 1
                    self._stats.requests += 1
                    server.busy += 1
                    began = time.perf_counter()
                    try:
                        async with asyncio.timeout(self.spec.timeout_s):
                            value, used, headers = await send(transport)
                    except TimeoutError:
                        failure = Failure("timeout", "no answer in time")
                    except Failure as error:
                        failure = error
                    else:
                        now = time.perf_counter()
                        server.took(now)
                        waited(asked, began)
                        permit.over("answered", seconds=now - began, tokens=used, headers=headers, wait_s=None)
                        return value
                    finally:
                        server.busy -= 1
                    seconds = time.perf_counter() - began
                    if self.spec.replicas:
                        failure.server = addresses.shown(server.base_url)
                        self._replicas.failed(server, failure, began)
                        tried.append(server)
                        if stray(failure) and len(tried) < len(self.spec.servers):
                            # Another server can answer at once; what is wrong with this one says nothing of the limits.
                            continue
                    permit.over(
                        _OUTCOMES.get(failure.kind, "other"),
                        seconds=seconds,
                        tokens=None,
                        headers=failure.headers,
                        wait_s=failure.wait_s,
                    )
                    raise failure

        try:
            value = await persist(self.spec, attempt, self._before_wait)
        except Failure as failure:
            error = self.error(failure, sent)
            self._stats.in_vain.failed(self._who, error)
            raise error from None
        self._stats.in_vain.answered(self._who)
        return value, sent

    def error(self, failure: Failure, sent: int) -> ModelError:
        """The error for people, without the key, after so many requests."""
        message = scrub(explain(self.spec, failure, sent), self._key)
        return ModelError(message, kind=failure.kind, model=self.spec.name, attempts=sent)

    async def _before_wait(self, failure: Failure, wait_s: float) -> None:
        self._stats.retries[failure.kind] += 1
        self._stats.waited_s += wait_s
        if self.spec.kind == "embedded" and failure.kind == "connection":
            # So that the server is looked for, or started, again.
            await self.aclose()
        if self._on_retry is not None:
            self._on_retry(self.spec.name, failure.kind, wait_s)

    async def listed(self, server: str | None, timeout_s: float) -> list[dict[str, Any]]:
        """The models that one of its servers lists, the first by default. Raises Failure."""
        base_url, key = await self._address(server or self.spec.base_url)
        try:
            return await served_models(base_url, key, timeout_s=timeout_s, local=self._local(base_url))
        except Failure as failure:
            failure.server = server and addresses.shown(server)
            failure.limit_s = timeout_s
            raise

    async def _transport(self, server: Server) -> Transport:
        async with self._lock:
            if server not in self._open:
                base_url, key = await self._address(server.base_url)
                self._open[server] = Transport(
                    base_url, key, connect_timeout_s=self.spec.connect_timeout_s, local=self._local(base_url)
                )
            return self._open[server]

    async def _address(self, base_url: str) -> tuple[str, str | None]:
        """(base URL, key); the embedded server is started if need be."""
        if self.spec.kind == "embedded":
            found = await asyncio.to_thread(self._embedded.ensure)
            return found.base_url, found.key
        return base_url, self._key

    def _local(self, base_url: str) -> bool:
        return self.spec.kind == "embedded" or addresses.local(base_url)
