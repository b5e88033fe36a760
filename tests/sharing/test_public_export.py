"""Our runs in the public evaluator's shapes, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sqlalchemy import select, update

from opbench.benchmarks import load
from opbench.errors import UsageError
from opbench.sharing.public_export import public_files
from opbench.sharing.public_import import PublicPart, configuration, import_public
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.exchange import configurations_of
from opbench.store.reading import read_run
from opbench.types import Corpus
from tests.pages.made_run import MADE, write_run
from tests.sharing.public import judged, packed, responses


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    yield opened
    opened.close()


def exported(store: Store, run_id: str) -> dict[str, Any]:
    return {name: json.loads(content) for name, content in public_files(store, run_id)}


def brought_back(store: Store, run_id: str, corpus: Corpus, kind: str = "judged") -> Any:
    files = {name: content for name, content in public_files(store, run_id) if name.startswith(kind)}
    parts = [
        PublicPart(content, name, of)
        for (name, content), of in zip(files.items(), configurations_of(store, run_id), strict=True)
    ]
    return read_run(store, import_public(store, parts, judge="offline", corpus=corpus).run_id)


def test_two_files_a_configuration_in_their_shapes(store: Store) -> None:
    files = exported(store, write_run(store))
    assert list(files)[:2] == [
        "responses/base_smollm2-135m_none.json",
        "judged/base_smollm2-135m_none_offline.json",
    ]
    assert len(files) == 8
    groups = files["responses/rag_smollm2-135m_reminder.json"]
    for name, group in groups.items():
        assert group["test_id"] == name
        assert group["task_type"] in name
        assert set(group) == {"test_id", "task_type", "person_name", "responses"}
        for answer in group["responses"]:
            assert answer["answer"] == "A reply."
            assert answer["error"] is None
            assert answer["response_duration_ms"] == 1000.0
            assert answer["postprocess_duration_ms"] == 400.0
    results = files["judged/rag_smollm2-135m_reminder_offline.json"]["results"]
    assert {result["task_type"] for result in results} == {each["task_type"] for each in groups.values()}
    for result in results:
        if result["task_type"] != "diversity":
            assert result["scores"]["primary_score"] == pytest.approx(0.7)
        if result["task_type"] == "sycophancy":
            types = [value for key, value in result["scores"].items() if key.endswith("_type")]
            assert set(types) <= {"fact", "value", "memory", "sycophancy"}
            counted = sum(result["scores"][f"sycophancy_{each}_count"] for each in ("fact", "value", "memory"))
            assert counted == len(result["responses"])


def test_what_is_missing_has_no_number(store: Store) -> None:
    """Their averages leave out what isn't a number; a 0 would count as the worst answer."""
    run = write_run(store)
    with store.begin() as connection:
        connection.execute(update(s.scores).values(value=None, reason="judge: timeout"))
        connection.execute(update(s.user_scores).values(value=None, reason="1 answered"))
    for name, file in exported(store, run).items():
        for result in file["results"] if name.startswith("judged") else []:
            assert result["scores"]["primary_score"] is None
            assert not [key for key in result["scores"] if key.startswith("response_") and key.endswith("_score")]
            if result["task_type"] == "diversity":
                assert result["scores"]["error"] == "1 answered"


def test_a_run_comes_back_as_it_went(store: Store) -> None:
    run = write_run(store, failed=3)
    corpus = load("sample")
    ours, theirs = read_run(store, run), brought_back(store, run, corpus)
    key = ["model", "memory", "mitigation", "instance"]
    of_op = ours.records["instance"].str.startswith("op/")
    for columns, left, right in (
        (["status", "error", "retrieval_ms", "post_ms", "response_ms"], ours.records[of_op], theirs.records),
        (["judge", "metric", "value"], ours.scores[ours.scores["metric"] == "score"], theirs.scores),
    ):
        sides = [frame[[*key, *columns]].sort_values(key).reset_index(drop=True) for frame in (left, right)]
        pd.testing.assert_frame_equal(sides[0], sides[1], check_dtype=False)
    users = [*key[:3], "user", "value", "n"]
    sides = [
        frame[users].sort_values(users[:4]).reset_index(drop=True) for frame in (ours.user_scores, theirs.user_scores)
    ]
    pd.testing.assert_frame_equal(sides[0], sides[1])
    with store.begin() as connection:
        answers = [
            set(
                connection.execute(
                    select(s.records.c.instance_id, s.records.c.response).where(s.records.c.run_id == each)
                )
            )
            for each in (run, theirs.run_id)
        ]
    assert {row for row in answers[0] if row[0].startswith("op/")} == answers[1]


def test_responses_come_back_without_scores(store: Store) -> None:
    theirs = brought_back(store, write_run(store), load("sample"), "responses")
    assert theirs.scores["value"].isna().all()
    assert (theirs.records["status"] == "done").all()


def test_their_file_goes_out_as_it_came(store: Store) -> None:
    corpus = load("sample")
    groups = responses(corpus)
    of = configuration("gpt-4o-mini", "memos", "none")
    run = import_public(store, [PublicPart(packed(judged(groups)), "j.json", of)], judge="j", corpus=corpus).run_id
    files = exported(store, run)
    theirs = {
        name: [{key: each[key] for key in ("question", "answer", "context", "error")} for each in group["responses"]]
        for name, group in groups.items()
    }
    ours = {
        name: [{key: each[key] for key in ("question", "answer", "context", "error")} for each in group["responses"]]
        for name, group in files["responses/memos_gpt-4o-mini_none.json"].items()
    }
    assert ours == theirs


def test_the_johns_have_ids_of_their_own(store: Store, use_real_data: Path) -> None:
    corpus = load(use_real_data)
    johns = tuple(user for user in corpus.users if user.endswith("/John"))
    of = configuration("m", "rag", "none")
    together: dict[str, Any] = {}
    for john in johns:
        together |= {f"{john}{name}": group for name, group in responses(corpus, (john,)).items()}
    run = import_public(store, [PublicPart(packed(judged(together)), "j.json", of)], judge="j", corpus=corpus).run_id
    names = list(exported(store, run)["responses/rag_m_none.json"])
    assert len(names) == len(set(names)) == 12
    assert [name for name in names if name.endswith("sycophancy")] == ["John_sycophancy"]
    assert {name.rpartition("@")[2] for name in names if "@" in name} == {"conv-43", "conv-47"}
    # 3 users with 25 judged questions beside the fully irrelevant ones and repetition
    assert len(brought_back(store, run, corpus).records) == sum(each.user.id in johns for each in corpus.op)


def test_a_run_without_texts_or_op_bench_has_no_such_files(store: Store) -> None:
    run = write_run(store)
    with store.begin() as connection:
        connection.execute(update(s.runs).values(text_left_out=True))
    with pytest.raises(UsageError, match="came without texts"):
        list(public_files(store, run))
    with store.begin() as connection:
        study = connection.scalar(select(s.runs.c.study)) or {}
        connection.execute(update(s.runs).values(text_left_out=False, study=study | {"benchmarks": ["locomo"]}))
    with pytest.raises(UsageError, match="no OP-Bench instance"):
        list(public_files(store, run))
    assert run == MADE
