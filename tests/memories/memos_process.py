"""MemOS's environment for tests, and one process of it for all tests that aren't about the process itself."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from opbench.memories.sidecar.client import Sidecar
from opbench.settings import ROOT, settings
from tests.memories.contract import said


def python() -> Path:
    """`make test` makes the environment and names it."""
    found = Path(os.environ.get("OPBENCH_MEMOS_PYTHON") or ROOT / ".venv-memos" / "bin" / "python")
    assert found.exists(), f"there is no {found}: `make test` makes it"
    return found


@pytest.fixture
def memos(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """MemOS is installed."""
    found = python()
    monkeypatch.setenv("OPBENCH_MEMOS_PYTHON", str(found))
    settings.cache_clear()
    return found


@cache
def _shared() -> Sidecar:
    # Not under a test's home, which goes before the process does.
    base = Path(tempfile.mkdtemp(prefix="opbench-memos-tests-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    running = Sidecar(python(), base, base / "memos.log")
    atexit.register(running.end)
    return running


@pytest.fixture
def one_process(memos: Path, monkeypatch: pytest.MonkeyPatch) -> Sidecar:
    """All stores in one process, whatever the home: it takes three seconds to start."""
    for system in ("memos", "memos_tree"):
        monkeypatch.setattr(f"opbench.memories.systems.{system}.sidecar", lambda python: _shared())
    return _shared()


def extraction(values: list[str], **changed: Any) -> str:
    """What a model answers to MemOS's extraction prompt; `changed` for each of the memories."""
    memories = [
        {"key": value[:30], "memory_type": "UserMemory", "value": value, "tags": ["a", "b"], **changed}
        for value in values
    ]
    return json.dumps({"memory list": memories, "summary": "A conversation."}, ensure_ascii=False)


def conversation(body: dict[str, Any]) -> str:
    """What the request holds of the conversation, without the examples of MemOS's prompt."""
    return str(body["messages"][-1]["content"]).rpartition("Conversation:\n")[2]


def all_said(body: dict[str, Any]) -> list[str]:
    """The lines of the conversation in a request."""
    return said({"messages": [{"content": conversation(body)}]})
