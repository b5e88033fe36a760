"""The memories that are kept, as a page asks for them: what can be opened, what is in it, what more would take.

Nothing here ever takes in a history: what isn't complete, or was made with what isn't here any more, is refused with
the reason. Opening happens in the thread of `remembering`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from mitigations.base import Memory
from opbench.benchmarks import load
from opbench.errors import MemoryFault, OpbenchError, UsageError
from opbench.memories.history import user_history_sha256
from opbench.memories.ingesting import Ingesting
from opbench.memories.manifest import Manifest
from opbench.memories.registry import library_factory
from opbench.models import Registry, load_registry
from opbench.running.ingestion_quote import IngestionLine, ingestion_quote
from opbench.running.launch_ingestion import Order
from opbench.running.prepare import PreparedMemories, connect, prepare_memories
from opbench.running.remembering import Found, OpenStore, Remembering
from opbench.settings import settings
from opbench.store.database import Store, open_store
from opbench.types import Session, User

Data = Literal["auto", "sample"]
#: Requests at a time that a page's own searches may have under way.
_CONCURRENCY = 4
#: Settings that are named where an ingestion's differ from today's.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Place:
    """An ingestion with all that is needed to open it. `made` is when it last got further: a new one is a new place."""

    digest: str
    made: float
    system: str
    user: str
    extractor: str | None
    embedder: str
    data: Data
    identity: tuple[tuple[str, str], ...]
    """What determines its content, but for the history."""


def search_in(manifests: Sequence[Manifest], query: str, k: int) -> list[Found]:
    """The same question to several ingestions, in their order; one that can't be opened says why."""
    places: list[Place | str] = []
    for manifest in manifests:
        try:
            places.append(place_of(manifest))
        except OpbenchError as error:
            places.append(str(error))
    answers = iter(_opened().search([each for each in places if isinstance(each, Place)], query, k))
    return [next(answers) if isinstance(each, Place) else Found([], 0.0, each) for each in places]


def memories_of(manifest: Manifest) -> list[Memory]:
    """All memories of a complete ingestion, in the order of its sessions.

    Raises:
        UsageError, MemoryFault, ModelError, StoreError: it can't be opened; says why and what mends it.
    """
    return _opened().memories(place_of(manifest))


def forget(manifest: Manifest) -> None:
    """Close what is open of an ingestion, which is about to be removed."""
    for place in _opened().places():
        if place.digest == manifest.digest and place.user == manifest.user:
            _opened().forget(place)


def close() -> None:
    """Close all that is open here; what is asked next is opened anew."""
    _opened().close()
    _opened.cache_clear()


def place_of(manifest: Manifest) -> Place:
    """Where an ingestion is opened.

    Raises:
        UsageError: its history or its embedder isn't here any more.
    """
    return Place(
        manifest.digest,
        manifest.changed_at,
        manifest.system,
        manifest.user,
        manifest.extractor,
        embedder_of(manifest, load_registry()),
        data_of(manifest),
        tuple(sorted(manifest.identity.items())),
    )


def order_of(manifest: Manifest) -> Order:
    """What to order to go on with an ingestion, or to make it anew.

    Raises:
        UsageError: its history or its embedder isn't here any more.
    """
    place = place_of(manifest)
    return Order((place.system,), (place.user,), place.extractor, place.embedder, place.data)


def data_of(manifest: Manifest) -> Data:
    """Which data hold the history that an ingestion was made of.

    Raises:
        UsageError: none that are here.
    """
    choices: tuple[Data, Data] = ("auto", "sample")
    for data in choices:
        corpus = load("sample" if data == "sample" else None)
        user = corpus.users.get(manifest.user)
        if user is not None:
            sessions = corpus.conversations[user.conversation].sessions
            if user_history_sha256(user, sessions) == manifest.history_sha256:
                return data
    raise UsageError(
        f"the history of {manifest.user} that {manifest.label} took in isn't in the data here: set OPBENCH_DATA to "
        "the files of that time to open, go on with or rebuild it."
    )


def embedder_of(manifest: Manifest, registry: Registry) -> str:
    """The registry's name of the embedder that an ingestion was made with.

    Raises:
        UsageError: it isn't in the registry as it was then.
    """
    head = "embedder_"
    wanted = {key.removeprefix(head): value for key, value in manifest.identity.items() if key.startswith(head)}
    for name, spec in registry.embedders.items():
        try:
            if spec.identity() == wanted:
                return name
        except UsageError:  # not installed
            continue
    told = wanted.get("served") or wanted.get("model", "its embedder")
    raise UsageError(
        f"{manifest.label} took in {manifest.user} with {told}, which isn't in the registry as it was then: its "
        "memories can't be searched with another embedder. Ingest anew."
    )


def estimate(store: Store, order: Order) -> list[IngestionLine]:
    """What an order will take, a line a memory system and user, also where nothing is left to do. Asks nobody.

    Raises:
        UsageError, DataError: what is ordered doesn't exist or isn't installed.
    """
    prepared = prepare_memories(order.systems, extractor=order.extractor, embedder=order.embedder, data=order.data)
    try:
        users = [prepared.corpus.users[name] for name in order.users] or list(prepared.corpus.users.values())
        return ingestion_quote(store, prepared, [(name, user) for user in users for name in prepared.ingesting])
    finally:
        asyncio.run(prepared.aclose())


def not_installed(names: Sequence[str]) -> dict[str, str]:
    """Of these memory systems, those that can't be used here, with the sentence that says what mends it."""
    found = {}
    for name in names:
        factory = library_factory(name)
        if factory is None:
            continue
        try:
            factory.library().identity()
        except OpbenchError as error:
            found[name] = str(error)
    return found


@cache
def _opened() -> Remembering[Place]:
    return Remembering(_Grounds().open)


@dataclass(slots=True)
class _Ground:
    """One memory system with the models that it reaches, and how many users' stores stand on it."""

    prepared: PreparedMemories
    memory: Ingesting
    store: Store
    stores: int = 0


@dataclass(slots=True)
class _Grounds:
    """The memory systems that are open, each once whatever the number of users. Belongs to one event loop."""

    found: dict[tuple[str, str | None, str, Data], _Ground] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self, place: Place) -> OpenStore:
        key = (place.system, place.extractor, place.embedder, place.data)
        async with self.lock:
            ground = self.found.get(key)
            if ground is None:
                ground = self.found[key] = await asyncio.to_thread(_prepare, place)
            ground.stores += 1
        store = _Kept(self, key, ground, place)
        try:
            await store.ready()
        except BaseException:
            await store.aclose()
            raise
        return store

    async def release(self, key: tuple[str, str | None, str, Data]) -> None:
        async with self.lock:
            ground = self.found[key]
            ground.stores -= 1
            if not ground.stores:
                del self.found[key]
                await ground.prepared.aclose()
                ground.store.close()


class _Kept:
    """A user's memories in one system, open for reading."""

    def __init__(
        self, grounds: _Grounds, key: tuple[str, str | None, str, Data], ground: _Ground, place: Place
    ) -> None:
        self._grounds = grounds
        self._key = key
        self._memory = ground.memory
        corpus = ground.prepared.corpus
        self._user: User = corpus.users[place.user]
        self._history: Sequence[Session] = corpus.conversations[self._user.conversation].sessions
        self._place = place

    async def ready(self) -> None:
        """Open it, unless it isn't what the systems of today would make of this history."""
        if self._memory.digest(self._user, self._history) != self._place.digest:
            raise MemoryFault(
                f"this ingestion was made with other versions or settings of {self._memory.label} than are here now "
                f"({_differing(dict(self._place.identity), self._memory.identity())}), and its store is opened with "
                "the same only. Ingest anew to search; this one stays beside it."
            )
        await self._memory.ready(self._user, self._history)

    async def search(self, query: str, k: int) -> list[Memory]:
        return await self._memory.search(self._user, query, k)

    async def memories(self) -> list[Memory]:
        return await self._memory.memories(self._user)

    async def aclose(self) -> None:
        await self._grounds.release(self._key)


def _differing(then: dict[str, str], now: dict[str, str]) -> str:
    """The first settings that aren't as they were."""
    changed = [key for key in sorted({*then, *now}) if then.get(key) != now.get(key)]
    told = [f"{key}: {then.get(key, 'none')[:40]} then, {now.get(key, 'none')[:40]} now" for key in changed[:_NAMED]]
    return "; ".join([*told, "…"] if len(changed) > _NAMED else told)


def _prepare(place: Place) -> _Ground:
    prepared = prepare_memories([place.system], extractor=place.extractor, embedder=place.embedder, data=place.data)
    memory = prepared.memories[place.system]
    if not isinstance(memory, Ingesting):
        raise UsageError(f"{place.system} keeps no ingestions.")
    store = open_store(settings().store_url)
    connect(store, prepared, _CONCURRENCY)
    return _Ground(prepared, memory, store)
