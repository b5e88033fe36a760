"""Equal responses are embedded once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from opbench.errors import ModelError
from opbench.running import vectors
from opbench.running.vectors import SharedVectors


class Embedder:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        await asyncio.sleep(0)
        if self.fails:
            raise ModelError("no", kind="server")
        return np.array([[len(text), 1.0] for text in texts])


async def test_equal_texts_are_asked_for_once_also_at_the_same_time() -> None:
    embedder = Embedder()
    shared = SharedVectors(embedder)
    found = await asyncio.gather(*(shared.of(text) for text in ("one", "three", "one")), shared.of("one"))
    assert [vector.tolist() for vector in found] == [[3, 1], [5, 1], [3, 1], [3, 1]]
    assert (await shared.of("one")).dtype == np.float32
    assert embedder.asked == ["one", "three"]


async def test_who_waits_for_a_failed_one_is_told_and_the_next_asks_again() -> None:
    embedder = Embedder()
    embedder.fails = True
    shared = SharedVectors(embedder)
    told = await asyncio.gather(shared.of("one"), shared.of("one"), return_exceptions=True)
    assert [type(each) for each in told] == [ModelError, ModelError]
    embedder.fails = False
    assert (await shared.of("one")).tolist() == [3, 1]
    assert embedder.asked == ["one", "one"]


async def test_one_that_waits_may_go_without_the_others_losing_theirs() -> None:
    embedder = Embedder()
    shared = SharedVectors(embedder)
    first, second = asyncio.ensure_future(shared.of("one")), asyncio.ensure_future(shared.of("one"))
    await asyncio.sleep(0)
    second.cancel()
    assert (await first).tolist() == [3, 1]


async def test_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "KEPT", 2)
    embedder = Embedder()
    shared = SharedVectors(embedder)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        await shared.of(text)
    assert embedder.asked == ["a", "bb", "ccc", "bb"], "the one that was asked for longest ago goes first"


async def test_what_an_earlier_execution_embedded_is_not_asked_for_again() -> None:
    async def embed(texts: Sequence[str]) -> np.ndarray:
        raise AssertionError(f"asked for {texts}")

    vectors = SharedVectors(embed)
    read = 0

    async def earlier() -> list[tuple[str, np.ndarray]]:
        nonlocal read
        read += 1
        await asyncio.sleep(0)
        return [("a walk", np.array([0.6, 0.8], dtype=np.float32))]

    vectors.know(earlier)
    assert read == 0, "whoever asks for no vector reads none"
    found = await asyncio.gather(vectors.of("a walk"), vectors.of("a walk"))
    assert [each.tolist() for each in found] == [pytest.approx([0.6, 0.8])] * 2
    assert read == 1
