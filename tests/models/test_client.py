"""The client against an endpoint that fails by a script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from opbench.errors import ModelError
from opbench.models import ModelClient, get_embedder, load_registry, probe, probe_all
from opbench.types import ChatRequest, Message
from tests.scripted_endpoint import Fault, ScriptedEndpoint, bag_of_words, request_hash

KEY = "sk-test-Abcdef0123456789"
Open = Callable[..., ModelClient]


@pytest.fixture
def client_of(tmp_path: Path) -> Open:
    """Makes a client whose model and embedder `scripted` are at the endpoint."""

    def make(endpoint: ScriptedEndpoint, *, keys: dict[str, SecretStr] | None = None, **fields: Any) -> ModelClient:
        file = tmp_path / "registry.toml"
        on_retry = fields.pop("on_retry", None)
        file.write_text(endpoint.registry_toml(**fields), encoding="utf-8")
        return ModelClient(load_registry(file), keys=keys, on_retry=on_retry)

    return make


def chat(text: str = "How are you?", **fields: Any) -> ChatRequest:
    return ChatRequest("scripted", (Message("system", "Be brief."), Message("user", text)), **fields)


async def seen(what: Callable[[], bool]) -> bool:
    """Whether it comes true within some seconds."""
    for _ in range(500):
        if what():
            return True
        await asyncio.sleep(0.01)
    return False


async def test_an_answer_with_its_counts(client_of: Open) -> None:
    with ScriptedEndpoint(reply=lambda body: "I am well.") as endpoint:
        async with client_of(endpoint) as client:
            result = await client.complete(chat(max_tokens=33))
    assert (result.text, result.finish_reason, result.attempts) == ("I am well.", "stop", 1)
    assert (result.prompt_tokens, result.completion_tokens) == (5, 3)  # words, as the endpoint counts
    assert endpoint.ledger.bodies == [
        {
            "model": "scripted",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How are you?"}],
            "temperature": 0.0,
            "max_tokens": 33,
        }
    ]
    assert client.stats.answered_as == {"scripted": {"scripted"}}


async def test_sampling_sends_the_repeat_number_as_seed(client_of: Open) -> None:
    with ScriptedEndpoint() as endpoint:
        async with client_of(endpoint, limit_parameter="max_completion_tokens") as client:
            await client.complete(chat(temperature=0.7, repeat=3))
    assert endpoint.ledger.bodies[0]["seed"] == 3
    assert endpoint.ledger.bodies[0]["max_completion_tokens"] == 512
    assert "max_tokens" not in endpoint.ledger.bodies[0]


async def test_further_fields_reach_the_wire_and_the_registrys_win(client_of: Open, tmp_path: Path) -> None:
    further = '{"response_format":{"type":"json_object"},"seed":9,"stop":"END"}'
    with ScriptedEndpoint() as endpoint:
        async with client_of(endpoint) as client:
            await client.complete(chat(temperature=0.7, repeat=3, further=further))
            own = {"stop": "STOP", "top_k": 1}
            spec = client.registry.model("scripted").model_copy(update={"extra_body": own})
            registry = client.registry.model_copy(update={"models": {"scripted": spec}})
        async with ModelClient(registry) as client:
            await client.complete(chat(further=further))
            await client.complete(chat())
    first, second, bare = endpoint.ledger.bodies
    assert (first["response_format"], first["seed"], first["stop"]) == ({"type": "json_object"}, 9, "END")
    assert (second["seed"], second["stop"], second["top_k"]) == (9, "STOP", 1)
    assert {"response_format", "seed"} & set(bare) == set()


async def test_an_embedders_tokens_are_told_a_request(client_of: Open) -> None:
    with ScriptedEndpoint() as endpoint:
        async with client_of(endpoint) as client:
            embedded = await client.embed("scripted", ["one two", "three"])
            nothing = await client.embed("scripted", [])
    assert (embedded.tokens, embedded.vectors.shape) == (3, (2, 32))
    assert (nothing.tokens, nothing.vectors.shape) == (0, (0, 0))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("rate_limit", "rate_limit"),
        ("server", "server"),
        ("malformed", "bad_reply"),
        ("html", "bad_reply"),
        ("truncated", "connection"),
        ("reset", "connection"),
        ("hang", "timeout"),
        ("drip", "timeout"),
    ],
)
async def test_what_can_heal_is_tried_again(client_of: Open, fault: Fault, kind: str) -> None:
    retries: list[tuple[str, str]] = []
    with ScriptedEndpoint(script=[fault, fault], reply=lambda body: "done") as endpoint:
        async with client_of(
            endpoint, timeout_s=1.0, on_retry=lambda name, kind, wait: retries.append((name, kind))
        ) as client:
            result = await client.complete(chat())
            assert (result.text, result.attempts) == ("done", 3)
            assert client.stats.requests == endpoint.ledger.total == 3
            assert client.stats.retries == {kind: 2}
    assert retries == [("scripted", kind)] * 2
    assert endpoint.ledger.answered.total() == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("unauthorized", "auth"),
        ("not_found", "not_found"),
        ("quota", "quota"),
        ("too_long", "too_long"),
        ("content_filter", "content_filter"),
    ],
)
async def test_what_cannot_heal_is_asked_once(client_of: Open, fault: Fault, kind: str) -> None:
    with ScriptedEndpoint(script=[fault]) as endpoint:
        async with client_of(endpoint) as client:
            with pytest.raises(ModelError) as error:
                await client.complete(chat())
    assert (error.value.kind, error.value.model, error.value.attempts) == (kind, "scripted", 1)
    assert endpoint.ledger.total == 1


@pytest.mark.parametrize(("fault", "kind"), [("server", "server"), ("malformed", "bad_reply"), ("hang", "timeout")])
async def test_what_never_heals_ends_after_the_attempts(client_of: Open, fault: Fault, kind: str) -> None:
    with ScriptedEndpoint(faults={fault: 1.0}) as endpoint:
        async with client_of(endpoint, attempts=3, timeout_s=0.6 if fault == "hang" else 10.0) as client:
            with pytest.raises(ModelError, match="after 3 attempts") as error:
                await client.complete(chat())
    assert (error.value.kind, error.value.attempts) == (kind, 3)
    assert endpoint.ledger.total == 3


async def test_a_blank_answer_is_an_answer(client_of: Open) -> None:
    with ScriptedEndpoint(script=["empty"]) as endpoint:
        async with client_of(endpoint) as client:
            result = await client.complete(chat())
    assert (result.text, result.finish_reason, result.attempts) == ("", "stop", 1)


async def test_retry_after_is_waited_for_and_capped(client_of: Open) -> None:
    waits: list[float] = []
    for asked, most, low, high in (("0.4", 5.0, 0.4, 0.5), ("3600", 0.3, 0.3, 0.3)):
        with ScriptedEndpoint(script=["rate_limit"], retry_after=asked) as endpoint:
            async with client_of(
                endpoint, max_wait_s=most, on_retry=lambda name, kind, wait: waits.append(wait)
            ) as client:
                began = time.perf_counter()
                result = await client.complete(chat())
                took = time.perf_counter() - began
        assert low <= waits[-1] <= high
        assert took >= low
        assert result.duration_ms < low * 1000, "the waiting is no part of the answer's time"


async def test_backoff_grows_and_is_capped(client_of: Open) -> None:
    waits: list[float] = []
    with ScriptedEndpoint(faults={"server": 1.0}) as endpoint:
        async with client_of(
            endpoint, first_wait_s=0.02, max_wait_s=0.1, on_retry=lambda name, kind, wait: waits.append(wait)
        ) as client:
            with pytest.raises(ModelError):
                await client.complete(chat())
    # first · 2^n + jitter of at most first: 20 to 40, 40 to 60, 80 to 100, then the cap (ms)
    assert len(waits) == 5
    assert 0.02 <= waits[0] <= 0.04 <= waits[1] <= 0.06
    assert 0.08 <= waits[2] <= 0.1
    assert waits[3:] == [0.1, 0.1]


async def test_the_duration_is_the_successful_attempts_alone(client_of: Open) -> None:
    with ScriptedEndpoint(script=["hang"], latency_s=0.1) as endpoint:
        async with client_of(endpoint, timeout_s=1.0) as client:
            result = await client.complete(chat())
    assert result.attempts == 2
    assert 100 <= result.duration_ms < 1000


async def test_waiting_for_a_place_is_no_part_of_the_duration(client_of: Open) -> None:
    with ScriptedEndpoint(latency_s=0.3) as endpoint:
        async with client_of(endpoint, concurrency=2) as client:
            results = await asyncio.gather(*(client.complete(chat(str(i))) for i in range(6)))
    assert endpoint.ledger.most_at_once == 2
    assert all(300 <= result.duration_ms < 600 for result in results)


async def test_cancelling_closes_the_connection_at_once(client_of: Open) -> None:
    with ScriptedEndpoint(script=["hang"]) as endpoint:
        async with client_of(endpoint, timeout_s=60) as client:
            task = asyncio.create_task(client.complete(chat()))
            assert await seen(lambda: endpoint.ledger.total == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await seen(lambda: endpoint.ledger.closed_by_client == 1)
            assert (await client.complete(chat())).attempts == 1
    assert endpoint.ledger.total == 2, "a cancelled request isn't sent again"


async def test_no_key_is_found_before_anything_is_sent(client_of: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRIPTED_KEY", raising=False)
    with ScriptedEndpoint() as endpoint:
        async with client_of(endpoint, key_env="SCRIPTED_KEY") as client:
            with pytest.raises(ModelError) as error:
                await client.complete(chat())
    assert str(error.value) == "scripted: no key. Set SCRIPTED_KEY (environment) and try again."
    assert (error.value.kind, error.value.attempts, endpoint.ledger.total) == ("auth", 0, 0)


async def test_the_key_never_comes_back_in_an_error(client_of: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "sk-another-key-0000")
    with ScriptedEndpoint(script=["unauthorized"]) as endpoint:
        async with client_of(endpoint, key_env="SCRIPTED_KEY", keys={"SCRIPTED_KEY": SecretStr(KEY)}) as client:
            with pytest.raises(ModelError) as error:
                await client.complete(chat())
    said = str(error.value)
    assert "refused the key in SCRIPTED_KEY (401" in said
    assert not any(KEY[i : i + 5] in said for i in range(len(KEY) - 4))
    assert "[key]" in said, "the endpoint quotes the session's key, which wins over the environment's"


async def test_nobody_there(client_of: Open) -> None:
    with ScriptedEndpoint() as endpoint:
        pass
    async with client_of(endpoint, attempts=2) as client:
        with pytest.raises(ModelError, match=r"can't be reached after 2 attempts .* Check base_url") as error:
            await client.complete(chat())
    assert error.value.kind == "connection"


async def test_embeddings_are_normalised_and_in_order(client_of: Open) -> None:
    texts = ["bees on the roof", "bees on a roof", "a river", "one more"]
    with ScriptedEndpoint(script=["server"]) as endpoint:
        async with client_of(endpoint) as client:
            embedder = get_embedder("scripted", client.registry, client)
            vectors = await embedder.embed(texts)
            assert (await embedder.embed([])).shape == (0, 0)
    expected = np.array([bag_of_words(text) for text in texts], dtype=np.float32)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert embedder.identity()["served"] == "scripted"


async def test_mixed_faults_lose_and_double_nothing(client_of: Open) -> None:
    """Twenty per cent of attempts fail; each request is answered once, or ends with its true reason."""
    kinds: tuple[Fault, ...] = ("rate_limit", "server", "malformed", "truncated", "reset", "html")
    with ScriptedEndpoint(faults=dict.fromkeys(kinds, 0.2 / 6), seed=3) as endpoint:
        async with client_of(endpoint) as client:
            results = await asyncio.gather(*(client.complete(chat(f"Question {i}")) for i in range(120)))
    ledger = endpoint.ledger
    assert set(ledger.answered.values()) == {1}
    assert len(ledger.answered) == 120
    assert ledger.total == 120 + ledger.faults.total() == sum(result.attempts for result in results)
    assert 0.1 < ledger.faults.total() / ledger.total < 0.3
    # The schedule is a function of seed, request and attempt: each request's count can be told beforehand.
    for body in {request_hash(body): body for body in ledger.bodies}.values():
        name = request_hash(body)
        first = next(n for n in range(1, 9) if endpoint.fault(name, n) is None)
        assert ledger.requests[name] == first


async def test_probe_says_who_answers(client_of: Open) -> None:
    with ScriptedEndpoint(models=("other",)) as endpoint:
        async with client_of(endpoint, served="mine") as client:
            found = await probe(client.registry.model("scripted"), client)
            assert not found.ok
            assert "serves other, not mine" in found.detail
            assert (await client.complete(chat())).attempts == 1
    with ScriptedEndpoint() as endpoint:
        async with client_of(endpoint) as client:
            both = await probe_all(client)
            assert [(a.name, a.ok, a.detail) for a in both] == [("scripted", True, "answers")] * 2
    async with client_of(endpoint) as client:
        found = await probe(client.registry.model("scripted"), client)
        assert (found.ok, "can't be reached" in found.detail) == (False, True)
        assert client.stats.requests == 1
