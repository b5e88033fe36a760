"""Repetition against hand-worked vectors and against the paper's formula written out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from opbench.judges.repetition import repetition_score


def unit(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize(
    ("vectors", "score"),
    [
        (unit(0, 0), 0.0),  # the same answer twice
        (unit(0, 90), 1.0),  # nothing in common
        (unit(0, 60), 0.5),  # cos 60° = 1/2
        (unit(0, 0, 90), 2 / 3),  # cosines 1, 0, 0
        (unit(0, 60, 120), 5 / 6),  # cosines 1/2, 1/2, -1/2: mean 1/6
        (unit(0, 120, 240), 1.5),  # cosines -1/2 each
    ],
)
def test_hand_worked(vectors: np.ndarray, score: float) -> None:
    assert repetition_score(vectors) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(2, 3), (54, 384), (36, 1536)])
def test_equals_the_mean_over_all_pairs(n: int, d: int, dtype: type) -> None:
    vectors = np.random.default_rng(n).normal(0.3, 1, (n, d))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(dtype)
    mean = np.mean([float(a.astype(float) @ b.astype(float)) for a, b in combinations(vectors, 2)])
    assert repetition_score(vectors) == pytest.approx(1 - mean, abs=1e-9)


def test_fewer_than_two_answers_have_no_score() -> None:
    assert repetition_score(np.empty((0, 4))) is None
    assert repetition_score(unit(30)) is None


def test_many_identical_answers_score_exactly_zero_not_below() -> None:
    vector = np.random.default_rng(0).normal(size=384)
    same = np.tile((vector / np.linalg.norm(vector)).astype(np.float32), (54, 1))
    score = repetition_score(same)
    assert score is not None
    assert 0 <= score < 1e-6


def test_order_of_answers_does_not_matter() -> None:
    vectors = unit(3, 77, 140, 200)
    assert repetition_score(vectors) == pytest.approx(repetition_score(vectors[::-1]), abs=1e-12)


def test_vectors_that_are_not_normalised_or_not_a_matrix_are_refused() -> None:
    with pytest.raises(ValueError, match="L2-normalised"):
        repetition_score(2 * unit(0, 90))
    with pytest.raises(ValueError, match=r"shape \(n, d\)"):
        repetition_score(np.ones(4))
