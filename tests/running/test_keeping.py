"""What is kept is opened and searched without ever taking anything in: a real gateway, a library of a few lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import MemoryFault, UsageError
from opbench.memories import registry
from opbench.memories.manifest import Manifest, read_manifests, remove
from opbench.memories.registry import LibraryFactory
from opbench.running import keeping
from opbench.running.launch_ingestion import Order
from opbench.running.prepare import connect, prepare_memories
from opbench.running.remembering import Remembering
from opbench.settings import settings
from opbench.store.database import open_store
from tests.memories.contract import chats, said
from tests.memories.test_ingesting import FileLibrary
from tests.scripted_endpoint import ScriptedEndpoint

FIRST, SECOND = "sample-1/Ottilie", "sample-1/Corvin"
ORDER = Order(("files",), (FIRST,), "scripted", "scripted", "sample")


class Newer(FileLibrary):
    def identity(self) -> dict[str, str]:
        return {"files": "2"}


class Gone(FileLibrary):
    def identity(self) -> dict[str, str]:
        raise UsageError("files isn't installed. Run: opbench memory install files")


@pytest.fixture
def endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    """The model and embedder `scripted`, and the memory system `files` that asks them."""

    def facts(body: dict[str, Any]) -> str:
        return json.dumps(said(body)[:3])

    with ScriptedEndpoint(reply=facts) as running:
        home.mkdir(parents=True, exist_ok=True)
        file = home / "models.toml"
        file.write_text(running.registry_toml(timeout_s=20.0), encoding="utf-8")
        monkeypatch.setenv("OPBENCH_MODELS", str(file))
        settings.cache_clear()
        monkeypatch.setitem(registry._FACTORIES, "files", LibraryFactory("Files", FileLibrary))
        yield running


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remembering[keeping.Place]]:
    """A thread and stores of this test's own."""
    made: Remembering[keeping.Place] = Remembering(keeping._Grounds().open)
    monkeypatch.setattr(keeping, "_opened", lambda: made)
    yield made
    made.close()


def ingest(user: str = FIRST, sessions: int = 99) -> Manifest:
    """The sample's history of a user, taken in as `opbench memory ingest` does, as far as `sessions`."""

    async def fill() -> Manifest | None:
        prepared = prepare_memories(["files"], extractor="scripted", embedder="scripted", data="sample")
        store = open_store(settings().store_url)
        connect(store, prepared, 2)
        owner = prepared.corpus.users[user]
        left = sessions + 1

        async def go_on() -> bool:
            nonlocal left
            left -= 1
            return left >= 0

        try:
            history = prepared.corpus.conversations[owner.conversation].sessions
            return await prepared.ingesting["files"].fill(owner, history, go_on=go_on)
        finally:
            await prepared.aclose()
            store.close()

    asyncio.run(fill())
    return next(each for each in read_manifests(settings().kept) if each.user == user)


def test_searched_and_read_without_a_model_call(endpoint: ScriptedEndpoint) -> None:
    one, two = ingest(FIRST), ingest(SECOND)
    before = chats(endpoint)
    memories = keeping.memories_of(one)
    assert len(memories) == one.memories
    wanted = memories[5]
    found = keeping.search_in([one, two], wanted.text, 3)
    assert [each.problem for each in found] == ["", ""]
    assert [len(each.memories) for each in found] == [3, 3]
    assert (found[0].memories[0].text, found[0].memories[0].date) == (wanted.text, wanted.date)
    assert found[0].memories[0].score == pytest.approx(1.0, abs=1e-5)
    assert chats(endpoint) == before


def test_both_users_of_a_conversation_are_two_places(
    endpoint: ScriptedEndpoint, opened: Remembering[keeping.Place]
) -> None:
    one, two = ingest(FIRST), ingest(SECOND)
    assert one.digest == two.digest
    keeping.search_in([one, two], "tea", 1)
    assert {place.user for place in opened.places()} == {FIRST, SECOND}
    keeping.forget(one)
    assert [place.user for place in opened.places()] == [SECOND]


def test_what_isnt_complete_is_refused_and_not_completed(endpoint: ScriptedEndpoint) -> None:
    part = ingest(FIRST, 2)
    before = chats(endpoint)
    (found,) = keeping.search_in([part], "tea", 3)
    assert "has taken in" in found.problem
    assert "opbench memory ingest files" in found.problem
    with pytest.raises(MemoryFault, match="can't be"):
        keeping.memories_of(part)
    assert chats(endpoint) == before
    assert len(read_manifests(settings().kept)[0].sessions) == len(part.sessions) < part.sessions_planned


def test_another_version_is_refused_and_says_what_differs(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ingest()
    monkeypatch.setitem(registry._FACTORIES, "files", LibraryFactory("Files", Newer))
    with pytest.raises(MemoryFault, match=r"other versions or settings of Files than are here now \(files: 1 then, 2"):
        keeping.memories_of(kept)


def test_one_that_is_removed_and_made_anew_is_opened_anew(endpoint: ScriptedEndpoint) -> None:
    kept = ingest()
    count = len(keeping.memories_of(kept))
    keeping.forget(kept)
    remove(kept)
    (found,) = keeping.search_in([kept], "tea", 1)
    assert found.problem
    again = ingest()
    assert len(keeping.memories_of(again)) == count


def test_the_order_that_goes_on_is_the_one_that_began(endpoint: ScriptedEndpoint) -> None:
    part = ingest(FIRST, 2)
    # Without benchmark data the sample stands for it.
    assert keeping.order_of(part) == replace(ORDER, data="auto")
    (line,) = keeping.estimate(open_store(settings().store_url), ORDER)
    assert (line.user, line.sessions) == (FIRST, part.sessions_planned - len(part.sessions))


def test_an_estimate_has_a_line_for_each_also_when_nothing_is_left(endpoint: ScriptedEndpoint) -> None:
    ingest(FIRST)
    before = endpoint.ledger.total
    lines = keeping.estimate(open_store(settings().store_url), replace(ORDER, users=()))
    assert {line.user: bool(line.sessions) for line in lines} == {FIRST: False, SECOND: True}
    assert endpoint.ledger.total == before


def test_a_history_that_is_gone_is_named(endpoint: ScriptedEndpoint) -> None:
    kept = replace(ingest(FIRST, 1), history_sha256="0" * 64)
    with pytest.raises(UsageError, match=f"the history of {FIRST} that Files took in isn't in the data here"):
        keeping.data_of(kept)


def test_an_embedder_that_is_gone_is_named(endpoint: ScriptedEndpoint) -> None:
    kept = ingest(FIRST, 1)
    other = replace(kept, identity={**kept.identity, "embedder_base_url": "http://127.0.0.1:1/v1"})
    with pytest.raises(UsageError, match=r"with scripted, which isn't in the registry as it was then.*Ingest anew"):
        keeping.order_of(other)


def test_what_is_not_installed_is_told_with_its_command(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keeping.not_installed(["files", "base"]) == {}
    monkeypatch.setitem(registry._FACTORIES, "files", LibraryFactory("Files", Gone))
    assert keeping.not_installed(["files"]) == {"files": "files isn't installed. Run: opbench memory install files"}
