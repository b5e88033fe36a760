"""The one client through which every model and embedder is asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
from pydantic import SecretStr

from opbench.errors import ModelError
from opbench.models.chat import Told, beginning, chat_body, estimated_tokens, in_one_piece, streamed
from opbench.models.embedded import EmbeddedServer
from opbench.models.embeddings import Embedded, Vectors
from opbench.models.endpoint import Answer, ClientStats, Endpoint, OnRetry, Send, who
from opbench.models.failures import Failure, storable
from opbench.models.registry import ModelSpec, Registry, Spec
from opbench.models.replies import chat_result, decode, embedding_tokens, vectors
from opbench.models.streaming import Hearing, OnAnew, OnText
from opbench.models.transport import Transport, encoded
from opbench.types import ChatRequest, ChatResult

_LONGEST_NAME = 200
_NOT_IMPLEMENTED = 501


class ModelClient:
    """Asks models and embedders, and tries again where that can help.

    `keys` override environment variables of the same name and live in memory only. `share`: this process is one of so
    many that ask the same endpoints, and keeps to its part of each limit that the registry sets (to one request at a
    time at least). Belongs to one event loop; close it with `aclose` or use it as an async context manager: the
    embedded server stops with its last user.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        keys: Mapping[str, SecretStr] | None = None,
        on_retry: OnRetry | None = None,
        share: int = 1,
    ) -> None:
        self.registry = registry
        self.stats = ClientStats()
        self._keys = dict(keys or {})
        self._on_retry = on_retry
        self._share = share
        self._embedded = EmbeddedServer()
        # A model and an embedder may have the same name.
        self._models: dict[str, Endpoint] = {}
        self._embedders: dict[str, Endpoint] = {}

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
            for endpoint in (*self._models.values(), *self._embedders.values()):
                stack.push_async_callback(endpoint.aclose)

    def at_a_time(self, model: str) -> int:
        """Requests that the model gets at a time from this process at present; before its first, the most it may get.

        Raises UsageError for an unknown model.
        """
        spec = self.registry.model(model)
        endpoint = self._models.get(model)
        return max(1, spec.concurrency // self._share) if endpoint is None else endpoint.limits.at_a_time

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
        endpoint = self._models.get(spec.name) or self._opened(spec)
        body = chat_body(spec, request)

        async def ask(transport: Transport) -> Answer[ChatResult]:
            return self._answer(spec, await in_one_piece(transport, body, endpoint.secret))

        send: Send[ChatResult] = ask
        if on_text is not None:
            send = partial(self._listen, endpoint, body, Hearing(on_text, on_anew, endpoint.secret), ask)
        result, sent = await endpoint.ask(
            send, tokens=estimated_tokens(request), beginning=beginning(request) if spec.replicas else ""
        )
        return result if sent == 1 else replace(result, attempts=sent)

    async def _listen(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        hearing: Hearing,
        ask: Send[ChatResult],
        transport: Transport,
    ) -> Answer[ChatResult]:
        """The streamed answer where the endpoint can, and what `ask` gets where it can't."""
        hearing.begin()
        if endpoint.streams:
            try:
                answer = self._answer(endpoint.spec, await streamed(transport, body, endpoint.secret, hearing))
            except Failure as failure:
                refused = failure.kind == "bad_request" or failure.status == _NOT_IMPLEMENTED
                if hearing.told or not (refused or failure.kind == "bad_reply"):
                    raise
                # What it refuses may be the streaming, or that the usage is asked for.
                self.stats.requests += 1
                answer = await ask(transport)
                endpoint.streams = not refused
        else:
            answer = await ask(transport)
        hearing.end(answer[0].text)
        return answer

    def _answer(self, spec: Spec, told: Told) -> Answer[ChatResult]:
        data, duration_ms, headers = told
        if isinstance(model := data.get("model"), str):
            names = self.stats.answered_as[spec.name]
            if model not in names:
                names.add(storable(model)[:_LONGEST_NAME])
        result = chat_result(data, duration_ms)
        counted = result.prompt_tokens is not None and result.completion_tokens is not None
        return result, (result.prompt_tokens or 0) + (result.completion_tokens or 0) if counted else None, headers

    async def embed(self, name: str, texts: Sequence[str]) -> Embedded:
        """Vectors from an endpoint, (0, 0) for no texts, and the tokens that it counted.

        Raises UsageError for an unknown embedder, ModelError when it failed for good.
        """
        spec = self.registry.embedder(name)
        endpoint = self._embedders.get(name) or self._opened(spec)
        parts: list[Vectors] = []
        counts: list[int | None] = []
        for start in range(0, len(texts), spec.batch):
            batch = list(texts[start : start + spec.batch])
            body = {"model": spec.served, "input": batch, "encoding_format": "float"} | spec.extra_body

            async def ask(
                transport: Transport, body: dict[str, Any] = body, n: int = len(batch)
            ) -> Answer[tuple[Vectors, int | None]]:
                reply, headers = await transport.post("/embeddings", encoded(body))
                data = decode(reply, headers, endpoint.secret)
                found, tokens = vectors(data, n), embedding_tokens(data)
                self.stats.embedded_tokens[spec.name] += tokens or 0
                return (found, tokens), tokens, headers

            (found, tokens), _ = await endpoint.ask(ask, tokens=sum(map(len, batch)) // 4)
            parts.append(found)
            counts.append(tokens)
        known = [tokens for tokens in counts if tokens is not None]
        return Embedded(
            np.concatenate(parts) if parts else np.zeros((0, 0), dtype=np.float32),
            sum(known) if len(known) == len(counts) else None,
        )

    async def served_models(self, name: str, timeout_s: float, server: str | None = None) -> list[dict[str, Any]]:
        """What the endpoint of the model or embedder `name` lists as its models; asked once, without retries.

        `server` is one of its addresses, the first by default. Raises ModelError.
        """
        spec = self.registry.models.get(name) or self.registry.embedder(name)
        kept = self._models if isinstance(spec, ModelSpec) else self._embedders
        endpoint = kept.get(name) or self._opened(spec)
        self.stats.requests += 1
        try:
            return await endpoint.listed(server, timeout_s)
        except Failure as failure:
            raise endpoint.error(failure, 1) from None

    def _opened(self, spec: Spec) -> Endpoint:
        endpoint = Endpoint(
            spec, self._key(spec), self.stats, self._embedded, on_retry=self._on_retry, share=self._share
        )
        (self._models if isinstance(spec, ModelSpec) else self._embedders)[spec.name] = endpoint
        return endpoint

    def _key(self, spec: Spec) -> str | None:
        if spec.key_env is None:
            return None
        held = self._keys.get(spec.key_env)
        key = (held.get_secret_value() if held else os.environ.get(spec.key_env, "")).strip()
        if key and key.isascii() and key.isprintable():
            return key
        said = f"the key in {spec.key_env} holds characters that no key has. Set it again."
        if not key:
            said = f"no key. Set {spec.key_env} (environment) and try again."
        error = ModelError(f"{spec.name}: {said}", kind="auth", model=spec.name, attempts=0)
        self.stats.in_vain.failed(who(spec), error)
        raise error
