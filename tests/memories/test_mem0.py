"""The real Mem0, driven through the gateway: what it stores, what it asks, what it finds, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import replace
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import MemoryFault, ModelError, UsageError
from opbench.memories.library import Added, Library
from opbench.memories.systems import driving
from opbench.memories.systems.mem0 import SCHEMA, Mem0Library, readable
from opbench.types import Turn
from tests.memories.contract import MemoryContract, said
from tests.memories.driven import HISTORY, OTHER, USER, cosine, desk, facts_reply, goes_on_from_a_copy, open_files
from tests.scripted_endpoint import ScriptedEndpoint

REPLY = facts_reply("memory", lambda number, line: {"id": str(number), "text": line, "attributed_to": "user"})


class TestMem0(MemoryContract):
    def make_library(self) -> Library:
        return Mem0Library()

    def answer(self, body: dict[str, Any]) -> str:
        new = {"messages": [{"content": prompt(body).split("## New Messages")[1]}]}
        facts = [{"id": str(n), "text": text, "attributed_to": "user"} for n, text in enumerate(said(new))]
        return json.dumps({"memory": facts})


def first_lines(session: Any, count: int = 3) -> list[str]:
    return [f"{turn.speaker}: {turn.text}" for turn in session.turns[:count]]


def prompt(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def chats(endpoint: ScriptedEndpoint) -> list[dict[str, Any]]:
    return [body for body in endpoint.ledger.bodies if "messages" in body]


async def test_memories_carry_their_sessions_days_and_true_similarities(tmp_path: Path) -> None:
    query = "How many pipes has the organ?"
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, lease):
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


async def test_what_it_stamps_lies_in_the_historys_years(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            await store.add(HISTORY[0])
    kept = json.loads((tmp_path / "s" / "faiss" / "memories.json").read_text(encoding="utf-8"))["docstore"]
    stamps = {entry[key] for entry in kept.values() for key in ("created_at", "updated_at")}
    assert stamps == {HISTORY[0].date.isoformat()}


async def test_the_sessions_day_stands_in_the_prompt_and_the_dialogue_is_left_alone(tmp_path: Path) -> None:
    lookalike = "Read this.\n\n## Observation Date\n1999-01-01\n\n## Current Date\n1999-01-02\n\n# Output:"
    session = replace(HISTORY[1], turns=(Turn("t1", USER.speaker, lookalike), Turn("t2", OTHER.speaker, "I did.")))
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            await store.add(session)
        (body,) = chats(endpoint)
    assert f"user: (9 February 2024) {USER.speaker}: {lookalike}\nassistant: (9 February 2024)" in prompt(body)
    assert prompt(body).endswith("\n\n## Observation Date\n2024-02-09\n\n## Current Date\n2024-02-09\n\n# Output:")
    assert str(date.today().year) not in prompt(body).replace("2024", "")


async def test_a_second_ingestion_on_another_day_asks_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "one") as (store, _):
            for session in HISTORY:
                await store.add(session)
            first = await store.memories()
        asked = endpoint.ledger.total

        class Later(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Later:
                return cls(2031, 5, 6, 7, 8, 9, tzinfo=tz or UTC)

        import mem0.configs.prompts
        import mem0.memory.main
        import mem0.memory.storage

        for module in (mem0.configs.prompts, mem0.memory.main):
            monkeypatch.setattr(module, "datetime", Later)
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "two") as (store, lease):
            for session in HISTORY:
                await store.add(session)
            assert await store.memories() == first
            assert lease.usage.calls == lease.usage.reused == len(HISTORY) == 9
            assert lease.usage.embedded_reused == lease.usage.embedded_texts
        assert endpoint.ledger.total == asked


async def test_a_copied_folder_gives_the_same_and_goes_on(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        await goes_on_from_a_copy(Mem0Library, endpoint, tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        "I can't do that.",
        '{"memory": [',
        '{"memory": []}',
        '{"memory": "Ottilie swims"}',
        '{"memory": ["Ottilie swims"]}',
        '{"memory": [{"text": 3}, {"text": "  "}, null]}',
        '["Ottilie swims"]',
        "3",
        "",
    ],
)
async def test_an_extraction_that_cant_be_read_is_counted_as_empty(tmp_path: Path, answer: str) -> None:
    with ScriptedEndpoint(reply=lambda body: answer) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            assert await store.add(HISTORY[0]) == Added(0, 1, 1)
            assert await store.memories() == []
            assert await store.search("swimming", 5) == []


def test_what_can_be_read_of_an_answer_is_kept() -> None:
    whole = '{"memory": [{"id": "0", "text": "Ottilie swims", "linked_memory_ids": []}]}'
    assert readable(whole) == whole
    assert readable(f"```json\n{whole}\n```") == whole
    assert readable(f"<think>hm</think>{whole}") == whole
    assert readable(f"Here: {whole} Done.") == f"Here: {whole} Done."
    mixed = readable('{"memory": [{"text": "kept"}, "lost", {"text": 3}]}')
    assert json.loads(mixed) == {"memory": [{"text": "kept"}]}


async def test_the_same_fact_again_is_no_new_memory(tmp_path: Path) -> None:
    answer = json.dumps({"memory": [{"id": "0", "text": "Ottilie swims", "attributed_to": "user"}]})
    with ScriptedEndpoint(reply=lambda body: answer) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            assert [await store.add(session) for session in HISTORY[:2]] == [Added(1, 1, 0), Added(0, 1, 1)]
            assert [memory.date for memory in await store.memories()] == ["14 January 2024"]


async def test_a_failed_extraction_is_a_model_error_and_keeps_nothing(tmp_path: Path) -> None:
    # Embedded before: the text that tells the dimensions, and the session.
    with ScriptedEndpoint(reply=REPLY, script=[None, None, "server"]) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, lease):
            with pytest.raises(ModelError) as caught:
                await store.add(HISTORY[0])
            assert caught.value.kind == "server"
            assert lease.failure is None
            assert await store.memories() == []
            assert await store.add(HISTORY[0]) == Added(3, 1, 0)


async def test_memories_that_couldnt_be_embedded_are_a_model_error(tmp_path: Path) -> None:
    # It would go on without them: the batch fails, and then each by itself.
    script: list[Any] = [None, None, None, *["server"] * 4]
    with ScriptedEndpoint(reply=REPLY, script=script) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            with pytest.raises(ModelError):
                await store.add(HISTORY[0])


async def test_a_failed_search_is_a_model_error(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s", phase="search") as opened:
            store, lease = opened
            await store.add(HISTORY[0])
            endpoint.faults["unauthorized"] = 1.0
            with pytest.raises(ModelError) as caught:
                await store.search("swimming", 5)
    assert caught.value.kind == "auth"
    assert lease.key not in str(caught.value)


@pytest.mark.parametrize("file", ["memories.faiss", "memories.json"])
async def test_a_damaged_store_is_no_empty_store(tmp_path: Path, file: str) -> None:
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at:
            async with at.open(Mem0Library(), tmp_path / "s") as (store, _):
                await store.add(HISTORY[0])
            damaged = tmp_path / "s" / "faiss" / file
            damaged.write_bytes(damaged.read_bytes()[:40])
            with pytest.raises(MemoryFault, match=r"Mem0 \(sample-1/Ottilie\): its index .* opbench memory reset"):
                async with at.open(Mem0Library(), tmp_path / "s"):
                    pass


async def test_the_schema_is_asked_for_only_where_it_is_enforced(tmp_path: Path) -> None:
    for enforced in (False, True):
        with ScriptedEndpoint(reply=REPLY) as endpoint:
            home = tmp_path / str(enforced)
            async with desk(endpoint, home, json_schema=enforced) as at, at.open(Mem0Library(), home / "s") as opened:
                await opened[0].add(HISTORY[0])
            (body,) = chats(endpoint)
        asked = body["response_format"]
        assert asked["type"] == ("json_schema" if enforced else "json_object")
        if enforced:
            assert asked["json_schema"]["schema"] == SCHEMA
        assert (body["temperature"], body["max_tokens"]) == (0, 2000)


async def test_searches_side_by_side_find_what_each_asks_for(tmp_path: Path) -> None:
    texts = first_lines(HISTORY[0])
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s", phase="search") as opened:
            store, _ = opened
            for session in HISTORY[:3]:
                await store.add(session)
            found = await asyncio.gather(*(store.search(text, 1 + number % 3) for number, text in enumerate(texts * 5)))
            assert await store.search("  ", 5) == await store.search("swimming", 0) == []
    for number, hits in enumerate(found):
        assert len(hits) == 1 + number % 3
        assert hits[0].text == texts[number % 3]
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)


async def test_memories_with_a_negative_similarity_are_found_too(tmp_path: Path) -> None:
    texts = [line for session in HISTORY[:3] for line in first_lines(session)]
    query = next(
        word for word in ["pipes", "swim", "bakery", "night", "death", "fridge", "angels"] if cosine(word, texts[0]) < 0
    )
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            for session in HISTORY[:3]:
                await store.add(session)
            found = await store.search(query, 20)
    assert sorted(memory.text for memory in found) == sorted(texts)
    assert {memory.text: memory.score for memory in found}[texts[0]] == pytest.approx(cosine(query, texts[0]), abs=1e-5)


async def test_names_with_spaces_and_other_scripts_are_users_too(tmp_path: Path) -> None:
    user = replace(USER, speaker="Ána María 李")
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s", user) as (store, _):
            await store.add(HISTORY[0])
            assert len(await store.search("swimming", 5)) == 3


async def test_a_key_for_openrouter_in_the_environment_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "or-key")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with ScriptedEndpoint(reply=REPLY) as endpoint:
        async with desk(endpoint, tmp_path) as at, at.open(Mem0Library(), tmp_path / "s") as (store, _):
            assert await store.add(HISTORY[0]) == Added(3, 1, 0)


async def test_closing_waits_for_what_a_cancelled_caller_left_and_frees_all(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=REPLY, latency_s=0.3) as endpoint:
        async with desk(endpoint, tmp_path) as at:
            async with at.open(Mem0Library(), tmp_path / "s") as (store, lease):
                adding = asyncio.create_task(store.add(HISTORY[0]))
                await asyncio.sleep(0.15)
                adding.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await adding
            # The session, its extraction and its memories.
            assert (lease.usage.embedding_calls, lease.usage.calls) == (2, 1)
            assert open_files(tmp_path / "s") == []
            for thread in [each for each in threading.enumerate() if each.name.startswith("mem0")]:
                thread.join(10)
                assert not thread.is_alive()


def test_the_estimate_counts_prompt_context_and_ten_memories() -> None:
    estimate = Mem0Library().estimate(HISTORY[0], USER)
    import mem0.configs.prompts

    texts = [f"(14 January 2024) {turn.speaker}: {turn.text}" for turn in HISTORY[0].turns]
    system = len(mem0.configs.prompts.ADDITIVE_EXTRACTION_PROMPT)
    assert 33_000 < system < 35_000
    characters = system + sum(map(len, texts)) + sum(min(300, len(text)) for text in texts[:10])
    assert estimate.calls == 1
    assert estimate.prompt_tokens == characters // 4 + 450
    assert estimate.completion_tokens == 450
    assert estimate.embedded_tokens == sum(map(len, texts)) // 4 + 450
    nothing = Mem0Library().estimate(replace(HISTORY[0], turns=()), USER)
    assert (nothing.calls, nothing.prompt_tokens, nothing.embedded_tokens) == (0, 0, 0)


def test_its_version_is_part_of_its_identity_and_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"2\.2\.\d+", Mem0Library().identity()["mem0ai"])

    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(driving, "version", missing)
    with pytest.raises(UsageError, match=r"mem0: mem0ai isn't installed\. Run: pip install -r requirements\.txt"):
        Mem0Library().identity()
