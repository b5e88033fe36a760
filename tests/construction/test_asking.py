"""Asking for JSON: enforced where the endpoint can, validated always, repaired at most once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbench.construction.asking import Asked, Asker, Wrong, parsed
from opbench.construction.shapes import names, read_names
from opbench.models import ModelClient, load_registry
from opbench.running.prepare import call_store
from opbench.store.database import open_store
from opbench.types import Message
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

GOOD = '{"topics": ["Swimming", "Organs"]}'
ASK = (Message("user", "Name two topics."),)


async def ask(home: Path, *endpoints: ScriptedEndpoint, times: int = 1) -> list[Asked[list[str]]]:
    use_endpoint(home, endpoints[0])
    store, registry = open_store(f"sqlite:///{home}/store.sqlite3"), load_registry()
    async with ModelClient(registry) as client:
        asker = Asker(call_store(store, registry, client, client.at_a_time), registry)
        return [
            await asker.ask("scripted", ASK, names("topics", 2), lambda value: read_names(value, "topics", 2), repeat=n)
            for n in range(times)
        ]


def in_turn(*answers: str) -> Callable[[dict[str, Any]], str]:
    left = list(answers)
    return lambda body: left.pop(0)


async def test_the_schema_is_asked_for_and_a_good_answer_is_one_call(home: Path) -> None:
    with ScriptedEndpoint(reply=lambda body: GOOD) as endpoint:
        [asked] = await ask(home, endpoint)
    assert (asked.value, asked.fault, asked.repaired) == (["Swimming", "Organs"], None, False)
    [body] = endpoint.ledger.bodies
    form = body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["strict"] is True
    schema = form["json_schema"]["schema"]
    assert schema["required"] == ["topics"]
    assert schema["additionalProperties"] is False
    # Hosted models refuse schemas that bound the length of texts; how many items are wanted they understand.
    assert schema["properties"]["topics"] == {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 2,
        "maxItems": 2,
    }


async def test_a_wrong_answer_is_repaired_once_and_shown_what_is_wrong(home: Path) -> None:
    with ScriptedEndpoint(reply=in_turn('{"themes": []}', GOOD)) as endpoint:
        [asked] = await ask(home, endpoint)
    assert asked.value == ["Swimming", "Organs"]
    assert asked.repaired
    assert len(asked.rows) == 2
    first, second = endpoint.ledger.bodies
    assert second["messages"][:1] == first["messages"]
    assert second["messages"][1] == {"role": "assistant", "content": '{"themes": []}'}
    assert 'the key "topics" must hold a list' in second["messages"][2]["content"]


async def test_after_one_repair_it_has_failed_for_good(home: Path) -> None:
    with ScriptedEndpoint(reply=in_turn("Swimming.", '{"topics": "Swimming"}', GOOD)) as endpoint:
        [asked] = await ask(home, endpoint)
        assert endpoint.ledger.total == 2
    assert asked.value is None
    assert asked.fault == 'the key "topics" must hold a list'
    assert not asked.retriable, "asking the same again would get the same"


async def test_a_call_that_fails_is_no_wrong_answer(home: Path) -> None:
    with ScriptedEndpoint(script=["unauthorized"]) as endpoint:
        [asked] = await ask(home, endpoint)
    assert asked.value is None
    assert asked.retriable
    assert asked.rows == []
    assert "scripted" in str(asked.fault)


@pytest.mark.parametrize(("known", "refusals"), [("json_object", 1), (None, 2)])
async def test_an_endpoint_that_refuses_schemas_is_asked_otherwise_and_that_is_remembered(
    home: Path, known: str | None, refusals: int
) -> None:
    with ScriptedEndpoint(reply=lambda body: GOOD) as endpoint:
        endpoint.refused = lambda body: body.get("response_format", {}).get("type") not in (known, None)
        asked = await ask(home, endpoint, times=3)
    assert [each.value for each in asked] == [["Swimming", "Organs"]] * 3
    types = [body.get("response_format", {}).get("type") for body in endpoint.ledger.bodies]
    assert types == ["json_schema", "json_object", None][:refusals] + [known] * 3


async def test_an_endpoint_that_refuses_everything_says_why(home: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        endpoint.refused = lambda body: True
        [asked] = await ask(home, endpoint)
        assert endpoint.ledger.total == 3
    assert asked.value is None
    assert not asked.retriable
    assert "Unrecognized request argument" in str(asked.fault)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Sure! Here they are:\n{GOOD}\nAnything else?",
        f"<think>Perhaps {{}}?</think>{GOOD}",
    ],
)
def test_json_is_found_among_words(text: str) -> None:
    assert parsed(text) == json.loads(GOOD)


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        ("", "stop", "empty"),
        ("<think>still at it", "length", "empty"),
        ("No.", "stop", "isn't JSON"),
        ('["a"]', "stop", "no object"),
        ('{"topics": ["a', "length", "cut off"),
        ("{" * 100_000 + "}" * 100_000, "stop", "isn't JSON"),
    ],
)
def test_what_is_no_json_is_said(text: str, reason: str, said: str) -> None:
    with pytest.raises(Wrong, match=said):
        parsed(text, reason)


def test_what_no_store_can_keep_is_taken_out() -> None:
    assert parsed('{"a": "x\\ud800y\\u0000z"}') == {"a": "x?y�z"}
