"""The gateway before the embedded models, for real; and `opbench gateway` as people start it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import numpy as np
import openai

from opbench.models import ModelClient, get_embedder, load_registry
from tests.gateway.helpers import bench_of, registry_of, say
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

SCHEMA = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "items": {"type": "string", "maxLength": 60}, "minItems": 2, "maxItems": 2}
    },
    "required": ["facts"],
    "additionalProperties": False,
}


async def test_the_embedded_model_keeps_to_a_schema(tmp_path: Path) -> None:
    async with bench_of(load_registry(), tmp_path, "minilm") as bench:
        lease = await bench.gateway.lease("test", "smollm2-135m")
        lease.schema = SCHEMA
        question = "Anna lives in Oslo and has two dogs. List what you know of her."
        reply = await bench.ask(
            lease, lambda sdk: say(sdk, question, model="smollm2-135m", temperature=0, max_tokens=120)
        )
    facts = json.loads(reply.choices[0].message.content)
    assert set(facts) == {"facts"}
    assert [type(fact) for fact in facts["facts"]] == [str, str]
    assert (lease.usage.cost_usd, lease.usage.spent_usd) == (0.0, 0.0)


async def test_minilms_vectors_are_those_of_the_embedder(tmp_path: Path) -> None:
    registry, texts = load_registry(), ["Anna has two dogs.", "It rains."]
    async with bench_of(registry, tmp_path, "minilm") as bench:
        lease = await bench.gateway.lease("test", "smollm2-135m")
        for phase in ("ingest", "search"):
            lease.phase = phase
            made = await bench.ask(
                lease, lambda sdk: sdk.embeddings.create(model="minilm", input=texts, dimensions=384)
            )
            async with ModelClient(registry) as client:
                own = await get_embedder("minilm", registry, client).embed(texts)
            np.testing.assert_allclose([row.embedding for row in made.data], own, atol=1e-6)
    assert (lease.dimensions, lease.usage.embedded_tokens, lease.usage.cost_usd) == (384, 0, 0.0)


def gateway(environment: dict[str, str], *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "opbench", "gateway", *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def heading(process: subprocess.Popen[str]) -> dict[str, str]:
    """What the command says at its start, by the first word of each line."""
    assert process.stdout is not None
    lines: dict[str, str] = {}
    for line in process.stdout:
        if line.startswith("Ctrl-C"):
            return lines
        name, _, value = line.strip().partition("  ")
        lines[name] = value.strip()
    raise AssertionError(lines)


def test_the_command_serves_counts_and_ends_with_ctrl_c(home: Path) -> None:
    with ScriptedEndpoint(reply=lambda body: "I am well.") as endpoint:
        environment = use_endpoint(home, endpoint, price_in=1000.0, price_out=2000.0)
        for reused in (0, 1):
            process = gateway(environment, "--label", "mine", "--models", "scripted", "--embedder", "scripted")
            try:
                told = heading(process)
                assert told["models"] == "scripted"
                assert told["embedder"] == "scripted (32 dimensions)"
                with openai.OpenAI(base_url=told["base URL"], api_key=told["token"]) as sdk:
                    assert say(sdk).choices[0].message.content == "I am well."
                    sdk.embeddings.create(model="scripted", input=["a b", "c"])
                process.send_signal(signal.SIGINT)
                rest, _ = process.communicate(timeout=30)
            finally:
                process.kill()
            assert process.returncode == 0
            # $1,000 and $2,000 a million: 3 words in, 3 out and 3 embedded are 12 thousandths.
            assert (
                f"mine: 1 calls ({reused} reused), 3 tokens in, 3 out; 1 embedding requests, 2 texts "
                f"({2 * reused} reused); $0.0120 by list price, {'$0.00' if reused else '$0.0120'} paid now"
            ) in rest.splitlines()
    assert endpoint.ledger.total == 3  # dimensions, answer, vectors


def test_a_token_from_the_environment_is_never_printed(home: Path) -> None:
    key = "my-own-token-0123456789"
    with ScriptedEndpoint() as endpoint:
        environment = use_endpoint(home, endpoint) | {"OPBENCH_GATEWAY_KEY": key}
        process = gateway(environment, "--embedder", "scripted", "--models", "scripted")
        try:
            told = heading(process)
            assert told["token"] == "as in OPBENCH_GATEWAY_KEY"
            reply = httpx2.get(
                told["base URL"] + "/models", headers={"Authorization": f"Bearer {key}"}, trust_env=False
            )
            assert [model["id"] for model in reply.json()["data"]] == ["scripted"]
            assert key not in Path(f"/proc/{process.pid}/cmdline").read_text()
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert key not in str(told) + rest


def test_wrong_use_is_one_line(home: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        environment = use_endpoint(home, endpoint)
        for more, flags, said in (
            ({"OPBENCH_GATEWAY_KEY": "short"}, [], "OPBENCH_GATEWAY_KEY: give 16 signs or more"),
            ({}, ["--models", "scriptd"], "No model is named 'scriptd'. Did you mean scripted?"),
            ({}, ["--embedder", "minilm2"], "No embedder is named 'minilm2'"),
        ):
            process = gateway(environment | more, "--embedder", "scripted", *flags)
            out, _ = process.communicate(timeout=60)
            assert process.returncode == 2
            assert said in out
            assert len(out.strip().splitlines()) == 1


async def test_a_gateway_of_the_registry_knows_which_endpoints_enforce_schemas(tmp_path: Path) -> None:
    assert load_registry().model("smollm2-135m").json_schema
    with ScriptedEndpoint() as endpoint:
        assert not registry_of(endpoint, tmp_path).model("scripted").json_schema
