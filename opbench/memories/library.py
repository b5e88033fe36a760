"""The contract between our ingestion and a memory library: what is asked of Mem0, MemU, MemOS and others.

`Ingesting` (ingesting.py) makes a memory system of a library: it feeds the sessions one by one, keeps a whole
checkpoint after each, and lets nobody search before all are in. A library knows nothing of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mitigations.base import Memory
from opbench.gateway.lease import Lease
from opbench.types import Session, User


@dataclass(frozen=True, slots=True)
class Added:
    """What came of one session."""

    memories: int
    """Memories that the library keeps more than before (0 or more; fewer when it merged some away counts as 0)."""
    extractions: int
    """Extraction calls whose result was read."""
    empty: int
    """Of these, the ones that gave no memory: nothing worth keeping, or an answer that couldn't be read."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What ingesting one session will take, before it is done."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    embedded_tokens: int


class UserStore(Protocol):
    """One user's memories, open. Used by one task at a time while it is written; searches may come side by side."""

    async def add(self, session: Session) -> Added:
        """Take in one session in the user's own view (`views.own_view`), under the session's date.

        Everything is on disk, and nothing of it in flight, when this returns: the folder is copied next.

        Raises:
            ModelError: the model or embedder failed for good.
            MemoryFault: the library itself failed.
        """
        ...

    async def search(self, query: str, k: int) -> list[Memory]:
        """At most k memories, best first: text, similarity (cosine, or None), the source session's day."""
        ...

    async def memories(self) -> list[Memory]:
        """All memories in the order of their sessions, without similarity. As many as `add` said, or fewer where the
        library merges."""
        ...

    async def aclose(self) -> None:
        """Release files, connections and processes."""
        ...


class Library(Protocol):
    """A memory library with its settings. Makes user stores, and tells what determines their content."""

    name: str
    """As studies and flags say it, e.g. `mem0`."""
    label: str
    """For people, e.g. `Mem0`."""
    note: str
    """What results must say about it, e.g. "MemU's store and retrieval, our extractor"; empty when there is nothing."""

    def identity(self) -> dict[str, str]:
        """Library versions and settings, as plain text. Extractor, embedder and history are added by `Ingesting`.

        Raises:
            UsageError: what it needs isn't installed or set up; says the command.
        """
        ...

    async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
        """The store in `folder`, which is ours alone while it is open: empty for a new user, else a copy of what was
        there after an `add`. The library reaches its model and embedder through `lease` only."""
        ...

    def estimate(self, session: Session, user: User) -> Estimate:
        """What `add` of this session will ask, by rules of thumb that the docstring of the implementation tells."""
        ...


def tokens(texts: Sequence[str]) -> int:
    """Rule of thumb for estimates: four characters a token."""
    return sum(len(text) for text in texts) // 4
