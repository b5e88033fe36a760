"""MemOS (https://github.com/MemTensor/MemOS), `general_text`: its extraction prompt, an embedded Qdrant a user."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from opbench.gateway.lease import Lease
from opbench.memories import install
from opbench.memories.library import Estimate, tokens
from opbench.memories.sidecar.client import sidecar
from opbench.memories.sidecar.store import MAX_TOKENS, SCHEMA, SidecarStore
from opbench.memories.views import own_view
from opbench.types import Session, User

_FORMAT = "1"  # raised when the same history would give another store
ENVIRONMENT = "memos"
PROMPT_TOKENS = 6457 // 4
"""Of MemOS's extraction prompt without the conversation, four characters a token."""
MEMORIES_A_SESSION = 8
TOKENS_A_MEMORY = 90
"""As JSON, with its key, type and tags; about half of it is its text."""
SUMMARY_TOKENS = 200


def common_identity() -> dict[str, str]:
    """What both kinds of MemOS memory have in common.

    Raises:
        UsageError: MemOS isn't installed.
    """
    install.python(ENVIRONMENT)
    pinned = install.versions(ENVIRONMENT)
    return {
        "MemoryOS": pinned["MemoryOS"],
        "openai": pinned["openai"],
        "pydantic": pinned["pydantic"],
        "temperature": "0",
        "max_tokens": str(MAX_TOKENS),
        "schema": hashlib.sha256(json.dumps(SCHEMA, sort_keys=True).encode()).hexdigest()[:16],
    }


class MemosLibrary:
    """MemOS's `general_text` memory: one extraction call a session, cosine similarity over what it extracted."""

    name = "memos"
    label = "MemOS"
    note = "general_text memory. An answer that MemOS can't read gives no memory (workaround: its error isn't raised)."

    def identity(self) -> dict[str, str]:
        return {
            **common_identity(),
            "memory_backend": "general_text",
            "store_format": _FORMAT,
            "qdrant-client": install.versions(ENVIRONMENT)["qdrant-client"],
            "vector_store": "Qdrant embedded, cosine, one a user",
        }

    async def open(self, folder: Path, user: User, lease: Lease) -> SidecarStore:
        lease.schema = SCHEMA
        store = SidecarStore(sidecar(install.python(ENVIRONMENT)), "general", self.label, folder, user, lease)
        await store.open()
        return store

    def estimate(self, session: Session, user: User) -> Estimate:
        """One call a session: MemOS's prompt of some 6,460 characters and the session. Completion: eight memories of
        90 tokens as JSON and a summary of 200. Embedded: half of the memories' tokens, their texts."""
        texts = [turn.text for turn in own_view(session, user)]
        if not texts:
            return Estimate(0, 0, 0, 0)
        made = MEMORIES_A_SESSION * TOKENS_A_MEMORY
        return Estimate(1, PROMPT_TOKENS + tokens(texts), made + SUMMARY_TOKENS, made // 2)
