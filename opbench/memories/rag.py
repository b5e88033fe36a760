"""RAG: dense retrieval over a user's history with faiss (paper, appendix B.1: vanilla RAG).

`rag` indexes every dialogue turn of the user's conversation (both speakers, since LoCoMo asks about both),
`rag-observations` the facts that LoCoMo's annotators drew from the sessions. What is embedded carries speaker
and session date. The index lies on disk under the hash of history, embedder and settings.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import faiss
import numpy as np

from mitigations.base import Memory
from opbench.memories.locking import FileLock
from opbench.types import Session, User

_FORMAT = "1"  # raised when what is stored in an index changes
#: Seconds between two looks at whether another process has made an index.
_LOOK_S = 0.1


class TextEmbedder(Protocol):
    """What RAG needs of an embedder: L2-normalised float32 vectors, shape (n, d)."""

    def identity(self) -> dict[str, str]: ...

    async def warm(self) -> None: ...

    async def embed(self, texts: Sequence[str]) -> np.ndarray: ...


def turns(history: Sequence[Session]) -> list[Memory]:
    """One memory a dialogue turn, with the speaker's name."""
    return [Memory(f"{turn.speaker}: {turn.text}", session.day) for session in history for turn in session.turns]


def observations(history: Sequence[Session]) -> list[Memory]:
    """One memory an observation; their sentences name the speaker themselves."""
    return [Memory(observation.text, session.day) for session in history for observation in session.observations]


class Rag:
    """Dense retrieval by cosine similarity over memories made from the history by `unit`."""

    def __init__(
        self,
        name: str,
        label: str,
        unit: Callable[[Sequence[Session]], list[Memory]],
        embedder: TextEmbedder,
        folder: Path,
    ) -> None:
        self.name = name
        self.label = label
        self._unit = unit
        self._embedder = embedder
        self._folder = folder
        self._indexes: dict[str, tuple[Any, list[Memory]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._warm = False

    def identity(self) -> dict[str, str]:
        return {
            "memory": self.name,
            "format": _FORMAT,
            **{f"embedder_{k}": v for k, v in self._embedder.identity().items()},
        }

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        """Build or load the user's index. Both speakers of a conversation share one, since the history is the same."""
        async with self._locks.setdefault(user.conversation, asyncio.Lock()):
            if user.conversation in self._indexes:
                return
            memories = self._unit(history)
            texts = [f"({memory.date}) {memory.text}" for memory in memories]
            canonical = json.dumps([self.identity(), texts], ensure_ascii=False, sort_keys=True)
            file = self._folder / f"{hashlib.sha256(canonical.encode()).hexdigest()}.faiss"
            index = await asyncio.to_thread(_load, file, len(texts))
            if not self._warm:
                await self._embedder.warm()
                self._warm = True
            if index is None and texts:
                index = await self._make(file, texts)
            self._indexes[user.conversation] = (index, memories)

    async def _make(self, file: Path, texts: Sequence[str]) -> Any:
        """Build and keep the index, unless another process of the same run does: the embeddings are paid for once."""
        lock = FileLock(file.with_suffix(".lock"))
        while not await asyncio.to_thread(lock.acquire):  # noqa: ASYNC110 - another process holds it
            await asyncio.sleep(_LOOK_S)
        try:
            index = await asyncio.to_thread(_load, file, len(texts))
            if index is None:
                index = _build(await self._embedder.embed(texts))
                await asyncio.to_thread(_keep, index, file)
            return index
        finally:
            lock.release()

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        index, memories = self._indexes[user.conversation]
        if index is None:
            return []
        vector = await self._embedder.embed([query])
        similarities, places = index.search(np.ascontiguousarray(vector, dtype=np.float32), min(k, len(memories)))
        return [
            Memory(memories[place].text, memories[place].date, round(float(similarity), 6))
            for similarity, place in zip(similarities[0], places[0], strict=True)
        ]

    async def aclose(self) -> None:
        self._indexes.clear()


def _build(vectors: np.ndarray) -> Any:
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, dtype=np.float32))
    return index


def _load(file: Path, count: int) -> Any:
    """The kept index, or None when there is none or it is damaged (then it is built again)."""
    try:
        index = faiss.deserialize_index(np.frombuffer(file.read_bytes(), dtype=np.uint8))
    except (OSError, RuntimeError):
        return None
    return index if index.ntotal == count else None


def _keep(index: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # The file takes its name only when it is whole: a killed process leaves no half index behind.
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(faiss.serialize_index(index).tobytes())
    part.replace(file)
