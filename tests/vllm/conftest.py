"""A real vLLM server, started by `opbench serve` and shared by all tests of this folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from opbench.models.embedded import file_digest, gguf
from opbench.serving.throughput import Counters, read
from opbench.settings import settings

KEY = "planted-vllm-key-0123456789"
#: Tokens of a block of the prefix cache, and blocks: so few that the order of calls decides what is still there.
BLOCK, BLOCKS = 32, 36
CONTEXT = 1024
_CONVERTER = Path(__file__).with_name("gguf_to_folder.py")
_START_S = 280.0
_MODELS = """
[models.tiny]
base_url = "http://127.0.0.1:{port}/v1"
served = "smollm2"
key_env = "TINY_KEY"
timeout_s = 250
concurrency = 4
vllm = "vllm serve {folder} --max-model-len {context} --enforce-eager {cache}"

[models.stranger]
base_url = "http://127.0.0.1:{port}/v1"
served = "no-such-model"
key_env = "TINY_KEY"

[models.unkeyed]
base_url = "http://127.0.0.1:{port}/v1"
served = "smollm2"
key_env = "WRONG_KEY"
"""


@dataclass(frozen=True, slots=True)
class Served:
    """The server that the tests ask."""

    url: str
    models: Path
    """Registry file; its `tiny` is served."""
    output: Path
    """What `opbench serve` said."""

    def counters(self) -> Counters:
        found = read(httpx2.get(f"{self.url}/metrics", trust_env=False).text, time.monotonic())
        assert found is not None
        return found

    def forget(self) -> None:
        """Empty its prefix cache."""
        headers = {"Authorization": f"Bearer {KEY}"}
        httpx2.post(f"{self.url}/reset_prefix_cache", headers=headers, trust_env=False).raise_for_status()


@pytest.fixture(scope="session")
def python() -> str:
    found = os.environ.get("OPBENCH_VLLM_PYTHON")
    assert found, "these tests need vLLM's environment: make test-vllm"
    return found


@pytest.fixture(scope="session")
def model_folder(python: str) -> Path:
    """The embedded model as vLLM loads it; made once beside vLLM's environment."""
    source = gguf()
    folder = Path(python).parent.parent / "models" / f"smollm2-{file_digest(source)}-{file_digest(_CONVERTER)}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([python, str(_CONVERTER), str(source), str(part)], check=True, capture_output=True)
        part.rename(folder)
    return folder


@pytest.fixture(scope="session")
def served(python: str, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`opbench serve tiny`, until the last test is over; Ctrl-C must end it well."""
    home = tmp_path_factory.mktemp("serving")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    cache = f"--block-size {BLOCK} --num-gpu-blocks-override {BLOCKS}"
    models, output = home / "models.toml", home / "output"
    models.write_text(_MODELS.format(port=port, folder=model_folder, context=CONTEXT, cache=cache))
    environment = os.environ | {
        "OPBENCH_HOME": str(home),
        "OPBENCH_MODELS": str(models),
        "OPBENCH_VLLM_PYTHON": python,
        "TINY_KEY": KEY,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # One thread: two that wait for each other spinning are many times slower beside any other busy process.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        # For /reset_prefix_cache.
        "VLLM_SERVER_DEV_MODE": "1",
    }
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "opbench", "serve", "tiny", "--every", "1"], env=environment, stdout=out, stderr=out
        )
    try:
        until = time.monotonic() + _START_S
        while "Ctrl-C ends it." not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < until, output.read_text()
            time.sleep(0.2)
        yield Served(f"http://127.0.0.1:{port}", models, output)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, output.read_text()
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"http://127.0.0.1:{port}/health", trust_env=False)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        print(output.read_text())


@pytest.fixture
def server(served: Served, home: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The server, in the registry of the test's own home."""
    monkeypatch.setenv("OPBENCH_MODELS", str(served.models))
    monkeypatch.setenv("TINY_KEY", KEY)
    monkeypatch.setenv("WRONG_KEY", "some-other-key-0123456789")
    settings.cache_clear()
    return served
