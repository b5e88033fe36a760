"""Scores laid out for comparing: planned instances (or users) × configurations, in points, NaN where missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.errors import UsageError
from opbench.store.rundata import RunData, Vectors
from opbench.types import Benchmark

Key = tuple[str, str, str]
"""model, memory, mitigation."""
KEY = ["model", "memory", "mitigation"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]


def configuration_keys(data: RunData) -> list[Key]:
    """The run's configurations, in its own order."""
    rows = data.configurations[KEY].itertuples(index=False, name=None)
    return [(str(model), str(memory), str(mitigation)) for model, memory, mitigation in rows]


def planned(data: RunData, benchmark: Benchmark, first_only: bool = False) -> pd.DataFrame:
    """The slice's instances of one benchmark, in its order; `first_only` keeps first speakers of conversations."""

    def make() -> pd.DataFrame:
        frame = data.instances[data.instances["benchmark"] == benchmark]
        if first_only:
            frame = frame[frame["first_speaker"].astype(bool)]
        return frame.sort_values("ordinal").reset_index(drop=True)

    return data.keep(("planned", benchmark, first_only), make)


def choose_judge(judges: Sequence[str], preferred: Sequence[str | None], what: str) -> str | None:
    """Which judge's numbers to show: the first preferred one that there is, else the only one; None when there is none.

    Raises:
        UsageError: several judges scored `what` and none of them is preferred.
    """
    for name in preferred:
        if name is not None and name in judges:
            return name
    if len(judges) > 1:
        raise UsageError(f"{what} was scored by several judges ({', '.join(sorted(judges))}): name one with --judge.")
    return judges[0] if judges else None


@dataclass(frozen=True)
class Grid:
    """One metric of one benchmark: `values` is instances × keys in points, NaN where nothing was scored."""

    instances: pd.DataFrame
    keys: list[Key]
    values: Floats
    metric: str
    judge: str | None

    def column(self, key: Key) -> int | None:
        return self.keys.index(key) if key in self.keys else None


def score_grid(
    data: RunData, benchmark: Benchmark, metric: str, first_only: bool = False, judge: str | None = None
) -> Grid:
    """The scores of one metric, worked out once for a run: read-only. `judge` None means the study's own.

    Raises:
        UsageError: several judges and none named.
    """

    def make() -> Grid:
        instances = planned(data, benchmark, first_only)
        keys = configuration_keys(data)
        rows = data.scores_of(metric)
        index = pd.Index(instances["instance"])
        rows = rows[rows["instance"].isin(index)]
        chosen = choose_judge(rows["judge"].unique().tolist(), (judge, data.study.judge), f"'{metric}'")
        rows = rows[rows["judge"] == chosen]
        values = np.full((len(instances), len(keys)), np.nan)
        _place(values, index.get_indexer(pd.Index(rows["instance"])), _columns(rows, keys), rows["value"])
        return Grid(instances, keys, _fixed(values * 100.0), metric, chosen)

    return data.keep(("scores", benchmark, metric, first_only, judge), make)


@dataclass(frozen=True)
class Repetition:
    """Repetition by user (paper, section 3.2.3): `values` and `n` (responses it rests on) are users × keys.

    `embedded` (repetition instances × keys) tells which responses took part; `owner` is each instance's user.
    """

    users: list[str]
    keys: list[Key]
    values: Floats
    n: Floats
    instances: list[str]
    owner: Ints
    embedded: Bools
    rows: Ints
    """Positions in `vectors` (repetition instances × keys), −1 where there is no embedding."""
    vectors: npt.NDArray[np.float32] | None
    judge: str | None
    _paired: dict[tuple[int, ...], tuple[Floats, Floats, int]] = field(default_factory=dict, repr=False, compare=False)

    def paired(self, columns: Sequence[int]) -> tuple[Floats, Floats, int]:
        """Values (users × columns) over what all columns share, the responses they rest on (users), and how many
        users couldn't be made equal.

        A user whose responses differ between columns is computed anew over the common ones when the embeddings are
        there; without them, or when they aren't the ones that the stored value rests on, the stored values stand and
        the user is counted as unequal.
        """
        key = tuple(columns)
        if key not in self._paired:
            values, n, unequal = self._pair(list(key))
            self._paired[key] = _fixed(values), _fixed(n), unequal
        return self._paired[key]

    def _pair(self, picked: list[int]) -> tuple[Floats, Floats, int]:
        values = self.values[:, picked].copy()
        n = self.n[:, picked].min(axis=1, initial=np.inf)
        used = self.embedded[:, picked]
        common = used.all(axis=1)
        if len(picked) > 1:
            size = len(self.users)
            differs = np.bincount(self.owner, weights=used.any(axis=1) & ~common, minlength=size) > 0
            counts = np.stack([np.bincount(self.owner, weights=each, minlength=size) for each in used.T], axis=1)
            known = (counts == self.n[:, picked]).all(axis=1)
        else:
            differs, known = np.zeros(len(self.users), dtype=np.bool_), np.ones(len(self.users), dtype=np.bool_)
        unequal = 0
        for user in np.flatnonzero(~np.isnan(values).any(axis=1) & (differs | ~known)):
            if self.vectors is None or not known[user]:
                unequal += 1
                continue
            rows = np.flatnonzero(common & (self.owner == user))
            n[user] = len(rows)
            for place, column in enumerate(picked):
                values[user, place] = self._recompute(rows, column)
        values[np.isnan(values).any(axis=1)] = np.nan
        return values, np.where(np.isnan(values).any(axis=1), 0.0, n), unequal

    def _recompute(self, rows: Ints, column: int) -> float:
        """100 × (1 − mean pairwise cosine) over the responses in `rows`; NaN for fewer than two."""
        if len(rows) < 2 or self.vectors is None:
            return float("nan")
        matrix = self.vectors[self.rows[rows, column]].astype(np.float64)
        total = matrix.sum(axis=0)
        pairs = (total @ total - np.einsum("ij,ij->", matrix, matrix)) / (len(rows) * (len(rows) - 1))
        return float((1.0 - pairs) * 100.0)


def repetition_grid(data: RunData, first_only: bool = False, judge: str | None = None) -> Repetition:
    """Repetition of all users of the slice that have repetition instances, worked out once for a run: read-only.

    Raises:
        UsageError: several judges (embedders) and none named.
    """
    return data.keep(("repetition", first_only, judge), lambda: _repetition_grid(data, first_only, judge))


def _repetition_grid(data: RunData, first_only: bool, judge: str | None) -> Repetition:
    instances = planned(data, "op", first_only)
    instances = instances[instances["subtype"] == "repetition"].reset_index(drop=True)
    keys = configuration_keys(data)
    owner, users = pd.factorize(instances["user"])
    rows = data.user_scores[data.user_scores["metric"] == "repetition"]
    rows = rows[rows["user"].isin(users)]
    preferred = (judge, data.study.judge, data.study.embedder)
    chosen = choose_judge(rows["judge"].unique().tolist(), preferred, "'repetition'")
    rows = rows[rows["judge"] == chosen]
    where, columns = pd.Index(users).get_indexer(pd.Index(rows["user"])), _columns(rows, keys)
    values = np.full((len(users), len(keys)), np.nan)
    n = np.zeros((len(users), len(keys)))
    _place(values, where, columns, rows["value"])
    _place(n, where, columns, rows["n"])
    names = [str(name) for name in instances["instance"]]
    vectors = Vectors.of(data.vectors) if data.vectors else None
    at = np.full((len(names), len(keys)), -1, dtype=np.intp) if vectors is None else vectors.rows(names, keys)
    return Repetition(
        [str(user) for user in users],
        keys,
        _fixed(values * 100.0),
        _fixed(n),
        names,
        owner.astype(np.intp),
        # Which responses took part: those with an embedding; without embeddings, those that are done.
        _done(data, names, keys) if vectors is None else at >= 0,
        at,
        None if vectors is None else vectors.matrix,
        chosen,
    )


def _done(data: RunData, instances: Sequence[str], keys: list[Key]) -> Bools:
    index = pd.Index(instances)
    taken = np.zeros((len(index), len(keys)), dtype=np.bool_)
    records = data.records_with("status")
    rows = records[(records["status"] == "done") & records["instance"].isin(index)]
    where, columns = index.get_indexer(pd.Index(rows["instance"])), _columns(rows, keys)
    known = columns >= 0
    taken[where[known], columns[known]] = True
    return taken


def _fixed(values: Floats) -> Floats:
    """The same array, which nobody can change by mistake: it is shared."""
    values.flags.writeable = False
    return values


def _columns(rows: pd.DataFrame, keys: list[Key]) -> Ints:
    """The column of each row's configuration; -1 for one that isn't in `keys`."""
    names = [list(dict.fromkeys(key[level] for key in keys)) for level in range(len(KEY))]
    table = np.full([len(level) + 1 for level in names], -1, dtype=np.intp)
    for column, key in enumerate(keys):
        table[tuple(level.index(name) for level, name in zip(names, key, strict=True))] = column
    # An unknown name has code -1, which is the table's last row, kept at -1.
    codes = [pd.Index(level).get_indexer(pd.Index(rows[name])) for level, name in zip(names, KEY, strict=True)]
    columns: Ints = table[tuple(codes)]
    return columns


def _place(target: Floats, rows: Ints, columns: Ints, values: pd.Series) -> None:
    known = (rows >= 0) & (columns >= 0)
    target[rows[known], columns[known]] = values.to_numpy(dtype=np.float64, na_value=np.nan)[known]
