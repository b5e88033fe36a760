"""Streamed answers: the same results as in one piece, and the text on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from opbench.errors import ModelError
from opbench.models import ModelClient, load_registry
from opbench.models.failures import Failure
from opbench.models.replies import chat_result
from opbench.models.streaming import Assembly, Hearing, events
from opbench.types import ChatRequest, ChatResult, Message
from tests.scripted_endpoint import Fault, ScriptedEndpoint, Streaming

KEY = "sk-test-Abcdef0123456789"
REQUEST = ChatRequest("scripted", (Message("user", "How are you?"),))


class Heard:
    """What a listener was told: `text` as it stands, `all` with every beginning anew."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.before: list[str] = []

    def on_text(self, piece: str) -> None:
        self.pieces.append(piece)

    def on_anew(self) -> None:
        self.before.append("".join(self.pieces))
        self.pieces = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)


Open = Callable[..., ModelClient]


@pytest.fixture
def client_of(tmp_path: Path) -> Open:
    def make(endpoint: ScriptedEndpoint, *, keys: dict[str, SecretStr] | None = None, **fields: Any) -> ModelClient:
        file = tmp_path / "registry.toml"
        file.write_text(endpoint.registry_toml(**fields), encoding="utf-8")
        return ModelClient(load_registry(file), keys=keys)

    return make


def without_time(result: ChatResult) -> tuple[Any, ...]:
    return result.text, result.finish_reason, result.prompt_tokens, result.completion_tokens, result.attempts


async def test_the_same_answer_word_by_word(client_of: Open) -> None:
    heard = Heard()
    with ScriptedEndpoint(reply=lambda body: "Grüße aus 東京 – fine! 🙂") as endpoint:
        async with client_of(endpoint) as client:
            streamed = await client.complete(REQUEST, heard.on_text, heard.on_anew)
            whole = await client.complete(REQUEST)
    assert heard.pieces == ["Grüße", " aus", " 東京", " –", " fine!", " 🙂"]
    assert heard.before == []
    # Words, as the endpoint counts: 3 asked, 6 answered.
    assert without_time(streamed) == without_time(whole) == ("Grüße aus 東京 – fine! 🙂", "stop", 3, 6, 1)
    first, second = endpoint.ledger.bodies
    assert first.pop("stream") is True
    assert first.pop("stream_options") == {"include_usage": True}
    assert first == second
    assert client.stats.answered_as == {"scripted": {"scripted"}}


async def test_its_time_is_that_of_the_whole_answer(client_of: Open) -> None:
    with ScriptedEndpoint(reply=lambda body: "one two three", piece_s=0.1) as endpoint:
        async with client_of(endpoint) as client:
            result = await client.complete(REQUEST, lambda piece: None)
    assert result.duration_ms >= 200


@pytest.mark.parametrize("streaming", ["ignored", "refused", "options_refused", "without_done"])
async def test_endpoints_that_dont_stream_as_asked(client_of: Open, streaming: Streaming) -> None:
    heard = Heard()
    with ScriptedEndpoint(reply=lambda body: "I am well.", streaming=streaming) as endpoint:
        async with client_of(endpoint) as client:
            first = await client.complete(REQUEST, heard.on_text, heard.on_anew)
            assert (heard.text, heard.before) == ("I am well.", [])
            second = await client.complete(REQUEST, heard.on_text, heard.on_anew)
    assert without_time(first) == without_time(second) == ("I am well.", "stop", 3, 3, 1)
    # What it refuses is asked for once only.
    asked = [bool(body.get("stream")) for body in endpoint.ledger.bodies]
    assert asked == ([True, False, False] if streaming.endswith("refused") else [True, True])


async def test_no_counts_are_none_and_not_zero(client_of: Open) -> None:
    with ScriptedEndpoint(usage=False) as endpoint:
        async with client_of(endpoint) as client:
            result = await client.complete(REQUEST, lambda piece: None)
    assert (result.prompt_tokens, result.completion_tokens) == (None, None)


@pytest.mark.parametrize("fault", ["truncated", "malformed", "hang", "stream_error", "server", "html"])
async def test_what_breaks_is_asked_again(client_of: Open, fault: Fault) -> None:
    heard = Heard()
    with ScriptedEndpoint(script=[fault], reply=lambda body: "I am very well.") as endpoint:
        async with client_of(endpoint, timeout_s=0.5) as client:
            result = await client.complete(REQUEST, heard.on_text, heard.on_anew)
    assert heard.text == result.text == "I am very well."
    # A page in the place of a stream may be an answer that can't be streamed: that is tried without a new attempt.
    assert result.attempts == (1 if fault == "html" else 2)
    assert heard.before == ([] if fault in ("server", "html") else ["I am"])


KINDS: list[tuple[Fault, str, int]] = [
    ("unauthorized", "auth", 1),
    ("not_found", "not_found", 1),
    ("quota", "quota", 1),
    ("too_long", "too_long", 1),
    ("content_filter", "content_filter", 1),
    ("rate_limit", "rate_limit", 3),
    ("server", "server", 3),
    ("stream_error", "server", 3),
    ("truncated", "connection", 3),
    ("reset", "connection", 3),
    ("malformed", "bad_reply", 3),
    ("html", "bad_reply", 3),
    ("hang", "timeout", 3),
    ("drip", "timeout", 3),
]


@pytest.mark.parametrize(("fault", "kind", "attempts"), KINDS)
async def test_failures_are_those_of_an_answer_in_one_piece(
    client_of: Open, fault: Fault, kind: str, attempts: int
) -> None:
    failed = []
    with ScriptedEndpoint(faults={fault: 1.0}) as endpoint:
        keys = {"SCRIPTED_KEY": SecretStr(KEY)}
        fields = {"attempts": 3, "timeout_s": 0.3, "key_env": "SCRIPTED_KEY"}
        for listen in ((lambda piece: None), None):
            async with client_of(endpoint, keys=keys, **fields) as client:
                with pytest.raises(ModelError) as caught:
                    await client.complete(REQUEST, listen)
            failed.append((caught.value.kind, caught.value.attempts))
            assert KEY not in str(caught.value)
    streamed, whole = failed
    assert streamed == (kind, attempts)
    if fault != "stream_error":
        assert whole == streamed


@pytest.mark.parametrize("answer", ["", "   \n"])
async def test_a_blank_answer_is_an_answer(client_of: Open, answer: str) -> None:
    heard = Heard()
    with ScriptedEndpoint(reply=lambda body: answer) as endpoint:
        async with client_of(endpoint) as client:
            result = await client.complete(REQUEST, heard.on_text, heard.on_anew)
    assert not result.text.strip()
    assert heard.text == result.text


async def test_a_key_in_pieces_never_shows(client_of: Open) -> None:
    heard = Heard()
    said = f"Your key {KEY[:9]} {KEY[9:]} or {KEY} is sk-te."
    with ScriptedEndpoint(reply=lambda body: said) as endpoint:
        async with client_of(endpoint, keys={"SCRIPTED_KEY": SecretStr(KEY)}, key_env="SCRIPTED_KEY") as client:
            result = await client.complete(REQUEST, heard.on_text, heard.on_anew)
    assert heard.text == result.text == f"Your key {KEY[:9]} {KEY[9:]} or [key] is sk-te."


async def test_who_is_cancelled_closes_the_connection(client_of: Open) -> None:
    first = asyncio.Event()
    with ScriptedEndpoint(reply=lambda body: "word " * 500, piece_s=0.02) as endpoint:
        async with client_of(endpoint) as client:
            task = asyncio.create_task(client.complete(REQUEST, lambda piece: first.set()))
            await first.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(500):
                if endpoint.ledger.closed_by_client:
                    break
                await asyncio.sleep(0.01)
    assert endpoint.ledger.closed_by_client == 1


async def test_one_connection_serves_stream_after_stream(client_of: Open) -> None:
    with ScriptedEndpoint() as endpoint:
        async with client_of(endpoint) as client:
            for _ in range(3):
                await client.complete(REQUEST, lambda piece: None)
    assert endpoint.ledger.connections == 1


# --- the parts -----------------------------------------------------------------------------------------------------


async def parsed(text: str) -> list[str]:
    async def lines() -> AsyncIterator[str]:
        for line in text.split("\n"):
            yield line

    return [event async for event in events(lines())]


async def test_events_of_a_stream() -> None:
    text = ': alive\n\nevent: x\ndata: {"a":\ndata: 1}\n\nid: 7\ndata:{"b": 2}\n\ndata: [DONE]'
    assert await parsed(text) == ['{"a":\n1}', '{"b": 2}', "[DONE]"]
    # An event that was cut off doesn't count; one that is whole does, and so does llama.cpp's older way of errors.
    assert await parsed('data: {"a": 1}\n\ndata: {"b') == ['{"a": 1}']
    assert await parsed('error: {"code": 500}\n\n') == ['{"error": {"code": 500}}']


def assembled(chunks: Sequence[dict[str, Any]], key: str | None = None) -> tuple[ChatResult, list[str]]:
    pieces: list[str] = []
    hearing = Hearing(pieces.append, pieces.clear, key)
    assembly = Assembly(hearing)
    for chunk in chunks:
        assembly.add(json.loads(json.dumps(chunk)))
    assembly.done = True
    result = chat_result(assembly.reply(), 1.0)
    hearing.end(result.text)
    return result, pieces


def chunk(delta: object, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def test_chunks_of_many_dialects() -> None:
    result, pieces = assembled(
        [
            {"choices": [], "prompt_filter_results": []},
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning_content": "Hm.", "content": None}),
            chunk({"content": [{"type": "text", "text": "Hel"}, {"type": "image"}]}, usage={"prompt_tokens": 1}),
            {"choices": [{"index": 1, "delta": {"content": "other"}}]},
            chunk({"content": "lo"}, "length"),
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
        ]
    )
    assert (result.text, result.finish_reason) == ("Hello", "length")
    assert (result.prompt_tokens, result.completion_tokens) == (7, 2)
    assert pieces == ["Hel", "lo"]


def test_a_refusal_is_the_answer() -> None:
    result, pieces = assembled([chunk({"refusal": "I ca"}), chunk({"refusal": "n't."}, "stop")])
    assert result.text == "I can't."
    assert "".join(pieces) == "I can't."


def test_content_after_a_begun_refusal_is_the_answer() -> None:
    result, pieces = assembled([chunk({"refusal": "No"}), chunk({"content": "Yes."}, "stop")])
    assert result.text == "Yes."
    assert pieces == ["Yes."]


def test_halves_of_a_character_in_two_chunks() -> None:
    result, pieces = assembled([chunk({"content": "a\ud83d"}), chunk({"content": "\ude42b\0\ud83d"}, "stop")])
    # One face; what stays half can't be kept by any store.
    assert result.text == "a🙂b\ufffd?"
    assert pieces == ["a", "🙂b\ufffd", "?"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 23, 24, 60])
def test_however_a_key_is_cut_it_stays_hidden(size: int) -> None:
    key = "secretsecretsecre-secret"
    text = f"x {key}{key} secretsecret {key[:-1]} sec"
    pieces: list[str] = []
    hearing = Hearing(pieces.append, None, key)
    for start in range(0, len(text), size):
        hearing.add(text[start : start + size])
        assert key not in "".join(pieces)
    hearing.end(hearing.clean(text))
    assert "".join(pieces) == f"x [key][key] secretsecret {key[:-1]} sec"


def test_a_stream_without_choices_is_no_chat() -> None:
    with pytest.raises(Failure) as caught:
        assembled([{"choices": []}, {"object": "ping"}])
    assert caught.value.kind == "bad_reply"


def test_a_stream_that_ends_early_broke_off() -> None:
    assembly = Assembly(Hearing(lambda piece: None, None, None))
    assembly.add(chunk({"content": "Hel"}))
    with pytest.raises(Failure) as caught:
        assembly.reply()
    assert caught.value.kind == "connection"
