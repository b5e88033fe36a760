"""The one client through which every model and embedder is asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from pydantic import SecretStr

from opbench import addresses
from opbench.errors import ModelError
from opbench.models import listing
from opbench.models.chat import Told, beginning, chat_body, estimated_tokens, in_one_piece, streamed
from opbench.models.embedded import EmbeddedServer
from opbench.models.embeddings import Embedded, Vectors
from opbench.models.endpoint import Answer, ClientStats, Endpoint, OnRetry
from opbench.models.failures import Failure, storable
from opbench.models.registry import EmbedderSpec, ModelSpec, Registry, Spec
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

        async def listen(transport: Transport) -> Answer[ChatResult]:
            hearing.begin()
            answer = await (self._streamed(endpoint, transport, body, hearing, ask) if endpoint.streams else ask(transport))
            hearing.end(answer[0].text)
            return answer

        if on_text is not None:
            hearing = Hearing(on_text, on_anew, endpoint.secret)
        result, sent = await endpoint.ask(
            ask if on_text is None else listen,
            tokens=estimated_tokens(request),
            beginning=beginning(request) if spec.replicas else "",
        )
        return result if sent == 1 else replace(result, attempts=sent)
