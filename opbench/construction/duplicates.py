"""Near-duplicates by embedding: a question whose cosine to an earlier one reaches a limit (paper, A.3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opbench.models.embeddings import Vectors

#: Questions compared at a time: a block against 10,000 kept ones takes 40 MB.
_BLOCK = 1024
#: Below this, a difference of cosines is float32's rounding: equal texts may come out at 0.9999999.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Near:
    """The kept question that another is a near-duplicate of: its row, and their cosine (−1 to 1)."""

    row: int
    cosine: float


def near_duplicates(vectors: Vectors, limit: float, settled: int = 0) -> list[Near | None]:
    """For each row the earlier row that makes it a near-duplicate, or None for one that stays.

    `vectors`: (n, d), rows L2-normalised, in the order of precedence. A row is a near-duplicate from a cosine of
    `limit` on with an earlier row *that stays*; of several the most similar is told, the first of equal ones. The
    first `settled` rows stay whatever they are like.
    """
    found: list[Near | None] = [None] * len(vectors)
    kept = np.empty_like(vectors)
    rows = np.empty(len(vectors), dtype=np.intp)
    n_kept = 0
    reached = limit - _ROUNDING
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        before = n_kept
        earlier = block @ kept[:before].T
        nearest = earlier.argmax(axis=1) if before else np.zeros(len(block), dtype=np.intp)
        inside = block @ block.T
        stay: list[int] = []
        for place in range(len(block)):
            best = Near(int(rows[nearest[place]]), float(earlier[place, nearest[place]])) if before else None
            if stay:
                of_block = inside[place, stay]
                top = int(of_block.argmax())
                if best is None or float(of_block[top]) > best.cosine:
                    best = Near(start + stay[top], float(of_block[top]))
            if best is not None and best.cosine >= reached and start + place >= settled:
                found[start + place] = best
                continue
            stay.append(place)
            kept[n_kept], rows[n_kept] = block[place], start + place
            n_kept += 1
    return found
