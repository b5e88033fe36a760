"""Which users' memories are searched for an instance, and how what is found is put together.

OP-Bench: the user's own. LoCoMo with memory systems that ingest: both speakers, each in a store of their own, with the
same k; the paper's and MemOS's evaluations do so. By protocol `memos` both lists are kept, by `uniform` the best k.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any

from mitigations.base import Memory
from opbench.errors import MemoryFault, ModelError
from opbench.memories.base import MemorySystem
from opbench.memories.ingesting import Ingesting
from opbench.study import Study
from opbench.types import Corpus, Instance, User


def searched_users(instance: Instance) -> tuple[User, ...]:
    """Whose memories an ingesting system searches for an instance: the user's, or both speakers', the first first."""
    user = instance.user
    if instance.benchmark != "locomo":
        return (user,)
    other = User(user.conversation, user.other, user.speaker, not user.first)
    return (user, other) if user.first else (other, user)


class Retrieval:
    """Searches memory systems for instances, by the study's protocol."""

    def __init__(
        self,
        study: Study,
        corpus: Corpus,
        memories: Mapping[str, MemorySystem],
        history_sha256: Mapping[str, str],
        failures: Mapping[tuple[str, str], ModelError | MemoryFault] | None = None,
    ) -> None:
        """`failures`: why ingestions failed, by system and user id (`running.ingestion`)."""
        self._study = study
        self._corpus = corpus
        self._memories = memories
        self._history_sha256 = history_sha256
        self._failures = {} if failures is None else failures
        # Worked out once: an identity asks files and packages, and every retrieval's key holds one.
        self._identities = {name: memory.identity() for name, memory in memories.items()}

    def knows(self, name: str) -> bool:
        """Whether there is a memory system of that name to be searched."""
        return name in self._memories

    @asynccontextmanager
    async def ready(self, name: str, instance: Instance) -> AsyncIterator[None]:
        """A memory system that can be searched for an instance, until the block ends: the stores stay open, so that no
        search's time has the opening of one in it. A library must have ingested before; others do now.

        Raises:
            ModelError, MemoryFault: why it can't.
        """
        memory = self._memories[name]
        history = self._corpus.conversations[instance.user.conversation].sessions
        async with AsyncExitStack() as stack:
            if not isinstance(memory, Ingesting):
                await memory.ingest(instance.user, history)
            else:
                for user in searched_users(instance):
                    failure = self._failures.get((name, user.id))
                    if failure is not None:
                        raise failure
                    await stack.enter_async_context(memory.held(user, history))
            yield

    def identity(self, name: str, instance: Instance, query: str, k: int) -> dict[str, Any]:
        """All that determines what `search` finds: the key of its row in the call store. `ready` before."""
        memory = self._memories[name]
        user = instance.user
        found: dict[str, Any] = {
            "system": self._identities[name],
            "user": user.id,
            "history": self._history_sha256[user.conversation],
            "query": query,
            "k": k,
        }
        if isinstance(memory, Ingesting):
            history = self._corpus.conversations[user.conversation].sessions
            users = searched_users(instance)
            found["stores"] = [memory.digest(each, history) for each in users]
            found["contents"] = [memory.content(each) for each in users]
            if len(users) > 1:
                found |= {"users": [each.id for each in users], "protocol": self._study.protocol}
        return found

    async def search(self, name: str, instance: Instance, query: str, k: int) -> list[Memory]:
        """The memories for a query, best first; `ready` before. By protocol `memos` up to k of each speaker.

        Raises:
            ModelError, MemoryFault: the search failed.
        """
        memory = self._memories[name]
        if not isinstance(memory, Ingesting) or instance.benchmark != "locomo":
            return await memory.search(instance.user, query, k)
        # One after the other, so that the time taken is that of both searches.
        lists = [_named(user, await memory.search(user, query, k)) for user in searched_users(instance)]
        return list(chain(*lists)) if self._study.protocol == "memos" else merged(lists, k)


def merged(lists: Sequence[Sequence[Memory]], k: int) -> list[Memory]:
    """The k best of several lists by similarity; by turns where similarities are equal or not told."""
    by_turns = [memory for row in zip_longest(*lists) for memory in row if memory is not None]
    if all(memory.score is not None for memory in by_turns):
        by_turns.sort(key=lambda memory: -(memory.score or 0.0))
    return by_turns[:k]


def _named(user: User, memories: Sequence[Memory]) -> list[Memory]:
    return [replace(memory, text=f"{user.speaker}: {memory.text}") for memory in memories]
