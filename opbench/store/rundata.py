"""All of a run that analysis needs, as frames: what the store reads out and `opbench/analysis` works on.

A frame may be given as a function that reads it: it is then read when it is first looked at, so that a page which
shows scores doesn't wait for latencies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.errors import UsageError
from opbench.study import Study

T = TypeVar("T")
Key = tuple[str, str, str]
"""model, memory, mitigation."""
KEY = ("model", "memory", "mitigation")


class ReadRecords(Protocol):
    """Reads the records; with `columns` only these beside model, memory, mitigation and instance."""

    def __call__(self, columns: tuple[str, ...] | None = None, /) -> pd.DataFrame: ...


class ReadScores(Protocol):
    """Reads the scores; with `metric` those of one metric."""

    def __call__(self, metric: str | None = None, /) -> pd.DataFrame: ...


class Vectors(Mapping[tuple[str, str, str, str], npt.NDArray[np.float32]]):
    """Embeddings of responses, by (model, memory, mitigation, instance); all in one matrix (responses × dimensions)."""

    def __init__(
        self, configurations: Sequence[Key], instances: Sequence[str], rows: npt.NDArray[np.intp], matrix: Any
    ) -> None:
        """`rows` (instances × configurations) are positions in `matrix`, −1 where there is no embedding."""
        self.matrix: npt.NDArray[np.float32] = matrix
        self._rows = rows
        self._columns = {key: column for column, key in enumerate(configurations)}
        self._at = {name: row for row, name in enumerate(instances)}

    @classmethod
    def of(cls, vectors: Mapping[tuple[str, str, str, str], npt.NDArray[np.float32]]) -> Vectors:
        """From any mapping of the same kind."""
        if isinstance(vectors, cls):
            return vectors
        configurations = list(dict.fromkeys((key[0], key[1], key[2]) for key in vectors))
        instances = list(dict.fromkeys(key[3] for key in vectors))
        columns, at = ({each: n for n, each in enumerate(names)} for names in (configurations, instances))
        rows = np.full((len(instances), len(configurations)), -1, dtype=np.intp)
        for row, (model, memory, mitigation, instance) in enumerate(vectors):
            rows[at[instance], columns[model, memory, mitigation]] = row
        return cls(configurations, instances, rows, np.stack(list(vectors.values())) if vectors else np.zeros((0, 0)))

    def rows(self, instances: Sequence[str], configurations: Sequence[Key]) -> npt.NDArray[np.intp]:
        """Positions in `matrix` (instances × configurations), −1 where there is no embedding."""
        found = np.full((len(instances), len(configurations)), -1, dtype=np.intp)
        at = np.array([self._at.get(name, -1) for name in instances], dtype=np.intp)
        for place, key in enumerate(configurations):
            column = self._columns.get(key)
            if column is not None:
                found[at >= 0, place] = self._rows[at[at >= 0], column]
        return found

    def __getitem__(self, key: tuple[str, str, str, str]) -> npt.NDArray[np.float32]:
        column, at = self._columns.get((key[0], key[1], key[2])), self._at.get(key[3])
        row = -1 if column is None or at is None else self._rows[at, column]
        if row < 0:
            raise KeyError(key)
        vector: npt.NDArray[np.float32] = self.matrix[row]
        return vector

    def __iter__(self) -> Iterator[tuple[str, str, str, str]]:
        for column, key in enumerate(self._columns):
            for name, at in self._at.items():
                if self._rows[at, column] >= 0:
                    yield (*key, name)

    def __len__(self) -> int:
        return int((self._rows >= 0).sum())


class _AtFirstUse(Generic[T]):
    """A field that holds a value, or a function that is called for it once."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.place = f"_{name}"
        self.reader = f"_read_{name}"

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...
    @overload
    def __get__(self, run: RunData, owner: type) -> T: ...
    def __get__(self, run: RunData | None, owner: type) -> T | Self:
        if run is None:
            raise AttributeError(self.place)  # the field has no default
        value = run.__dict__[self.place]
        if callable(value):
            with run.lock:
                value = run.__dict__[self.place]
                if callable(value):
                    value = run.__dict__[self.place] = value()
        read: T = value
        return read

    def __set__(self, run: RunData, value: T | Callable[[], T]) -> None:
        run.__dict__[self.place] = value
        run.__dict__[self.reader] = value if callable(value) else None


@dataclass(frozen=True, eq=False)
class RunData:
    """One run, read-only. Scores are 0 to 1, NaN when missing; times are milliseconds, NaN where a stage didn't happen.

    May be used by several threads at once.
    """

    run_id: str
    name: str
    study: Study
    provenance: dict[str, Any]
    recorded: bool
    """Whether the results came from a bundle."""
    text_left_out: bool
    comparable: bool
    """Whether the judge's numbers may be compared with the paper's; False for the offline judge."""
    instances: pd.DataFrame
    """The slice: instance, ordinal, benchmark, user, first_speaker (bool), subtype."""
    configurations: pd.DataFrame
    """model, memory, mitigation."""
    records: _AtFirstUse[pd.DataFrame] = _AtFirstUse()
    """model, memory, mitigation, instance, status (done or error), error_kind, error, state, retrieval_ms, post_ms,
    response_ms, retrieval_reused, post_reused, response_reused, concurrency, post_prompt_tokens,
    post_completion_tokens, response_prompt_tokens, response_completion_tokens, cost_usd, finish_reason, finished_at."""
    scores: _AtFirstUse[pd.DataFrame] = _AtFirstUse()
    """model, memory, mitigation, instance, judge, metric, value, reason (of a missing value)."""
    user_scores: _AtFirstUse[pd.DataFrame] = _AtFirstUse()
    """model, memory, mitigation, user, judge, metric (`repetition`), value, n (responses it rests on), reason."""
    vectors: _AtFirstUse[Mapping[tuple[str, str, str, str], npt.NDArray[np.float32]] | None] = _AtFirstUse()
    """(model, memory, mitigation, instance) to the L2-normalised response embedding; None when left out."""
    lock: Any = field(default_factory=RLock, init=False, repr=False)
    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, worked out once for this run: what follows from frames that don't change doesn't change either."""
        with self.lock:
            if key not in self._kept:
                self._kept[key] = make()
            kept: T = self._kept[key]
        return kept

    def scores_of(self, metric: str) -> pd.DataFrame:
        """The rows of `scores` of one metric, without reading the others."""

        def make() -> pd.DataFrame:
            given: pd.DataFrame | ReadScores = self.__dict__["_scores"]
            return given[given["metric"] == metric] if isinstance(given, pd.DataFrame) else given(metric)

        return self.keep(("scores", metric), make)

    def records_with(self, *columns: str) -> pd.DataFrame:
        """model, memory, mitigation, instance and the named columns of `records`, without reading the others."""

        def make() -> pd.DataFrame:
            given: pd.DataFrame | ReadRecords = self.__dict__["_records"]
            if not isinstance(given, pd.DataFrame):
                return given(columns)
            read: ReadRecords | None = self.__dict__["_read_records"]
            # Some columns are read for who names them only, and aren't in the frame of all records.
            if read is not None and not {*columns} <= {*given.columns}:
                return read(columns)
            return given[[*KEY, "instance", *columns]]

        return self.keep(("records", columns), make)

    def without(self, instances: Collection[str]) -> RunData:
        """The same run with these instances neither planned nor scored; those that it hasn't are no matter.

        Raises:
            UsageError: one of them is a repetition question: its user's score rests on all responses together.
        """
        gone = set(instances)
        repeated = self.instances[(self.instances["subtype"] == "repetition") & self.instances["instance"].isin(gone)]
        if len(repeated):
            raise UsageError(
                f"{repeated['instance'].iloc[0]} can't be left out: repetition is scored over all responses of a user. "
                "Name LoCoMo questions, or OP-Bench instances of other subtypes."
            )

        def kept(frame: pd.DataFrame) -> pd.DataFrame:
            return frame[~frame["instance"].isin(gone)].reset_index(drop=True)

        def records(columns: tuple[str, ...] | None = None) -> pd.DataFrame:
            return kept(self.records if columns is None else self.records_with(*columns))

        def scores(metric: str | None = None) -> pd.DataFrame:
            return kept(self.scores if metric is None else self.scores_of(metric))

        return RunData(
            **{each.name: getattr(self, each.name) for each in dataclasses.fields(self)[:7]},
            instances=kept(self.instances),
            configurations=self.configurations,
            records=records,
            scores=scores,
            user_scores=lambda: self.user_scores,
            # They are of repetition questions, of which none goes.
            vectors=lambda: self.vectors,
        )
