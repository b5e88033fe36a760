"""The gateway: an OpenAI-compatible endpoint on loopback through which memory libraries reach model and embedder.

Every call goes through the call store (nothing is paid twice, a repeated ingestion asks nobody) and the one model
client (limits, retries), and is counted on the lease whose token it came with. docs/gateway.md says what is accepted.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from opbench.errors import ModelError, OpbenchError, StoreError
from opbench.gateway import chat, vectors
from opbench.gateway.lease import Lease
from opbench.gateway.refusals import Refused, error_response, model_error_response
from opbench.gateway.serving import Loopback
from opbench.gateway.vectors import Found, VectorStore
from opbench.models import Embedder, ModelClient, Registry
from opbench.running.calls import CallStore
from opbench.store.writing import CallRow

_log = logging.getLogger(__name__)
_WRONG_TOKEN = Refused("wrong or missing token for the workbench's gateway.", status=401, code="invalid_api_key")
#: Libraries block a thread of asyncio's pool each while they wait for the gateway; its usual size, a few more than
#: the cores, would leave none for what the answer needs (the store, name resolution).
_THREADS = 1024
#: Seconds that calls which nobody waits for any more get to be kept, once all is to end.
_LAST_CALLS_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Open:
    """A lease with the models that it may ask."""

    lease: Lease
    models: tuple[str, ...]


class Gateway:
    """Belongs to one event loop. `connect` it with the call store, then take leases; the first one starts it."""

    def __init__(self, registry: Registry, client: ModelClient, embedder: Embedder, *, port: int = 0) -> None:
        """`embedder` is the study's; `port` 0 takes a free one."""
        self._registry = registry
        self._client = client
        self._embedder = embedder
        self._port = port
        self._calls: CallStore | None = None
        self._vectors: VectorStore | None = None
        self._dimensions: int | None = None
        self._server: Loopback | None = None
        self._starting = asyncio.Lock()
        self._open: list[_Open] = []
        self._under_way: set[asyncio.Task[Any]] = set()

    def connect(self, calls: CallStore) -> None:
        """Say which call store answers; before the first lease."""
        self._calls = calls
        self._vectors = VectorStore(calls, self._embedder, self._registry.embedder(self._embedder.name))

    async def lease(
        self, label: str, model: str | None, *, further_models: Sequence[str] = (), key: str | None = None
    ) -> Lease:
        """Access for one library: a token that serves `model` (and `further_models`) and the embedder.

        Starts the server where it isn't running. A library that asks no model has `model` None. `key` gives the token
        instead of a random one.

        Raises:
            UsageError: an unknown model, or the port is taken.
            ModelError: the embedder's dimensions can't be asked.
            StoreError: the call store can't be read or written.
        """
        models = tuple(dict.fromkeys((*([] if model is None else [model]), *further_models)))
        for name in models:
            self._registry.model(name)
        dimensions = await self.dimensions()
        async with self._starting:
            if self._server is None:
                pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="opbench")
                asyncio.get_running_loop().set_default_executor(pool)
                self._server = await Loopback.start(self._app(), self._port)
        lease = Lease(
            base_url=f"http://127.0.0.1:{self._server.port}/v1",
            key=key or f"opbench-{secrets.token_urlsafe(32)}",
            label=label,
            model=model or "",
            embedder=self._embedder.name,
            dimensions=dimensions,
        )
        self._open.append(_Open(lease, models))
        return lease

    async def release(self, lease: Lease) -> None:
        """End a lease: its token is refused from now on. What it asked is finished, kept and counted."""
        self._open = [each for each in self._open if each.lease is not lease]

    async def dimensions(self) -> int:
        """Of the embedder's vectors: found with one short text, whose vector is kept.

        Raises:
            ModelError: the embedder failed for good.
            StoreError: the call store can't be read or written.
        """
        if self._dimensions is None:
            self._dimensions = (await self._ready(self._vectors).get(["dimensions"])).vectors.shape[1]
        return self._dimensions

    async def aclose(self) -> None:
        """Stop: all tokens are refused, calls under way get some seconds to be kept."""
        self._open.clear()
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=_LAST_CALLS_S)
        for task in set(self._under_way):
            task.cancel()
        if self._server is not None:
            server, self._server = self._server, None
            await server.aclose()

    # --- answering -------------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
                Route("/v1/embeddings", self._guarded(self._embeddings), methods=["POST"]),
                Route("/v1/models", self._guarded(self._models), methods=["GET"]),
                Route("/{path:path}", self._guarded(self._nothing), methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            ]
        )

    def _guarded(self, answer: Callable[[Request, _Open], Awaitable[Response]]) -> Callable[[Request], Any]:
        """Lets in who has a lease's token, and makes every error an answer in OpenAI's shape."""

        async def guarded(request: Request) -> Response:
            held = self._holder(request.headers.get("authorization", ""))
            if held is None:
                return _WRONG_TOKEN.response()
            lease = held.lease
            try:
                return await answer(request, held)
            except Refused as refused:
                lease.failure = refused.failure(lease.model)
                return refused.response()
            except ModelError as error:
                lease.failure = error
                return model_error_response(error)
            except StoreError as error:
                lease.failure = error
                return error_response(500, str(error), code="store")
            except OpbenchError as error:
                # A part of the model isn't installed, or its entry names what doesn't exist.
                lease.failure = ModelError(str(error), kind="not_found", model=lease.model, attempts=0)
                return model_error_response(lease.failure)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as fault:  # noqa: BLE001 - a library retries or swallows it, whoever drives it must know
                _log.exception("%s: the gateway failed", lease.label)
                text = f"gateway: internal error ({type(fault).__name__}). The log says where; report it."
                lease.failure = ModelError(text, kind="server", model=lease.model, attempts=0)
                return error_response(500, text, code="internal")

        return guarded

    def _holder(self, authorization: str) -> _Open | None:
        token = authorization.removeprefix("Bearer ").strip().encode()
        found = None
        for each in self._open:
            if hmac.compare_digest(token, each.lease.key.encode()):
                found = each
        return found

    async def _chat(self, request: Request, held: _Open) -> Response:
        body = await _body(request)
        self._known(body, held.models)
        asked = chat.read_chat(body, held.lease, self._registry.model(body["model"]).json_schema)
        calls = self._ready(self._calls)

        async def ask() -> CallRow:
            row, reused = await calls.chat(asked.request, kind="library")
            await calls.keep([row.key])
            usage = held.lease.usage
            usage.calls += 1
            usage.reused += reused
            usage.prompt_tokens += row.prompt_tokens or 0
            usage.completion_tokens += row.completion_tokens or 0
            usage.model_ms += row.duration_ms
            usage.reused_ms += row.duration_ms if reused else 0.0
            _book(held.lease, row.cost_usd, 0.0 if reused else row.cost_usd or 0.0)
            return row

        row = await self._finish(ask())
        if asked.stream:
            return StreamingResponse(chat.pieces(row, asked.usage_apart), media_type="text/event-stream")
        return JSONResponse(chat.reply(row))

    async def _embeddings(self, request: Request, held: _Open) -> Response:
        body = await _body(request)
        self._known(body, (self._embedder.name,))
        asked = vectors.read_embeddings(body)
        own = await self.dimensions()
        if asked.dimensions not in (None, own):
            raise Refused(f"dimensions must be {own}, those of {self._embedder.name}, or left out.", param="dimensions")
        store = self._ready(self._vectors)
        lease = held.lease
        find = store.compute if lease.phase == "search" else store.get

        async def embed() -> Found:
            found = await find(asked.texts)
            usage = lease.usage
            usage.embedding_calls += 1
            usage.embedded_texts += len(asked.texts)
            usage.embedded_reused += found.reused
            usage.embedded_tokens += found.tokens
            _book(lease, found.cost_usd, found.spent_usd)
            return found

        found = await self._finish(embed())
        return JSONResponse(vectors.reply(found.vectors, asked.encoding, self._embedder.name, found.tokens))

    async def _models(self, request: Request, held: _Open) -> Response:
        names = dict.fromkeys((*held.models, self._embedder.name))
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "opbench"} for name in names]
        return JSONResponse({"object": "list", "data": listed})

    async def _nothing(self, request: Request, held: _Open) -> Response:
        raise Refused(
            f"no such route: {request.method} {request.url.path[:100]}. There are /v1/chat/completions, "
            "/v1/embeddings and /v1/models.",
            status=404,
            code="not_found",
        )

    def _known(self, body: dict[str, Any], served: tuple[str, ...]) -> None:
        if body.get("model") not in served:
            names = " or ".join(served) or "left alone: this token serves the embedder only"
            raise Refused(f"model must be {names}.", param="model", status=404, code="model_not_found")

    async def _finish(self, work: Awaitable[T]) -> T:
        """The work's result; goes on to its end, and is kept and counted, when the client is gone."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    @staticmethod
    def _ready(part: T | None) -> T:
        if part is None:
            raise RuntimeError("connect the gateway with a call store first")
        return part


def _book(lease: Lease, cost_usd: float | None, spent_usd: float) -> None:
    usage = lease.usage
    usage.cost_usd = None if usage.cost_usd is None or cost_usd is None else usage.cost_usd + cost_usd
    usage.spent_usd += spent_usd


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Refused("the body isn't JSON.") from None
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object.")
    return body
