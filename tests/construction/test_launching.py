"""Work on a build in a process of its own: started, watched, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from opbench.construction import launching
from opbench.construction.building import build, start
from opbench.construction.launching import BuildOrder, launch, started
from opbench.construction.loading import read_source
from opbench.construction.progress import read_progress
from opbench.construction.spec import BuildSpec
from opbench.errors import UsageError
from opbench.settings import settings
from opbench.store.builds import create_build, load_build
from opbench.store.database import open_store
from tests.construction.writer import scripted_spec, write
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint


def test_started_watched_stopped_and_gone_on(home: Path) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint, timeout_s=60)
        build_id = start(store, scripted_spec(), read_source("sample"))
        endpoint.held = lambda: endpoint.ledger.total > 10
        order = BuildOrder(build_id, concurrency=4, filtered=False)
        process = launch(store, order)
        assert process.order == order
        with pytest.raises(UsageError, match=f"process {process.pid}"):
            launch(store, order)
        deadline = time.monotonic() + 120
        while endpoint.ledger.total < 11 and time.monotonic() < deadline:
            time.sleep(0.05)
        during = read_progress(store, build_id)
        assert during.working, process.last_words()
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(1.5)
        endpoint.held = None
        while started(build_id)[0].working and time.monotonic() < deadline:
            time.sleep(0.05)
        stopped = read_progress(store, build_id)
        assert not stopped.working
        assert 0 < stopped.done < stopped.planned
        assert "Interrupted" in str(stopped.halted)
        assert stopped.done == endpoint.ledger.answered.total(), "what was in hand is finished"
        done = asyncio.run(build(store, build_id))
        assert (done.left, done.halted) == (0, None)
        assert endpoint.ledger.total == done.done
    assert [each.id for each in started(build_id)] == [process.id]


def test_a_stop_is_asked_for_in_the_store(home: Path) -> None:
    store = open_store(settings().store_url)
    build_id = create_build(store, BuildSpec(), {})
    launching.stop(store, build_id)
    assert load_build(store, build_id).request == "stop"
    with pytest.raises(UsageError, match="no build 'gone'"):
        launching.stop(store, "gone")


def test_an_order_is_a_command_of_ours() -> None:
    assert BuildOrder("b1", concurrency=2, again=True).command() == (
        "opbench build run b1 --concurrency 2 --again --filter"
    )
    assert BuildOrder("b1", "filter").command() == "opbench build filter b1 --concurrency 8"
