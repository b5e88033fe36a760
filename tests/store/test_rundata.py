"""A run as analysis sees it: what is read, when, and in which order."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import event, text, update

from opbench.errors import StoreError, UsageError
from opbench.store import schema as s
from opbench.store.claims import claim, new_worker
from opbench.store.database import Store
from opbench.store.reading import read_run, run_status
from opbench.store.rundata import Vectors
from opbench.store.writing import FinishedRecord, create_run, save_records, save_user_scores
from opbench.study import Configuration, Study
from opbench.types import Instance, Score, User

ANA = User("c1", "Ana", "Bo", True)
# Not in the order of the alphabet: the run's own order counts.
INSTANCES = [
    Instance("op/z/fact/1", "op", ANA, "fact", "Is water dry?"),
    Instance("op/a/repetition/1", "op", ANA, "repetition", "What now?"),
    Instance("op/a/repetition/2", "op", ANA, "repetition", "And now?"),
    Instance("locomo/c1/1", "locomo", ANA, "temporal", "When?", "9 May 2024"),
]
BASE, NONE = Configuration("m", "base", "none"), Configuration("m", "rag", "none")
STUDY = Study(models=("m",), memories=("base", "rag"), judge="j", embedder="e")
KEY = ["model", "memory", "mitigation", "instance"]


def done(configuration_id: int, instance: Instance, *scores: Score, **more: Any) -> FinishedRecord:
    values = {"status": "done", "response": "Wet.", "response_ms": 120.0, "concurrency": 4, "finished_at": 1.0} | more
    return FinishedRecord(configuration_id, instance.id, values, judge="j", scores=list(scores))


def error(configuration_id: int, instance: Instance, said: str) -> FinishedRecord:
    values = {"status": "error", "error_kind": "timeout", "error": said, "finished_at": 1.0}
    return FinishedRecord(configuration_id, instance.id, values)


@pytest.fixture
def ids(store: Store) -> dict[Configuration, int]:
    return create_run(store, "r1", STUDY, "h", {}, INSTANCES)


@pytest.fixture
def written(store: Store, ids: dict[Configuration, int]) -> str:
    """Both configurations on all four instances, written backwards; one error and one missing score."""
    fact, first, second, locomo = INSTANCES
    east, north = np.array([1, 0], dtype=np.float32), np.array([0, 1], dtype=np.float32)
    repeated = [done(ids[NONE], first), done(ids[NONE], second), done(ids[BASE], second)]
    for record, vector in zip(repeated, (east, north, north), strict=True):
        record.embedding = ("e", vector)
    lacking = done(ids[NONE], locomo, Score("f1", 0.5), Score("correct", None, "no verdict"), retrieval_reused=True)
    told = done(ids[BASE], locomo, Score("f1", 0.0), Score("correct", 1.0, "right"), cost_usd=0.25)
    records = [lacking, *repeated, error(ids[NONE], fact, "too slow"), told, error(ids[BASE], first, "gone")]
    save_records(store, "r1", [*records, done(ids[BASE], fact, Score("score", 0.75))])
    values = {"metric": "repetition", "judge": "e", "n": 2, "reason": None}
    save_user_scores(store, [{"configuration_id": ids[NONE], "user_id": ANA.id, "value": 1.0, **values}])
    return "r1"


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        asked.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(store.engine, "before_cursor_execute", note)


def test_records_stand_in_the_runs_order_with_what_is_theirs(store: Store, written: str) -> None:
    records = read_run(store, written).records
    in_order = [(each.memory, instance.id) for each in (BASE, NONE) for instance in INSTANCES]
    assert list(zip(records["memory"], records["instance"], strict=True)) == in_order
    assert records["status"].tolist() == ["done", "error", "done", "done", "error", "done", "done", "done"]
    assert records["error"].dropna().to_dict() == {1: "gone", 4: "too slow"}
    assert records["error_kind"].dropna().to_dict() == {1: "timeout", 4: "timeout"}
    assert records["cost_usd"].dropna().to_dict() == {3: 0.25}
    assert records["retrieval_reused"].dropna().to_dict() == {7: True}
    assert records["concurrency"].dropna().tolist() == [4] * 6
    assert records["post_ms"].dtype == np.float64
    assert records["post_ms"].isna().all()


def test_scores_stand_in_the_runs_order_with_reasons_of_missing_ones(store: Store, written: str) -> None:
    scores = read_run(store, written).scores
    rows = scores[["memory", "instance", "metric", "value"]].itertuples(index=False, name=None)
    assert list(rows)[:4] == [
        ("base", "op/z/fact/1", "score", 0.75),
        ("base", "locomo/c1/1", "correct", 1.0),
        ("base", "locomo/c1/1", "f1", 0.0),
        ("rag", "locomo/c1/1", "correct", pytest.approx(np.nan, nan_ok=True)),
    ]
    assert scores["judge"].unique().tolist() == ["j"]
    # Whoever wants the words of a judge that did score reads the record.
    assert scores["reason"].dropna().to_dict() == {3: "no verdict"}


def test_one_metric_is_read_by_itself(store: Store, written: str) -> None:
    data = read_run(store, written)
    alone = data.scores_of("correct")
    assert alone["value"].tolist() == [1.0, pytest.approx(np.nan, nan_ok=True)]
    whole = data.scores[data.scores["metric"] == "correct"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, whole)
    assert data.scores_of("nothing of the kind").empty


def test_some_columns_are_read_by_themselves(store: Store, written: str) -> None:
    data = read_run(store, written)
    for columns in (("status", "concurrency"), ("cost_usd", "error"), ("status",)):
        pd.testing.assert_frame_equal(data.records_with(*columns), data.records[[*KEY, *columns]], check_dtype=False)


def test_columns_beside_those_of_all_records_are_read_whatever_was_read_before(store: Store, written: str) -> None:
    with store.begin() as connection:
        where = s.records.c.instance_id == INSTANCES[3].id
        connection.execute(update(s.records).where(where).values(counts={"context_tokens": 7}))
    data = read_run(store, written)
    assert "counts" not in data.records
    for run in (data, data.without([INSTANCES[0].id])):
        counts = run.records_with("counts").set_index("instance")["counts"]
        assert {each["context_tokens"] for each in counts[INSTANCES[3].id]} == {7}
        assert list(run.records_with("status", "counts").columns) == [*KEY, "status", "counts"]


def test_no_text_is_read_with_the_numbers(store: Store, written: str) -> None:
    with statements(store) as asked:
        data = read_run(store, written)
        assert not re.search(r"\b(records|scores|embeddings)\b", " ".join(asked))
        assert (len(data.records), len(data.scores), len(data.user_scores)) == (8, 5, 1)
        assert data.vectors is not None
    everything = " ".join(asked)
    assert not re.search(r"records\.(response|draft|critique|retrieved|context|counts)\b", everything)
    assert not re.search(r"scores\.raw\b", everything)


def test_each_frame_is_read_once_by_however_many_threads(store: Store, written: str) -> None:
    data = read_run(store, written)
    found: list[pd.DataFrame] = []
    with statements(store) as asked:
        threads = [threading.Thread(target=lambda: found.append(data.records)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum("response_ms" in statement for statement in asked) == 1
    assert all(each is found[0] for each in found)


def test_sqlite_reads_numbers_from_indexes_alone(store: Store, written: str) -> None:
    if store.engine.dialect.name != "sqlite":
        # PostgreSQL chooses by the table's size; there it is enough that the index holds the columns.
        columns = next(index for index in s.records.indexes if index.name == "ix_records_narrow").columns.keys()
        assert {"run_id", "status", "post_ms", "response_completion_tokens", "cost_usd"} <= set(columns)
        return
    with statements(store) as asked:
        data = read_run(store, written)
        assert len(data.scores) + len(data.records) == 13
    for statement in asked:
        wide = "records.error" in statement or "scores.reason" in statement
        if wide or not re.search(r"FROM (records|scores)", statement):
            continue
        with store.begin() as connection:
            plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, ("x",) * statement.count("?")).all()
        assert all("COVERING INDEX" in row[3] for row in plan if "records" in row[3] or "scores" in row[3]), plan


def test_what_was_written_after_the_first_look_is_left_out(
    store: Store, ids: dict[Configuration, int], written: str
) -> None:
    data = read_run(store, written)
    assert len(data.records_with("status")) == 8
    save_records(store, written, [done(ids[BASE], INSTANCES[0], Score("score", 0.1))])
    # The record that had 0.75 is gone, and the one with 0.1 wasn't there yet.
    assert data.scores["metric"].tolist() == ["correct", "f1", "correct", "f1"]
    assert read_run(store, written).scores["value"].iloc[0] == 0.1


def test_vectors_are_a_mapping_over_one_matrix(store: Store, written: str) -> None:
    vectors = read_run(store, written).vectors
    assert isinstance(vectors, Vectors)
    key = ("m", "rag", "none")
    assert {name: vector.tolist() for name, vector in vectors.items()} == {
        (*key, "op/a/repetition/1"): [1.0, 0.0],
        (*key, "op/a/repetition/2"): [0.0, 1.0],
        ("m", "base", "none", "op/a/repetition/2"): [0.0, 1.0],
    }
    assert (len(vectors), ("m", "base", "none", "op/a/repetition/1") in vectors) == (3, False)
    rows = vectors.rows(["op/a/repetition/2", "op/a/repetition/1", "elsewhere"], [key, ("no", "such", "one")])
    assert (rows >= 0).tolist() == [[True, False], [True, False], [False, False]]
    assert vectors.matrix[rows[:2, 0]].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    again = Vectors.of(dict(vectors))
    assert {name: vector.tolist() for name, vector in again.items()} == {n: v.tolist() for n, v in vectors.items()}


def test_vectors_of_two_lengths_are_refused(store: Store, written: str) -> None:
    with store.begin() as connection:
        one = connection.scalar(text("SELECT min(record_id) FROM embeddings"))
        connection.execute(update(s.embeddings).where(s.embeddings.c.record_id == one).values(vector=b"\0\0\x80\x3f"))
    data = read_run(store, written)
    with pytest.raises(StoreError, match="embeddings aren't all of one length"):
        len(data.vectors or ())


def test_an_empty_run_has_empty_frames(store: Store, ids: dict[Configuration, int]) -> None:
    data = read_run(store, "r1")
    assert (len(data.records), len(data.scores), len(data.user_scores), len(data.vectors or ())) == (0, 0, 0, 0)
    assert list(data.scores.columns) == [*KEY, "judge", "metric", "value", "reason"]
    assert "response_ms" in data.records
    assert len(data.instances) == 4


def test_without_leaves_instances_out_of_plan_and_scores(store: Store, written: str) -> None:
    data = read_run(store, written)
    less = data.without({"locomo/c1/1", "locomo/of another slice"})
    assert less.instances["instance"].tolist() == ["op/z/fact/1", "op/a/repetition/1", "op/a/repetition/2"]
    assert "locomo/c1/1" not in set(less.records["instance"])
    assert (len(less.records), len(data.records)) == (6, 8)
    assert less.scores["metric"].tolist() == ["score"]
    assert less.scores_of("correct").empty
    assert len(less.records_with("status")) == 6
    assert less.user_scores["value"].tolist() == [1.0]
    assert less.vectors is data.vectors
    assert (less.run_id, less.study, less.configurations is data.configurations) == ("r1", data.study, True)


def test_without_refuses_repetition(store: Store, written: str) -> None:
    with pytest.raises(UsageError, match=r"op/a/repetition/2 can't be left out: repetition is scored over all"):
        read_run(store, written).without(["op/a/repetition/2"])


def test_of_a_record_that_comes_twice_the_last_counts(store: Store, ids: dict[Configuration, int]) -> None:
    fact = INSTANCES[0]
    batch = [error(ids[BASE], fact, "first"), done(ids[NONE], fact, Score("score", 0.3))]
    save_records(store, "r1", [*batch, done(ids[BASE], fact, Score("score", 0.9))])
    data = read_run(store, "r1")
    assert data.records["status"].tolist() == ["done", "done"]
    assert data.scores[["memory", "value"]].to_numpy().tolist() == [["base", 0.9], ["rag", 0.3]]


def test_status_counts_records_by_reason_and_not_scores(store: Store, ids: dict[Configuration, int]) -> None:
    locomo = INSTANCES[3]
    both = [Score(name, None, "no answer") for name in ("f1", "correct")]
    passing = Score("correct", None, "judge: timeout", details={"transport": 1.0})
    save_records(
        store, "r1", [done(ids[BASE], locomo, *both), done(ids[NONE], locomo, Score("f1", None, "odd"), passing)]
    )
    status = run_status(store, "r1")
    assert (status.done, status.errors, status.unscored, status.retriable) == (2, 0, 2, 1)
    assert status.missing_reasons == {"no answer": 1, "odd": 1, "judge: timeout": 1}
    assert status.by_configuration["done"].tolist() == [1, 1]
    assert status.recent_rate is None


def test_the_rate_is_of_the_last_minute(store: Store, ids: dict[Configuration, int]) -> None:
    now = time.time()
    claim(store, "r1", new_worker("r1", 4) | {"started_at": now - 600})
    times = [now - 5, now - 50, now - 500]
    save_records(
        store, "r1", [done(ids[BASE], each, finished_at=at) for each, at in zip(INSTANCES, times, strict=False)]
    )
    assert run_status(store, "r1").recent_rate == pytest.approx(2 / 60)
