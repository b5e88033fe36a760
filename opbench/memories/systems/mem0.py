"""Mem0 (https://github.com/mem0ai/mem0), the open-source library: its extraction, its FAISS store, its ranking.

One folder a user: its FAISS store filters only after fetching, so users that shared an index would take each other's
places among the hits. All of its model and embedder calls go through the lease.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mitigations.base import Memory
from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories.library import Added, Estimate, tokens
from opbench.memories.systems.driving import Threads, client, fault, installed
from opbench.memories.views import own_view
from opbench.settings import settings
from opbench.types import Session, User

_FORMAT = "1"  # raised when the same history would give another store
_COLLECTION = "memories"
_MAX_TOKENS = 2000
_CONTEXT_MESSAGES = 10
_CONTEXT_CHARACTERS = 300
_CONTEXT_MEMORIES = 10
_MEMORIES_A_SESSION = 10
_TOKENS_A_MEMORY = 45
_ALL = 10_000_000
_REBUILD = "If it stays so, ingest anew: opbench memory reset"
_AGAIN = "The session wasn't kept: ingest again"

#: What its parser reads of an answer. The bounds keep a small model's answer short where a grammar enforces them.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "memory": {
            "type": "array",
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "enum": ["0", "1", "2", "3"]},
                    "text": {"type": "string", "minLength": 20, "maxLength": 200},
                    "attributed_to": {"type": "string", "enum": ["user", "assistant"]},
                },
                "required": ["id", "text", "attributed_to"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["memory"],
    "additionalProperties": False,
}

#: The end of its extraction prompt. A dialogue that holds the same words stands before it and stays as it is.
_DATES = re.compile(
    r"(\n\n## Observation Date\n)\d{4}-\d\d-\d\d(\n\n## Current Date\n)\d{4}-\d\d-\d\d(\n\n# Output:)\Z"
)


class Mem0Library:
    """Mem0 as its makers ship it: one extraction call a session, cosine similarity over what it extracted."""

    name = "mem0"
    label = "Mem0"
    note = "similarity alone ranks: Mem0's optional keyword and entity scores are off"

    def identity(self) -> dict[str, str]:
        return {
            "memory": self.name,
            "format": _FORMAT,
            "mem0ai": installed(self.name, "mem0ai"),
            "store": "faiss, cosine, one index a user",
            "threshold": "none",
            "temperature": "0",
            "max_tokens": str(_MAX_TOKENS),
            "dates": "the session's day stands for today's in the prompt",
            "ranking": "similarity; no keyword scores (FAISS has none), no entity scores (no spaCy)",
            "schema": hashlib.sha256(json.dumps(SCHEMA, sort_keys=True).encode()).hexdigest()[:16],
        }

    async def open(self, folder: Path, user: User, lease: Lease) -> Mem0Store:
        installed(self.name, "mem0ai")
        lease.schema = SCHEMA
        threads = Threads("mem0")
        try:
            memory = await threads.run(lambda: _memory(folder, lease))
        except Exception as error:
            await threads.aclose(lambda: None)
            raise fault(self.label, user, lease, error, _REBUILD) from error
        store = Mem0Store(self.label, folder, user, lease, memory, threads)
        damage = store.damage()
        if damage:
            await store.aclose()
            raise MemoryFault(f"{self.label} ({user.id}): {damage}. {_REBUILD}.")
        return store

    def estimate(self, session: Session, user: User) -> Estimate:
        """One call a session. Prompt: its own of some 33,600 characters, the session, the ten messages before it (at
        most 300 characters each) and ten similar memories; completion: ten memories of 45 tokens, of which it asks
        for 5 to 15. Embedded: the session, and the memories. Four characters a token."""
        texts = [turn.text for turn in own_view(session, user)]
        if not texts:
            return Estimate(0, 0, 0, 0)
        prompts = _library().configs.prompts
        kept = [text[:_CONTEXT_CHARACTERS] for text in texts[:_CONTEXT_MESSAGES]]
        made = _MEMORIES_A_SESSION * _TOKENS_A_MEMORY
        similar = _CONTEXT_MEMORIES * _TOKENS_A_MEMORY
        prompt = tokens([prompts.ADDITIVE_EXTRACTION_PROMPT, *texts, *kept]) + similar
        return Estimate(1, prompt, made, tokens(texts) + made)


class Mem0Store:
    """One user's Mem0."""

    def __init__(self, label: str, folder: Path, user: User, lease: Lease, memory: Any, threads: Threads) -> None:
        self._label = label
        self._folder = folder
        self._user = user
        self._lease = lease
        self._memory = memory
        self._threads = threads
        # Mem0 takes no identifiers with spaces in them.
        self._id = quote(user.id, safe="/")

    async def add(self, session: Session) -> Added:
        view = own_view(session, self._user)
        if not view:
            return Added(0, 0, 0)
        messages = [{"role": turn.role, "content": turn.text} for turn in view]
        day = f"{session.date:%Y-%m-%d}"
        metadata = {"session": session.number, "day": session.day, "created_at": session.date.isoformat()}
        calls = self._lease.usage.calls
        self._lease.rewrite = lambda text: _DATES.sub(rf"\g<1>{day}\g<2>{day}\g<3>", text)
        try:
            result = await self._threads.run(
                lambda: self._memory.add(messages, user_id=self._id, metadata=metadata)["results"]
            )
        except Exception as error:
            self._lease.raise_failure()
            raise fault(self._label, self._user, self._lease, error, _AGAIN) from error
        finally:
            self._lease.rewrite = None
        # It goes on without the memories that it couldn't embed.
        self._lease.raise_failure()
        damage = await self._threads.run(self.damage)
        if damage:
            raise MemoryFault(f"{self._label} ({self._user.id}): {damage}. {_AGAIN}.")
        extractions = self._lease.usage.calls - calls
        return Added(len(result), extractions, 0 if result else extractions)

    async def search(self, query: str, k: int) -> list[Memory]:
        """At most k memories in Mem0's own order, which is that of its similarity (cosine) alone: its keyword scores
        need a store that FAISS isn't, its entity scores need spaCy."""
        query = query.strip()
        if k <= 0 or not query:
            return []
        try:
            # What `search` itself calls after checks, one of which forbids thresholds below 0: memories whose
            # similarity is negative would be missing from the k that every other system finds.
            found = await self._threads.run(
                lambda: self._memory._search_vector_store(query, {"user_id": self._id}, k, threshold=-1.0, explain=True)
            )
        except Exception as error:
            self._lease.raise_failure()
            raise fault(self._label, self._user, self._lease, error, _REBUILD) from error
        return [_found(one, one["score_details"]["semantic_score"]) for one in found]

    async def memories(self) -> list[Memory]:
        found = await self._threads.run(
            lambda: self._memory.get_all(filters={"user_id": self._id}, top_k=_ALL)["results"]
        )
        return [_found(one) for one in found]

    async def aclose(self) -> None:
        await self._threads.aclose(self._close)

    def damage(self) -> str | None:
        """What is wrong with the files, if anything. It logs what it couldn't read or write, and goes on without."""
        index = self._memory.vector_store.index
        if index is None:
            return "its index can't be read"
        held = len(self._memory.vector_store.docstore)
        import faiss

        try:
            vectors = faiss.read_index(str(self._folder / "faiss" / f"{_COLLECTION}.faiss")).ntotal
            texts = len(
                json.loads((self._folder / "faiss" / f"{_COLLECTION}.json").read_text(encoding="utf-8"))["docstore"]
            )
        except (OSError, RuntimeError, ValueError, LookupError, TypeError):
            return "its index isn't whole on disk"
        return None if held == texts == vectors == index.ntotal else "its index and its texts don't match on disk"

    def _close(self) -> None:
        self._memory.close()
        for endpoint in (self._memory.llm.client, self._memory.embedding_model.client):
            endpoint.close()
        self._memory.vector_store.index = None


def _found(one: dict[str, Any], score: float | None = None) -> Memory:
    return Memory(one["memory"], one["metadata"]["day"], None if score is None else round(float(score), 6))


def _memory(folder: Path, lease: Lease) -> Any:
    """The library's own object, opened on `folder`."""
    mem0 = _library()
    folder.mkdir(parents=True, exist_ok=True)
    endpoint = {"model": "", "api_key": lease.key, "openai_base_url": lease.base_url}
    memory = mem0.Memory.from_config(
        {
            "vector_store": {
                "provider": "faiss",
                "config": {
                    "collection_name": _COLLECTION,
                    "path": str(folder / "faiss"),
                    "embedding_model_dims": lease.dimensions,
                    "distance_strategy": "cosine",
                },
            },
            "llm": {
                "provider": "openai",
                "config": endpoint
                | {
                    "model": lease.model,
                    "temperature": 0,
                    "max_tokens": _MAX_TOKENS,
                    # It would guess from the name, and drop limits and temperature.
                    "is_reasoning_model": False,
                },
            },
            "embedder": {
                "provider": "openai",
                "config": endpoint | {"model": lease.embedder, "embedding_dims": lease.dimensions},
            },
            "history_db_path": str(folder / "history.db"),
        }
    )
    # Its own clients go to OpenRouter when a key for that lies in the environment, and through the environment's proxy.
    for part in (memory.llm, memory.embedding_model):
        part.client.close()
        part.client = client(lease)
    ask = memory.llm.generate_response
    memory.llm.generate_response = lambda *args, **named: readable(ask(*args, **named))
    return memory


def readable(answer: str | None) -> str:
    """An extraction without what Mem0 trips over: JSON of another shape than it asked for makes it raise an error,
    while text that isn't JSON at all is an empty extraction to it."""
    from mem0.memory.utils import extract_json, remove_code_blocks

    text = remove_code_blocks(answer or "")
    for read in (text, extract_json(text)):
        try:
            entries = json.loads(read, strict=False)["memory"]
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
        if not isinstance(entries, list):
            return ""
        kept = [one for one in entries if isinstance(one, dict) and _said(one.get("text"))]
        return text if kept == entries else json.dumps({"memory": kept}, ensure_ascii=False)
    return ""


def _said(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


_import = threading.Lock()


@cache
def _imported() -> Any:
    home = settings().cache / "mem0"
    home.mkdir(parents=True, exist_ok=True)
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = str(home)
    # What it warns of (no keyword search with FAISS) or can't read is counted or raised here, not printed.
    log = logging.getLogger("mem0")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    import mem0
    import mem0.configs.prompts
    import mem0.memory.main
    import mem0.memory.setup
    import mem0.memory.telemetry
    import mem0.utils.spacy_models

    # Whoever imported it before us may have done so without the environment above.
    mem0.memory.telemetry.MEM0_TELEMETRY = False
    mem0.memory.main.MEM0_TELEMETRY = False
    mem0.memory.telemetry.client_telemetry.close()
    mem0.memory.telemetry._shutdown_oss_telemetry()
    mem0.memory.main.mem0_dir = mem0.memory.setup.mem0_dir = str(home)
    # Where spaCy is installed it would download a language model for its entity scores.
    mem0.utils.spacy_models._load_failed_full = True
    mem0.utils.spacy_models._load_failed_lemma = True
    return mem0


def _library() -> Any:
    """The module, imported so that nothing of it leaves the machine or writes into the person's home."""
    with _import:
        return _imported()
