"""What a memory system is made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opbench.gateway.lease import Lease
from opbench.memories.rag import TextEmbedder
from opbench.models.registry import Registry


class Leases(Protocol):
    """What memory systems need of the gateway."""

    async def lease(self, label: str, model: str) -> Lease:
        """Access for one library to the model of that name, and to the embedder."""
        ...

    async def release(self, lease: Lease) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """What a memory system is made with: the study's embedder, folders to keep things in, the way to the models."""

    embedder: TextEmbedder
    folder: Path
    """Of what can be made again, such as indexes."""
    kept: Path
    """Of ingestions, which cost money to make again."""
    registry: Registry
    gateway: Leases
    extractor: str | None = None
    """Registry name of the model that memories are extracted with; None when none is named."""
