"""Several servers behind one model's name: who gets what, and what happens when some are gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import ModelError
from opbench.models import ModelClient, load_registry, probe
from opbench.models.failures import Failure
from opbench.models.replicas import Replicas, Server
from opbench.types import ChatRequest, Message
from tests.scripted_endpoint import ScriptedEndpoint

URLS = ("http://a/v1", "http://b/v1", "http://c/v1")
GONE = Failure("connection", "refused", unreached=True)


def chat(text: str) -> ChatRequest:
    return ChatRequest("scripted", (Message("user", text),))


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[..., ModelClient]:
    def make(first: ScriptedEndpoint, *others: ScriptedEndpoint, share: int = 1, **fields: Any) -> ModelClient:
        file = tmp_path / "registry.toml"
        fields = {"replicas": [other.url for other in others]} | fields
        file.write_text(first.registry_toml(**fields), encoding="utf-8")
        return ModelClient(load_registry(file), share=share)

    return make


async def test_requests_go_where_fewest_are_under_way(client_of: Callable[..., ModelClient]) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(ScriptedEndpoint(latency_s=0.2)) for _ in range(3)]
        async with client_of(*servers, concurrency=6) as client:
            # Ceiling 6: a model that is asked for the first time may get fewer at first.
            for _ in range(3):
                await asyncio.gather(*(client.complete(chat(f"Question {n}")) for n in range(6)))
    counts = [server.ledger.total for server in servers]
    assert sum(counts) == 18
    assert min(counts) >= 4
    assert max(server.ledger.most_at_once for server in servers) == 2, "six at a time over three servers"


async def test_a_dead_server_is_left_out_and_its_calls_go_to_others(client_of: Callable[..., ModelClient]) -> None:
    with ScriptedEndpoint() as dead:
        pass
    with ScriptedEndpoint() as alive:
        # One attempt a call: that a server is gone takes none away.
        async with client_of(dead, alive, attempts=1) as client:
            results = [await client.complete(chat(f"Question {n}")) for n in range(10)]
            assert client.stats.retries == {}
            assert client.stats.waited_s == 0
    assert alive.ledger.answered.total() == 10
    # Of the ten at most one met the dead server before it was left out.
    assert Counter(result.attempts for result in results) in (Counter({1: 9, 2: 1}), Counter({1: 10}))


async def test_a_server_that_breaks_off_is_left_too(client_of: Callable[..., ModelClient]) -> None:
    with ScriptedEndpoint(faults={"truncated": 1.0}) as broken, ScriptedEndpoint() as alive:
        async with client_of(broken, alive, attempts=1) as client:
            for n in range(10):
                assert (await client.complete(chat(f"Question {n}"))).text
            pieces: list[str] = []
            streamed = await client.complete(chat("Streamed"), pieces.append, pieces.clear)
    assert "".join(pieces) == streamed.text
    assert alive.ledger.answered.total() == 11
    assert broken.ledger.total <= 1


async def test_all_dead_is_one_clear_error(client_of: Callable[..., ModelClient]) -> None:
    with ScriptedEndpoint() as first, ScriptedEndpoint() as second:
        pass
    async with client_of(first, second, attempts=2) as client:
        with pytest.raises(ModelError) as caught:
            await client.complete(chat("Anybody?"))
    error = caught.value
    assert (error.kind, error.attempts) == ("connection", 4), "two attempts at two servers"
    said = str(error)
    assert said.startswith(
        "scripted: none of its 2 servers can be reached after 4 attempts (the last, http://127.0.0.1:"
    )
    assert said.endswith("Start one, or check base_url and replicas in its registry entry.")
    assert "\n" not in said


async def test_an_error_names_the_server_that_made_it(client_of: Callable[..., ModelClient]) -> None:
    with ScriptedEndpoint(faults={"not_found": 1.0}) as first, ScriptedEndpoint(faults={"not_found": 1.0}) as second:
        async with client_of(first, second) as client:
            with pytest.raises(ModelError) as caught:
                await client.complete(chat("Who are you?"))
    assert (first.ledger.total, second.ledger.total) == (1, 1)
    assert caught.value.attempts == 2
    assert sum(f"{each.url} knows no 'scripted'" in str(caught.value) for each in (first, second)) == 1


@pytest.mark.parametrize("refusal", ["not_found", "unauthorized"])
async def test_a_server_of_another_model_or_key_doesnt_draw_the_requests(
    client_of: Callable[..., ModelClient], refusal: Any
) -> None:
    """It answers at once, so it is always the least busy."""
    with ScriptedEndpoint(faults={refusal: 1.0}) as stranger, ScriptedEndpoint(latency_s=0.02) as right:
        async with client_of(stranger, right, concurrency=4) as client:
            results = await asyncio.gather(*(client.complete(chat(f"number {n}")) for n in range(40)))
    assert len(results) == 40
    assert right.ledger.answered.total() == 40
    # Until its first refusal is there it may have got its share of the four under way.
    assert 1 <= stranger.ledger.total <= 4


async def test_embeddings_are_spread_too(client_of: Callable[..., ModelClient]) -> None:
    with ScriptedEndpoint() as dead:
        pass
    with ScriptedEndpoint() as alive:
        async with client_of(dead, alive, attempts=1) as client:
            for text in ("one", "two words", "three of them"):
                assert (await client.embed("scripted", [text])).vectors.shape == (1, 32)
    assert alive.ledger.answered.total() == 3


async def test_a_probe_asks_every_server(client_of: Callable[..., ModelClient]) -> None:
    with ScriptedEndpoint() as dead:
        pass
    with ScriptedEndpoint() as alive, ScriptedEndpoint() as other:
        async with client_of(alive, other) as client:
            found = await probe(client.registry.model("scripted"), client)
            assert (found.ok, found.detail) == (True, "all 2 servers answer")
        async with client_of(alive, dead) as client:
            found = await probe(client.registry.model("scripted"), client)
            assert found.ok
            assert found.detail.startswith(f"1 of 2 servers answers; {dead.url} can't be reached")
    async with client_of(dead, alive) as client:
        found = await probe(client.registry.model("scripted"), client)
        assert not found.ok
        assert dead.url in found.detail


# --- the choice ----------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_equally_busy_servers_share_prompts_by_their_beginning() -> None:
    replicas = Replicas(URLS)
    chosen = {f"user {n}": replicas.choose(f"user {n}") for n in range(300)}
    assert all(Replicas(URLS).choose(text).base_url == server.base_url for text, server in chosen.items())
    counts = Counter(server.base_url for server in chosen.values())
    # A third each; 60 is five standard deviations (8.2) below 100.
    assert set(counts) == set(URLS)
    assert min(counts.values()) > 60
    # Without the third, the prompts of the first two stay where they were.
    two = Replicas(URLS[:2])
    for text, server in chosen.items():
        if server.base_url != URLS[2]:
            assert two.choose(text).base_url == server.base_url


def test_load_goes_before_affinity() -> None:
    replicas = Replicas(URLS)
    liked = replicas.choose("hello")
    liked.busy = 1
    assert replicas.choose("hello") is not liked
    for server in replicas.servers:
        server.busy = 1
    assert replicas.choose("hello") is liked


def test_a_server_rests_longer_each_time_and_comes_back_with_one_request() -> None:
    clock = Clock()
    replicas = Replicas(URLS[:2], clock)
    bad, good = replicas.servers
    good.busy = 50
    rests = []
    for _ in range(7):
        # Those that fail together count once.
        for _ in range(5):
            replicas.failed(bad, GONE, clock.now - 1)
        began = clock.now
        while replicas.choose("x") is not bad:
            clock.now += 0.5
        rests.append(clock.now - began)
        bad.busy = 1
        assert replicas.choose("x") is good, "one request finds out whether it is back"
        bad.busy = 0
    assert rests == [2, 4, 8, 16, 32, 60, 60]
    bad.took(clock.now)
    bad.busy = 3
    assert replicas.choose("x") is bad


def test_a_request_that_was_tried_goes_elsewhere_and_all_resting_are_asked_all_the_same() -> None:
    clock = Clock()
    replicas = Replicas(URLS, clock)
    tried: list[Server] = []
    for _ in URLS:
        server = replicas.choose("x", tried)
        replicas.failed(server, GONE, clock.now)
        tried.append(server)
    assert set(tried) == set(replicas.servers)
    assert replicas.choose("x") in replicas.servers


@pytest.mark.parametrize(
    ("kind", "answered_since", "rests"),
    [
        ("server", True, True),
        ("connection", True, True),
        ("not_found", True, True),
        ("auth", True, True),
        ("timeout", True, False),
        ("timeout", False, True),
        ("rate_limit", False, False),
        ("bad_reply", False, False),
        ("too_long", False, False),
    ],
)
def test_what_makes_a_server_rest(kind: Any, answered_since: bool, rests: bool) -> None:
    """A timeout says that it hangs only when nobody else was answered meanwhile."""
    clock = Clock()
    replicas = Replicas(URLS[:2], clock)
    server, other = replicas.servers
    other.busy = 5
    server.took(clock.now - (1 if answered_since else 20))
    replicas.failed(server, Failure(kind, "x"), clock.now - 10)
    assert (replicas.choose("x") is other) == rests
