"""Repetition as a map (paper, section 4.3, appendix C.3 and figure 17): embeddings of a user's responses to repetition
questions, how far they are apart with memory and without, which are most alike, and which memories come back.

The dispersion is the repetition score (`opbench.judges.repetition`) under its geometric name: the mean pairwise cosine
distance of a user's responses, 100 × (1 − mean cosine) in points. The map is a projection for the eye; the dispersion
is measured in all dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from opbench.analysis.grids import Key, Repetition, planned, repetition_grid
from opbench.analysis.intervals import Floats, holm, paired_difference
from opbench.analysis.language import CONTROL, comparisons
from opbench.errors import UsageError
from opbench.store.rundata import RunData, Vectors

REPETITION = "repetition"
#: Variance of unit vectors below which they are one, but for rounding.
_ALIKE = 1e-12


@dataclass(frozen=True)
class ResponseMap:
    """Responses in the plane of their first two principal components."""

    points: pd.DataFrame
    """model, memory, mitigation, instance, user, x, y; a row a response."""
    explained: tuple[float, float]
    """Shares of all variance that x and y hold; NaN where there is none (all responses alike)."""
    n: int
    dimensions: int
    missing: int
    """Planned responses that have no embedding: they failed, are blank, or aren't done yet."""


def response_map(data: RunData, keys: Sequence[Key], users: Sequence[str] = ()) -> ResponseMap:
    """PCA over the responses of these configurations together, so that all stand in one map; no users named: all.

    Raises:
        UsageError: the run has no embeddings, or fewer than two responses of these have one.
    """
    # Loading it takes a second, which no other page should wait for.
    from sklearn.decomposition import PCA

    vectors = _vectors(data)
    instances = _instances(data, users)
    rows = vectors.rows(instances["instance"].tolist(), keys)
    found = [
        {"model": key[0], "memory": key[1], "mitigation": key[2], "instance": name, "user": user, "row": int(row)}
        for column, key in enumerate(keys)
        for name, user, row in zip(instances["instance"], instances["user"], rows[:, column], strict=True)
        if row >= 0
    ]
    if len(found) < 2:
        raise UsageError(
            f"{len(found)} responses to repetition questions have embeddings here, a map needs two. Choose more users "
            "or configurations, or go on with the run."
        )
    points = pd.DataFrame(found)
    matrix = vectors.matrix[points.pop("row").to_numpy()].astype(np.float64)
    # Exact, and for a thousand users as fast as for one.
    solver = "covariance_eigh" if len(matrix) > matrix.shape[1] else "full"
    pca = PCA(n_components=min(2, *matrix.shape), svd_solver=solver)
    with np.errstate(invalid="ignore"):  # all alike: no variance to have shares of
        placed = pca.fit_transform(matrix)
    # With two responses there is one direction only.
    placed = np.pad(placed, ((0, 0), (0, 2 - placed.shape[1])))
    shares = [*(float(share) for share in pca.explained_variance_ratio_), 0.0][:2]
    if matrix.var(axis=0).sum() < _ALIKE:
        shares = [math.nan, math.nan]
    return ResponseMap(
        points.assign(x=placed[:, 0], y=placed[:, 1]),
        (shares[0], shares[1]),
        len(points),
        matrix.shape[1],
        int((rows < 0).sum()),
    )


def dispersions(data: RunData, first_only: bool = False, users: Sequence[str] = ()) -> pd.DataFrame:
    """By configuration and user: model, memory, mitigation, user, n (responses), dispersion (points; NaN with its
    `reason`). No users named: all."""
    grid = _grid(data, first_only, users)
    given = data.user_scores[data.user_scores["metric"] == REPETITION]
    reasons = {
        (row.model, row.memory, row.mitigation, row.user): row.reason
        for row in given[given["judge"] == grid.judge].itertuples()
        if isinstance(row.reason, str)
    }
    return pd.DataFrame(
        [
            {
                "model": key[0],
                "memory": key[1],
                "mitigation": key[2],
                "user": user,
                "n": int(grid.n[row, column]),
                "dispersion": float(grid.values[row, column]),
                "reason": ""
                if not math.isnan(grid.values[row, column])
                else reasons.get((*key, user), "no response has an embedding yet"),
            }
            for column, key in enumerate(grid.keys)
            for row, user in enumerate(grid.users)
        ],
        columns=["model", "memory", "mitigation", "user", "n", "dispersion", "reason"],
    )


def dispersion_changes(data: RunData, first_only: bool = False, users: Sequence[str] = ()) -> pd.DataFrame:
    """What memory, and a post-processor, changes in the dispersion of a user's responses; below 0: they lie closer.
    No users named: all.

    A row a pair of `language.comparisons`: model, memory, mitigation, against_memory, against_mitigation, dispersion
    and against (means over users that both have, points), change, low, high, p (95 %, by user; NaN with its `reason`),
    p_holm (Holm's over all of these changes, those of random memories apart: what a finding rests on), users, responses
    (that they rest on), closer (users whose responses lie closer), unequal (users whose two sides rest on different
    questions because something failed), tests (how many changes p_holm is over).
    """
    grid = _grid(data, first_only, users)
    rows = []
    for key, other in comparisons(data):
        values, n, unequal = grid.paired([grid.keys.index(key), grid.keys.index(other)])
        both = ~np.isnan(values).any(axis=1)
        first, second = (values[both, side] for side in (0, 1))
        told = paired_difference(first, second, np.array(grid.users, dtype=object)[both])
        rows.append(
            {
                "model": key[0],
                "memory": key[1],
                "mitigation": key[2],
                "against_memory": other[1],
                "against_mitigation": other[2],
                "dispersion": _mean(first),
                "against": _mean(second),
                "change": _mean(first - second),
                "low": told.low,
                "high": told.high,
                "p": told.p,
                "users": int(both.sum()),
                "closer": int((first < second).sum()),
                "responses": int(n[both].sum()),
                "unequal": unequal,
                "reason": told.reason,
            }
        )
    columns = ["model", "memory", "mitigation", "against_memory", "against_mitigation", "dispersion", "against"]
    columns += ["change", "low", "high", "p", "users", "closer", "responses", "unequal", "reason"]
    return _with_holm(pd.DataFrame(rows, columns=columns))


def _with_holm(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with p_holm and tests, as `analysis.tradeoff` corrects: the control is a family of its own."""
    corrected, tests = np.full(len(frame), math.nan), np.zeros(len(frame), dtype=np.int64)
    p = frame["p"].to_numpy(dtype=np.float64)
    for control in (False, True):
        family = ((frame["memory"] == CONTROL) == control).to_numpy(dtype=np.bool_)
        corrected[family] = holm(p[family])
        tests[family] = int((~np.isnan(p[family])).sum())
    frame.insert(list(frame.columns).index("p") + 1, "p_holm", corrected)
    return frame.assign(tests=tests)


def _grid(data: RunData, first_only: bool, users: Sequence[str]) -> Repetition:
    grid = repetition_grid(data, first_only)
    if not users:
        return grid
    kept = [place for place, user in enumerate(grid.users) if user in users]
    mine = np.isin(grid.owner, kept)
    return Repetition(
        [grid.users[place] for place in kept],
        grid.keys,
        grid.values[kept],
        grid.n[kept],
        [name for name, own in zip(grid.instances, mine, strict=True) if own],
        np.searchsorted(kept, grid.owner[mine]),
        grid.embedded[mine],
        grid.rows[mine],
        grid.vectors,
        grid.judge,
    )


def alike(
    data: RunData, texts: pd.DataFrame, key: Key, user: str, against: Key | None = None, most: int = 20
) -> pd.DataFrame:
    """The most similar pairs of a user's responses to different repetition questions, most similar first.

    `texts` is `store.texts.read_texts` of repetition. Columns: instance_a, instance_b, question_a, question_b,
    response_a, response_b, cosine, and cosine_against: that of `against`'s responses to the same two questions (NaN
    where one is missing, or none is named).

    Raises:
        UsageError: the run has no embeddings.
    """
    vectors = _vectors(data)
    names = _instances(data, [user])["instance"].tolist()
    mine = texts[(texts["model"] == key[0]) & (texts["memory"] == key[1]) & (texts["mitigation"] == key[2])]
    by_name = mine.set_index("instance")
    names = [name for name in names if name in by_name.index]
    cosines = _cosines(vectors, names, key)
    others = np.full_like(cosines, np.nan) if against is None else _cosines(vectors, names, against)
    pairs = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names)) if not math.isnan(cosines[a, b])]
    pairs.sort(key=lambda pair: -cosines[pair])
    columns = ["instance_a", "instance_b", "question_a", "question_b", "response_a", "response_b"]
    rows = []
    for pair in pairs[:most]:
        both = by_name.loc[[names[at] for at in pair]]
        told = [*both.index, *both["question"], *both["response"]]
        rows.append([*told, float(cosines[pair]), float(others[pair])])
    return pd.DataFrame(rows, columns=[*columns, "cosine", "cosine_against"])


def _vectors(data: RunData) -> Vectors:
    if not data.vectors:
        why = (
            "it came without texts, and embeddings are left out with them"
            if data.text_left_out
            else "no repetition question has been answered yet, or the embedder failed"
        )
        raise UsageError(f"run {data.run_id} has no embeddings of responses: {why}.")
    return Vectors.of(data.vectors)


def _instances(data: RunData, users: Sequence[str]) -> pd.DataFrame:
    """The repetition questions of these users (none named: of all), in the slice's order."""
    instances = planned(data, "op")
    instances = instances[instances["subtype"] == REPETITION]
    return instances[instances["user"].isin(users)] if users else instances


def _cosines(vectors: Vectors, names: Sequence[str], key: Key) -> Floats:
    """Of each pair of responses; NaN where one has no embedding."""
    rows = vectors.rows(names, [key])[:, 0]
    found = np.full((len(names), len(names)), np.nan)
    there = np.flatnonzero(rows >= 0)
    matrix = vectors.matrix[rows[there]].astype(np.float64)
    found[np.ix_(there, there)] = np.clip(matrix @ matrix.T, -1.0, 1.0)
    return found


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
