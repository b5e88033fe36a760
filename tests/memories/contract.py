"""The contract that every memory system passes. A system's test file subclasses `MemoryContract`:

    class TestMem0(MemoryContract):
        def make_library(self) -> Library: ...            # a new object at each call, without arguments
        def answer(self, body: dict[str, Any]) -> str:    # what the model says to this library's extraction prompt
            return json.dumps({"facts": said(body)})

The library is real; the model behind it is the scripted endpoint, reached through a real gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mitigations.base import Memory
from opbench.benchmarks import load
from opbench.errors import MemoryFault, ModelError
from opbench.gateway.lease import Lease
from opbench.gateway.server import Gateway
from opbench.memories import copies, ingesting
from opbench.memories.context import MemoryContext
from opbench.memories.copies import checkpoint
from opbench.memories.ingesting import Ingesting
from opbench.memories.library import Added, Library, UserStore
from opbench.memories.manifest import Manifest, read_manifests, remove
from opbench.models import ModelClient, cost, get_embedder, load_registry
from opbench.running.calls import CallStore
from opbench.settings import ROOT, settings
from opbench.store.database import open_store
from opbench.types import Session, Turn, User
from tests.scripted_endpoint import ScriptedEndpoint

SCRIPTED = "scripted"
KEY_VARIABLE = "SCRIPTED_KEY"
#: A turn as `views.own_view` writes it: date, speaker, text.
_SAID = re.compile(r"\((\d{1,2} \w+ \d{4})\) ([^:\n]+): ([^\n\"\\]+)")

ROMEO = User("c-1", "John", "Maria", True)
OTHER_JOHN = User("c-2", "John", "Lena", True)


def said(body: dict[str, Any], speaker: str | None = None) -> list[str]:
    """What was said in the view that a chat request holds, as `(8 May 2023) John: …`, each line once: facts that
    a model would draw from it. Of `speaker` alone, or of both."""
    text = "\n".join(str(message.get("content", "")) for message in body["messages"])
    found = [
        f"({day}) {who}: {what.strip()}" for day, who, what in _SAID.findall(text) if speaker is None or who == speaker
    ]
    return list(dict.fromkeys(found))


def session(number: int, *texts: str, user: User = ROMEO) -> Session:
    """A session in 2023 of turns by turns, the user's first. Number n is on the n-th of May."""
    speakers = (user.speaker, user.other)
    turns = tuple(Turn(f"D{number}:{n}", speakers[n % 2], text) for n, text in enumerate(texts))
    return Session(number, datetime(2023, 5, number, 10), turns)


def sample(sessions: int) -> tuple[User, tuple[Session, ...]]:
    """The bundled sample's first user and that many of its sessions."""
    corpus = load("sample")
    user = next(iter(corpus.users.values()))
    return user, corpus.conversations[user.conversation].sessions[:sessions]


@dataclass
class World:
    """A memory system in a process of ours, with all that it needs."""

    memory: Ingesting
    gateway: Gateway
    calls: CallStore
    kept: Path

    def manifest(self, user: User, history: tuple[Session, ...]) -> Manifest:
        found = self.memory.manifest(user, history)
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def world(library: Library) -> AsyncIterator[World]:
    """`library` as a memory system over the test's home. Two after each other are two processes, as far as files go."""
    registry = load_registry()
    store = open_store(settings().store_url)
    client = ModelClient(registry)
    embedder = get_embedder(SCRIPTED, registry, client)
    calls = CallStore(
        store,
        client.complete,
        lambda name: registry.model(name).identity(),
        lambda name, tokens_in, tokens_out: cost(registry.model(name), tokens_in, tokens_out),
        lambda name: 4,
    )
    gateway = Gateway(registry, client, embedder)
    gateway.connect(calls)
    kept = settings().home / "memories"
    memory = Ingesting(library, MemoryContext(embedder, settings().cache, kept, registry, gateway, SCRIPTED))
    try:
        yield World(memory, gateway, calls, kept)
    finally:
        await memory.aclose()
        await gateway.aclose()
        await client.aclose()
        store.close()


def chats(endpoint: ScriptedEndpoint) -> int:
    """Chat requests that have reached the endpoint."""
    return sum("messages" in body for body in endpoint.ledger.bodies)


def key(memory: Memory) -> tuple[str, str | None]:
    return memory.text, memory.date


class MemoryContract:
    """See the module's docstring. Names of tests say what is promised."""

    sessions = 3
    """Sessions of the sample that most tests ingest; each gives at least one memory with `answer`."""
    long_turn = 50_000
    """Characters of the longest turn."""
    needs_model = True
    """Whether ingesting asks a chat model through the gateway."""
    merges = False
    """Whether the library may keep fewer memories than its sessions gave, since it merges like ones."""
    subprocess_s = 120.0
    """Seconds that a process of its own may take to ingest `sessions` sessions."""

    def make_library(self) -> Library:
        raise NotImplementedError

    def answer(self, body: dict[str, Any]) -> str:
        raise NotImplementedError

    # --- the stage -------------------------------------------------------------------------------------------------

    @pytest.fixture
    def library(self) -> Library:
        return self.make_library()

    @contextlib.contextmanager
    def running(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
        """The model and embedder `scripted`, which answers as `answer` says."""
        with ScriptedEndpoint(reply=self.answer) as running:
            home.mkdir(parents=True, exist_ok=True)
            file = home / "models.toml"
            file.write_text(running.registry_toml(SCRIPTED, attempts=1, timeout_s=20.0, key_env=KEY_VARIABLE))
            monkeypatch.setenv("OPBENCH_MODELS", str(file))
            monkeypatch.setenv(KEY_VARIABLE, "sk-right-key-of-the-contract")
            settings.cache_clear()
            yield running

    @pytest.fixture
    def endpoint(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
        with self.running(home, monkeypatch) as running:
            yield running

    async def everything(self, user: User, history: tuple[Session, ...]) -> list[tuple[str, str | None]]:
        """All memories of an ingested user, by a new process."""
        async with world(self.make_library()) as here:
            await here.memory.ready(user, history)
            return [key(memory) for memory in await here.memory.memories(user)]

    async def undisturbed(self, user: User, history: tuple[Session, ...]) -> list[tuple[str, str | None]]:
        """What an ingestion that nothing disturbs ends with; leaves no ingestion behind."""
        async with world(self.make_library()) as here:
            await here.memory.fill(user, history)
        found = await self.everything(user, history)
        for manifest in read_manifests(settings().home / "memories"):
            remove(manifest)
        return found

    # --- the promises ----------------------------------------------------------------------------------------------

    async def test_ingests_and_searches(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.ingest(user, history)
            manifest = here.manifest(user, history)
            assert manifest.complete
            assert manifest.state == "complete"
            assert [entry.number for entry in manifest.sessions] == [each.number for each in history]
            assert [entry.day for entry in manifest.sessions] == [each.day for each in history]
            assert all(entry.added.memories > 0 for entry in manifest.sessions)
            assert manifest.empty == 0
            assert manifest.store_bytes > 0
            if self.needs_model:
                assert manifest.usage.calls == chats(endpoint) > 0
                assert all(entry.usage.calls > 0 for entry in manifest.sessions)
                assert manifest.usage.reused == 0
            memories = await here.memory.memories(user)
            assert len(memories) == manifest.memories
            given = sum(entry.added.memories for entry in manifest.sessions)
            assert manifest.memories <= given if self.merges else manifest.memories == given
            wanted = memories[0]
            found = await here.memory.search(user, wanted.text, 3)
            assert 0 < len(found) <= 3
            assert wanted.text in [each.text for each in found], "a memory is found by its own words"
            assert {key(each) for each in found} <= {key(each) for each in memories}
            similarities = [each.score for each in found if each.score is not None]
            assert similarities == sorted(similarities, reverse=True), "best first"
            assert all(-1.0001 <= each <= 1.0001 for each in similarities)

    async def test_every_memory_has_the_day_of_a_session(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        days = {each.day for each in history}
        async with world(library) as here:
            await here.memory.ingest(user, history)
            memories = await here.memory.memories(user)
            assert {memory.date for memory in memories} == days
            order = [each.day for each in history]
            places = [order.index(str(memory.date)) for memory in memories]
            assert places == sorted(places), "memories come in the order of their sessions"
            assert {memory.date for memory in await here.memory.search(user, "weekend plans", 10)} <= days

    async def test_a_second_ingestion_asks_no_model(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.fill(user, history)
            first = here.manifest(user, history)
            asked = endpoint.ledger.total
            await here.memory.fill(user, history)
            assert endpoint.ledger.total == asked
        async with world(self.make_library()) as again:
            await again.memory.fill(user, history)
            assert again.manifest(user, history) == first
        assert endpoint.ledger.total == asked

    async def test_built_anew_it_asks_no_model_and_is_the_same(
        self, library: Library, endpoint: ScriptedEndpoint
    ) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.fill(user, history)
            first = here.manifest(user, history)
        before = await self.everything(user, history)
        asked = chats(endpoint)
        remove(first)
        async with world(self.make_library()) as again:
            assert again.memory.manifest(user, history) is None
            await again.memory.fill(user, history)
            second = again.manifest(user, history)
        assert chats(endpoint) == asked
        assert second.usage.calls == second.usage.reused == first.usage.calls
        assert second.usage.cost_usd == pytest.approx(first.usage.cost_usd), "the cost by list price is the same"
        assert second.usage.spent_usd == 0
        assert await self.everything(user, history) == before

    @pytest.mark.parametrize("moment", ["in a session", "before the checkpoint", "in the checkpoint"])
    async def test_killed_and_resumed(
        self, moment: str, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed at the second session; see also `test_killed_for_real`."""
        user, history = sample(self.sessions)
        library = self.make_library()
        kept = copies._copy_tree

        def dies(*_: Any) -> Any:
            raise _Died

        def dies_half_way(source: Path, target: Path) -> None:
            kept(source, target)
            if target.parent.name == "2.part":
                raise _Died

        if moment == "in a session":
            library = _DyingLibrary(library, on=history[1].number)
        async with world(library) as here:
            await here.memory.fill(user, history, go_on=_times(1))
            if moment == "before the checkpoint":
                monkeypatch.setattr(ingesting, "checkpoint", dies)
            if moment == "in the checkpoint":
                monkeypatch.setattr(copies, "_copy_tree", dies_half_way)
            with pytest.raises(_Died):
                await here.memory.fill(user, history)
            assert len(here.manifest(user, history).sessions) == 1, "half a session doesn't count"
        monkeypatch.setattr(ingesting, "checkpoint", checkpoint)
        monkeypatch.setattr(copies, "_copy_tree", kept)
        async with world(self.make_library()) as again:
            await again.memory.fill(user, history)
            manifest = again.manifest(user, history)
            assert [entry.number for entry in manifest.sessions] == [each.number for each in history]
        assert chats(endpoint) == manifest.usage.calls, "what was asked before the death isn't asked again"
        resumed = await self.everything(user, history)
        assert resumed == await self.undisturbed(user, history)

    async def test_killed_for_real(self, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        endpoint.latency_s = 0.1
        started = self._in_a_process()
        deadline = time.monotonic() + self.subprocess_s
        try:
            while time.monotonic() < deadline and started.poll() is None:
                found = read_manifests(settings().home / "memories")
                if found and found[0].sessions:
                    break
                await asyncio.sleep(0.01)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            told, _ = await asyncio.to_thread(started.communicate)
        found = read_manifests(settings().home / "memories")
        assert found, told.decode()[-2000:]
        assert found[0].sessions, told.decode()[-2000:]
        assert found[0].state in ("partial", "complete"), "nobody is at work any more"
        endpoint.latency_s = 0.0
        async with world(self.make_library()) as again:
            await again.memory.fill(user, history)
            manifest = again.manifest(user, history)
            assert [entry.number for entry in manifest.sessions] == [each.number for each in history]
        if self.needs_model:
            most = max(entry.usage.calls for entry in manifest.sessions)
            assert chats(endpoint) <= manifest.usage.calls + most, "only what was in flight is asked again"
        resumed = await self.everything(user, history)
        assert not list((manifest.path / "open").glob("*")), "the dead process's copy is gone"
        assert resumed == await self.undisturbed(user, history)

    def _in_a_process(self) -> subprocess.Popen[bytes]:
        """The same ingestion by another process."""
        place = f"{type(self).__module__}:{type(self).__qualname__}"
        return subprocess.Popen(
            [sys.executable, "-m", "tests.memories.ingest_in_process", place, str(self.sessions)],
            env=dict(os.environ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    async def test_two_at_once_take_each_session_in_once(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as one, world(self.make_library()) as other:
            await asyncio.gather(one.memory.fill(user, history), other.memory.fill(user, history))
            manifest = one.manifest(user, history)
            assert [entry.number for entry in manifest.sessions] == [each.number for each in history]
        assert chats(endpoint) == manifest.usage.calls
        both = await self.everything(user, history)
        assert both == await self.undisturbed(user, history)

    async def test_users_of_the_same_name_are_strangers(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        mine = (session(1, "I planted tomatoes on the balcony.", "They will like the sun there."),)
        other = (session(2, "My brother repairs old radios.", "Those are rare now.", user=OTHER_JOHN),)
        async with world(library) as here:
            await asyncio.gather(here.memory.ingest(ROMEO, mine), here.memory.ingest(OTHER_JOHN, other))
            for user, history, foreign in ((ROMEO, mine, "radios"), (OTHER_JOHN, other, "tomatoes")):
                found = await here.memory.search(user, f"{foreign} balcony brother", 50)
                assert found
                assert len(found) == here.manifest(user, history).memories
                assert not [memory.text for memory in found if foreign in memory.text]
                assert {memory.date for memory in found} == {history[0].day}

    async def test_top_k(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.ingest(user, history)
            held = here.manifest(user, history).memories
            assert held >= 3
            for k in (1, 2, held - 1, held, held + 7):
                found = await here.memory.search(user, "What did we talk about?", k)
                assert len(found) == min(k, held)
                assert len({key(memory) for memory in found}) <= len(found)

    async def test_an_empty_history(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        async with world(library) as here:
            await here.memory.ingest(ROMEO, ())
            assert here.manifest(ROMEO, ()).state == "complete"
            assert await here.memory.search(ROMEO, "Anything?", 5) == []
            assert await here.memory.memories(ROMEO) == []
        assert chats(endpoint) == 0

    async def test_a_session_without_turns(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        history = (session(1), session(2, "I keep bees now.", "How many hives?"), session(3))
        async with world(library) as here:
            await here.memory.ingest(ROMEO, history)
            manifest = here.manifest(ROMEO, history)
            assert [entry.added.memories > 0 for entry in manifest.sessions] == [False, True, False]
            assert {memory.date for memory in await here.memory.search(ROMEO, "bees", 5)} == {"2 May 2023"}

    async def test_all_of_unicode(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        texts = [
            "I adopted a dog 🐕‍🦺 and named her Frieda 👩🏽‍🚀.",
            "אני גר בתל אביב ואוהב שקשוקה.",
            "Cafe\u0301 Zoe\u0308 is where I write — naïvely.",
            "A broken half \ud83d stays out of it.",
            "NUL \0 and line\u2028separators and \u202eoverrides\u202c.",
        ]
        history = (session(1, *texts),)
        async with world(library) as here:
            await here.memory.ingest(ROMEO, history)
            found = await here.memory.search(ROMEO, "dog \udc00 🐕‍🦺", 20)
            assert found
            for memory in found:
                memory.text.encode()  # whatever came back has a UTF-8 form
            everything = "\n".join(memory.text for memory in await here.memory.memories(ROMEO))
            assert "🐕‍🦺" in everything
            assert "שקשוקה" in everything

    async def test_a_very_long_turn(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        words = "the harbour at night was quiet and the lamps were lit "
        history = (session(1, (words * (self.long_turn // len(words) + 1))[: self.long_turn], "That was long."),)
        async with world(library) as here:
            await here.memory.ingest(ROMEO, history)
            assert here.manifest(ROMEO, history).complete
            assert len(await here.memory.search(ROMEO, "harbour", 5)) <= 5

    async def test_searches_side_by_side_are_as_one_by_one(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        queries = [f"{word} {number}" for word in ("garden", "music", "work") for number in range(4)]
        async with world(library) as here:
            await here.memory.ingest(user, history)
            alone = [await here.memory.search(user, query, 4) for query in queries]
            together = await asyncio.gather(*(here.memory.search(user, query, 4) for query in queries))
            assert [[key(each) for each in found] for found in together] == [
                [key(each) for each in found] for found in alone
            ]

    async def test_after_a_restart_it_finds_the_same(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.ingest(user, history)
            before = await here.memory.search(user, "What matters to you?", 5)
            assert before
        async with world(self.make_library()) as again:
            await again.memory.ready(user, history)
            assert await again.memory.search(user, "What matters to you?", 5) == before

    async def test_a_wrong_key_is_told_and_nothing_counts(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.fill(user, history, go_on=_times(1))
            endpoint.faults = {"unauthorized": 1.0}
            with pytest.raises(ModelError) as refused:
                await here.memory.fill(user, history)
            assert refused.value.kind == "auth"
            assert KEY_VARIABLE in str(refused.value)
            assert "sk-right" not in str(refused.value)
            manifest = here.manifest(user, history)
            assert len(manifest.sessions) == 1
            assert manifest.state == "failed"
            assert manifest.failure is not None
            assert (manifest.failure.kind, manifest.failure.error) == ("auth", str(refused.value))
            with pytest.raises(MemoryFault, match=f"1 of {len(history)} sessions"):
                await here.memory.ready(user, history)
            endpoint.faults = {}
            await here.memory.ingest(user, history)
            manifest = here.manifest(user, history)
            assert manifest.state == "complete"
            assert manifest.failure is None
            assert len(await here.memory.memories(user)) == manifest.memories
        mended = await self.everything(user, history)
        assert mended == await self.undisturbed(user, history)

    async def test_a_wrong_key_while_searching_is_told(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            await here.memory.ingest(user, history)
            endpoint.faults = {"unauthorized": 1.0}
            with pytest.raises(ModelError) as refused:
                await here.memory.search(user, "a question that nobody asked before", 5)
            assert refused.value.kind == "auth"
            endpoint.faults = {}
            assert await here.memory.search(user, "a question that nobody asked before", 5)

    async def test_nobody_searches_before_all_is_in(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        user, history = sample(self.sessions)
        async with world(library) as here:
            with pytest.raises(MemoryFault):
                await here.memory.search(user, "anything", 5)
            await here.memory.fill(user, history, go_on=_times(2))
            assert here.manifest(user, history).state == "partial"
            with pytest.raises(MemoryFault, match="2 of"):
                await here.memory.ready(user, history)
            with pytest.raises(MemoryFault):
                await here.memory.search(user, "anything", 5)

    async def test_identity_tells_versions(self, library: Library, endpoint: ScriptedEndpoint) -> None:
        async with world(library) as here:
            identity = here.memory.identity()
            assert all(isinstance(value, str) for value in identity.values())
            assert identity["memory"] == library.name
            assert self.make_library().identity() == library.identity(), "the same in every process"

    def test_an_estimate_is_of_the_right_size(self, library: Library) -> None:
        user, history = sample(self.sessions)
        for each in history:
            estimate = library.estimate(each, user)
            assert estimate.prompt_tokens >= 0
            if self.needs_model:
                assert estimate.calls >= 1
                assert estimate.prompt_tokens > sum(len(turn.text) for turn in each.turns) // 8
                assert estimate.completion_tokens > 0


class _Died(BaseException):
    """Stands for a process that ends here: no `except Exception` sees it."""


class _DyingLibrary:
    """A library whose process dies when it has taken in one session, before anybody heard of it."""

    def __init__(self, library: Library, on: int) -> None:
        self._library, self._on = library, on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    async def open(self, folder: Path, user: User, lease: Lease) -> Any:
        return _DyingStore(await self._library.open(folder, user, lease), self._on)


class _DyingStore:
    def __init__(self, store: UserStore, on: int) -> None:
        self._store, self._on = store, on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def add(self, session: Session) -> Added:
        added = await self._store.add(session)
        if session.number == self._on:
            raise _Died
        return added


def _times(sessions: int) -> Callable[[], Awaitable[bool]]:
    """A `go_on` that lets so many sessions in. It is asked once before the work and once before each session."""
    left = sessions + 1

    async def go_on() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    return go_on
