"""The fast scripted server speaks the wire format, and its answers are those that a judge can read."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from opbench.judges.packs import load_pack
from opbench.judges.parsing import parse_score, parse_verdict
from tests.speed.server import Server, answer, running, vector


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


def asked(*contents: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} for content in contents]


def post(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(server.url + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as reply:
        told: dict[str, Any] = json.load(reply)
    return told


def test_answers_depend_on_model_and_messages() -> None:
    assert answer("m", asked("a", "b")) == answer("m", asked("a", "b"))
    assert len({answer("m", asked(f"question {number}")) for number in range(100)}) == 100
    assert answer("m", asked("a")) != answer("n", asked("a"))


@pytest.mark.parametrize("name", ["irrelevance", "fact", "value", "memory"])
def test_a_judge_reads_its_scores(name: str) -> None:
    values = {parse_score(answer("m", asked(load_pack("own").fill(name, {"response": str(n)})))) for n in range(50)}
    assert None not in values
    assert len(values) > 10


def test_a_judge_reads_its_verdicts() -> None:
    prompts = [load_pack("own").fill("locomo", {"response": str(number)}) for number in range(50)]
    assert {parse_verdict(answer("m", asked(prompt))) for prompt in prompts} == {True, False}


def test_it_tells_tokens_and_counts_what_it_answered(server: Server) -> None:
    server.anew()
    told = post(server, "/chat/completions", {"model": "m", "messages": asked("one two", "three")})
    # Words of the two messages; 16 words and a number are the answer.
    assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 17, "total_tokens": 20}
    assert told["choices"][0]["message"]["content"] == answer("m", asked("one two", "three"))
    assert post(server, "/embeddings", {"model": "m", "input": ["one two", "two"]})["data"][1]["embedding"] == vector(
        "two"
    )
    ledger = server.ledger()
    assert (ledger["answered"], sum(ledger["slices"])) == (2, 2)


def test_what_is_no_request_is_refused_and_the_connection_lives_on(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(server, "/chat/completions", {"model": "m"})
    assert refused.value.code == 400
    refused.value.close()
    assert post(server, "/chat/completions", {"model": "m", "messages": asked("?")})["model"] == "m"
