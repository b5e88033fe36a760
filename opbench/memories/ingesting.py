"""A memory system made of a memory library: sessions go in one by one, and a whole checkpoint is kept after each.

`<home>/memories/<name>/<conversation>/<speaker>/<digest12>/` holds one ingestion. The digest is over all that decides
the store's content, so that a changed version, setting, model or history is a new ingestion, and the old one stays:

    lock                    held by who ingests
    checkpoints/<n>/        the store after n sessions, whole, with manifest.json
    open/<pid>-<random>/    copies that processes work on
    failure.json            why the last try stopped

So a process that is killed loses at most the session in flight, none goes in twice, and what it had paid for is in the
call store.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from mitigations.base import Memory
from opbench.errors import MemoryFault, ModelError, OpbenchError, StoreError, UsageError
from opbench.gateway.lease import Lease
from opbench.memories.context import MemoryContext
from opbench.memories.copies import WorkingCopy, begin, checkpoint
from opbench.memories.history import fit, user_history_sha256
from opbench.memories.library import Added, Library, UserStore
from opbench.memories.locking import FileLock
from opbench.memories.manifest import LOCK, Failure, Manifest, SessionEntry, read_manifest, write_failure
from opbench.models.failures import scrub, storable
from opbench.types import Session, User

log = logging.getLogger(__name__)

_FORMAT = "1"  # raised when the same sessions would be kept in another way
_DIGITS = 12
_LOOK_AGAIN_S = 0.2
#: Stores that are kept open for searching; some hold a process or a database each.
_MOST_OPEN = 8
_LONGEST_LINE = 500

GoOn = Callable[[], Awaitable[bool]]
OnProgress = Callable[[Manifest], Awaitable[None]]


async def _always() -> bool:
    return True


async def _nothing(manifest: Manifest) -> None:
    pass


@dataclass(slots=True)
class _Opened:
    """A store that is open for searching."""

    copy: WorkingCopy
    lease: Lease
    store: UserStore
    content: str
    """SHA-256 (hex) over the memories in it."""
    in_use: int = 0
    """Who searches or reads it, or holds it open."""
    warm: bool = False
    """Whether it has been searched before what counts."""
    failures: int = 0
    failure: ModelError | StoreError | None = None
    """The last of them."""

    def note(self, failure: ModelError | StoreError) -> None:
        """A call through the lease failed."""
        self.failures += 1
        self.failure = failure


@dataclass(slots=True)
class _Place:
    """Where a user's ingestion is, and the history that determines it."""

    history: Sequence[Session]
    folder: Path
    sha256: str
    digest: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ready: bool = False
    content: str = ""
    """Of the store as it was opened last."""


class Ingesting:
    """The memory system that a library makes. Any number of tasks may use it; belongs to one event loop."""

    def __init__(self, library: Library, context: MemoryContext) -> None:
        """
        Raises:
            UsageError: the library needs an extractor and none is named, or it isn't installed.
        """
        self.library = library
        self.name = library.name
        self.label = library.label
        self.note = library.note
        self._context = context
        self.extractor = context.extractor if needs_extractor(library) else None
        if needs_extractor(library) and self.extractor is None:
            raise UsageError(
                f"{self.name} extracts its memories with a model, and none is named for that: "
                "say --extractor (in a study file: extractor)."
            )
        self._identity = self._find_identity()
        self._places: dict[str, _Place] = {}
        self._opened: dict[Path, _Opened] = {}

    def identity(self) -> dict[str, str]:
        """Library, extractor, embedder and format; with the history this determines what is retrieved."""
        return dict(self._identity)

    def _find_identity(self) -> dict[str, str]:
        extractor: dict[str, str] = {}
        if self.extractor is not None:
            spec = self._context.registry.model(self.extractor)
            extractor = spec.identity() | {"json_schema": str(spec.json_schema)}
        return {
            **self.library.identity(),
            "memory": self.name,
            "format": _FORMAT,
            **{f"extractor_{key}": value for key, value in extractor.items()},
            **{f"embedder_{key}": value for key, value in self._context.embedder.identity().items()},
        }

    # --- ingesting -------------------------------------------------------------------------------------------------

    def manifest(self, user: User, history: Sequence[Session]) -> Manifest | None:
        """How far this very ingestion is; None when it hasn't begun."""
        return read_manifest(self._place(user, history).folder)

    def digest(self, user: User, history: Sequence[Session]) -> str:
        """SHA-256 (hex) over all that determines the content of the user's store."""
        return self._place(user, history).digest

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        """Take in what isn't in yet, and open the store for searching.

        Raises:
            ModelError, MemoryFault, StoreError: the true reason; what was taken in before stays.
        """
        await self.fill(user, history)
        await self.ready(user, history)

    async def fill(
        self,
        user: User,
        history: Sequence[Session],
        *,
        go_on: GoOn = _always,
        on_progress: OnProgress = _nothing,
    ) -> Manifest | None:
        """Take in the sessions that aren't in yet, oldest first, and tell how far it came.

        `go_on` is asked before each session, and while another process is at work on the same; `on_progress` is told
        after each. None when it was called off before anything was begun.

        Raises:
            ModelError, MemoryFault, StoreError: the true reason; what was taken in before stays.
        """
        place = self._place(user, history)
        async with place.lock:
            known = await asyncio.to_thread(read_manifest, place.folder)
            if known is not None and known.complete:
                return known
            lock = FileLock(place.folder / LOCK)
            while not await asyncio.to_thread(lock.acquire):
                if not await go_on():
                    return await asyncio.to_thread(read_manifest, place.folder)
                await asyncio.sleep(_LOOK_AGAIN_S)
            try:
                # Another process may have got further while this one waited.
                manifest = await asyncio.to_thread(read_manifest, place.folder)
                if manifest is None:
                    manifest = await asyncio.to_thread(begin, self._new(user, place))
                await on_progress(manifest)
                if manifest.complete or not await go_on():
                    return manifest
                try:
                    return await self._fill(user, place, go_on, on_progress)
                except (ModelError, MemoryFault) as error:
                    kind = error.kind if isinstance(error, ModelError) else "memory"
                    await asyncio.to_thread(write_failure, place.folder, Failure(kind, str(error), time.time()))
                    raise
            finally:
                lock.release()

    async def _fill(self, user: User, place: _Place, go_on: GoOn, on_progress: OnProgress) -> Manifest:
        async with self._open(user, place) as opened:
            copy, manifest = opened.copy, opened.copy.manifest
            for session in place.history[len(manifest.sessions) :]:
                if not await go_on():
                    break
                began = time.monotonic()
                with self._blaming(opened.lease, f"session {session.number} of {user.id}"):
                    # A session in which nobody said anything is nothing to a library.
                    added = await opened.store.add(fit(session)) if session.turns else Added(0, 0, 0)
                    opened.lease.raise_failure()
                    total = len(await opened.store.memories())
                    opened.lease.raise_failure()
                usage = opened.lease.take()
                if self.extractor is None:
                    usage.cost_usd = None  # it asks its own models
                entry = SessionEntry(
                    session.number,
                    session.day,
                    added,
                    total,
                    usage,
                    round(time.monotonic() - began, 3),
                    time.time(),
                )
                manifest = await asyncio.to_thread(checkpoint, copy, manifest.after(entry))
                await asyncio.to_thread(write_failure, place.folder, None)
                await on_progress(manifest)
        return manifest

    def _new(self, user: User, place: _Place) -> Manifest:
        return Manifest(
            system=self.name,
            label=self.label,
            note=self.note,
            user=user.id,
            identity=self.identity(),
            extractor=self.extractor,
            history_sha256=place.sha256,
            digest=place.digest,
            sessions_planned=len(place.history),
            started_at=time.time(),
            path=place.folder,
        )

    # --- searching -------------------------------------------------------------------------------------------------

    async def ready(self, user: User, history: Sequence[Session]) -> None:
        """Open the user's store for searching, and load the embedder; asks no endpoint.

        Raises:
            MemoryFault: not all of the history is in, or the store doesn't hold what its manifest says.
        """
        place = self._place(user, history)
        if place.ready and place.folder in self._opened:
            return
        async with place.lock:
            manifest = await asyncio.to_thread(read_manifest, place.folder)
            if manifest is None or not manifest.complete:
                done = 0 if manifest is None else len(manifest.sessions)
                raise MemoryFault(
                    f"{self.label} has taken in {done} of {len(history)} sessions of {user.id}, so it can't be "
                    f"searched yet. Ingest the rest: opbench memory ingest {self.name} --users {user.id}"
                )
            if self.extractor is not None:
                # Loading the embedder is no part of the first retrieval's time; a server has its own.
                await self._context.embedder.warm()
            if place.folder not in self._opened:
                await self._keep_open(user, place)
            place.ready = True

    @asynccontextmanager
    async def held(self, user: User, history: Sequence[Session]) -> AsyncIterator[None]:
        """The user's store `ready`, and open until the block ends: opening is no part of the time of a search in it.

        Raises:
            MemoryFault: as `ready`.
        """
        place = self._place(user, history)
        await self.ready(user, history)
        # Between becoming ready and here, others may have made room for theirs.
        while (opened := self._opened.get(place.folder)) is None:
            await self.ready(user, history)
        opened.in_use += 1
        try:
            if not opened.warm:
                async with place.lock:
                    await self._warm(opened)
            yield
        finally:
            opened.in_use -= 1

    async def _warm(self, opened: _Opened) -> None:
        """Let a library load what it loads at its first search: that is no part of the time of a search. A server of
        somebody's own isn't asked for that."""
        if opened.warm or self.extractor is None:
            return
        opened.warm = True
        # What is wrong shows at the search that counts.
        with contextlib.suppress(Exception):
            await opened.store.search("warm", 1)
        opened.lease.failure = None

    def content(self, user: User) -> str:
        """SHA-256 (hex) over all memories of a user whose store is `ready`: a store that was built anew with others has
        another, though nothing that determines it has changed; a server's has another whenever it was built anew."""
        return self._ready_place(user, "searching").content

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        """At most k memories of the user, best first.

        Raises:
            MemoryFault: `ready` hasn't been reached, or the library failed.
            ModelError: the embedder failed for good, also when the library hides it.
        """
        place = self._ready_place(user, "searching")
        opened = self._opened.get(place.folder)
        while opened is None:
            async with place.lock:
                if place.folder not in self._opened:
                    await self._keep_open(user, place)
            opened = self._opened.get(place.folder)
        opened.in_use += 1
        before = opened.failures
        try:
            with self._blaming(opened.lease, f"a search in the memories of {user.id}"):
                found = await opened.store.search(storable(query), k)
        except ModelError as error:
            opened.note(error)
            raise
        finally:
            opened.in_use -= 1
        if opened.lease.failure is not None:
            opened.note(opened.lease.failure)
            opened.lease.failure = None
        if opened.failures > before and opened.failure is not None:
            # Of searches side by side nobody knows whose call failed: none of them counts.
            raise opened.failure
        return found

    async def memories(self, user: User) -> list[Memory]:
        """All memories of a user whose store is `ready`, in the order of their sessions."""
        place = self._ready_place(user, "reading")
        async with place.lock:
            opened = self._opened.get(place.folder) or await self._keep_open(user, place)
            opened.in_use += 1
        try:
            with self._blaming(opened.lease, f"reading the memories of {user.id}"):
                return await opened.store.memories()
        finally:
            opened.in_use -= 1

    async def aclose(self) -> None:
        while self._opened:
            await self._close(self._opened.popitem()[1])
        for place in self._places.values():
            place.ready = False

    # --- stores ----------------------------------------------------------------------------------------------------

    def _ready_place(self, user: User, what_for: str) -> _Place:
        place = self._places.get(user.id)
        if place is None or not place.ready:
            raise MemoryFault(f"{self.label}: the memories of {user.id} aren't open for {what_for}: ingest first.")
        return place

    async def _keep_open(self, user: User, place: _Place) -> _Opened:
        idle = [key for key, opened in self._opened.items() if not opened.in_use]
        # Taken out all at once: while one closes, somebody may begin to use the next, or close it too.
        for closing in [self._opened.pop(key) for key in idle[: max(0, len(self._opened) + 1 - _MOST_OPEN)]]:
            await self._close(closing)
        opened = await self._make(user, place, "search")
        self._opened[place.folder] = opened
        place.content = opened.content
        return opened

    @asynccontextmanager
    async def _open(self, user: User, place: _Place) -> AsyncIterator[_Opened]:
        opened = await self._make(user, place, "ingest")
        try:
            yield opened
        finally:
            await self._close(opened)

    async def _make(self, user: User, place: _Place, phase: Literal["ingest", "search"]) -> _Opened:
        """Open a copy of the newest checkpoint, and see that it holds what it should."""
        copy = await asyncio.to_thread(WorkingCopy, place.folder)
        lease: Lease | None = None
        store: UserStore | None = None
        try:
            lease = await self._lease(user)
            lease.phase = phase
            with self._blaming(lease, f"opening the store of {user.id}"):
                store = await self.library.open(copy.store, user, lease)
                held = await store.memories()
                lease.raise_failure()
            if len(held) != copy.manifest.memories:
                raise MemoryFault(
                    f"{self.label} holds {len(held)} memories of {user.id}, and {copy.manifest.memories} were taken "
                    f"in: the store in {place.folder} is damaged. Rebuild it: opbench memory reset {self.name} "
                    f"--users {user.id}, then ingest again."
                )
        except BaseException:
            await self._tidy(copy, lease, store)
            raise
        return _Opened(copy, lease, store, self._content(copy.manifest, held))

    def _content(self, manifest: Manifest, held: Sequence[Memory]) -> str:
        # A server may tell no texts, and what it answers with lies there.
        built = manifest.started_at if self.extractor is None else None
        texts = sorted([memory.text, memory.date or ""] for memory in held)
        return hashlib.sha256(json.dumps([built, texts], ensure_ascii=False).encode(errors="surrogatepass")).hexdigest()

    async def _lease(self, user: User) -> Lease:
        label = f"{self.name} {user.id}"
        if self.extractor is None:
            # It asks nobody through us, so it gets no way to anybody.
            return Lease(base_url="", key="", label=label, model="", embedder="", dimensions=0)
        return await self._context.gateway.lease(label, model=self.extractor)

    async def _close(self, opened: _Opened) -> None:
        await self._tidy(opened.copy, opened.lease, opened.store)

    async def _tidy(self, copy: WorkingCopy, lease: Lease | None, store: UserStore | None) -> None:
        if store is not None:
            try:
                await store.aclose()
            except Exception:
                # What counts is in a checkpoint already, or was never to count.
                log.warning("%s: a store didn't close", self.label, exc_info=True)
        if lease is not None:
            await self._context.gateway.release(lease)
        await asyncio.to_thread(copy.remove)

    @contextmanager
    def _blaming(self, lease: Lease, doing: str) -> Iterator[None]:
        """Errors of the library's own as the true reason: the call that failed below it, else a MemoryFault."""
        try:
            yield
        except ModelError:
            lease.failure = None
            raise
        except StoreError:
            raise
        except Exception as error:
            # The library's error tells of it in its own words, or of what came of it.
            lease.raise_failure()
            if isinstance(error, OpbenchError):
                raise
            said = " ".join(storable(f"{type(error).__name__}: {error}").split())
            raise MemoryFault(scrub(f"{self.label} failed at {doing}: {said}"[:_LONGEST_LINE], lease.key)) from error

    def _place(self, user: User, history: Sequence[Session]) -> _Place:
        known = self._places.get(user.id)
        if known is not None and known.history is history:
            return known
        sha256 = user_history_sha256(user, history)
        canonical = json.dumps([self._identity, sha256], sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        if known is not None and known.digest == digest:
            known.history = history
            return known
        parts = (self.name, user.conversation, user.speaker)
        folder = self._context.kept.joinpath(*map(_folder_name, parts), digest[:_DIGITS])
        place = self._places[user.id] = _Place(history, folder, sha256, digest)
        return place


def needs_extractor(library: Library) -> bool:
    """Whether a library asks a model through its lease; one that extracts by itself says `extracts = False`."""
    return bool(getattr(library, "extracts", True))


def _folder_name(name: str) -> str:
    """A name as one folder's, whatever characters it has; ordinary names stay as they are."""
    return quote(name, safe=" ").replace(".", "%2E") if name.strip(".") == "" else quote(name, safe=" ")
