"""A run's records, scores and embeddings as frames. Read narrowly: never a column that isn't asked for, and names of
configurations and instances once each instead of once a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlalchemy import Select, select

from opbench.errors import StoreError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.rundata import KEY, Key, Vectors

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CONFIGURATION = (s.configurations.c.model, s.configurations.c.memory, s.configurations.c.mitigation)

RECORD_COLUMNS = (
    "status",
    "error_kind",
    "error",
    "state",
    "retrieval_ms",
    "post_ms",
    "response_ms",
    "retrieval_reused",
    "post_reused",
    "response_reused",
    "concurrency",
    "post_prompt_tokens",
    "post_completion_tokens",
    "response_prompt_tokens",
    "response_completion_tokens",
    "cost_usd",
    "finish_reason",
    "finished_at",
)
_TEXTS = ("status", "error_kind", "state", "finish_reason")
#: Columns that many ask for and that cost little beside the keys.
_ALWAYS = ("status", "concurrency")
_MARKS = ("retrieval_reused", "post_reused", "response_reused")


def frame_of(store: Store, query: Select[Any], numbers: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows of a small query; `numbers` are float64 also where all are null."""
    with store.begin() as connection:
        result = connection.execute(query)
        frame = pd.DataFrame(result.all(), columns=list(result.keys()))
    return frame.astype(dict.fromkeys(numbers, "float64"))


def columns_of(store: Store, query: Select[Any], width: int) -> list[Any]:
    """The result of a large query of `width` columns, by column."""
    with store.begin() as connection:
        # The driver's own rows: SQLAlchemy's take as long for a hundred thousand as the reading itself.
        rows = connection.execute(query).cursor.fetchall()
    return list(zip(*rows, strict=True)) if rows else [()] * width


@dataclass(frozen=True, slots=True)
class _Known:
    """Of every record, by ascending id: the positions of its configuration and instance, and the columns `_ALWAYS`."""

    ids: Ints
    codes: Ints
    rows: Ints
    columns: dict[str, Any]


class FrameReader:
    """Reads the large tables of one run. What was written since the first look at its records is left out."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    @cached_property
    def instances(self) -> pd.DataFrame:
        query = (
            select(
                s.instances.c.instance_id.label("instance"),
                s.instances.c.ordinal,
                s.instances.c.benchmark,
                s.instances.c.user_id.label("user"),
                s.instances.c.first_speaker,
                s.instances.c.subtype,
            )
            .where(s.instances.c.run_id == self._run_id)
            .order_by(s.instances.c.ordinal)
        )
        return frame_of(self._store, query)

    @cached_property
    def _configurations(self) -> pd.DataFrame:
        query = select(s.configurations.c.id, *CONFIGURATION).where(s.configurations.c.run_id == self._run_id)
        return frame_of(self._store, query.order_by(s.configurations.c.id))

    @property
    def configurations(self) -> pd.DataFrame:
        return self._configurations[list(KEY)]

    @cached_property
    def _known(self) -> _Known:
        """What nearly all that is asked about records rests on, read once."""
        r = s.records.c
        query = select(r.id, r.configuration_id, r.instance_id, *(r[name] for name in _ALWAYS)).where(self._mine)
        ids, configurations, instances, *rest = columns_of(self._store, query, 3 + len(_ALWAYS))
        codes, rows = self._places(configurations, instances)
        numbers = np.array(ids, dtype=np.int64)
        order = np.argsort(numbers)
        columns = {name: _column(name, values)[order] for name, values in zip(_ALWAYS, rest, strict=True)}
        return _Known(numbers[order], codes[order], rows[order], columns)

    @property
    def _mine(self) -> Any:
        return s.records.c.run_id == self._run_id

    def records(self, columns: tuple[str, ...] | None = None) -> pd.DataFrame:
        """By configuration and then instance, in the run's order; all of `RECORD_COLUMNS`, or those that are named."""
        if columns is not None and set(columns) <= set(_ALWAYS):
            known = self._known
            read = {name: known.columns[name] for name in columns}
            return self._named(known.codes, known.rows, read)
        names = RECORD_COLUMNS if columns is None else columns
        narrow = [name for name in names if name != "error"]
        r = s.records.c
        query = select(r.id, r.configuration_id, r.instance_id, *(r[name] for name in narrow)).where(self._mine)
        ids, configurations, instances, *rest = columns_of(self._store, query, 3 + len(narrow))
        codes, rows = self._places(configurations, instances)
        read = {name: _column(name, values) for name, values in zip(narrow, rest, strict=True)}
        if "error" in names:
            read["error"] = self._errors(np.array(ids, dtype=np.int64))
        return self._named(codes, rows, {name: read[name] for name in names})

    def scores(self, metric: str | None = None) -> pd.DataFrame:
        """By configuration and then instance, in the run's order; of all metrics, or of one."""
        c = s.scores.c
        chosen = [self._mine] if metric is None else [self._mine, c.metric == metric]
        query = select(c.record_id, c.judge, c.metric, c.value).join(s.records, s.records.c.id == c.record_id)
        ids, judges, metrics, values = columns_of(self._store, query.where(*chosen), 4)
        numbers = np.array(ids, dtype=np.int64)
        at, known = self._records_at(numbers)
        judge, judge_names = pd.factorize(np.array(judges, dtype=object))
        of_metric, metric_names = pd.factorize(np.array(metrics, dtype=object))
        read = {
            "judge": _taken(judge_names, judge[known]),
            "metric": _taken(metric_names, of_metric[known]),
            "value": np.array(values, dtype=np.float64)[known],
            "reason": np.full(len(at), None, dtype=object),
        }
        query = select(c.record_id, c.judge, c.metric, c.reason).join(s.records, s.records.c.id == c.record_id)
        with self._store.begin() as connection:
            found = connection.execute(query.where(*chosen, c.value.is_(None), c.reason.is_not(None))).all()
        reasons = {(row.record_id, row.judge, row.metric): row.reason for row in found}
        for row in np.flatnonzero(np.isnan(read["value"])):
            place = np.flatnonzero(known)[row]
            read["reason"][row] = reasons.get((ids[place], judges[place], metrics[place]))
        return self._named(self._known.codes[at], self._known.rows[at], read)

    def user_scores(self) -> pd.DataFrame:
        query = (
            select(
                *CONFIGURATION,
                s.user_scores.c.user_id.label("user"),
                s.user_scores.c.judge,
                s.user_scores.c.metric,
                s.user_scores.c.value,
                s.user_scores.c.n,
                s.user_scores.c.reason,
            )
            .join(s.configurations, s.configurations.c.id == s.user_scores.c.configuration_id)
            .where(s.configurations.c.run_id == self._run_id)
            .order_by(*s.user_scores.primary_key.columns)
        )
        return frame_of(self._store, query, numbers=("value",))

    def vectors(self, embedder: str) -> Vectors:
        """Embeddings of one embedder.

        Raises:
            StoreError: they aren't all of one length.
        """
        c = s.embeddings.c
        query = select(c.record_id, c.vector).join(s.records, s.records.c.id == c.record_id)
        ids, vectors = columns_of(self._store, query.where(self._mine, c.embedder == embedder), 2)
        if len({len(vector) for vector in vectors}) > 1:
            raise StoreError(f"run {self._run_id}: its embeddings aren't all of one length. Import its bundle again.")
        matrix = (
            np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1) if vectors else np.zeros((0, 0))
        )
        at, known = self._records_at(np.array(ids, dtype=np.int64))
        codes, rows = self._known.codes[at], self._known.rows[at]
        names = [str(name) for name in self.instances["instance"]]
        positions = np.full((len(names), len(self._configurations)), -1, dtype=np.intp)
        positions[rows, codes] = np.flatnonzero(known)
        keys: list[Key] = [(a, b, c) for a, b, c in self.configurations.itertuples(index=False, name=None)]
        return Vectors(keys, names, positions, matrix)

    def _places(self, configurations: Sequence[int], instances: Sequence[str]) -> tuple[Ints, Ints]:
        """Positions of configurations and instances in the run's order."""
        codes = pd.Index(self._configurations["id"]).get_indexer(np.array(configurations, dtype=np.int64))
        index = pd.Index(self.instances["instance"].to_numpy(dtype=object), dtype=object)
        rows = index.get_indexer(np.array(instances, dtype=object))
        return codes.astype(np.int64), rows.astype(np.int64)

    def _records_at(self, ids: Ints) -> tuple[Ints, Bools]:
        """Positions in `_known` of the ids that are in it, and which these are."""
        numbers = self._known.ids
        if not len(numbers):
            return np.zeros(0, dtype=np.int64), np.zeros(len(ids), dtype=np.bool_)
        at = np.minimum(np.searchsorted(numbers, ids), len(numbers) - 1)
        known = numbers[at] == ids
        return at[known].astype(np.int64), known

    def _named(self, codes: Ints, rows: Ints, columns: dict[str, Any]) -> pd.DataFrame:
        """Columns of rows, put into the run's order behind the names of their configurations and instances."""
        order = np.lexsort((rows, codes))
        frame = {name: _taken(self._configurations[name], codes[order]) for name in KEY}
        frame["instance"] = _taken(self.instances["instance"], rows[order])
        return pd.DataFrame(frame | {name: values[order] for name, values in columns.items()}, copy=False)

    def _errors(self, ids: Ints) -> npt.NDArray[np.object_]:
        query = select(s.records.c.id, s.records.c.error).where(self._mine, s.records.c.status == "error")
        with self._store.begin() as connection:
            found = {row.id: row.error for row in connection.execute(query)}
        errors = np.full(len(ids), None, dtype=object)
        if found:
            failed = np.flatnonzero(np.isin(ids, list(found)))
            errors[failed] = [found[number] for number in ids[failed]]
        return errors


def _taken(names: Any, codes: npt.NDArray[np.integer[Any]]) -> Any:
    """A text column from the few names in it, missing where the code is −1: no string is made for each row."""
    return pd.array(list(names), dtype="str").take(codes, allow_fill=True)


def _column(name: str, values: tuple[Any, ...]) -> Any:
    if name in _TEXTS:
        codes, names = pd.factorize(np.array(values, dtype=object))
        return _taken(names, codes)
    if name in _MARKS:
        # SQLite's driver gives 0 and 1.
        return np.array([None if mark is None else bool(mark) for mark in values], dtype=object)
    if name == "counts":
        # SQLite's driver gives JSON as it is written, PostgreSQL's as it is meant.
        return pd.array([json.loads(each) if isinstance(each, str) else each for each in values], dtype=object)
    numbers = np.array(values, dtype=np.float64)
    return numbers.astype(np.int64) if name == "concurrency" and not np.isnan(numbers).any() else numbers
