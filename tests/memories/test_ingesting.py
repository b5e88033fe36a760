"""`Ingesting` by itself, with a library of a few lines, and what the contract makes of libraries that break it."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import openai
import pytest

from mitigations.base import Memory
from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories import ingesting
from opbench.memories.library import Added, Estimate, Library, UserStore, tokens
from opbench.memories.manifest import read_manifests, remove
from opbench.memories.views import own_view
from opbench.types import Session, User
from tests.memories.contract import ROMEO, MemoryContract, said, session, world
from tests.scripted_endpoint import ScriptedEndpoint


class FileStore:
    """Facts and their vectors in one JSON file. Swallows the endpoint's errors, as libraries do."""

    def __init__(self, file: Path, user: User, lease: Lease) -> None:
        self.file, self.user, self.lease = file, user, lease
        self.kept: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
        self.asked = openai.OpenAI(base_url=lease.base_url, api_key=lease.key, max_retries=0)

    async def add(self, session: Session) -> Added:
        return await asyncio.to_thread(self._add, session)

    def _add(self, session: Session) -> Added:
        text = "\n".join(turn.text for turn in own_view(session, self.user))
        try:
            reply = self.asked.chat.completions.create(
                model=self.lease.model,
                messages=[{"role": "user", "content": f"Facts of {self.user.speaker}:\n{text}"}],
                temperature=0,
            )
            facts = json.loads(reply.choices[0].message.content or "[]")
            vectors = self.embed(facts)
        except openai.OpenAIError:
            facts, vectors = [], []
        self.kept += [
            {"text": fact, "date": session.day, "vector": vector} for fact, vector in zip(facts, vectors, strict=True)
        ]
        self.file.write_text(json.dumps(self.kept))
        return Added(len(facts), 1, int(not facts))

    def embed(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        reply = self.asked.embeddings.create(model=self.lease.embedder, input=texts, encoding_format="float")
        return [each.embedding for each in sorted(reply.data, key=lambda each: each.index)]

    async def search(self, query: str, k: int) -> list[Memory]:
        return await asyncio.to_thread(self._search, query, k)

    def _search(self, query: str, k: int) -> list[Memory]:
        if not self.kept:
            return []
        try:
            [vector] = self.embed([query])
        except openai.OpenAIError:
            return []
        found = [
            Memory(each["text"], each["date"], round(float(np.dot(vector, each["vector"])), 6)) for each in self.kept
        ]
        return sorted(found, key=lambda memory: -(memory.score or 0.0))[:k]

    async def memories(self) -> list[Memory]:
        return [Memory(each["text"], each["date"]) for each in self.kept]

    async def aclose(self) -> None:
        self.asked.close()


class FileLibrary:
    name, label, note = "files", "Files", "of tests"

    def identity(self) -> dict[str, str]:
        return {"files": "1"}

    async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
        return await asyncio.to_thread(FileStore, folder / "kept.json", user, lease)

    def estimate(self, session: Session, user: User) -> Estimate:
        size = tokens([turn.text for turn in own_view(session, user)])
        return Estimate(1, size, size // 2, size // 2)


class TestFiles(MemoryContract):
    def make_library(self) -> Library:
        return FileLibrary()

    def answer(self, body: dict[str, Any]) -> str:
        return json.dumps(said(body))


# --- libraries that break the contract fail it ------------------------------------------------------------------------


class Changed(FileStore):
    """A store with one fault; each subclass has its own."""


class StampsToday(Changed):
    async def memories(self) -> list[Memory]:
        return [Memory(each["text"], "30 November 2026") for each in self.kept]


class IgnoresK(Changed):
    async def search(self, query: str, k: int) -> list[Memory]:
        return await super().search(query, 1000)


class DropsWeakHits(Changed):
    async def search(self, query: str, k: int) -> list[Memory]:
        return [memory for memory in await super().search(query, k) if (memory.score or 0.0) > 0.3]


class WorstFirst(Changed):
    async def search(self, query: str, k: int) -> list[Memory]:
        return (await super().search(query, k))[::-1]


class SavesWhenClosed(Changed):
    def _add(self, session: Session) -> Added:
        before = self.file.read_text() if self.file.exists() else "[]"
        added = super()._add(session)
        self.file.write_text(before)
        return added

    async def aclose(self) -> None:
        self.file.write_text(json.dumps(self.kept))
        await super().aclose()


class AsksAnewEachTime(Changed):
    def _add(self, session: Session) -> Added:
        self.asked.chat.completions.create(
            model=self.lease.model, messages=[{"role": "user", "content": uuid.uuid4().hex}], temperature=0
        )
        return super()._add(session)


class KeepsOneQuery(Changed):
    async def search(self, query: str, k: int) -> list[Memory]:
        self.query = query
        await asyncio.sleep(0)
        return await super().search(self.query, k)


class SharesByName(Changed):
    everybody: ClassVar[dict[str, list[dict[str, Any]]]] = {}

    def __init__(self, file: Path, user: User, lease: Lease) -> None:
        super().__init__(file, user, lease)
        self.kept = self.everybody.setdefault(user.speaker, self.kept)


class ForgetsTheOther(Changed):
    async def memories(self) -> list[Memory]:
        return (await super().memories())[1:]


@pytest.mark.parametrize(
    ("store", "promise"),
    [
        (StampsToday, "test_every_memory_has_the_day_of_a_session"),
        (IgnoresK, "test_top_k"),
        (DropsWeakHits, "test_top_k"),
        (WorstFirst, "test_ingests_and_searches"),
        (SavesWhenClosed, "test_after_a_restart_it_finds_the_same"),
        (AsksAnewEachTime, "test_built_anew_it_asks_no_model_and_is_the_same"),
        (KeepsOneQuery, "test_searches_side_by_side_are_as_one_by_one"),
        (SharesByName, "test_users_of_the_same_name_are_strangers"),
        (ForgetsTheOther, "test_ingests_and_searches"),
    ],
)
async def test_a_library_that_breaks_a_promise_fails_it(
    store: type[Changed], promise: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library(FileLibrary):
        async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
            return await asyncio.to_thread(store, folder / "kept.json", user, lease)

    class Contract(TestFiles):
        def make_library(self) -> Library:
            return Library()

    SharesByName.everybody.clear()
    contract = Contract()
    with contract.running(home, monkeypatch) as endpoint, pytest.raises((AssertionError, MemoryFault)):
        await getattr(contract, promise)(contract.make_library(), endpoint)


# --- what only a library of our own can show --------------------------------------------------------------------------


@pytest.fixture
def endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    with TestFiles().running(home, monkeypatch) as running:
        yield running


async def test_what_a_session_took_to_the_token(endpoint: ScriptedEndpoint) -> None:
    history = (session(1, "I planted tomatoes.", "Where?"),)
    async with world(FileLibrary()) as here:
        await here.memory.fill(ROMEO, history)
        [entry] = here.manifest(ROMEO, history).sessions
    # The endpoint counts words. Asked: "Facts of John:", "(1 May 2023) John: I planted tomatoes.", "(… Maria: Where?".
    assert entry.usage.prompt_tokens == 3 + 7 + 5
    # Answered: the two lines as JSON.
    assert entry.usage.completion_tokens == 7 + 5
    assert entry.usage.embedded_tokens == 7 + 5
    assert (entry.usage.calls, entry.usage.embedding_calls, entry.usage.embedded_texts) == (1, 1, 2)
    # 1 dollar a million tokens in, 2 a million out, 1 a million embedded.
    assert entry.usage.cost_usd == pytest.approx((15 * 1 + 12 * 2 + 12 * 1) / 1e6)
    assert entry.usage.spent_usd == pytest.approx(51 / 1e6)
    assert entry.added == Added(2, 1, 0)
    assert entry.total == 2


async def test_a_changed_version_is_a_new_ingestion_beside_the_old(endpoint: ScriptedEndpoint) -> None:
    history = (session(1, "I planted tomatoes."),)

    class Newer(FileLibrary):
        def identity(self) -> dict[str, str]:
            return {"files": "2"}

    async with world(FileLibrary()) as old, world(Newer()) as new:
        await old.memory.fill(ROMEO, history)
        assert new.memory.manifest(ROMEO, history) is None
        with pytest.raises(MemoryFault, match="0 of 1 sessions of c-1/John"):
            await new.memory.ready(ROMEO, history)
        await new.memory.fill(ROMEO, history)
        found = read_manifests(new.kept)
        assert [each.identity["files"] for each in found] == ["2", "1"], "what changed last comes first"
        assert found[0].path.parent == found[1].path.parent == new.kept / "files" / "c-1" / "John"
        longer = (*history, session(2, "They are ripe."))
        assert old.memory.manifest(ROMEO, longer) is None, "another history is another ingestion"


async def test_a_store_that_lost_a_memory_is_not_searched(endpoint: ScriptedEndpoint) -> None:
    history = (session(1, "I planted tomatoes.", "Where?"),)
    async with world(FileLibrary()) as here:
        await here.memory.fill(ROMEO, history)
        [file] = here.manifest(ROMEO, history).path.glob("checkpoints/*/store/kept.json")
        file.write_text(json.dumps(json.loads(file.read_text())[:1]))
        with pytest.raises(MemoryFault, match=r"holds 1 memories .* 2 were taken in.*opbench memory reset files"):
            await here.memory.ready(ROMEO, history)


async def test_a_library_that_fails_by_itself(endpoint: ScriptedEndpoint) -> None:
    class Breaks(FileLibrary):
        async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
            store = FileStore(folder / "kept.json", user, lease)

            def add(session: Session) -> Added:
                raise RuntimeError(f"dictionary changed size\nwith {lease.key}")

            store._add = add  # type: ignore[method-assign]
            return store

    history = (session(1, "I planted tomatoes."),)
    async with world(Breaks()) as here:
        with pytest.raises(MemoryFault) as raised:
            await here.memory.fill(ROMEO, history)
        line = str(raised.value)
        assert line == "Files failed at session 1 of c-1/John: RuntimeError: dictionary changed size with [key]"
        manifest = here.manifest(ROMEO, history)
        assert manifest.state == "failed"
        assert manifest.failure is not None
        assert (manifest.failure.kind, manifest.failure.error) == ("memory", line)
        assert not manifest.sessions


async def test_more_users_than_stores_that_stay_open(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "_MOST_OPEN", 2)
    users = [User(f"c-{n}", "John", "Maria", True) for n in range(5)]
    history = (session(1, "I planted tomatoes."),)
    async with world(FileLibrary()) as here:
        for user in users:
            await here.memory.ingest(user, history)
        for _ in range(2):
            found = await asyncio.gather(*(here.memory.search(user, "tomatoes", 1) for user in users))
            assert [len(each) for each in found] == [1] * 5
        assert len(list(here.kept.glob("*/*/*/*/open/*.lock"))) <= 5
        await here.memory.search(users[0], "tomatoes", 1)
        await here.memory.search(users[1], "tomatoes", 1)
        await here.memory.search(users[2], "tomatoes", 1)
    assert not list(here.kept.glob("*/*/*/*/open/*")), "closing leaves no copy behind"


async def test_a_store_that_is_held_stays_open(endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingesting, "_MOST_OPEN", 1)
    opened: list[str] = []

    class Library(FileLibrary):
        async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
            opened.append(f"{lease.phase} {user.conversation}")
            await asyncio.sleep(0)
            return await super().open(folder, user, lease)

    users = [User(f"c-{n}", "John", "Maria", True) for n in range(4)]
    history = (session(1, "I planted tomatoes."),)
    async with world(Library()) as here:
        for user in users:
            await here.memory.fill(user, history)
        opened.clear()
        inside = asyncio.Barrier(len(users))

        async def search(user: User) -> list[str]:
            async with here.memory.held(user, history):
                await inside.wait()
                before = list(opened)
                assert len(await here.memory.search(user, "tomatoes", 1)) == 1
                return [each for each in opened if opened.count(each) > before.count(each)]

        again = await asyncio.gather(*map(search, users))
        assert again == [[]] * 4, "opening would stand in the time of the search"
        assert sorted(opened) == [f"search c-{n}" for n in range(4)]
        # One of two histories after the other, many at a time: nobody closes what another has closed, or is in.
        await asyncio.gather(*(here.memory.memories(user) for user in users * 5))
        await asyncio.gather(*(here.memory.search(user, "tomatoes", 1) for user in users * 5))


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_library_loads_at_its_first_search_is_no_part_of_those_that_count(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    asked: list[str] = []
    searched = FileStore.search

    async def search(store: FileStore, query: str, k: int) -> list[Memory]:
        asked.append(query)
        if fails and len(asked) == 1:
            raise RuntimeError("not loaded yet")
        return await searched(store, query, k)

    monkeypatch.setattr(FileStore, "search", search)
    history = (session(1, "I planted tomatoes."),)
    async with world(FileLibrary()) as here:
        await here.memory.ingest(ROMEO, history)
        assert asked == [], "who only reads asks no embedder"
        for _ in range(2):
            async with here.memory.held(ROMEO, history):
                before = list(asked)
                assert len(await here.memory.search(ROMEO, "tomatoes", 1)) == 1
                assert (before[:1], asked[len(before) :]) == (["warm"], ["tomatoes"])
    assert asked == ["warm", "tomatoes", "tomatoes"]


async def test_another_content_is_another_store_to_searches(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = (session(1, "I planted tomatoes.", "Where?"),)

    async def content(library: type[FileLibrary]) -> str:
        async with world(library()) as here:
            await here.memory.ingest(ROMEO, history)
            found = here.memory.content(ROMEO)
            remove(here.manifest(ROMEO, history))
            return found

    first = await content(FileLibrary)
    assert await content(FileLibrary) == first, "built anew it holds the same"

    class Shuffled(FileStore):
        async def memories(self) -> list[Memory]:
            return (await super().memories())[::-1]

    class Half(FileStore):
        def _add(self, session: Session) -> Added:
            super()._add(session)
            self.kept = self.kept[:1]
            self.file.write_text(json.dumps(self.kept))
            return Added(1, 1, 0)

    def opening(store: type[FileStore]) -> type[FileLibrary]:
        class Library(FileLibrary):
            async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
                return await asyncio.to_thread(store, folder / "kept.json", user, lease)

        return Library

    assert await content(opening(Shuffled)) == first
    assert await content(opening(Half)) != first


async def test_what_a_system_s_own_models_cost_is_unknown(endpoint: ScriptedEndpoint) -> None:
    class Store:
        async def add(self, session: Session) -> Added:
            return Added(0, 1, 1)

        async def memories(self) -> list[Memory]:
            return []

        async def aclose(self) -> None:
            pass

    class Server(FileLibrary):
        extracts = False

        async def open(self, folder: Path, user: User, lease: Lease) -> UserStore:
            return Store()  # type: ignore[return-value]

    history = (session(1, "I planted tomatoes."),)
    contents = []
    async with world(Server()) as here:
        for _ in range(2):
            await here.memory.ingest(ROMEO, history)
            manifest = here.manifest(ROMEO, history)
            assert (manifest.usage.calls, manifest.usage.cost_usd, manifest.usage.spent_usd) == (0, None, 0.0)
            contents.append(here.memory.content(ROMEO))
            await here.memory.aclose()
            remove(manifest)
    assert contents[0] != contents[1], "what a server answers after another building nobody knows"


async def test_names_that_no_folder_can_have(endpoint: ScriptedEndpoint, home: Path) -> None:
    user = User("..", "../../up/John", "Maria", True)
    history = (session(1, "I planted tomatoes.", user=user),)
    async with world(FileLibrary()) as here:
        await here.memory.ingest(user, history)
        path = here.manifest(user, history).path
    assert path.parent == home / "memories" / "files" / "%2E%2E" / "..%2F..%2Fup%2FJohn"
    assert path.is_relative_to(home / "memories")
