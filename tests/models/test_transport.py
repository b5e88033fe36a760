"""The wire: addresses, proxies, broken replies, and that errors are told in the words they always had."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import ModelError, UsageError
from opbench.models import ModelClient, load_registry
from opbench.models.chat import beginning, estimated_tokens
from opbench.models.failures import Failure
from opbench.models.replies import decode
from opbench.models.streaming import lines
from opbench.models.transport import Transport, encoded
from opbench.types import ChatRequest, Message
from tests.scripted_endpoint import Fault, ScriptedEndpoint

REQUEST = ChatRequest("scripted", (Message("user", "How are you?"),))
ANSWER = {"model": "m", "choices": [{"message": {"content": "Fine."}, "finish_reason": "stop"}]}
PROXIES = [name for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (lower, lower.upper())]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


def client_of(folder: Path, text: str) -> ModelClient:
    file = folder / "registry.toml"
    file.write_text(text, encoding="utf-8")
    return ModelClient(load_registry(file))


Exchange = Callable[[bytes, bytes], bytes]


@asynccontextmanager
async def raw(reply: Exchange) -> AsyncIterator[tuple[str, list[tuple[str, bytes]]]]:
    """(base URL, requests as (head, body)) of a server that answers with these bytes and closes the connection."""
    asked: list[tuple[str, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        asked.append((head.decode(), body))
        writer.write(reply(head, body))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asked


def whole(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    told = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    return "\r\n".join([f"HTTP/1.1 {status}", *(f"{k}: {v}" for k, v in told.items()), "", ""]).encode() + body


def entry(url: str, **fields: Any) -> str:
    fields = {"base_url": url, "attempts": 1, "timeout_s": 10.0} | fields
    return "\n".join(["[models.scripted]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())])


# What was told before requests went over aiohttp, word for word.
URL_SAYS = "URL doesn't answer like a chat API after 2 attempts"
TIMED_OUT = "no answer within 0.3 s after 2 attempts. Raise timeout_s in its registry entry, or go on later."
BROKE_OFF = "URL can't be reached after 2 attempts (the answer broke off: "
MESSAGES: list[tuple[Fault, str, str]] = [
    (
        "rate_limit",
        "rate_limit",
        "rate limited after 2 attempts (429: Rate limit reached). "
        "Lower its concurrency in the registry, or go on later.",
    ),
    ("server", "server", "the endpoint failed after 2 attempts (500: The server had an error). Go on later."),
    (
        "malformed",
        "bad_reply",
        f"{URL_SAYS} (no JSON but 237 characters of application/json). Check base_url and any proxy.",
    ),
    ("html", "bad_reply", f"{URL_SAYS} (no JSON but 35 characters of text/html). Check base_url and any proxy."),
    (
        "truncated",
        "connection",
        f"{BROKE_OFF}peer closed connection without sending complete message body (received 178 bytes, expected 356)). "
        "Check base_url and the network.",
    ),
    (
        "reset",
        "connection",
        f"{BROKE_OFF}Server disconnected without sending a response). Check base_url and the network.",
    ),
    ("hang", "timeout", TIMED_OUT),
    ("drip", "timeout", TIMED_OUT),
]


@pytest.mark.parametrize(("fault", "kind", "message"), MESSAGES)
async def test_faults_keep_their_kinds_and_words(tmp_path: Path, fault: Fault, kind: str, message: str) -> None:
    with ScriptedEndpoint(faults={fault: 1.0}) as endpoint:
        async with client_of(tmp_path, endpoint.registry_toml(attempts=2, timeout_s=0.3)) as client:
            with pytest.raises(ModelError) as caught:
                await client.complete(REQUEST)
    assert caught.value.kind == kind
    assert str(caught.value).replace(endpoint.url, "URL") == f"scripted: {message}"


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with ScriptedEndpoint() as gone:
        pass
    for url, said in (
        (gone.url, "can't connect: All connection attempts failed"),
        ("http://no-such-host.invalid/v1", "can't connect: [Errno -"),
    ):
        async with client_of(tmp_path, entry(url)) as client:
            with pytest.raises(ModelError) as caught:
                await client.complete(REQUEST)
        assert caught.value.kind == "connection"
        assert f"{url} can't be reached ({said}" in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_who_speaks_no_http_or_no_tls(tmp_path: Path, scheme: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with client_of(tmp_path, entry(url)) as client:
            with pytest.raises(ModelError, match="can't be reached") as caught:
                await client.complete(REQUEST)
    assert caught.value.kind == "connection"
    assert "\n" not in str(caught.value)


async def test_a_user_a_password_and_a_query_of_the_address(tmp_path: Path) -> None:
    async with raw(lambda head, body: whole(json.dumps(ANSWER).encode())) as (url, asked):
        address = url.replace("://", "://me:pa%3A55word@") + "/?api-version=7"
        async with client_of(tmp_path, entry(address)) as client:
            assert (await client.complete(REQUEST)).text == "Fine."
    head = asked[0][0]
    assert head.startswith("POST /v1/chat/completions?api-version=7 HTTP/1.1\r\n")
    # base64 of "me:pa:55word"
    assert "Authorization: Basic bWU6cGE6NTV3b3Jk\r\n" in head


def redirect(to: str) -> Exchange:
    return lambda head, body: whole(b"", "307 Go", Location=to)


async def test_redirects_are_followed_and_carry_no_key_to_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "sk-planted-key-00000000")
    async with raw(lambda head, body: whole(json.dumps(ANSWER).encode())) as (there, asked):
        target = f"{there.replace('127.0.0.1', 'localhost')}/chat/completions"
        async with raw(redirect(target)) as (url, first), client_of(tmp_path, entry(url, key_env="SCRIPTED_KEY")) as at:
            assert (await at.complete(REQUEST)).text == "Fine."
    assert "sk-planted-key-00000000" in first[0][0]
    assert "sk-planted" not in asked[0][0]
    assert asked[0][1] == first[0][1]


async def test_a_redirect_to_an_address_with_a_password_is_a_failure(tmp_path: Path) -> None:
    def to_itself(head: bytes, body: bytes) -> bytes:
        host = head.decode().partition("Host: ")[2].split("\r\n")[0]
        return whole(b"", "307 Go", Location=f"http://me:pa55word@{host}/x")

    async with raw(to_itself) as (url, _), client_of(tmp_path, entry(url)) as client:
        with pytest.raises(ModelError, match="redirected to an address that can't be asked") as caught:
            await client.complete(REQUEST)
    assert caught.value.kind == "connection"
    assert "pa55word" not in str(caught.value)


async def test_a_proxy_stands_before_other_machines_and_never_before_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw(lambda head, body: whole(json.dumps(ANSWER).encode())) as (proxy, asked):
        monkeypatch.setenv("ALL_PROXY", proxy.removesuffix("/v1").replace("://", "://me:pa55word@"))
        async with client_of(tmp_path, entry("http://far.invalid/v1")) as client:
            assert (await client.complete(REQUEST)).text == "Fine."
        monkeypatch.setenv("NO_PROXY", "far.invalid")
        async with client_of(tmp_path, entry("http://far.invalid/v1")) as client:
            with pytest.raises(ModelError, match="can't connect"):
                await client.complete(REQUEST)
        with ScriptedEndpoint() as here:
            async with client_of(tmp_path, entry(here.url)) as client:
                await client.complete(REQUEST)
    assert len(asked) == 1
    assert asked[0][0].startswith("POST http://far.invalid/v1/chat/completions ")


async def test_a_proxy_that_is_gone_or_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint() as gone:
        pass
    monkeypatch.setenv("HTTP_PROXY", gone.url.removesuffix("/v1").replace("://", "://me:pa55word@"))
    async with client_of(tmp_path, entry("http://far.invalid/v1")) as client:
        with pytest.raises(ModelError, match=r"the proxy 127\.0\.0\.1:\d+ doesn't answer") as caught:
            await client.complete(REQUEST)
    assert "pa55word" not in str(caught.value)
    monkeypatch.setenv("HTTP_PROXY", "socks5://me:pa55word@127.0.0.1:9")
    async with client_of(tmp_path, entry("http://far.invalid/v1")) as client:
        with pytest.raises(UsageError) as refused:
            await client.complete(REQUEST)
    assert (
        str(refused.value)
        == "HTTP_PROXY names a proxy of kind socks5; only HTTP proxies can be used. Name one, or unset it."
    )


async def test_one_connection_serves_request_after_request(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with client_of(tmp_path, endpoint.registry_toml()) as client:
            for number in range(5):
                await client.complete(ChatRequest("scripted", (Message("user", f"{number}"),)))
    assert endpoint.ledger.connections == 1


async def test_a_body_that_is_left_closes_its_connection(tmp_path: Path) -> None:
    with ScriptedEndpoint(script=["drip"]) as endpoint:
        transport = Transport(endpoint.url, None, connect_timeout_s=5, local=True)
        async with transport.open("/chat/completions", encoded({"messages": []})) as reply:
            assert reply.headers["content-length"] == "1000000"
        for _ in range(500):
            if endpoint.ledger.closed_by_client:
                break
            await asyncio.sleep(0.01)
        await transport.aclose()
    assert endpoint.ledger.closed_by_client == 1


# --- share and ceilings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "most"), [(1, 8), (3, 2), (8, 1), (100, 1)])
async def test_a_process_of_several_keeps_to_its_share(tmp_path: Path, share: int, most: int) -> None:
    with ScriptedEndpoint(latency_s=0.01) as endpoint:
        file = tmp_path / "registry.toml"
        file.write_text(endpoint.registry_toml(concurrency=8, requests_per_minute=100_000.0), encoding="utf-8")
        async with ModelClient(load_registry(file), share=share) as client:
            assert client.at_a_time("scripted") == most
            for turn in range(3):
                requests = [ChatRequest("scripted", (Message("user", f"{turn} {n}"),)) for n in range(12)]
                await asyncio.gather(*map(client.complete, requests))
            ceiling = client._models["scripted"].limits.per_minute[0]
            assert 1 <= client.at_a_time("scripted") <= most
    assert endpoint.ledger.most_at_once <= most
    assert ceiling == 100_000 / share


def test_tokens_are_estimated_as_providers_do() -> None:
    request = ChatRequest("m", (Message("system", "a" * 101), Message("user", "b" * 101)), max_tokens=300)
    # 202 signs / 4, and all 300 that it may answer
    assert estimated_tokens(request) == 50 + 300
    assert beginning(request) == "a" * 101 + "\n" + "b" * 101


# --- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["half \ud83d of a face", 10**30, {"nested": [1, "é🙂", None, True, 0.7]}, "\u2028 and \0"]
)
def test_every_json_value_goes_out(value: Any) -> None:
    assert json.loads(encoded({"x": value})) == {"x": value}


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ('{"x": "é"}'.encode("latin-1"), "application/json; charset=latin-1", "é"),
        ('{"x": "é"}'.encode("utf-16"), "application/json; charset=UTF-16", "é"),
        ('{"x": "é"}'.encode(), "application/json; charset=no-such-thing", "é"),
        (b'{"x": "\xff"}', "application/json", "\ufffd"),
        (rb'{"x": "\ud800"}', "application/json", "\ud800"),
        (b'{"x": NaN, "x": "y"}', "", "y"),
    ],
)
def test_bodies_that_only_a_lenient_reader_takes(body: bytes, kind: str, said: str) -> None:
    assert decode(body, {"content-type": kind} if kind else {})["x"] == said


def test_a_key_is_taken_out_of_a_reply_in_whatever_coding() -> None:
    key = "sk-planted/key-0123456789"
    escaped = key.replace("/", r"\/")
    for body in (f'{{"x": "it is {key}."}}', f'{{"x": "it is {escaped}."}}'):
        for coding in ("utf-8", "utf-16"):
            found = decode(body.encode(coding), {"content-type": f"application/json; charset={coding}"}, key)
            assert found == {"x": "it is [key]."}
        assert decode(body, {}, key) == {"x": "it is [key]."}


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b'{"x": 1', b"[1]", b"7", b"null"])
def test_no_object_is_no_reply(body: bytes) -> None:
    with pytest.raises(Failure) as caught:
        decode(body, {})
    assert caught.value.kind == "bad_reply"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_lines_end_as_events_have_it_and_nowhere_else(size: int) -> None:
    text = 'data: {"a": "x\u2028y\x85z\x0b"}\r\n\r\ndata: é\rdata: 🙂\n\nlast\r'
    body = text.encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    assert [line async for line in lines(chunks())] == [
        'data: {"a": "x\u2028y\x85z\x0b"}',
        "",
        "data: é",
        "data: 🙂",
        "",
        "last",
    ]
