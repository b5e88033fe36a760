"""Embeddings behind the gateway: read, computed or taken from the call store, and sent in either format."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from opbench.errors import ModelError
from opbench.gateway.chat import IGNORED
from opbench.gateway.refusals import Refused
from opbench.models import EmbedderSpec, cost
from opbench.models.embeddings import Embedder, Vectors
from opbench.models.failures import storable
from opbench.models.waiting import stopwatch
from opbench.running.call_keys import call_key
from opbench.running.calls import CallStore
from opbench.store.writing import CallRow


@dataclass(frozen=True, slots=True)
class Asked:
    """Texts to embed, and how the client wants the vectors."""

    texts: list[str]
    encoding: Literal["float", "base64"]
    dimensions: int | None


def read_embeddings(body: dict[str, Any]) -> Asked:
    """The request. Raises Refused, naming the key and the mend."""
    fields = {name: value for name, value in body.items() if value is not None and name not in IGNORED}
    del fields["model"]
    given = fields.pop("input", None)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refused("input must be a text or a list of texts; token ids aren't supported.", param="input")
    encoding = fields.pop("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise Refused("encoding_format must be float or base64.", param="encoding_format")
    dimensions = fields.pop("dimensions", None)
    if dimensions is not None and type(dimensions) is not int:
        raise Refused("dimensions must be a whole number.", param="dimensions")
    if fields:
        name = next(iter(fields))
        raise Refused(f"{name} isn't supported by the workbench's gateway. Leave it out.", param=name)
    return Asked([storable(text) for text in texts], encoding, dimensions)


def reply(vectors: Vectors, encoding: str, model: str, tokens: int) -> dict[str, Any]:
    """The vectors as OpenAI's list of embeddings."""
    rows = [encode(vector) if encoding == "base64" else vector.tolist() for vector in vectors]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def encode(vector: Vectors) -> str:
    """Base64 of the vector's float32, little endian."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def decode(text: str) -> Vectors:
    """The vector in a base64 text, as `encode` makes it."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4")


@dataclass(slots=True)
class Found:
    """Vectors of a request, with what they took. By list price; None where the price or the count is unknown."""

    vectors: Vectors
    tokens: int
    reused: int
    cost_usd: float | None
    spent_usd: float
    """Of the cost, what was paid now."""


class VectorStore:
    """Vectors by text: each is computed once and then taken from the call store, whoever asks."""

    def __init__(self, calls: CallStore, embedder: Embedder, spec: EmbedderSpec) -> None:
        self._calls = calls
        self._embedder = embedder
        self._spec = spec
        self._identity = embedder.identity()
        self._under_way: dict[str, asyncio.Future[CallRow]] = {}

    def key(self, text: str) -> str:
        """The text's key in the call store."""
        return call_key("embedding", {"embedder": self._identity, "text": text})

    async def compute(self, texts: Sequence[str]) -> Found:
        """Vectors computed now; neither looked up nor kept. Raises ModelError."""
        embedded = await self._embedder.embed_counted(texts)
        paid = cost(self._spec, embedded.tokens, 0)
        return Found(embedded.vectors, embedded.tokens or 0, 0, paid, paid or 0.0)

    async def get(self, texts: Sequence[str]) -> Found:
        """Vectors from the store, from another request under way, or computed now and kept.

        Raises:
            ModelError: the embedder failed for good.
            StoreError: the store can't be read or written.
        """
        keys = [self.key(text) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        shared = {key: self._under_way[key] for key in by_key if key in self._under_way}
        mine = {key: text for key, text in by_key.items() if key not in shared}
        made: set[str] = set()
        rows = await self._find_or_make(mine, made) if mine else {}
        for key, future in shared.items():
            rows[key] = await asyncio.shield(future)
        ordered = [rows[key] for key in keys]
        paid = [rows[key].cost_usd for key in made]
        costs = [row.cost_usd for row in ordered]
        return Found(
            np.stack([decode(row.response) for row in ordered]),
            sum(row.prompt_tokens or 0 for row in ordered),
            len(keys) - len(made),
            None if None in costs else sum(each for each in costs if each),
            sum(each for each in paid if each),
        )

    async def _find_or_make(self, texts: dict[str, str], made: set[str]) -> dict[str, CallRow]:
        """The rows of texts by key; adds the keys of those that were computed to `made`."""
        futures = {key: asyncio.get_running_loop().create_future() for key in texts}
        self._under_way |= futures
        try:
            rows = await self._calls.find(list(texts))
            missing = {key: text for key, text in texts.items() if key not in rows}
            if missing:
                new = await self._make(missing)
                await self._calls.save(list(new.values()))
                rows |= new
                made.update(new)
        except BaseException as error:
            given_up = ModelError("the request that computed this vector was given up; ask again.", kind="connection")
            for future in futures.values():
                future.set_exception(error if isinstance(error, Exception) else given_up)
                # Whoever shares it gets it; that nobody does is no fault.
                future.exception()
            raise
        else:
            for key, future in futures.items():
                future.set_result(rows[key])
            return rows
        finally:
            for key in futures:
                del self._under_way[key]

    async def _make(self, texts: dict[str, str]) -> dict[str, CallRow]:
        with stopwatch() as watch:
            embedded = await self._embedder.embed_counted(list(texts.values()))
            taken = watch.elapsed_ms()
        shares = _shares(embedded.tokens, list(texts.values()))
        return {
            key: CallRow(
                key=key,
                kind="embedding",
                model=self._embedder.name,
                request={"embedder": self._identity, "text": text},
                response=encode(vector),
                finish_reason=None,
                prompt_tokens=share,
                completion_tokens=None,
                cost_usd=cost(self._spec, share, 0),
                duration_ms=taken / len(texts),
                attempts=1,
                made_at=time.time(),
            )
            for (key, text), vector, share in zip(texts.items(), embedded.vectors, shares, strict=True)
        }


def _shares(tokens: int | None, texts: Sequence[str]) -> list[int | None]:
    """A request's tokens on its texts by their lengths: endpoints tell the sum alone. The shares add up to it."""
    if tokens is None:
        return [None] * len(texts)
    total = sum(len(text) for text in texts) or 1
    ends, so_far = [0], 0
    for text in texts:
        so_far += len(text)
        ends.append(round(tokens * so_far / total))
    ends[-1] = tokens
    return [end - start for start, end in pairwise(ends)]
