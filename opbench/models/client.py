"""The one client through which every model and embedder is asked."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import numpy as np
import openai
from pydantic import SecretStr
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from opbench.errors import ModelError, ModelErrorKind
from opbench.models.embedded import EmbeddedServer
from opbench.models.embeddings import Embedded, Vectors
from opbench.models.failures import Failure, explain, from_exception, scrub, storable
from opbench.models.registry import ModelSpec, Registry, Spec
from opbench.models.replies import chat_result, decode, embedding_tokens, vectors
from opbench.models.streaming import DONE, Assembly, Hearing, OnAnew, OnText, events
from opbench.types import ChatRequest, ChatResult

T = TypeVar("T")
_LONGEST_NAME = 200
#: Signs of a key that is taken out of answers too: what local servers are given as a key may be any word.
_SHORTEST_SECRET = 16
_STREAM_TYPE = "text/event-stream"
_NOT_IMPLEMENTED = 501
_GRACE_S = 0.2
OnRetry = Callable[[str, ModelErrorKind, float], None]
"""Called before each wait with the model's name, what went wrong, and the seconds of waiting."""


@dataclass(slots=True)
class ClientStats:
    """What this client has sent so far, for progress displays and provenance."""

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


class ModelClient:
    """Asks models and embedders, and tries again where that can help.

    `keys` override environment variables of the same name and live in memory only. Belongs to one event loop; close
    it with `aclose` or use it as an async context manager: the embedded server stops with its last user.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        keys: Mapping[str, SecretStr] | None = None,
        on_retry: OnRetry | None = None,
    ) -> None:
        self.registry = registry
        self.stats = ClientStats()
        self._keys = dict(keys or {})
        self._on_retry = on_retry
        self._embedded = EmbeddedServer()
        self._open: dict[str, openai.AsyncOpenAI] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._places: dict[str, asyncio.Semaphore] = {}
        self._unstreamed: set[str] = set()
        """Endpoints that refuse to stream."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections and give the embedded server back."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, self._embedded.close)
            for connection in self._open.values():
                stack.push_async_callback(connection.close)
            self._open.clear()

    async def complete(
        self, request: ChatRequest, on_text: OnText | None = None, on_anew: OnAnew | None = None
    ) -> ChatResult:
        """The model's answer. A blank one is an answer: `text` is then `""`, and `finish_reason` says more.

        With `on_text` the answer is streamed where the endpoint can: it takes the text piece by piece, in order; after
        `on_anew` the pieces begin again. In the end they are the result's text, and the result is the same as without;
        `duration_ms` is the time until the last piece. Both are called in the event loop's thread.

        Raises UsageError for an unknown model, ModelError when it failed for good.
        """
        spec = self.registry.model(request.model)
        body = _chat_body(spec, request)

        async def ask(connection: openai.AsyncOpenAI) -> ChatResult:
            # Looked up before the clock starts: the SDK imports its parts on first use, which takes some 50 ms.
            create = connection.chat.completions.with_raw_response.create
            began = time.perf_counter()
            reply = await create(**body)
            data = decode(self._said(spec, reply.text), reply.headers)
            return self._chat_result(spec, data, (time.perf_counter() - began) * 1000)

        if on_text is None:
            result, attempts = await self._persist(spec, ask)
            return replace(result, attempts=attempts)
        hearing = Hearing(on_text, on_anew, self._secret(spec))

        async def listen(connection: openai.AsyncOpenAI) -> ChatResult:
            hearing.begin()
            if _id(spec) in self._unstreamed:
                result = await ask(connection)
            else:
                try:
                    result = await self._streamed(spec, connection, body, hearing)
                except (Failure, openai.APIStatusError) as error:
                    failure = error if isinstance(error, Failure) else from_exception(error)
                    refused = failure.kind == "bad_request" or failure.status == _NOT_IMPLEMENTED
                    if hearing.told or not (refused or failure.kind == "bad_reply"):
                        raise
                    # What it refuses may be the streaming, or that the usage is asked for.
                    self.stats.requests += 1
                    result = await ask(connection)
                    if refused:
                        self._unstreamed.add(_id(spec))
            hearing.end(result.text)
            return result

        result, attempts = await self._persist(spec, listen)
        return replace(result, attempts=attempts)

    async def _streamed(
        self, spec: ModelSpec, connection: openai.AsyncOpenAI, body: dict[str, Any], hearing: Hearing
    ) -> ChatResult:
        create = connection.chat.completions.with_streaming_response.create
        began = time.perf_counter()
        async with create(**body, stream=True, stream_options={"include_usage": True}) as reply:
            if _STREAM_TYPE in reply.headers.get("content-type", ""):
                ended, data = await self._assemble(spec, reply.iter_lines(), reply.headers, hearing)
            else:
                # It doesn't stream, and says nothing of it.
                data = decode(self._said(spec, await reply.text()), reply.headers)
                ended = time.perf_counter()
        return self._chat_result(spec, data, (ended - began) * 1000)

    async def _assemble(
        self, spec: ModelSpec, lines: AsyncIterator[str], headers: Mapping[str, str], hearing: Hearing
    ) -> tuple[float, dict[str, Any]]:
        """(when the answer was whole, the reply in one piece)."""
        assembly = Assembly(hearing)
        ended = None
        try:
            async with asyncio.timeout(None) as limit:
                async for event in events(lines):
                    if ended is not None:
                        continue
                    if event.strip() == DONE:
                        assembly.done, ended = True, time.perf_counter()
                        # Read to its end, the connection serves the next request; nobody waits long for that.
                        limit.reschedule(asyncio.get_running_loop().time() + _GRACE_S)
                    else:
                        assembly.add(decode(self._said(spec, event), headers))
        except (TimeoutError, httpx2.HTTPError):
            if ended is None:
                raise
        return ended or time.perf_counter(), assembly.reply()

    def _chat_result(self, spec: ModelSpec, data: dict[str, Any], duration_ms: float) -> ChatResult:
        if isinstance(data.get("model"), str):
            self.stats.answered_as[spec.name].add(storable(data["model"])[:_LONGEST_NAME])
        return chat_result(data, duration_ms)

    async def embed(self, name: str, texts: Sequence[str]) -> Embedded:
        """Vectors from an endpoint, (0, 0) for no texts, and the tokens that it counted.

        Raises UsageError for an unknown embedder, ModelError when it failed for good.
        """
        spec = self.registry.embedder(name)
        parts: list[Vectors] = []
        counts: list[int | None] = []
        for start in range(0, len(texts), spec.batch):
            batch = list(texts[start : start + spec.batch])

            async def ask(connection: openai.AsyncOpenAI, batch: list[str] = batch) -> tuple[Vectors, int | None]:
                reply = await connection.embeddings.with_raw_response.create(
                    model=spec.served, input=batch, encoding_format="float", extra_body=spec.extra_body or None
                )
                data = decode(self._said(spec, reply.text), reply.headers)
                found, tokens = vectors(data, len(batch)), embedding_tokens(data)
                self.stats.embedded_tokens[spec.name] += tokens or 0
                return found, tokens

            (found, tokens), _ = await self._persist(spec, ask)
            parts.append(found)
            counts.append(tokens)
        known = [tokens for tokens in counts if tokens is not None]
        return Embedded(
            np.concatenate(parts) if parts else np.zeros((0, 0), dtype=np.float32),
            sum(known) if len(known) == len(counts) else None,
        )

    async def served_models(self, name: str, timeout_s: float) -> list[dict[str, Any]]:
        """What the endpoint of the model or embedder `name` lists as its models; asked once, without retries.

        Raises ModelError.
        """
        spec = self.registry.models.get(name) or self.registry.embedder(name)

        async def ask(connection: openai.AsyncOpenAI) -> list[dict[str, Any]]:
            reply = await connection.models.with_raw_response.list()
            listed = decode(self._said(spec, reply.text), reply.headers).get("data")
            if not isinstance(listed, list):
                raise Failure("bad_reply", "a list of models without data")
            return [entry for entry in listed if isinstance(entry, dict)]

        return (await self._persist(spec.model_copy(update={"attempts": 1, "timeout_s": timeout_s}), ask))[0]

    async def _persist(self, spec: Spec, ask: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> tuple[T, int]:
        """(answer, attempts): `ask` until it succeeds or can't."""
        key = self._key(spec)
        place = self._places.setdefault(_id(spec), asyncio.Semaphore(spec.concurrency))
        sent = 0

        async def attempt() -> T:
            nonlocal sent
            async with place:
                sent += 1
                self.stats.requests += 1
                try:
                    # The HTTP client's own limits are for each piece of an answer; a slow drip would pass them.
                    async with asyncio.timeout(spec.timeout_s if spec.kind == "endpoint" else None) as limit:
                        connection = await self._connection(spec, key)
                        if spec.kind == "embedded":
                            # Its start isn't part of the first answer's time.
                            limit.reschedule(asyncio.get_running_loop().time() + spec.timeout_s)
                        return await ask(connection)
                except Failure:
                    raise
                except (openai.OpenAIError, httpx2.HTTPError, TimeoutError) as error:
                    raise from_exception(error) from error

        retrying = AsyncRetrying(
            stop=stop_after_attempt(spec.attempts),
            wait=_Wait(spec),
            retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.retried),
            before_sleep=partial(self._before_sleep, spec),
            reraise=True,
        )
        try:
            return await retrying(attempt), sent
        except Failure as failure:
            message = scrub(explain(spec, failure, sent), key)
            raise ModelError(message, kind=failure.kind, model=spec.name, attempts=sent) from None

    async def _before_sleep(self, spec: Spec, state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome else None
        assert isinstance(failure, Failure)
        wait_s = state.upcoming_sleep
        self.stats.retries[failure.kind] += 1
        self.stats.waited_s += wait_s
        if spec.kind == "embedded" and failure.kind == "connection":
            await self._forget(_id(spec))
        if self._on_retry is not None:
            self._on_retry(spec.name, failure.kind, wait_s)

    def _key(self, spec: Spec) -> str | None:
        if spec.key_env is None:
            return None
        held = self._keys.get(spec.key_env)
        key = (held.get_secret_value() if held else os.environ.get(spec.key_env, "")).strip()
        if not key:
            raise ModelError(
                f"{spec.name}: no key. Set {spec.key_env} (environment) and try again.",
                kind="auth",
                model=spec.name,
                attempts=0,
            )
        if not (key.isascii() and key.isprintable()):
            raise ModelError(
                f"{spec.name}: the key in {spec.key_env} holds characters that no key has. Set it again.",
                kind="auth",
                model=spec.name,
                attempts=0,
            )
        return key

    def _secret(self, spec: Spec) -> str | None:
        """The key, where it is one that must not be seen in an answer."""
        key = self._key(spec)
        return None if key is None or len(key) < _SHORTEST_SECRET else key

    def _said(self, spec: Spec, reply: str) -> str:
        """A reply without the key, should the endpoint quote it in an answer."""
        key = self._secret(spec)
        if key is None:
            return reply
        return reply.replace(key, "[key]").replace(key.replace("/", r"\/"), "[key]")

    async def _connection(self, spec: Spec, key: str | None) -> openai.AsyncOpenAI:
        place = _id(spec)
        async with self._locks[place]:
            if place not in self._open:
                base_url = spec.base_url
                if spec.kind == "embedded":
                    address = await asyncio.to_thread(self._embedded.ensure)
                    base_url, key = address.base_url, address.key
                # The whole request's limit is kept by `_persist`.
                timeout = httpx2.Timeout(None, connect=spec.connect_timeout_s)
                self._open[place] = openai.AsyncOpenAI(
                    api_key=key or "none",
                    base_url=base_url,
                    max_retries=0,
                    timeout=timeout,
                    # A proxy from the environment never stands between us and this machine.
                    http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, trust_env=not spec.local),
                )
            return self._open[place]

    async def _forget(self, place: str) -> None:
        """Drop the connection, so that the embedded server is looked for, or started, again."""
        async with self._locks[place]:
            connection = self._open.pop(place, None)
        if connection is not None:
            await connection.close()


def _id(spec: Spec) -> str:
    """A model and an embedder may have the same name."""
    return f"{type(spec).__name__} {spec.name}"


class _Wait:
    """Exponential with jitter; at least what the endpoint asks for, never more than the model's `max_wait_s`."""

    def __init__(self, spec: Spec) -> None:
        self._most = spec.max_wait_s
        self._backoff = wait_exponential_jitter(
            multiplier=spec.first_wait_s, max=spec.max_wait_s, jitter=spec.first_wait_s
        )

    def __call__(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        asked = failure.wait_s if isinstance(failure, Failure) else None
        if asked is None:
            return self._backoff(state)
        # A little more than asked for: those who were refused together shouldn't come back together.
        return min(asked + random.uniform(0, min(1.0, asked / 4)), self._most)


def _chat_body(spec: ModelSpec, request: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": spec.served if spec.kind == "endpoint" else spec.name,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "temperature": request.temperature,
        spec.limit_parameter: request.max_tokens,
    }
    if request.temperature > 0:
        body["seed"] = request.repeat
    # Over the fields above; what the registry says of the model comes last.
    if further := (json.loads(request.further) if request.further else {}) | spec.extra_body:
        body["extra_body"] = further
    return body
