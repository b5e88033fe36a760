"""The background searcher: what is asked from any thread, opened once, kept for a while, closed, and timed out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mitigations.base import Memory
from opbench.errors import MemoryFault, ModelError, UsageError
from opbench.running.remembering import Remembering

#: So long an answer may take in these tests, and one that never comes is waited for.
SOON_S = 0.4


class Store:
    """Answers with its own name; `slow` does only when it may, `broken` fails as a library does."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    async def search(self, query: str, k: int) -> list[Memory]:
        if self._name == "slow":
            await asyncio.to_thread(self._world.slow_may.wait, 60)
        if self._name == "broken":
            raise KeyError("no such table")
        if self._name == "keyless":
            raise ModelError("embedder: wrong key", kind="auth")
        return [Memory(f"{self._name}: {query}", "1 May 2023", 0.5)] * k

    async def memories(self) -> list[Memory]:
        return [Memory(self._name, "1 May 2023", None)]

    async def aclose(self) -> None:
        self._world.closed[self._name] += 1


class World:
    """What was opened and closed, and in which thread."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.emptied = 0
        self.slow_may = threading.Event()
        self.threads: set[str] = set()

    async def open(self, name: str) -> Store:
        self.threads.add(threading.current_thread().name)
        await asyncio.sleep(0.05)
        if name == "shut":
            raise UsageError("shut: not installed. Run: opbench memory install shut")
        self.opened[name] += 1
        return Store(self, name)

    async def empty(self) -> None:
        self.emptied += 1


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.slow_may.set()


@pytest.fixture
def remembering(world: World) -> Iterator[Remembering[str]]:
    made = Remembering(world.open, on_empty=world.empty, idle_s=60, timeout_s=SOON_S)
    yield made
    made.close()


def until(said: Any) -> None:
    deadline = time.monotonic() + 10
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_question_to_several_in_their_order(remembering: Remembering[str], world: World) -> None:
    one, two = remembering.search(["a", "b"], "where?", 2)
    assert [memory.text for memory in one.memories] == ["a: where?", "a: where?"]
    assert [memory.text for memory in two.memories] == ["b: where?", "b: where?"]
    assert (one.problem, two.problem) == ("", "")
    assert world.threads == {"memories"}


def test_what_fails_in_one_is_a_sentence_and_no_matter_to_the_other(remembering: Remembering[str]) -> None:
    found = remembering.search(["shut", "a", "broken", "keyless", "slow"], "where?", 1)
    assert found[0].problem == "shut: not installed. Run: opbench memory install shut"
    assert found[1].memories[0].text == "a: where?"
    assert found[2].problem == "the memory library failed: KeyError: 'no such table'"
    assert found[3].problem == "embedder: wrong key"
    assert "no answer in 0 s" in found[4].problem
    assert "opbench memory search" in found[4].problem


def test_many_threads_share_one_opening(remembering: Remembering[str], world: World) -> None:
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(remembering.memories("a")[0].text), daemon=True)
        for _ in range(16)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert answers == ["a"] * 16
    assert world.opened == {"a": 1}


def test_a_slow_one_blocks_nobody_else(world: World) -> None:
    remembering = Remembering(world.open, idle_s=60, timeout_s=30)
    answers: list[str] = []
    waiting = threading.Thread(
        target=lambda: answers.append(remembering.search(["slow"], "x", 1)[0].memories[0].text), daemon=True
    )
    waiting.start()
    until(lambda: world.opened["slow"])
    assert remembering.search(["a"], "x", 1)[0].memories[0].text == "a: x"
    assert answers == []
    world.slow_may.set()
    waiting.join(10)
    assert answers == ["slow: x"]
    remembering.close()


def test_idle_ones_are_closed_and_opened_again(world: World) -> None:
    remembering = Remembering(world.open, on_empty=world.empty, idle_s=0.1, timeout_s=5)
    remembering.memories("a")
    until(lambda: world.closed["a"] == 1)
    until(lambda: world.emptied == 1)
    assert remembering.memories("a")[0].text == "a"
    assert world.opened == {"a": 2}
    remembering.close()
    assert world.closed == {"a": 2}


def test_one_that_is_replaced_is_closed_first(remembering: Remembering[str], world: World) -> None:
    remembering.memories("a")
    remembering.memories("b")
    remembering.forget("a")
    assert world.closed == {"a": 1}
    assert world.emptied == 0
    remembering.forget("never opened")


def test_errors_of_reading_are_raised(remembering: Remembering[str]) -> None:
    with pytest.raises(UsageError, match="opbench memory install shut"):
        remembering.memories("shut")


def test_a_fault_of_the_library_is_named_as_one(world: World) -> None:
    class Torn(Store):
        async def memories(self) -> list[Memory]:
            raise TimeoutError("the database doesn't answer")

    async def torn(name: str) -> Store:
        return Torn(world, name)

    remembering = Remembering(torn, timeout_s=5)
    # Not our time limit: what the library waited for itself.
    with pytest.raises(MemoryFault, match="TimeoutError: the database doesn't answer"):
        remembering.memories("a")
    remembering.close()
