"""The real MemU, driven through the gateway and fed by our extractor."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from mitigations.base import Memory
from opbench.errors import MemoryFault, ModelError, UsageError
from opbench.memories.library import Added, Library
from opbench.memories.systems import driving
from opbench.memories.systems.memu import SCHEMA, MemuLibrary, read_facts
from opbench.types import Turn
from tests.memories.contract import MemoryContract, said
from tests.memories.driven import HISTORY, OTHER, USER, cosine, desk, facts_reply, goes_on_from_a_copy, open_files
from tests.scripted_endpoint import ScriptedEndpoint

REPLY = facts_reply("facts", lambda number, line: line)


class TestMemu(MemoryContract):
    def make_library(self) -> Library:
        return MemuLibrary()

    def answer(self, body: dict[str, Any]) -> str:
        return json.dumps({"facts": said(body)})


def first_lines(session: Any, count: int = 3) -> list[str]:
    return [f"{turn.speaker}: {turn.text}" for turn in session.turns[:count]]


def chats(endpoint: ScriptedEndpoint) -> list[dict[str, Any]]:
    return [body for body in endpoint.ledger.bodies if "messages" in body]


async def test_memories_carry_their_sessions_days_and_true_similarities(tmp_path: Path) -> None:
    query = "How many pipes has the organ?"
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s") as (store, lease):
            added = [await store.add(session) for session in HISTORY[:3]]
            held = await store.memories()
            found = await store.search(query, 4)
            assert lease.usage.calls == 3
    assert added == [Added(3, 1, 0)] * 3
    assert [memory.text for memory in held] == [line for session in HISTORY[:3] for line in first_lines(session)]
    days = ["14 January 2024"] * 3 + ["9 February 2024"] * 3 + ["16 March 2024"] * 3
    assert [memory.date for memory in held] == days
    assert all(memory.score is None for memory in held)
    by_hand = sorted(((cosine(query, memory.text), memory) for memory in held), key=lambda pair: -pair[0])[:4]
    assert [(memory.text, memory.date) for memory in found] == [(memory.text, memory.date) for _, memory in by_hand]
    for memory, (similarity, _) in zip(found, by_hand, strict=True):
        assert memory.score == pytest.approx(similarity, abs=1e-5)


async def test_memories_stand_in_the_order_of_their_sessions(tmp_path: Path) -> None:
    # As names, session_10 would stand before session_9.
    sessions = [replace(HISTORY[0], number=number) for number in (9, 10, 11)]
    numbered = facts_reply("facts", lambda number, line: f"{line} ({number})", count=1)
    with ScriptedEndpoint(reply=numbered) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s") as (store, _):
            for session, day in zip(sessions, (3, 2, 1), strict=True):
                await store.add(replace(session, date=session.date.replace(day=day)))
            assert [memory.date for memory in await store.memories()] == [
                "3 January 2024",
                "2 January 2024",
                "1 January 2024",
            ]


async def test_the_extractor_is_told_who_speaks_and_when(tmp_path: Path) -> None:
    user = replace(USER, other="{user}")
    session = replace(HISTORY[1], turns=(Turn("t1", USER.speaker, "I swim, {date}."), Turn("t2", OTHER.speaker, "No.")))
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s", user) as (store, _):
            await store.add(session)
        (body,) = chats(endpoint)
    system, dialogue = (message["content"] for message in body["messages"])
    assert "one conversation between Ottilie and {user}, held on 9 February 2024" in system
    assert not re.search(r"\{(other|date)\}", system)
    assert dialogue == "(9 February 2024) Ottilie: I swim, {date}.\n(9 February 2024) Corvin: No."
    assert (body["temperature"], body["max_tokens"]) == (0, 2000)
    assert "response_format" not in body


async def test_a_second_ingestion_asks_nothing_again(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "one") as (store, _):
            for session in HISTORY:
                await store.add(session)
            first = await store.memories()
        asked = endpoint.ledger.total
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "two") as (store, lease):
            for session in HISTORY:
                await store.add(session)
            assert await store.memories() == first
            assert lease.usage.calls == lease.usage.reused == len(HISTORY) == 9
            assert lease.usage.embedded_reused == lease.usage.embedded_texts
        assert endpoint.ledger.total == asked


async def test_a_copied_folder_gives_the_same_and_goes_on(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        await goes_on_from_a_copy(MemuLibrary, endpoint, tmp_path)


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        ('{"facts": ["# Ottilie swims", "", "  ## \\n", "a\\nb", "Ottilie swims"]}', ["Ottilie swims", "a b"]),
        ('```json\n{"facts": ["a"]}\n```', ["a"]),
        ('<think>{"facts": ["no"]}</think>{"facts": ["a"]}', ["a"]),
        ('{"facts": ["a", 3, {"text": "b"}]}', ["a"]),
        ('{"facts": "a"}', []),
        ('{"facts": ["a", "b', []),
        ('{"memories": ["a"]}', []),
        ('["a"]', []),
        ("I can't do that.", []),
        ("", []),
    ],
)
async def test_facts_become_lines_that_memu_keeps(tmp_path: Path, answer: str, facts: list[str]) -> None:
    assert read_facts(answer) == facts
    with ScriptedEndpoint(reply=lambda body: answer) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s") as (store, _):
            assert await store.add(HISTORY[0]) == Added(len(facts), 1, 0 if facts else 1)
            assert await store.memories() == [Memory(fact, "14 January 2024") for fact in facts]


@pytest.mark.parametrize("answered", [1, 2], ids=["extraction", "embedding"])
async def test_a_failed_call_is_a_model_error_and_keeps_nothing(tmp_path: Path, answered: int) -> None:
    # The first request is the text that tells the dimensions.
    script: list[Any] = [*[None] * answered, "server"]
    with ScriptedEndpoint(reply=REPLY, script=script) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s") as (store, lease):
            with pytest.raises(ModelError) as caught:
                await store.add(HISTORY[0])
            assert caught.value.kind == "server"
            assert lease.failure is None
            assert await store.memories() == []
            assert await store.add(HISTORY[0]) == Added(3, 1, 0)


async def test_a_failed_search_is_a_model_error(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s", phase="search") as opened:
            store, lease = opened
            await store.add(HISTORY[0])
            endpoint.faults["unauthorized"] = 1.0
            with pytest.raises(ModelError) as caught:
                await store.search("swimming", 5)
    assert caught.value.kind == "auth"
    assert lease.key not in str(caught.value)


async def test_a_damaged_store_is_a_fault_of_one_line(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at:
            folder = tmp_path / "s"
            folder.mkdir()
            (folder / "memu.sqlite3").write_bytes(b"not a database at all " * 100)
            with pytest.raises(
                MemoryFault, match=r"^MemU \(sample-1/Ottilie\): DatabaseError: .* opbench memory reset"
            ):
                async with at.open(MemuLibrary(), folder):
                    pass


async def test_the_schema_is_asked_for_where_it_is_enforced(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path, json_schema=True) as at, at.open(MemuLibrary(), tmp_path / "s") as opened:
            await opened[0].add(HISTORY[0])
        (body,) = chats(endpoint)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    json.dumps(SCHEMA)


async def test_searches_side_by_side_find_what_each_asks_for(tmp_path: Path) -> None:
    texts = first_lines(HISTORY[0])
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s", phase="search") as opened:
            store, _ = opened
            for session in HISTORY[:3]:
                await store.add(session)
            found = await asyncio.gather(*(store.search(text, 1 + number % 3) for number, text in enumerate(texts * 5)))
            assert await store.search("  ", 5) == await store.search("swimming", 0) == []
    for number, hits in enumerate(found):
        assert len(hits) == 1 + number % 3
        assert hits[0].text == texts[number % 3]
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)


async def test_the_environments_proxy_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "MEMU_HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(MemuLibrary(), tmp_path / "s") as (store, _):
            assert await store.add(HISTORY[0]) == Added(3, 1, 0)


async def test_closing_frees_files_and_threads(tmp_path: Path) -> None:
    before = {each.ident for each in threading.enumerate() if each.name == "memu"}
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at:
            async with at.open(MemuLibrary(), tmp_path / "s") as (store, _):
                await store.add(HISTORY[0])
                assert {each.ident for each in threading.enumerate() if each.name == "memu"} - before
            assert open_files(tmp_path / "s") == []
            assert not {each.ident for each in threading.enumerate() if each.name == "memu"} - before


def test_the_estimate_counts_prompt_dialogue_and_ten_facts() -> None:
    import opbench.memories.systems.memu as module

    texts = [f"(14 January 2024) {turn.speaker}: {turn.text}" for turn in HISTORY[0].turns]
    prompt = (Path(module.__file__).parent / "prompts" / "memu_extraction.txt").read_text(encoding="utf-8")
    estimate = MemuLibrary().estimate(HISTORY[0], USER)
    assert estimate.calls == 1
    assert estimate.prompt_tokens == (len(prompt) + sum(map(len, texts))) // 4
    assert estimate.completion_tokens == 300
    assert estimate.embedded_tokens == 300 + len("session_1: 14 January 2024") // 4
    assert MemuLibrary().estimate(replace(HISTORY[0], turns=()), USER).calls == 0


def test_its_version_and_prompt_are_part_of_its_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import opbench.memories.systems.memu as module

    known = MemuLibrary().identity()
    assert known["memu-cli"].startswith("0.11")
    other = tmp_path / "prompt.txt"
    other.write_text("Another prompt.", encoding="utf-8")
    monkeypatch.setattr(module, "_PROMPT", other)
    assert MemuLibrary().identity()["prompt"] != known["prompt"]

    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(driving, "version", missing)
    with pytest.raises(UsageError, match=r"memu: memu-cli isn't installed\. Run: pip install -r requirements\.txt"):
        MemuLibrary().identity()
