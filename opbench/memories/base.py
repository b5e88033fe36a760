"""The contract of a memory system: it ingests a user's history and retrieves the top k memories for a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from mitigations.base import Memory
from opbench.types import Session, User


@runtime_checkable
class MemorySystem(Protocol):
    """One memory system, serving all users of a run; users never see each other's memories."""

    name: str
    label: str
    """Name for people, e.g. `RAG`."""

    def identity(self) -> dict[str, str]:
        """All that determines what is retrieved (versions, embedder, settings), as plain text for the study's hash."""
        ...

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        """Take in a user's dated sessions, oldest first. Doing it again with the same history costs nothing.

        Raises:
            ModelError: the model or embedder behind it failed for good.
        """
        ...

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        """At most k memories of this user, best first; text, similarity or None, source date.

        Raises:
            ModelError: the embedder failed for good.
        """
        ...

    async def aclose(self) -> None:
        """Release files and connections."""
        ...
