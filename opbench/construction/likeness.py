"""Vectors of questions and histories, taken from the call store or computed a batch at a time, and what they took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from opbench.gateway.vectors import Found, VectorStore
from opbench.models.embeddings import Vectors
from opbench.store.builds import Unit

UNIT = "filtering/vectors"
#: Texts that are embedded at a time: what is computed is kept before the next ones.
_BATCH = 256


class Likeness:
    """An embedder's vectors for one filtering of a build."""

    def __init__(self, store: VectorStore, embedder: str) -> None:
        self._store = store
        self._embedder = embedder
        self._found: list[Found] = []

    async def of(
        self,
        texts: Sequence[str],
        on_progress: Callable[[int], None] = lambda done: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Vectors | None:
        """Float32 of shape (n, d), rows L2-normalised; None when it was stopped in between.

        Raises:
            ModelError: the embedder failed for good.
            StoreError: the store can't be read or written.
        """
        parts = []
        for start in range(0, len(texts), _BATCH):
            if stopping():
                return None
            found = await self._store.get(texts[start : start + _BATCH])
            self._found.append(found)
            parts.append(found.vectors)
            on_progress(min(start + _BATCH, len(texts)))
        return np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32)

    def unit(self) -> Unit:
        """What the vectors cost when they were computed, whoever asked for them first."""
        costs = [found.cost_usd for found in self._found]
        known = [cost for cost in costs if cost is not None]
        texts = sum(len(found.vectors) for found in self._found)
        return Unit(
            unit=UNIT,
            stage="filtering",
            user_id="",
            status="done",
            reason=None,
            output={"texts": texts},
            role="embedder",
            model=self._embedder,
            prompt_sha256="",
            prompt_tokens=sum(found.tokens for found in self._found),
            completion_tokens=0,
            cost_usd=sum(known) if len(known) == len(costs) else None,
            made_at=time.time(),
        )
