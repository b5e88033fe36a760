"""Who is let in, what is served to whom, and how failures behind the gateway arrive."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from pathlib import Path

import httpx2
import openai
import pytest

from opbench.errors import ModelError, StoreError, UsageError
from opbench.gateway.server import Gateway
from opbench.gateway.serving import Loopback
from opbench.models import ModelClient, get_embedder
from tests.gateway.helpers import KEY, bench_of, registry_of, say
from tests.scripted_endpoint import Fault, ScriptedEndpoint


async def test_a_token_opens_its_own_lease_only(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            one = await bench.gateway.lease("one", "scripted")
            two = await bench.gateway.lease("two", "scripted")
            assert one.base_url == two.base_url
            assert one.key != two.key
            assert len(one.key) > 32
            await bench.ask(one, lambda sdk: say(sdk, "a"))
            await bench.ask(one, lambda sdk: say(sdk, "b"))
            await bench.ask(two, lambda sdk: say(sdk, "c"))
            assert (one.usage.calls, two.usage.calls) == (2, 1)

            await bench.gateway.release(one)
            with pytest.raises(openai.AuthenticationError):
                await bench.ask(one, say)
            await bench.ask(two, say)
            assert (one.usage.calls, two.usage.calls) == (2, 2)
            assert one.key not in repr(one)


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer opbench-x", "Basic eDp5", "\xe9"])
async def test_without_a_token_nothing_is_told(tmp_path: Path, given: str | None) -> None:
    header = {} if given is None else {b"Authorization": given.encode("latin-1")}
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            async with httpx2.AsyncClient(trust_env=False) as http:
                for path in ("/models", "/chat/completions", "/embeddings", "/elsewhere"):
                    for ask in (http.get, http.post):
                        reply = await ask(lease.base_url + path, headers=header)
                        assert reply.status_code in (401, 405)
                        assert "scripted" not in reply.text
            assert lease.failure is None
    assert endpoint.ledger.total == 1


async def test_only_the_leases_names_are_served(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        registry = registry_of(endpoint, tmp_path)
        both = {name: registry.model("scripted").model_copy(update={"name": name}) for name in ("scripted", "other")}
        async with bench_of(registry.model_copy(update={"models": both}), tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            wide = await bench.gateway.lease("all", None, further_models=["scripted", "other"])
            none = await bench.gateway.lease("embeds only", None)
            listed = [
                [model.id for model in await bench.ask(each, lambda sdk: list(sdk.models.list()))]
                for each in (lease, wide, none)
            ]
            assert listed == [["scripted"], ["scripted", "other"], ["scripted"]]
            with pytest.raises(openai.NotFoundError, match="model must be scripted") as wrong:
                await bench.ask(lease, lambda sdk: say(sdk, model="other"))
            assert (wrong.value.code, wrong.value.param) == ("model_not_found", "model")
            with pytest.raises(ModelError) as told:
                lease.raise_failure()
            assert told.value.kind == "not_found"
            with pytest.raises(openai.NotFoundError):
                await bench.ask(none, say)
            with pytest.raises(openai.NotFoundError, match="no such route"):
                await bench.ask(lease, lambda sdk: sdk.responses.create(model="scripted", input="x"))
            with pytest.raises(UsageError, match=r"No model is named 'scripted2'. Did you mean scripted"):
                await bench.gateway.lease("one", "scripted2")


@pytest.mark.parametrize(
    ("fault", "status", "kind", "sent"),
    [
        ("unauthorized", 401, "auth", 1),
        ("not_found", 404, "not_found", 1),
        ("quota", 429, "quota", 1),
        ("too_long", 400, "too_long", 1),
        ("content_filter", 400, "content_filter", 1),
        ("rate_limit", 429, "rate_limit", 3),
        ("server", 502, "server", 3),
        ("malformed", 502, "bad_reply", 3),
        ("reset", 502, "connection", 3),
        ("hang", 504, "timeout", 3),
    ],
)
async def test_a_failure_behind_arrives_with_its_reason_and_without_a_storm(
    tmp_path: Path, fault: Fault, status: int, kind: str, sent: int
) -> None:
    with ScriptedEndpoint() as endpoint:
        # Three attempts of the client behind; the SDK in front would make three of each without the header.
        registry = registry_of(endpoint, tmp_path, attempts=3, timeout_s=0.3)
        async with bench_of(registry, tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            endpoint.faults, endpoint.persistent = {fault: 1.0}, True
            with pytest.raises(openai.APIStatusError) as failed:
                await bench.ask(lease, say)
            assert failed.value.status_code == status
            assert failed.value.response.headers["x-should-retry"] == "false"
            assert KEY not in failed.value.response.text
            assert KEY[3:12] not in failed.value.response.text
            assert endpoint.ledger.total == 1 + sent
            with pytest.raises(ModelError) as told:
                lease.raise_failure()
            assert told.value.kind == kind
            assert (told.value.attempts, told.value.model) == (sent, "scripted")
            assert str(told.value) in str(failed.value.message)
            assert lease.usage.calls == 0

            with pytest.raises(openai.APIStatusError):
                await bench.ask(lease, lambda sdk: sdk.embeddings.create(model="scripted", input=["a"]))
            assert lease.failure is not None
            # Errors are never kept.
            endpoint.faults, lease.failure = {}, None
            assert (await bench.ask(lease, say)).choices[0].message.content
            assert lease.failure is None


async def test_a_store_that_cant_be_written_is_told(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            with bench.store.begin() as connection:
                connection.exec_driver_sql("ALTER TABLE calls RENAME TO gone")
            with pytest.raises(openai.InternalServerError, match="no such table"):
                await bench.ask(lease, say)
            with pytest.raises(StoreError):
                lease.raise_failure()


async def test_it_starts_and_stops_quickly_and_leaves_signals_and_logs_alone(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    handlers = list(logging.getLogger().handlers)
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
            # A library that holds its connection open doesn't hold the end up.
            async with httpx2.AsyncClient(trust_env=False) as http:
                headers = {"Authorization": f"Bearer {lease.key}"}
                assert (await http.get(f"{lease.base_url}/models", headers=headers)).status_code == 200
                began = time.perf_counter()
                await bench.gateway.aclose()
                assert time.perf_counter() - began < 5
                with pytest.raises(httpx2.HTTPError):
                    await http.get(f"{lease.base_url}/models", headers=headers)
            await bench.gateway.aclose()
    assert logging.getLogger().handlers == handlers


async def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            assert lease.base_url.startswith("http://127.0.0.1:")
            port = int(lease.base_url.rpartition(":")[2].split("/")[0])
            with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
                # Another address of this machine's loopback network.
                probe.connect(("127.0.0.2", port))


async def test_answers_dont_wait_for_acknowledgements(tmp_path: Path) -> None:
    # With Nagle's algorithm every answer but a connection's first comes 40 ms late, in the latency of each retrieval.
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            async with httpx2.AsyncClient(trust_env=False) as http:
                await http.get(f"{lease.base_url}/models", headers={"Authorization": f"Bearer {lease.key}"})
                assert bench.gateway._server is not None
                [connection] = bench.gateway._server._server.server_state.connections
                sock = connection.transport.get_extra_info("socket")
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        registry = registry_of(endpoint, tmp_path)
        async with bench_of(registry, tmp_path) as bench:
            lease = await bench.gateway.lease("one", "scripted")
            port = int(lease.base_url.rpartition(":")[2].split("/")[0])

            async def nothing(scope: object, receive: object, send: object) -> None: ...

            with pytest.raises(UsageError, match=f"port {port} can't be had"):
                await Loopback.start(nothing, port)


async def test_leases_that_are_taken_together_share_one_server(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            leases = await asyncio.gather(*(bench.gateway.lease(str(n), "scripted") for n in range(5)))
    assert len({lease.base_url for lease in leases}) == 1
    assert len({lease.key for lease in leases}) == 5
    assert endpoint.ledger.total == 1, "the dimensions are asked once"


async def test_an_unconnected_gateway_says_so(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        registry = registry_of(endpoint, tmp_path)
        async with ModelClient(registry) as client:
            gateway = Gateway(registry, client, get_embedder("scripted", registry, client))
            with pytest.raises(RuntimeError, match="connect"):
                await gateway.lease("one", "scripted")
            await gateway.aclose()
