"""Repetition (paper, section 3.2.3): how alike a user's responses are; scored per user, not per record."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def repetition_score(vectors: npt.NDArray[np.floating]) -> float | None:
    """1 − mean pairwise cosine similarity over the responses to all of a user's repetition questions.

    `vectors` has shape (n, d), one L2-normalised embedding a response; responses that failed or are empty have no
    row. None below two rows. The range is 0 to 1 + 1/(n − 1): the mean cosine of unit vectors can't be below
    −1/(n − 1), and real responses' is above 0.

    The mean over pairs is computed as (‖Σe‖² − Σ‖e‖²) / (n (n − 1)), which is the same sum without the n × n matrix.
    Raises ValueError when rows aren't of unit length.
    """
    e = np.asarray(vectors, dtype=np.float64)
    if e.ndim != 2:
        raise ValueError(f"vectors must have shape (n, d), not {e.shape}")
    n = len(e)
    if n < 2:
        return None
    squares = np.einsum("ij,ij->i", e, e)
    if not np.allclose(squares, 1.0, atol=1e-3):
        raise ValueError("vectors must be L2-normalised")
    total = e.sum(axis=0)
    mean_cosine = (float(total @ total) - float(squares.sum())) / (n * (n - 1))
    score = 1.0 - mean_cosine
    # Identical rows give ±1e-16 instead of 0; anything larger would be a fault and stays visible.
    return 0.0 if -1e-6 < score < 0.0 else score
