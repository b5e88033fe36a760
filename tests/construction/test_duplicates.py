"""Near-duplicates by cosine, worked out by hand on the unit circle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opbench.construction.duplicates import near_duplicates


def at(*degrees: float) -> np.ndarray:
    angles = [math.radians(each) for each in degrees]
    return np.array([[math.cos(angle), math.sin(angle)] for angle in angles], dtype=np.float32)


def test_the_first_in_order_stays_and_a_dropped_one_drops_nobody() -> None:
    # cos 25° = 0.906, cos 50° = 0.643: the third is near the second only, which is dropped.
    found = near_duplicates(at(0, 25, 50), 0.85)
    assert [None if each is None else each.row for each in found] == [None, 0, None]
    assert found[1] is not None
    assert found[1].cosine == pytest.approx(math.cos(math.radians(25)), abs=1e-6)


def test_the_most_similar_one_is_told() -> None:
    # 20° is 20° from the first and 15° from the second, which stays: it is 35° from the first (cosine 0.819).
    found = near_duplicates(at(0, 35, 20), 0.85)
    assert found[2] is not None
    assert found[2].row == 1


def test_a_cosine_of_the_limit_is_a_near_duplicate_and_equal_texts_always_are() -> None:
    limit = float(np.float32(math.cos(math.radians(30))))
    assert near_duplicates(at(0, 30), limit)[1] is not None
    assert near_duplicates(at(0, 30.1), limit)[1] is None
    assert near_duplicates(at(33, 33), 1.0)[1] is not None


def test_the_settled_ones_stay() -> None:
    found = near_duplicates(at(0, 1, 2), 0.85, settled=2)
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2].row == 1


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(200, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # By definition, one row after the other.
    kept: list[int] = []
    expected: list[int | None] = []
    for row in range(len(vectors)):
        cosines = vectors[kept] @ vectors[row]
        best = int(cosines.argmax()) if kept else -1
        near = best >= 0 and cosines[best] >= 0.9
        expected.append(kept[best] if near else None)
        if not near:
            kept.append(row)
    assert 20 < len(kept) < 180
    for block in (7, 64, 1024):
        monkeypatch.setattr("opbench.construction.duplicates._BLOCK", block)
        assert [None if each is None else each.row for each in near_duplicates(vectors, 0.9)] == expected


def test_none_at_all() -> None:
    assert near_duplicates(np.zeros((0, 8), dtype=np.float32), 0.85) == []
