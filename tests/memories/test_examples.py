"""The worked examples of docs/ as a reader would use them: a plugin file, and a memory server."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import load
from opbench.memories.registry import ingesting_names, library_factory, memory_label, needs_extractor
from opbench.memories.systems.http import Http
from opbench.plugins import load_plugins
from opbench.settings import ROOT
from tests.memories.contract import MemoryContract, said, world
from tests.scripted_endpoint import ScriptedEndpoint

EXAMPLES = ROOT / "docs" / "examples"
PLUGIN = EXAMPLES / "memory_plugin.py"
CORPUS = load("sample")
USER = CORPUS.users["sample-1/Ottilie"]
HISTORY = CORPUS.conversations["sample-1"].sessions


def plugin() -> Any:
    """The plugin's module, as `--plugin` loads it."""
    load_plugins([PLUGIN])
    return sys.modules[f"opbench_plugin_{PLUGIN.stem}"]


class TestPlugin(MemoryContract):
    """It keeps every promise of a memory system."""

    def make_library(self) -> Any:
        return plugin().Facts()

    def answer(self, body: dict[str, Any]) -> str:
        return "\n".join(f"- {line}" for line in said(body))


def test_the_plugin_is_a_memory_system_that_needs_an_extractor() -> None:
    plugin()
    assert "facts" in ingesting_names()
    assert memory_label("facts") == "Facts"
    assert needs_extractor("facts")
    factory = library_factory("facts")
    assert factory is not None
    assert factory.library().name == "facts"


@pytest.fixture
def server() -> Iterator[str]:
    """The example server's address; it runs as a process of its own, as its first lines say."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "memory_server.py"), "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


async def test_the_server_takes_in_and_finds(server: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint() as endpoint:
        file = home.parent / "models.toml"
        file.write_text(endpoint.registry_toml("scripted"))
        monkeypatch.setenv("OPBENCH_MODELS", str(file))
        mine = Http(
            "mine",
            "Mine",
            ingest_url=f"{server}/ingest",
            search_url=f"{server}/search",
            version="1",
            key_env=None,
            timeout_s=20.0,
            mend="memories.local.toml: [memories.mine]",
        )
        async with world(mine) as here:
            await here.memory.ingest(USER, HISTORY)
            manifest = here.manifest(USER, HISTORY)
            assert manifest.complete
            assert manifest.memories == sum(len(session.turns) for session in HISTORY)
            turn, day = HISTORY[2].turns[3], HISTORY[2].day
            found = await here.memory.search(USER, f"({day}) {turn.speaker}: {turn.text}", 3)
            assert len(found) == 3
            assert (found[0].text, found[0].date) == (f"({day}) {turn.speaker}: {turn.text}", day)
            assert found[0].score == 1.0
        assert endpoint.ledger.total == 0


def test_the_server_needs_the_standard_library_alone() -> None:
    spec = importlib.util.spec_from_file_location("memory_server", EXAMPLES / "memory_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    spec.loader.exec_module(module)
    foreign = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
    assert foreign == set()
