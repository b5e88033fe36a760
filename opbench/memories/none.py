"""BASE: no memory at all. The oracle of every comparison (paper, appendix B.1)."""

from __future__ import annotations

from collections.abc import Sequence

from mitigations.base import Memory
from opbench.types import Session, User


class NoMemory:
    """Remembers nothing, retrieves nothing."""

    name = "base"
    label = "BASE"

    def identity(self) -> dict[str, str]:
        return {"memory": self.name}

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        pass

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        return []

    async def aclose(self) -> None:
        pass
