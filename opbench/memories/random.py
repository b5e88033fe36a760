"""Control: k memories of the user drawn at random. Retrieval that does no better finds nothing that is of use."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence

from mitigations.base import Memory
from opbench.memories.rag import turns
from opbench.types import Session, User

_FORMAT = "1"  # raised when the same question would draw other memories


class RandomMemories:
    """Draws from the units of `rag` (dialogue turns), without replacement and whatever the question says.

    The draw hangs on user, query and k alone, so every run and every process draws the same. Memories have no
    similarity: none was asked for.
    """

    name = "random"
    label = "Random memories"

    def __init__(self) -> None:
        self._units: dict[str, list[Memory]] = {}

    def identity(self) -> dict[str, str]:
        return {"memory": self.name, "format": _FORMAT}

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        if user.id not in self._units:
            self._units[user.id] = turns(history)

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        """At most k memories in the order in which they were drawn."""
        units = self._units[user.id]
        start = hashlib.sha256(f"{user.id}\0{k}\0{query}".encode())

        def lot(place: int) -> bytes:
            drawn = start.copy()
            drawn.update(f"\0{place}".encode())
            return drawn.digest()

        return [units[place] for place in heapq.nsmallest(k, range(len(units)), key=lot)]

    async def aclose(self) -> None:
        self._units.clear()
