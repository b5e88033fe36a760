"""Every dollar that the endpoint is owed is told once: OP-Bench and LoCoMo with Mem0 and MemU, by its ledger."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench.analysis.ingested import ingested
from opbench.analysis.ingestions import overview
from opbench.memories.manifest import read_manifests
from opbench.running.budget import spent_before, spent_on
from opbench.running.engine import Progress
from opbench.running.prepare import prepare
from opbench.running.quote import quote
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store.database import Store, open_store
from opbench.store.reading import run_status
from opbench.store.runs import run_study
from opbench.study import Study
from tests.running.study import reply, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

STUDY: dict[str, Any] = {
    "models": ("scripted",),
    "memories": ("base", "mem0", "memu"),
    "mitigations": ("none", "reminder"),
    "judge": "scripted",
    "judge_pack": "own",
    "embedder": "scripted",
    "data": "sample",
    "limit": 4,
}
#: BASE, and two memory systems under two post-processors, on 4 instances of each benchmark.
PLANNED = 5 * 8
#: Two systems, two speakers, nine sessions of one extraction each.
EXTRACTIONS = 2 * 2 * 9


def extractor_of(body: dict[str, Any]) -> str:
    """Whose extraction a chat request is; empty for one of the study's own."""
    messages = body.get("messages", [])
    if any("## Observation Date" in str(message["content"]) for message in messages):
        return "mem0"
    return "memu" if messages and messages[0]["content"].startswith("You keep the memory of ") else ""


def answer(body: dict[str, Any]) -> str:
    name = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()[:8]
    match extractor_of(body):
        case "mem0":
            fact = {"id": "0", "text": f"grows tomatoes behind house {name}", "attributed_to": "user"}
            return json.dumps({"memory": [fact]})
        case "memu":
            return json.dumps({"facts": [f"Somebody drinks tea from cup {name}", f"Somebody owns boat {name}"]})
    return reply(body)


def tokens(bodies: list[dict[str, Any]]) -> tuple[int, int, int]:
    """In, out and embedded: the endpoint counts words."""
    chats = [body for body in bodies if "messages" in body]
    asked = sum(len(str(message["content"]).split()) for body in chats for message in body["messages"])
    inputs = [body["input"] for body in bodies if "input" in body]
    texts = [text for given in inputs for text in ([given] if isinstance(given, str) else given)]
    return asked, sum(len(answer(body).split()) for body in chats), sum(len(text.split()) for text in texts)


def dollars(bodies: list[dict[str, Any]]) -> float:
    """1 dollar a million tokens in, 2 out, 1 embedded."""
    asked, told, embedded = tokens(bodies)
    return (asked + 2 * told + embedded) / 1e6


def of(endpoint: ScriptedEndpoint, *names: str) -> list[dict[str, Any]]:
    return [body for body in endpoint.ledger.bodies if "messages" in body and extractor_of(body) in names]


@pytest.fixture
def endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=answer) as running:
        monkeypatch.setenv("OPBENCH_MODELS", "")
        use_endpoint(home, running)
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    yield opened
    opened.close()


async def run(store: Store, on_progress: Any = None, **fields: Any) -> str:
    prepared = prepare(Study(**STUDY | fields))
    try:
        await execute(store, prepared, concurrency=4, on_progress=on_progress or (lambda progress: None))
    finally:
        await prepared.aclose()
    return prepared.run_id


async def test_every_dollar_of_two_runs_is_told_once(store: Store, endpoint: ScriptedEndpoint) -> None:
    stopped: list[bool] = []

    def stop(progress: Progress) -> None:
        if not stopped and sum(each.done for each in progress.ingesting) >= 7:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    first = await run(store, stop)
    halfway = dollars(endpoint.ledger.bodies)
    assert 7 <= len(of(endpoint, "mem0", "memu")) < EXTRACTIONS
    assert spent_before(store, first) == pytest.approx(halfway)
    left = quote(store, prepare(Study(**STUDY)), concurrency=4)
    done = sum(len(each.sessions) for each in read_manifests(settings().kept))
    assert sum(line.sessions for line in left.ingestion) == EXTRACTIONS - done
    assert sum(line.calls for line in left.ingestion) == EXTRACTIONS - done
    assert await run(store) == first
    assert run_status(store, first).done == PLANNED

    # To whom it went, by the ledger.
    assert len(of(endpoint, "mem0")) == len(of(endpoint, "memu")) == EXTRACTIONS // 2
    parts = spent_on(store, first)
    embedding = [body for body in endpoint.ledger.bodies if "input" in body]
    assert parts["ingestion"] == pytest.approx(dollars(of(endpoint, "mem0", "memu")))
    assert parts["embeddings"] == pytest.approx(dollars(embedding))
    assert parts["calls"] == pytest.approx(dollars(of(endpoint, "")))
    whole = dollars(endpoint.ledger.bodies)
    assert spent_before(store, first) == pytest.approx(whole)

    # What manifests, the Memories page and the run's provenance tell of each system.
    manifests = read_manifests(settings().kept)
    _, provenance = run_study(store, first)
    page, told = overview(manifests), ingested(provenance)
    for system in ("mem0", "memu"):
        asked, answered, _ = tokens(of(endpoint, system))
        for frame, columns in (
            (page, ("calls", "tokens_in", "tokens_out")),
            (told, ("calls", "prompt_tokens", "completion_tokens")),
        ):
            rows = frame[frame["system"] == system]
            assert rows[list(columns)].sum().tolist() == [EXTRACTIONS // 2, asked, answered]
            assert rows["reused"].sum() == 0
        rows = page[page["system"] == system]
        # List price of the calls and of the texts embedded, shared ones in each that needed them.
        embedded = sum(each.usage.embedded_tokens for each in manifests if each.system == system)
        assert rows["cost_usd"].sum() == pytest.approx((asked + 2 * answered + embedded) / 1e6)
        assert told[told["system"] == system]["cost_usd"].sum() == pytest.approx(rows["cost_usd"].sum())
    # Paid: the extractions, and each text once; queries and repetition were embedded besides.
    assert page["spent_usd"].sum() <= parts["ingestion"] + parts["embeddings"]
    assert page["spent_usd"].sum() > parts["ingestion"]

    nothing = quote(store, prepare(Study(**STUDY)), concurrency=4)
    assert (nothing.calls, nothing.cost_usd, nothing.ingestion) == (0, 0, ())
    other = prepare(Study(**STUDY | {"seed": 3}))
    assert quote(store, other, concurrency=4).ingestion == (), "taken in already"

    # A second run pays for its own questions only, and the first isn't charged for it.
    before = len(endpoint.ledger.bodies)
    second = await run(store, seed=3)
    new = endpoint.ledger.bodies[before:]
    assert not any(extractor_of(body) for body in new)
    assert spent_on(store, second)["ingestion"] == 0
    assert spent_before(store, second) == pytest.approx(dollars(new))
    assert spent_before(store, first) == pytest.approx(whole)
    _, provenance = run_study(store, second)
    assert ingested(provenance)["calls"].sum() == EXTRACTIONS, "what its memories took, though others paid"
