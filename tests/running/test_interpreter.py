"""The event loop and the collector of a run."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
import uvloop

from opbench.running.interpreter import collecting_seldom, run


async def loop_of() -> asyncio.AbstractEventLoop:
    await asyncio.sleep(0)
    return asyncio.get_running_loop()


def test_a_run_is_on_uvloop() -> None:
    assert isinstance(run(loop_of()), uvloop.Loop)


def test_a_run_does_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert isinstance(run(loop_of()), asyncio.SelectorEventLoop)


def test_what_was_there_is_left_alone_while_a_run_lasts() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with collecting_seldom():
        assert gc.get_freeze_count() > frozen + 10_000
        assert gc.get_threshold()[0] > before[0]
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_new_cycles_are_still_collected() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self

    with collecting_seldom():
        for _ in range(60_000):
            Cycle()
        assert sum(isinstance(each, Cycle) for each in gc.get_objects()) < 30_000
