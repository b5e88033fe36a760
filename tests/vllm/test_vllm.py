"""The client, the engine and `opbench serve` against a real vLLM."""

from __future__ import annotations

import asyncio
import contextlib

import httpx2
import pytest
from sqlalchemy import func, select

from opbench.errors import ModelError
from opbench.models import ModelClient, load_registry, probe
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import open_store
from opbench.store.reading import run_status
from opbench.study import Study
from opbench.types import ChatRequest, Message
from tests.vllm.conftest import BLOCK, BLOCKS, KEY, Served

pytestmark = pytest.mark.timeout(420)


def asking(text: str, max_tokens: int = 8, model: str = "tiny", system: str = "") -> ChatRequest:
    messages = (Message("user", text),)
    return ChatRequest(model, (Message("system", system), *messages) if system else messages, max_tokens=max_tokens)


def counted(server: Served, request: ChatRequest) -> int:
    """Tokens of the prompt as the server's own tokenizer counts them."""
    body = {"model": "smollm2", "messages": [{"role": m.role, "content": m.content} for m in request.messages]}
    headers = {"Authorization": f"Bearer {KEY}"}
    reply = httpx2.post(f"{server.url}/tokenize", json=body, headers=headers, trust_env=False)
    return int(reply.json()["count"])


async def test_it_answers_and_counts_what_it_took(server: Served) -> None:
    request = asking("Tell a story of the sea.")
    before = server.counters()
    async with ModelClient(load_registry()) as client:
        assert (await probe(client.registry.model("tiny"), client)).ok
        whole = await client.complete(request)
        heard: list[str] = []
        streamed = await client.complete(request, heard.append)
    assert whole.text.strip()
    assert (whole.finish_reason, whole.completion_tokens) == ("length", 8)
    assert whole.prompt_tokens == counted(server, request)
    # Greedy and alone: the same text, in pieces.
    assert "".join(heard) == streamed.text == whole.text
    assert len(heard) > 1
    assert (streamed.prompt_tokens, streamed.completion_tokens) == (whole.prompt_tokens, 8)
    after = server.counters()
    assert after.generated - before.generated == 16
    assert after.prompt - before.prompt == 2 * (whole.prompt_tokens or 0)


@pytest.mark.parametrize(
    ("request_", "kind", "said"),
    [
        (asking("word " * 1500), "too_long", "longer than the model's context"),
        (asking("Hi", model="stranger"), "not_found", "knows no 'no-such-model'"),
        (asking("Hi", model="unkeyed"), "auth", "refused the key in WRONG_KEY"),
        (asking("Hi", max_tokens=5000), "bad_request", "max_tokens"),
    ],
    ids=["too-long", "unknown-model", "wrong-key", "too-many-tokens"],
)
async def test_its_errors_are_told_apart(server: Served, request_: ChatRequest, kind: str, said: str) -> None:
    async with ModelClient(load_registry()) as client:
        with pytest.raises(ModelError, match=said) as error:
            await client.complete(request_)
    # None of these heals by trying again.
    assert (error.value.kind, error.value.attempts) == (kind, 1)
    assert KEY not in str(error.value)


async def test_a_cancelled_call_ends_the_generation(server: Served) -> None:
    before = server.counters()
    async with ModelClient(load_registry()) as client:
        task = asyncio.create_task(client.complete(asking("Tell a very long story of the sea.", max_tokens=900)))
        async with asyncio.timeout(60):
            while (seen := server.counters()).running == 0 or seen.generated == before.generated:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            while server.counters().running:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    ended = server.counters().generated
    assert ended - before.generated < 900
    await asyncio.sleep(1)
    assert server.counters().generated == ended


async def test_a_slice_of_a_study_runs_through_it(server: Served, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(settings().store_url)
    study = Study(
        name="a slice through vLLM",
        models=("tiny",),
        memories=("base", "rag"),
        mitigations=("none", "reminder"),
        benchmarks=("op", "locomo"),
        limit=3,
        data="sample",
        judge="offline",
        max_tokens=8,
    )
    server.forget()
    before = server.counters()
    prepared = prepare(study)
    try:
        await execute(store, prepared, concurrency=4, on_progress=lambda progress: None)
    finally:
        await prepared.aclose()
    after = server.counters()
    # BASE takes no post-processor: 3 + 2 × 3 records a benchmark.
    status = run_status(store, prepared.run_id)
    assert (status.planned, status.done, status.errors) == (18, 18, 0)
    sums = func.count(), func.sum(s.calls.c.prompt_tokens), func.sum(s.calls.c.completion_tokens)
    with store.begin() as connection:
        calls, prompt, new = connection.execute(select(*sums).where(s.calls.c.kind == "chat")).one()
    store.close()
    # 6 responses of BASE, 6 of RAG, 6 filterings; a filter's response only where it didn't leave all memories.
    assert 18 <= calls <= 24
    # What the store says was paid for is what the server did.
    assert (after.prompt - before.prompt, after.generated - before.generated) == (prompt, new)
    with capsys.disabled():
        hits = (after.found - before.found) / (after.asked - before.asked)
        print(f"\nstudy of {calls} calls: {prompt:,} prompt tokens, {hits:.0%} of them out of the prefix cache")


async def test_the_order_of_calls_decides_what_the_prefix_cache_gives(
    server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two questions to each of five contexts, more than the cache holds: a context's together, or contexts in turn."""
    contexts = [
        " ".join(f"{place} {number}: boats come in at dawn and leave at dusk." for number in range(22))
        for place in ("Ambleside", "Bridport", "Clovelly", "Dunwich", "Eyemouth")
    ]
    pairs = [(context, question) for context in contexts for question in ("When do boats leave?", "How many?")]
    in_turn = [*pairs[0::2], *pairs[1::2]]
    hits: dict[str, float] = {}
    async with ModelClient(load_registry()) as client:
        for name, order in (("together", pairs), ("in turn", in_turn)):
            server.forget()
            before = server.counters()
            sizes = [
                (await client.complete(asking(question, 1, system=context))).prompt_tokens or 0
                for context, question in order
            ]
            after = server.counters()
            assert after.asked - before.asked == sum(sizes)
            hits[name] = after.found - before.found
    # What two questions to a context share: all but the question and what closes the prompt, less than a block.
    whole = [min(sizes[i], sizes[i + 5]) // BLOCK for i in range(5)]
    assert sum(whole) > BLOCKS + max(whole)
    with capsys.disabled():
        print(f"\nprefix-cache hits of {sum(sizes):,} prompt tokens: {hits}")
    assert all(blocks > 8 for blocks in whole)
    assert sum(whole) - 5 <= hits["together"] / BLOCK <= sum(whole)
    # In turn, each context is gone before it is asked for again.
    assert hits["in turn"] == 0


def test_the_server_shows_its_throughput(server: Served) -> None:
    """What `opbench serve` printed of the tests above."""
    lines = server.output.read_text().splitlines()
    assert any(line.split()[:3] == ["time", "server", "prompt"] for line in lines)
    port = server.url.rpartition(":")[2]
    rows = [line.split() for line in lines if len(line.split()) == 7 and line.split()[1] == port]
    assert any(float(row[3].replace(",", "")) > 0 for row in rows)
    assert KEY not in server.output.read_text()
    logs = list(server.output.parent.glob("logs/*"))
    assert logs
    assert not any(KEY in log.read_text() for log in logs)
