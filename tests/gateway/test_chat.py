"""Chat through the gateway: what reaches the endpoint, what comes back, what is counted and kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from sqlalchemy import select

from opbench.errors import ModelError
from opbench.gateway.lease import Usage
from opbench.store import schema as s
from tests.gateway.helpers import bench_of, registry_of, say
from tests.scripted_endpoint import ScriptedEndpoint

SCHEMA = {"type": "object", "properties": {"facts": {"type": "array", "items": {"type": "string"}}}}


async def test_an_answer_is_paid_once_and_counted_exactly(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=lambda body: "I am well.") as endpoint:
        registry = registry_of(endpoint, tmp_path)
        async with bench_of(registry, tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            # Asked with the lease: one short text's vector, for the dimensions.
            assert endpoint.ledger.total == 1
            first = await bench.ask(lease, say)
            again = await bench.ask(lease, say)
            assert bench.calls.stats.spent_usd == pytest.approx((3 * 1.0 + 3 * 2.0) / 1e6)
        async with bench_of(registry, tmp_path) as bench:
            other = await bench.gateway.lease("another process", "scripted")
            third = await bench.ask(other, say)
    assert first.choices[0].message.content == "I am well."
    assert (first.choices[0].finish_reason, first.model) == ("stop", "scripted")
    # The endpoint counts words.
    assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.total_tokens) == (3, 3, 6)
    assert again == first == third
    assert endpoint.ledger.total == 2
    # $1 and $2 a million: 3 words in and 3 out, twice, are 18 millionths; paid were 9.
    used = lease.take()
    # One of the two was reused, with the time that it took when it was made.
    assert used.model_ms == 2 * used.reused_ms > 0
    used.model_ms = used.reused_ms = 0.0
    assert used == Usage(
        calls=2,
        reused=1,
        prompt_tokens=6,
        completion_tokens=6,
        cost_usd=pytest.approx(18e-6),  # type: ignore[arg-type]
        spent_usd=pytest.approx(9e-6),  # type: ignore[arg-type]
    )
    assert lease.usage == Usage()
    assert (other.usage.calls, other.usage.reused, other.usage.spent_usd) == (1, 1, 0.0)


async def test_a_call_is_in_the_store_at_once_as_a_librarys(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            await bench.ask(lease, say)
            with bench.store.begin() as connection:
                kinds = connection.scalars(select(s.calls.c.kind).order_by(s.calls.c.kind)).all()
    assert kinds == ["embedding", "library"]


async def test_what_reaches_the_endpoint(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "How are"}, {"type": "text", "text": "you?"}]
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            lease.rewrite = lambda text: text.replace("you", "they")

            def ask(sdk: openai.OpenAI) -> None:
                say(sdk, parts, user="u1", store=False, metadata={"a": "b"}, n=1, presence_penalty=0)  # type: ignore[arg-type]
                say(
                    sdk,
                    temperature=0,
                    max_completion_tokens=9,
                    top_p=0.1,
                    stop="END",
                    seed=7,
                    frequency_penalty=0.5,
                    response_format={"type": "json_object"},
                )

            await bench.ask(lease, ask)
    bare, full = endpoint.ledger.bodies[1:]
    # As in OpenAI's API, a request that names no temperature asks for 1; then the client sends the repeat as seed.
    assert bare == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "How are\nthey?"}],
        "temperature": 1.0,
        "max_tokens": 2000,
        "seed": 0,
    }
    assert full == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "How are they?"}],
        "temperature": 0.0,
        "max_tokens": 9,
        "top_p": 0.1,
        "stop": "END",
        "seed": 7,
        "frequency_penalty": 0.5,
        "response_format": {"type": "json_object"},
    }


@pytest.mark.parametrize("enforces", [True, False])
async def test_a_schema_is_asked_for_where_the_endpoint_enforces_it(tmp_path: Path, enforces: bool) -> None:
    with ScriptedEndpoint() as endpoint:
        registry = registry_of(endpoint, tmp_path)
        models = {"scripted": registry.model("scripted").model_copy(update={"json_schema": enforces})}
        async with bench_of(registry.model_copy(update={"models": models}), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            lease.schema = SCHEMA
            await bench.ask(lease, lambda sdk: say(sdk, response_format={"type": "json_object"}))
    asked = endpoint.ledger.bodies[-1]["response_format"]
    if enforces:
        assert asked["type"] == "json_schema"
        assert asked["json_schema"]["schema"] == SCHEMA
        assert asked["json_schema"]["strict"] is True
    else:
        assert asked == {"type": "json_object"}


async def test_a_stream_carries_the_whole_answer_and_its_usage(tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=lambda body: "I am well.") as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            plain = await bench.ask(lease, lambda sdk: list(say(sdk, stream=True)))
            apart = await bench.ask(
                lease, lambda sdk: list(say(sdk, stream=True, stream_options={"include_usage": True}))
            )
    assert [chunk.choices[0].delta.content for chunk in plain] == ["I am well."]
    assert (plain[0].choices[0].finish_reason, plain[0].usage.total_tokens) == ("stop", 6)
    assert [len(chunk.choices) for chunk in apart] == [1, 0]
    assert (apart[0].usage, apart[1].usage.total_tokens) == (None, 6)
    assert (lease.usage.calls, lease.usage.reused, endpoint.ledger.total) == (2, 1, 2)


async def test_identical_calls_at_once_share_one_request(tmp_path: Path) -> None:
    with ScriptedEndpoint(latency_s=0.2) as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            leases = [await bench.gateway.lease(label, "scripted") for label in ("a", "b", "c")]
            answers = await asyncio.gather(*(bench.ask(lease, say) for lease in leases))
    assert len({answer.choices[0].message.content for answer in answers}) == 1
    assert endpoint.ledger.total == 2  # and the vector for the dimensions
    assert [lease.usage.calls for lease in leases] == [1, 1, 1]
    assert sum(lease.usage.reused for lease in leases) == 2
    assert sum(lease.usage.spent_usd for lease in leases) == pytest.approx(leases[0].usage.cost_usd)


async def test_many_libraries_that_block_threads_dont_starve_the_gateway(tmp_path: Path) -> None:
    # More than asyncio's pool has by itself on any machine (32), so that each thread would wait for another one.
    with ScriptedEndpoint(latency_s=0.05) as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path, concurrency=40), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            asked = (bench.ask(lease, lambda sdk, n=n: say(sdk, f"Question {n}")) for n in range(40))  # type: ignore[misc]
            async with asyncio.timeout(60):
                await asyncio.gather(*asked)
    assert (lease.usage.calls, lease.usage.reused) == (40, 0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"extra_body": {"top_k": 3}}, "top_k"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_p": True}, "top_p"),
        ({"seed": "x"}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}
                ]
            },
            "messages[0].content[0]",
        ),
    ],
)
async def test_what_isnt_supported_is_refused_by_name(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    given = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], **fields}
    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            with pytest.raises(openai.BadRequestError) as refused:
                await bench.ask(lease, lambda sdk: sdk.chat.completions.create(**given))
            assert refused.value.param == param
            assert param.split("[")[0] in str(refused.value.message)
            assert refused.value.type == "invalid_request_error"
            with pytest.raises(ModelError, match=r"^gateway: ") as told:
                lease.raise_failure()
            assert told.value.kind == "bad_request"
            lease.raise_failure()  # told once
    assert endpoint.ledger.total == 1, "only the vector for the dimensions"
    assert lease.usage == Usage()


async def test_an_abandoned_call_is_kept_all_the_same(tmp_path: Path) -> None:
    with ScriptedEndpoint(latency_s=0.6) as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            with pytest.raises(openai.APITimeoutError):
                await bench.ask(lease, lambda sdk: say(sdk.with_options(timeout=0.2, max_retries=0)))
            # Closing waits for it.
        with endpoint._lock:
            asked = endpoint.ledger.total
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            again = await bench.gateway.lease("test", "scripted")
            await bench.ask(again, say)
    assert lease.usage.calls == 1
    assert again.usage.reused == 1
    assert (asked, endpoint.ledger.total, endpoint.ledger.closed_by_client) == (2, 2, 0)


async def test_a_body_that_is_no_json_object(tmp_path: Path) -> None:
    import httpx2

    with ScriptedEndpoint() as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            async with httpx2.AsyncClient(trust_env=False) as http:
                for content in (b"{", b"[1]", b"\xff", b'{"model": "scripted", "messages": "x"}', b"[" * 100_000):
                    reply = await http.post(
                        f"{lease.base_url}/chat/completions",
                        content=content,
                        headers={"Authorization": f"Bearer {lease.key}"},
                    )
                    assert reply.status_code == 400
                    assert set(json.loads(reply.text)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r'["cut \ud83d"]', ["cut \ufffd"]),
        (r'["\udc1d", "\uDC1D\ud83d"]', ["\ufffd", "\ufffd\ufffd"]),
        (r'["nul \u0000 inside"]', ["nul \ufffd inside"]),
        (r'["whole \ud83d\udc1d", "é \u00e9 \" \\"]', ["whole 🐝", 'é é " \\']),
        (r'["no escape: \\u0000 \\ud83d"]', [r"no escape: \u0000 \ud83d"]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answers_json_holds_nothing_that_a_library_could_not_keep(
    written: str, read: list[str], stream: bool, tmp_path: Path
) -> None:
    def asked(sdk: openai.OpenAI) -> str:
        messages: Any = [{"role": "user", "content": "As JSON."}]
        if not stream:
            return sdk.chat.completions.create(model="scripted", messages=messages).choices[0].message.content or ""
        parts = sdk.chat.completions.create(model="scripted", messages=messages, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts)

    with ScriptedEndpoint(reply=lambda body: written) as endpoint:
        async with bench_of(registry_of(endpoint, tmp_path), tmp_path) as bench:
            lease = await bench.gateway.lease("test", "scripted")
            assert json.loads(await bench.ask(lease, asked)) == read
            with bench.store.begin() as connection:
                kept = connection.execute(select(s.calls.c.response).where(s.calls.c.kind == "library")).scalar_one()
    assert kept == written, "the call store keeps what was answered"
