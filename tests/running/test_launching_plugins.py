"""Studies with plugin files, started from outside: the plugin's code runs in processes of its own only."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import mitigations
from opbench.errors import UsageError
from opbench.plugins import loaded_plugins, plugin_files
from opbench.running.launch import launch, plugin_methods, quote_with_plugins
from opbench.settings import settings
from opbench.store.database import Store, open_store
from opbench.store.reading import run_ids, run_status
from opbench.store.runs import run_study
from opbench.study import Study
from tests.running.study import STUDY, hold, reply, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

PLUGIN = """
import mitigations
from mitigations.none import NoMitigation

class Mine(NoMitigation):
    def __init__(self):
        super().__init__("mine")
        self.label = "My method"

mitigations.register(Mine())
"""
MINE = Study(**STUDY | {"mitigations": ("none", "mine"), "judge": "offline", "embedder": "minilm", "limit": 2})


@pytest.fixture
def file(home: Path) -> Path:
    file = home / "plugins" / "mine.py"
    file.parent.mkdir(parents=True)
    file.write_text(PLUGIN, encoding="utf-8")
    return file


def until(done: object, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def test_a_plugins_study_is_quoted_launched_and_done_without_loading_it_here(home: Path, file: Path) -> None:
    assert plugin_files() == [file]
    assert plugin_methods([file]) == {"mitigations": {"mine": "My method"}, "memories": {}, "judges": {}}
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        run_id, estimate = quote_with_plugins(MINE, [file], concurrency=2)
        # BASE, and RAG under two methods, on two instances of each benchmark.
        assert (estimate.planned, estimate.to_do) == (12, 12)
        assert run_ids(store) == [], "a quote leaves no run"
        launched = launch(store, MINE, concurrency=2, plugins=[file])
        assert launched.run_id == run_id
        until(lambda: run_status(store, run_id).complete)
    _, provenance = run_study(store, run_id)
    assert set(provenance["plugins"]) == {"mine.py"}
    assert "mine" not in mitigations.names()
    assert loaded_plugins() == {}


def test_what_a_plugin_says_when_it_fails_is_told(home: Path, file: Path) -> None:
    file.write_text("raise ValueError('no such thing')", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.py: the plugin failed while loading: ValueError: no such thing"):
        plugin_methods([file])


def test_without_its_plugin_a_study_cannot_be_launched(home: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        with pytest.raises(UsageError, match="unknown mitigation 'mine'"):
            launch(open_store(settings().store_url), MINE)


def test_a_run_is_seen_to_start_at_once_and_is_not_started_twice(home: Path) -> None:
    store: Store = open_store(settings().store_url)
    study = Study(**STUDY)
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint, timeout_s=60)
        hold(endpoint)
        launched = launch(store, study, concurrency=2)
        status = run_status(store, launched.run_id)
        assert status.working
        assert (status.worker["pid"], status.worker["stats"]) == (launched.pid, {"starting": True})
        with pytest.raises(UsageError, match="is being worked on already"):
            launch(store, study, concurrency=2)
        until(lambda: run_status(store, launched.run_id).done > 0)
        at_work = run_status(store, launched.run_id)
        assert at_work.worker["pid"] == launched.pid
        assert "starting" not in at_work.worker["stats"]
        from opbench.store.writing import set_request

        set_request(store, launched.run_id, "stop")
        endpoint.held = None
        until(lambda: not run_status(store, launched.run_id).working)


def test_a_budget_that_cannot_be_kept_is_refused_before_anything_starts(home: Path) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        models = home / "models.toml"
        models.write_text("\n".join(line for line in models.read_text().splitlines() if "price" not in line))
        with pytest.raises(UsageError, match="no price"):
            launch(store, Study(**STUDY), budget_usd=1.0)
    assert run_ids(store) == []
    assert not (home / "studies").exists()
