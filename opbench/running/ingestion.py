"""The ingestion phase: users' histories into memory systems, side by side, before anything is searched.

Of a run it comes before the records, and `opbench memory ingest` is nothing else. What fails is remembered: a broken
endpoint isn't asked again for every record that would need those memories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opbench.errors import MemoryFault, ModelError
from opbench.memories import Ingesting
from opbench.memories.ingesting import GoOn
from opbench.memories.manifest import Manifest
from opbench.running.retrieval import searched_users
from opbench.types import Corpus, Instance, User

Pair = tuple[str, User]
"""A memory system by name, and a user whose history it takes in."""

Failures = dict[tuple[str, str], ModelError | MemoryFault]
"""Why an ingestion failed, by system and user id."""


@dataclass(slots=True)
class Standing:
    """How far one ingestion is, for people."""

    system: str
    label: str
    user: str
    planned: int
    """Sessions of the history."""
    done: int = 0
    memories: int = 0
    state: str = "waiting"
    """waiting, at work, complete, failed or stopped"""
    error: str | None = None


def pairs_of(memories: Mapping[str, Ingesting], jobs: Iterable[tuple[str, Instance]]) -> list[Pair]:
    """What (memory system, instance) pairs need ingested, each once, user by user."""
    found: dict[tuple[str, str], Pair] = {}
    for name, instance in jobs:
        if name in memories:
            for user in searched_users(instance):
                found.setdefault((user.id, name), (name, user))
    return [found[key] for key in sorted(found)]


class Ingestion:
    """Ingests pairs side by side. `failures` and `standings` tell how it went, also while it goes on."""

    def __init__(
        self,
        memories: Mapping[str, Ingesting],
        corpus: Corpus,
        pairs: Sequence[Pair],
        *,
        concurrency: int,
    ) -> None:
        self._memories = memories
        self._corpus = corpus
        self.pairs = list(pairs)
        self._places = asyncio.Semaphore(concurrency)
        self.failures: Failures = {}
        self.manifests: dict[tuple[str, str], Manifest] = {}
        self.standings = {
            (name, user.id): Standing(
                name, memories[name].label, user.id, len(corpus.conversations[user.conversation].sessions)
            )
            for name, user in self.pairs
        }

    @property
    def complete(self) -> bool:
        """Whether everything is in."""
        return all(standing.state == "complete" for standing in self.standings.values())

    def to_list(self) -> list[dict[str, Any]]:
        """The standings as JSON values."""
        return [asdict(standing) for standing in self.standings.values()]

    @property
    def memories(self) -> Mapping[str, Ingesting]:
        return self._memories

    async def run(self, go_on: GoOn, on_progress: Callable[[], Awaitable[None]]) -> None:
        """Ingest what isn't in yet. `go_on` is asked before each session: False ends it after those in flight.

        `on_progress` is called after every session, and when an ingestion begins or ends.

        Raises:
            StoreError: a store can't be written, which would hit all the others too.
        """
        tasks = [asyncio.create_task(self._ingest(name, user, go_on, on_progress)) for name, user in self.pairs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ingest(self, name: str, user: User, go_on: GoOn, on_progress: Callable[[], Awaitable[None]]) -> None:
        key = (name, user.id)
        standing = self.standings[key]
        memory = self._memories[name]
        history = self._corpus.conversations[user.conversation].sessions

        async def reached(manifest: Manifest) -> None:
            self.manifests[key] = manifest
            standing.done, standing.memories = len(manifest.sessions), manifest.memories
            standing.state = "complete" if manifest.complete else "at work"
            await on_progress()

        async with self._places:
            try:
                manifest = await memory.fill(user, history, go_on=go_on, on_progress=reached)
            except (ModelError, MemoryFault) as error:
                self.failures[key] = error
                standing.state, standing.error = "failed", str(error)
            else:
                if manifest is not None:
                    await reached(manifest)
                if manifest is None or not manifest.complete:
                    standing.state = "stopped"
            await on_progress()


def told(failures: Mapping[tuple[str, str], ModelError | MemoryFault]) -> list[list[str | None]]:
    """Why ingestions failed, as JSON values for other processes: system, user id, kind of a model's error, sentence."""
    return [
        [system, user, error.kind if isinstance(error, ModelError) else None, str(error)]
        for (system, user), error in failures.items()
    ]


def failures_of(values: Iterable[Sequence[Any]]) -> Failures:
    """What `told` told."""
    return {
        (system, user): MemoryFault(sentence) if kind is None else ModelError(sentence, kind=kind)
        for system, user, kind, sentence in values
    }


def summary(ingestion: Ingestion) -> list[dict[str, Any]]:
    """What a run's provenance tells of its ingestions: one dict a system and user, of JSON values."""
    rows = []
    for key, standing in ingestion.standings.items():
        manifest = ingestion.manifests.get(key)
        row: dict[str, Any] = {
            "system": standing.system,
            "label": standing.label,
            "note": ingestion.memories[standing.system].note,
            "user": standing.user,
            "state": standing.state,
            "error": standing.error,
            "sessions": standing.done,
            "planned": standing.planned,
            "memories": standing.memories,
        }
        if manifest is not None:
            usage = manifest.usage
            row |= {
                "extractions": manifest.extractions,
                "empty": manifest.empty,
                "calls": usage.calls,
                "reused": usage.reused,
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "embedded_tokens": usage.embedded_tokens,
                "cost_usd": usage.cost_usd,
                "seconds": round(manifest.seconds, 3),
                "store_bytes": manifest.store_bytes,
                "digest": manifest.digest,
                "identity": manifest.identity,
            }
        rows.append(row)
    return rows
