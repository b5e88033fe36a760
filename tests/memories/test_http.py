"""A memory server of anyone's own: what it is sent, what is made of its answers, and what is said when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mitigations import Memory
from opbench.benchmarks import load
from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories.library import Added
from opbench.memories.systems import posting
from opbench.memories.systems.http import Http, HttpStore
from tests.memories.contract import MemoryContract, world
from tests.memories.memory_server import MemoryServer, Reply, reply
from tests.scripted_endpoint import ScriptedEndpoint

CORPUS = load("sample")
USER = CORPUS.users["sample-1/Ottilie"]
OTHER = CORPUS.users["sample-1/Corvin"]
HISTORY = CORPUS.conversations["sample-1"].sessions
LEASE = Lease("http://127.0.0.1:1/v1", "k", "mine", "", "minilm", 384)


@pytest.fixture
def server() -> Iterator[MemoryServer]:
    with MemoryServer() as served:
        yield served


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_wait", lambda state: 0.0)


def library(server: MemoryServer, **changed: Any) -> Http:
    given: dict[str, Any] = {
        "ingest_url": f"{server.url}/ingest",
        "search_url": f"{server.url}/search",
        "version": "1",
        "key_env": None,
        "timeout_s": 5.0,
        "mend": "memories.local.toml: [memories.mine]",
    }
    return Http("mine", "Mine", **given | changed)


def place(tmp_path: Path, digest: str = "3f2a91c04b7d", copy: str = "1-a") -> Path:
    """A store's folder as `Ingesting` lays it out."""
    folder = tmp_path / digest / "open" / copy / "store"
    folder.mkdir(parents=True)
    return folder


def texts_in(folder: Path) -> list[str]:
    return [file.read_text("utf-8") for file in folder.rglob("*") if file.is_file()]


async def opened(server: MemoryServer, tmp_path: Path, **changed: Any) -> HttpStore:
    return await library(server, **changed).open(place(tmp_path), USER, LEASE)


async def test_a_session_is_sent_in_the_users_own_view_with_its_date(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    session = HISTORY[0]
    assert await store.add(session) == Added(len(session.turns), 1, 0)
    (body,) = server.sent("/ingest")
    assert {key: body[key] for key in ("user", "speaker", "other")} == {
        "user": "3f2a91c04b7d/sample-1/Ottilie",
        "speaker": "Ottilie",
        "other": "Corvin",
    }
    assert re.fullmatch("[0-9a-f]{32}", body["id"])
    assert (body["session"]["number"], body["session"]["date"]) == (session.number, f"{session.date:%Y-%m-%d}")
    assert body["session"]["messages"] == [
        {
            "role": "user" if turn.speaker == "Ottilie" else "assistant",
            "name": turn.speaker,
            "content": f"({session.day}) {turn.speaker}: {turn.text}",
        }
        for turn in session.turns
    ]


async def test_a_search_gives_text_score_and_the_date_as_prose(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    await store.add(HISTORY[0])
    when = f"{HISTORY[0].date:%Y-%m-%d}"
    answer = {"memories": [{"text": " a ", "score": 1, "date": when}, {"text": "b", "date": f"{when}T09:00:00Z"}]}
    server.script = [reply(answer | {"memories": [*answer["memories"], {"text": "c", "score": None}]})]
    assert await store.search("tea", 3) == [
        Memory("a", HISTORY[0].day, 1.0),
        Memory("b", HISTORY[0].day, None),
        Memory("c", None, None),
    ]
    assert server.sent("/search") == [{"user": "3f2a91c04b7d/sample-1/Ottilie", "query": "tea", "k": 3}]


async def test_nothing_ingested_asks_nobody(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    assert await store.search("tea", 5) == []
    assert await store.memories() == []
    assert server.requests == []


async def test_the_memories_are_those_that_ingest_told(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    await store.add(HISTORY[0])
    server.lists = False
    assert await store.add(HISTORY[1]) == Added(len(HISTORY[1].turns), 1, 0)
    kept = await store.memories()
    assert len(kept) == len(HISTORY[0].turns) + len(HISTORY[1].turns)
    first = HISTORY[0].turns[0]
    assert kept[0] == Memory(f"({HISTORY[0].day}) {first.speaker}: {first.text}", HISTORY[0].day)
    assert kept[-1] == Memory(f"(session {HISTORY[1].number}: the server tells no texts)", HISTORY[1].day)


async def test_a_session_without_memories_is_an_empty_extraction(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    server.script = [reply({"memories": []}), reply({"memories": 0})]
    assert await store.add(HISTORY[0]) == Added(0, 1, 1)
    assert await store.add(HISTORY[1]) == Added(0, 1, 1)


async def test_a_session_sent_again_has_the_same_id_in_every_process(server: MemoryServer, tmp_path: Path) -> None:
    """A process killed between the server's answer and its checkpoint: another works on another copy."""
    await (await opened(server, tmp_path)).add(HISTORY[0])
    again = await library(server).open(place(tmp_path, copy="2-b"), USER, LEASE)
    await again.add(HISTORY[0])
    assert len(server.sent("/ingest")) == 2
    assert len(server.memories["3f2a91c04b7d/sample-1/Ottilie"]) == len(HISTORY[0].turns)
    assert len(await again.memories()) == len(HISTORY[0].turns)


async def test_ids_differ_by_ingestion_user_and_session(server: MemoryServer, tmp_path: Path) -> None:
    for digest, user, session in (
        ("3f2a91c04b7d", USER, HISTORY[0]),
        ("3f2a91c04b7d", USER, HISTORY[1]),
        ("3f2a91c04b7d", OTHER, HISTORY[0]),
        ("000000000000", USER, HISTORY[0]),
    ):
        store = await library(server).open(place(tmp_path, digest, f"{len(server.requests)}-a"), user, LEASE)
        await store.add(session)
    assert len({body["id"] for body in server.sent("/ingest")}) == 4
    assert len({body["user"] for body in server.sent("/ingest")}) == 3


@pytest.mark.parametrize("healing", [reply({}, 500), reply({}, 429, {"Retry-After": "0"}), reply({}, 503), "reset"])
async def test_what_may_heal_is_sent_again_the_very_same(
    server: MemoryServer, tmp_path: Path, healing: Reply | str
) -> None:
    store = await opened(server, tmp_path)
    server.script = [healing, healing, None]
    assert (await store.add(HISTORY[0])).memories == len(HISTORY[0].turns)
    first, *others = server.sent("/ingest")
    assert others == [first, first]


async def test_a_server_that_answers_too_late_is_asked_again(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path, timeout_s=0.3)
    server.script = [2.0]
    assert (await store.add(HISTORY[0])).memories == len(HISTORY[0].turns)
    assert len(server.memories["3f2a91c04b7d/sample-1/Ottilie"]) == len(HISTORY[0].turns)


@pytest.mark.parametrize(
    ("answers", "asked", "said"),
    [
        ([reply({"detail": "disk full"}, 500)] * 4, 4, r"/ingest failed after 4 attempts \(500: disk full\)"),
        ([reply({}, 429, {"Retry-After": "0"})] * 4, 4, "wants no more now after 4 attempts"),
        (["reset"] * 4, 4, r"/ingest can't be reached after 4 attempts .* check ingest_url in memories\.local\.toml"),
        ([reply({}, 404)], 1, r"/ingest isn't there \(404\)\. Check ingest_url in memories\.local\.toml"),
        ([reply({}, 403)], 1, r"wants a key \(403\)\. Set key_env in memories\.local\.toml: \[memories\.mine\]"),
        ([reply({}, 413)], 1, r"takes nothing of that length \(413\)"),
        ([reply({"detail": "no user"}, 422)], 1, r"refused the request \(422: no user\)"),
        ([reply(b"<html>Sign in</html>", 200, {"Content-Type": "text/html"})], 1, "no JSON object but 20 .* text/html"),
        ([reply([1])], 1, "no JSON object"),
        ([reply(b"\xff\xfe{}")], 1, "no JSON object"),
        (
            [reply({}, 307, {"Location": "https://u:pw@elsewhere.example/in?key=1"})],
            1,
            r"redirects to https://elsewhere\.example/in\. Write the address that answers as ingest_url",
        ),
        ([reply(b" " * 32_000_001)], 1, "more than 32,000,000 bytes"),
        ([reply({})], 1, "without memories as a list or a number from 0 to 10,000: {}"),
        ([reply({"memories": True})], 1, "without memories as a list or a number"),
        ([reply({"memories": -1})], 1, "without memories as a list or a number"),
        ([reply({"memories": 10_001})], 1, "without memories as a list or a number"),
        ([reply({"memories": "7"})], 1, "without memories as a list or a number"),
        ([reply({"memories": [{"text": ""}]})], 1, "an empty memory"),
        ([reply({"memories": ["text"]})], 1, 'a memory that has no text: "text"'),
        ([reply({"memories": [{"text": "x" * 100_001}]})], 1, "a memory of 100,001 characters, more than 100,000"),
        ([reply({"memories": [{"text": "x", "date": "yesterday"}]})], 1, 'the date "yesterday": a date is written'),
        ([reply({"memories": [{"text": "x", "date": 20230508}]})], 1, "the date 20230508: a date is written"),
        ([reply({"memories": [{"text": "x", "date": "2031-01-02"}]})], 1, "the date 2031-01-02, but the history is of"),
    ],
)
async def test_a_true_reason_in_one_line(
    server: MemoryServer, tmp_path: Path, answers: list[Reply | float | str | None], asked: int, said: str
) -> None:
    store = await opened(server, tmp_path)
    server.script = list(answers)
    with pytest.raises(MemoryFault, match=said) as error:
        await store.add(HISTORY[0])
    assert "\n" not in str(error.value)
    assert "sample-1/Ottilie" in str(error.value)
    assert len(server.requests) == asked
    assert await store.memories() == [], "a session that failed isn't in"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"memories": 3}, "answered search without a list of memories"),
        ({"memories": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}, "with 3 memories, and was asked for at most 2"),
        ({"memories": [{"text": "a", "score": "high"}]}, 'the score "high", which is no number'),
        ({"memories": [{"text": "a", "score": True}]}, "the score true, which is no number"),
        ({"memories": [{"text": "a", "date": "2031-01-02"}]}, "a memory has the date of its session, not today's"),
    ],
)
async def test_a_search_that_answers_wrongly(
    server: MemoryServer, tmp_path: Path, answer: dict[str, Any], said: str
) -> None:
    store = await opened(server, tmp_path)
    await store.add(HISTORY[0])
    server.script = [reply(answer)]
    with pytest.raises(MemoryFault, match=said):
        await store.search("tea", 2)


async def test_infinity_is_no_score(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    await store.add(HISTORY[0])
    server.script = [reply(b'{"memories": [{"text": "a", "score": NaN}]}')]
    with pytest.raises(MemoryFault, match="which is no number"):
        await store.search("tea", 2)


async def test_dates_lie_in_the_years_of_the_whole_history(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    for session in HISTORY:
        await store.add(session)
    years = {session.date.year for session in HISTORY}
    server.script = [reply({"memories": [{"text": "a", "date": f"{max(years)}-12-31"}]})]
    assert (await store.search("tea", 1))[0].date == f"31 December {max(years)}"
    server.script = [reply({"memories": [{"text": "a", "date": f"{max(years) + 1}-01-01"}]})]
    with pytest.raises(MemoryFault, match="not today's"):
        await store.search("tea", 1)


async def test_the_key_comes_from_its_variable_and_goes_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "k3y-0123456789abcdef"
    with MemoryServer(secret) as server:
        with pytest.raises(MemoryFault, match=r"no key\. Set MINE_KEY"):
            await (await opened(server, tmp_path, key_env="MINE_KEY")).add(HISTORY[0])
        assert server.requests == []
        monkeypatch.setenv("MINE_KEY", secret)
        store = await library(server, key_env="MINE_KEY").open(place(tmp_path, copy="2-b"), USER, LEASE)
        server.script = [reply({"memories": [{"text": f"the key is {secret}"}]})]
        await store.add(HISTORY[0])
        assert [memory.text for memory in await store.memories()] == ["the key is [key]"]
        assert server.requests[0][2]["Authorization"] == f"Bearer {secret}"
        monkeypatch.setenv("MINE_KEY", "wr0ng-0123456789abcdef")
        with pytest.raises(MemoryFault, match="refused the key in MINE_KEY") as error:
            await store.search("tea", 1)
        assert "wr0ng" not in str(error.value)
        assert secret not in json.dumps(library(server, key_env="MINE_KEY").identity())
        assert not [text for text in texts_in(tmp_path) if secret in text]


async def test_a_redirect_carries_neither_key_nor_history_elsewhere(
    server: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE_KEY", "k3y-0123456789abcdef")
    with MemoryServer() as elsewhere:
        store = await opened(server, tmp_path, key_env="MINE_KEY")
        server.script = [reply({}, 308, {"Location": f"{elsewhere.url}/ingest"})]
        with pytest.raises(MemoryFault, match="redirects to"):
            await store.add(HISTORY[0])
        assert elsewhere.requests == []


async def test_a_server_that_lost_its_memories_is_found_out_on_opening(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    await store.add(HISTORY[0])
    copied = place(tmp_path, copy="2-b")
    shutil.copytree(tmp_path / "3f2a91c04b7d" / "open" / "1-a" / "store", copied, dirs_exist_ok=True)
    await (await library(server).open(copied, USER, LEASE)).aclose()
    told = len(HISTORY[0].turns)
    server.memories["3f2a91c04b7d/sample-1/Ottilie"].pop()
    with pytest.raises(MemoryFault, match=f"holds {told - 1} memories of this user and told of {told}"):
        await library(server).open(copied, USER, LEASE)
    server.script = [reply({"memories": []})]
    with pytest.raises(MemoryFault, match=f"finds nothing of the {told} memories"):
        await library(server).open(copied, USER, LEASE)


async def test_a_server_may_have_more_than_was_told_until_all_is_in(server: MemoryServer, tmp_path: Path) -> None:
    """A process was killed after the server took in a session, and before that was kept."""
    folder = place(tmp_path)
    store = await library(server).open(folder, USER, LEASE)
    await store.add(HISTORY[0])
    kept = texts_in(folder)[0]
    await store.add(HISTORY[1])
    (folder / "sessions.json").write_text(kept)
    resumed = await library(server).open(folder, USER, LEASE)
    await resumed.add(HISTORY[1])
    both = len(HISTORY[0].turns) + len(HISTORY[1].turns)
    assert len(await resumed.memories()) == len(server.memories["3f2a91c04b7d/sample-1/Ottilie"]) == both
    searching = replace(LEASE, phase="search")
    await library(server).open(folder, USER, searching)
    server.memories["3f2a91c04b7d/sample-1/Ottilie"].append({"text": "x", "date": None})
    with pytest.raises(MemoryFault, match=f"holds {both + 1} memories of this user and told of {both}"):
        await library(server).open(folder, USER, searching)


async def test_searches_side_by_side(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    await store.add(HISTORY[0])
    queries = [turn.text for turn in HISTORY[0].turns]
    found = await asyncio.gather(*(store.search(query, 1) for query in queries))
    alone = [await store.search(query, 1) for query in queries]
    assert found == alone


async def test_halves_of_characters_and_nul_are_replaced(server: MemoryServer, tmp_path: Path) -> None:
    store = await opened(server, tmp_path)
    server.script = [reply(b'{"memories": [{"text": "caf\\u00e9 \\ud83d \\u0000 \xe2\x98\x95"}]}')]
    await store.add(HISTORY[0])
    assert (await store.memories())[0].text == "café ? � ☕"


def test_identity_holds_addresses_without_secrets_and_the_version(server: MemoryServer) -> None:
    changed = library(server, ingest_url="https://me:pw@host/in?token=1", search_url="https://host/find", version="2")
    assert changed.identity() == {
        "system": "http",
        "format": "1",
        "ingest_url": "https://host/in",
        "search_url": "https://host/find",
        "version": "2",
    }
    assert changed.extracts is False
    assert changed.estimate(HISTORY[0], USER).calls == 0


class TestHttp(MemoryContract):
    """What every memory system promises. The key is the server's, not that of a model of ours."""

    needs_model = False

    @pytest.fixture(autouse=True)
    def served(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryServer]:
        with MemoryServer("right-key-of-the-server") as server:
            # Processes of their own find it here.
            monkeypatch.setenv("SERVER_URL", server.url)
            monkeypatch.setenv("SERVER_KEY", "right-key-of-the-server")
            self.patch = monkeypatch
            yield server

    def make_library(self) -> Http:
        url = os.environ["SERVER_URL"]
        return Http(
            "mine",
            "Mine",
            ingest_url=f"{url}/ingest",
            search_url=f"{url}/search",
            version="1",
            key_env="SERVER_KEY",
            timeout_s=20.0,
            mend="memories.local.toml: [memories.mine]",
        )

    def answer(self, body: dict[str, Any]) -> str:
        raise AssertionError("it asks no model of ours")

    async def test_a_wrong_key_is_told_and_nothing_counts(self, library: Any, endpoint: ScriptedEndpoint) -> None:
        self.patch.setenv("SERVER_KEY", "wrong-key-of-the-server")
        async with world(library) as here:
            with pytest.raises(MemoryFault, match="refused the key in SERVER_KEY") as refused:
                await here.memory.fill(USER, HISTORY)
            assert "wrong-key" not in str(refused.value)
            manifest = here.manifest(USER, HISTORY)
            assert (manifest.state, len(manifest.sessions)) == ("failed", 0)
            assert manifest.failure is not None
            assert manifest.failure.kind == "memory"
            self.patch.setenv("SERVER_KEY", "right-key-of-the-server")
            await here.memory.ingest(USER, HISTORY)
            assert here.manifest(USER, HISTORY).state == "complete"

    async def test_a_wrong_key_while_searching_is_told(self, library: Any, endpoint: ScriptedEndpoint) -> None:
        async with world(library) as here:
            await here.memory.ingest(USER, HISTORY)
            self.patch.setenv("SERVER_KEY", "wrong-key-of-the-server")
            with pytest.raises(MemoryFault, match="refused the key in SERVER_KEY"):
                await here.memory.search(USER, "a question that nobody asked before", 5)
            self.patch.setenv("SERVER_KEY", "right-key-of-the-server")
            assert await here.memory.search(USER, "a question that nobody asked before", 5)
