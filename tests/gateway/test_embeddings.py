"""Embeddings through the gateway: one embedder, cached while ingesting, in either format."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from sqlalchemy import select

from opbench.gateway.lease import Usage
from opbench.store import schema as s
from tests.gateway.helpers import bench_of, registry_of
from tests.scripted_endpoint import ScriptedEndpoint, bag_of_words


def right(text: str) -> np.ndarray:
    """The endpoint's vector of a text, at length 1."""
    vector = np.asarray(bag_of_words(text), dtype=np.float32)
    return vector / np.linalg.norm(vector)


async def test_both_formats_hold_the_same_normalised_vectors_in_order(tmp_path: Path) -> None:
    texts = ["A cat sleeps.", "Taxes rose.", "A cat sleeps."]
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            assert lease.dimensions == 32

            def ask(sdk: openai.OpenAI, **fields: Any) -> list[Any]:
                return [row.embedding for row in sdk.embeddings.create(model="scripted", **fields).data]

            floats = await bench.ask(lease, lambda sdk: ask(sdk, input=texts, encoding_format="float", dimensions=32))
            coded = await bench.ask(lease, lambda sdk: ask(sdk, input=texts, encoding_format="base64"))
            single = await bench.ask(lease, lambda sdk: ask(sdk, input=texts[1]))
    for text, row in zip(texts, floats, strict=True):
        np.testing.assert_allclose(row, right(text), atol=1e-6)
    decoded = [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in coded]
    assert np.array_equal(np.asarray(floats, dtype=np.float32), np.asarray(decoded))
    np.testing.assert_allclose(single[0], right(texts[1]), atol=1e-6)
    # The repeated text is one; nothing is asked twice.
    assert endpoint.ledger.total == 2
    assert endpoint.ledger.bodies[-1]["input"] == ["A cat sleeps.", "Taxes rose."]


async def test_only_missing_texts_are_computed_and_paid(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        registry = registry_of(endpoint, tmp_path)

        async def embed(*texts: str, phase: str = "ingest") -> Usage:
            async with bench_of(registry, tmp_path) as bench:
                lease = await bench.gateway.lease("test", "scripted")
                lease.phase = phase  # type: ignore[assignment]
                await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", input=list(texts)))
                assert bench.calls.stats.spent_usd == 0, "the run's meter counts embeddings by the client's own count"
                return lease.usage

        first = await embed("one two", "three")
        again = await embed("three", "one two", "four five six")
        asked = endpoint.ledger.total
        searching = await embed("three", phase="search")
    # $1 a million tokens, and the endpoint counts words.
    assert first == Usage(embedding_calls=1, embedded_texts=2, embedded_tokens=3, cost_usd=3e-6, spent_usd=3e-6)
    assert again == Usage(
        embedding_calls=1,
        embedded_texts=3,
        embedded_reused=2,
        embedded_tokens=6,
        cost_usd=pytest.approx(6e-6),  # type: ignore[arg-type]
        spent_usd=pytest.approx(3e-6),  # type: ignore[arg-type]
    )
    assert endpoint.ledger.bodies[2]["input"] == ["four five six"]
    assert asked == 3  # dimensions, first, again
    # A search's latency is a search's: computed though it is known.
    assert (endpoint.ledger.total, searching.embedded_reused, searching.spent_usd) == (4, 0, 1e-6)


async def test_a_searched_text_is_not_kept(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            lease.phase = "search"
            await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", input="a question"))
            with bench.store.begin() as connection:
                rows = connection.execute(select(s.calls.c.kind, s.calls.c.request)).all()
    assert [(kind, request["text"]) for kind, request in rows] == [("embedding", "dimensions")]


async def test_a_requests_tokens_lie_on_its_texts_and_add_up(tmp_path: Path) -> None:
    texts = ["word " * 50, "a", "b", "", "word " * 7]
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", input=texts))
            with bench.store.begin() as connection:
                rows = connection.execute(select(s.calls.c.request, s.calls.c.prompt_tokens, s.calls.c.cost_usd)).all()
    kept = {request["text"]: (tokens, cost) for request, tokens, cost in rows}
    assert sum(kept[text][0] for text in texts) == 50 + 1 + 1 + 0 + 7
    assert kept[""][0] == 0
    assert kept[texts[0]][0] > kept[texts[4]][0]
    assert kept[texts[0]][1] == pytest.approx(kept[texts[0]][0] / 1e6)


async def test_a_text_that_is_being_computed_is_waited_for(tmp_path: Path) -> None:
    with ScriptedEndpoint(latency_s=0.2) as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            await asyncio.gather(
                *(
                    bench.ask(lease, lambda sdk, n=n: sdk.embeddings.create(model="scripted", input=["shared", f"{n}"]))  # type: ignore[misc]
                    for n in range(3)
                )
            )
    asked = [text for body in endpoint.ledger.bodies[1:] for text in body["input"]]
    assert sorted(asked) == ["0", "1", "2", "shared"]
    assert lease.usage.embedded_reused == 2


async def test_more_texts_than_one_query_or_request_takes(tmp_path: Path) -> None:
    texts = [f"text number {n}" for n in range(1203)]
    with ScriptedEndpoint() as endpoint:
        registry = registry_of(endpoint, tmp_path)
        embedders = {"scripted": registry.embedder("scripted").model_copy(update={"batch": 500})}
        async with bench_of(registry.model_copy(update={"embedders": embedders}), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            for _ in range(2):
                made = await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", input=texts))
            np.testing.assert_allclose(made.data[1202].embedding, right(texts[1202]), atol=1e-6)
    assert [len(body["input"]) for body in endpoint.ledger.bodies] == [1, 500, 500, 203]
    assert lease.usage.embedded_reused == 1203


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [1, 2, 3]}, "input"),
        ({"input": [[1, 2], [3]]}, "input"),
        ({"input": []}, "input"),
        ({"input": "a", "dimensions": 256}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "extra_body": {"truncate": True}}, "truncate"),
    ],
)
async def test_what_isnt_supported_is_refused_by_name(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            with pytest.raises(openai.BadRequestError) as refused:
                await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", **fields))
            assert refused.value.param == param
            if param == "dimensions":
                assert "must be 32" in refused.value.message
            assert lease.failure is not None
    assert endpoint.ledger.total == 1


async def test_without_counts_the_cost_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.scripted_endpoint._embeddings", _uncounted)
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", input="a b"))
    assert (lease.usage.cost_usd, lease.usage.spent_usd, lease.usage.embedded_tokens) == (None, 0.0, 0)


def _uncounted(body: dict[str, Any]) -> dict[str, Any]:
    rows = [{"object": "embedding", "index": i, "embedding": bag_of_words(t)} for i, t in enumerate(body["input"])]
    return {"object": "list", "data": rows, "model": "scripted"}
