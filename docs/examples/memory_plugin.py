"""A memory system of your own in one file: a model draws facts from each session, the embedder finds them again.

    opbench memory ingest facts --plugin docs/examples/memory_plugin.py --extractor gpt-4o-mini
    opbench run --memories base,facts --plugin docs/examples/memory_plugin.py --models gpt-4o-mini

The workbench feeds it the sessions one by one, keeps a copy of its folder after each, and lets nobody search before
all are in: a class that adds, searches and lists is all there is to write. Its model and its embedder are reached
through the gateway whose address and key are in the lease, so every call is counted, kept and never paid twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openai

from mitigations import Memory
from opbench.gateway import Lease
from opbench.memories import LibraryFactory, register_memory
from opbench.memories.library import Added, Estimate, tokens
from opbench.memories.views import own_view
from opbench.types import Session, User

PROMPT = "List what this conversation tells about {speaker}, one short fact a line. No other text.\n\n{dialogue}"


class FactStore:
    """One user's facts, in a file of the folder that is this user's alone."""

    def __init__(self, file: Path, user: User, lease: Lease) -> None:
        self._file = file
        self._user = user
        self._lease = lease
        self._client = openai.AsyncOpenAI(base_url=lease.base_url, api_key=lease.key, max_retries=0)
        self._facts: list[dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.exists() else []

    async def add(self, session: Session) -> Added:
        dialogue = "\n".join(turn.text for turn in own_view(session, self._user))
        prompt = PROMPT.format(speaker=self._user.speaker, dialogue=dialogue)
        reply = await self._client.chat.completions.create(
            model=self._lease.model, messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=500
        )
        lines = (reply.choices[0].message.content or "").splitlines()
        facts = [line.strip("-•* ") for line in lines if line.strip("-•* ")]
        vectors = await self._embed(facts) if facts else []
        self._facts += [
            {"text": fact, "date": session.day, "vector": vector} for fact, vector in zip(facts, vectors, strict=True)
        ]
        self._file.write_text(json.dumps(self._facts, ensure_ascii=False), "utf-8")
        return Added(len(facts), 1, 0 if facts else 1)

    async def search(self, query: str, k: int) -> list[Memory]:
        if not self._facts:
            return []
        (asked,) = await self._embed([query])
        similarities = np.array([fact["vector"] for fact in self._facts]) @ np.array(asked)
        best = np.argsort(-similarities, kind="stable")[:k]
        return [
            Memory(self._facts[place]["text"], self._facts[place]["date"], float(similarities[place])) for place in best
        ]

    async def memories(self) -> list[Memory]:
        return [Memory(fact["text"], fact["date"]) for fact in self._facts]

    async def aclose(self) -> None:
        await self._client.close()

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        """Vectors of length 1, as the gateway gives them."""
        reply = await self._client.embeddings.create(model=self._lease.embedder, input=texts, encoding_format="float")
        return [row.embedding for row in reply.data]


class Facts:
    """What the workbench needs to know of the library."""

    name, label, note = "facts", "Facts", ""

    def identity(self) -> dict[str, str]:
        """All that determines what is in the store. Change it, and the next ingestion is a new one."""
        return {"version": "1", "prompt": PROMPT}

    async def open(self, folder: Path, user: User, lease: Lease) -> FactStore:
        return FactStore(folder / "facts.json", user, lease)

    def estimate(self, session: Session, user: User) -> Estimate:
        """One call a session; ten facts of 15 tokens come of it, and are embedded."""
        return Estimate(1, tokens([PROMPT, *(turn.text for turn in own_view(session, user))]), 150, 150)


register_memory("facts", LibraryFactory("Facts", Facts))
