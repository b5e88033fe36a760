"""What the tests of serving share: an installation that stands in for vLLM's, and free ports next to each other."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from opbench.models import ModelSpec
from tests.serving import scripted_vllm


@pytest.fixture(autouse=True)
def no_python_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person who runs the tests serves with is no part of them."""
    monkeypatch.delenv("OPBENCH_VLLM_PYTHON", raising=False)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scripted vLLM as a package of this Python; the folder that its servers tell of themselves in."""
    packages = tmp_path / "packages"
    scripted_vllm.install(packages)
    told = tmp_path / "told"
    told.mkdir()
    (told / "metrics.txt").write_text('vllm:prompt_tokens_total{engine="0"} 0.0\n')
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("SCRIPTED_FOLDER", str(told))
    for name in ("CUDA_VISIBLE_DEVICES", "VLLM_API_KEY", "SCRIPTED", "SCRIPTED_DEVICE", "SCRIPTED_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return told


@pytest.fixture
def port() -> int:
    """A free port whose next one is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            found = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", found + 1))
            except (OSError, OverflowError):
                continue
            return found


def spec(port: int = 8000, **fields: object) -> ModelSpec:
    """An entry with a command, on that port of this machine."""
    given: dict[str, object] = {
        "name": "mine",
        "base_url": f"http://127.0.0.1:{port}/v1",
        "served": "org/Mine-8B",
        "vllm": "vllm serve org/Mine-8B --max-model-len 4096",
    }
    return ModelSpec.model_validate(given | fields)
