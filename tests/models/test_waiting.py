"""How long something took, without what its requests waited. Milliseconds worked out by hand."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from opbench.models import ModelClient, load_registry
from opbench.models.waiting import Stopwatch, stopwatch, waited
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint


def test_waits_that_overlap_are_left_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = Stopwatch()
    # Two seconds from 11 on, three from 12 on, and one within them: 11 to 15. Before 10 nothing was timed.
    for since, until in ((12.0, 15.0), (11.0, 13.0), (13.0, 14.0), (9.0, 10.5)):
        watch.waited(since, until)
    now[0] = 17.0
    assert watch.elapsed_ms() == pytest.approx((17 - 10 - 4 - 0.5) * 1000)


def test_who_times_nothing_hears_nothing() -> None:
    waited(0.0, 1.0)
    with stopwatch() as watch:
        pass
    waited(0.0, 1.0)
    assert watch._waits == []


async def timed(client: ModelClient) -> tuple[float, float]:
    """(time of the request alone, time in all) of asking for a vector."""
    began = time.perf_counter()
    with stopwatch() as watch:
        await client.embed("scripted", ["a text"])
        own = watch.elapsed_ms()
    return own, (time.perf_counter() - began) * 1000


async def test_a_request_that_waits_for_its_turn_takes_its_own_time(home: Path) -> None:
    with ScriptedEndpoint(latency_s=0.2) as endpoint:
        use_endpoint(home, endpoint, concurrency=1)
        async with ModelClient(load_registry()) as client:
            found = await asyncio.gather(timed(client), timed(client), timed(client))
    assert all(own >= 195 for own, _ in found), "the request itself"
    first, second, third = sorted(whole - own for own, whole in found)
    assert second - first >= 150, "it stood behind one request"
    assert third - second >= 150, "it stood behind two"


async def test_a_refusal_and_the_pause_after_it_are_waiting(home: Path) -> None:
    with ScriptedEndpoint(script=["rate_limit"], retry_after="0.5") as endpoint:
        use_endpoint(home, endpoint)
        async with ModelClient(load_registry()) as client:
            own, whole = await timed(client)
            paused_ms = client.stats.waited_s * 1000
    assert paused_ms >= 150
    assert whole - own >= paused_ms - 10
