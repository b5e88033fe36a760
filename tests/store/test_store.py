"""The store on SQLite and on PostgreSQL: schema, records with their calls, status, bundles."""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, func, select, text

from opbench.errors import DataError, LeaseLost, StoreError, UsageError
from opbench.store import schema as s
from opbench.store.bundle import export_run, import_run
from opbench.store.claims import claim, new_worker
from opbench.store.database import Store, open_store
from opbench.store.reading import failures, find_run, read_run, run_ids, run_status
from opbench.store.writing import (
    CallRow,
    CallUse,
    FinishedRecord,
    Judgement,
    create_run,
    save_calls,
    save_judgements,
    save_records,
    save_user_scores,
)
from opbench.study import Configuration, Study
from opbench.types import Instance, Score, User

ANA = User("c1", "Ana", "Bo", True)
INSTANCES = [
    Instance("op/c1/Ana/fact/1", "op", ANA, "fact", "Is water dry?"),
    Instance("op/c1/Ana/repetition/1", "op", ANA, "repetition", "What now?"),
    Instance("locomo/c1/1", "locomo", ANA, "temporal", "When?", "9 May 2024"),
]
STUDY = Study(models=("m",), memories=("base", "rag"), mitigations=("none", "reminder"))
BASE = Configuration("m", "base", "none")
RAG = Configuration("m", "rag", "none")


def call(key: str = "k1") -> CallRow:
    return CallRow(key, "chat", "m", {"q": "x"}, "It is wet.", "stop", 10, 4, 0.5, 120.0, 1, time.time())


def record(ids: dict[Configuration, int], configuration: Configuration, instance: str, **more: Any) -> FinishedRecord:
    values = {"status": "done", "response": "It is wet.", "response_ms": 120.0, "finished_at": time.time()} | more
    return FinishedRecord(ids[configuration], instance, values)


@pytest.fixture
def ids(store: Store) -> dict[Configuration, int]:
    return create_run(store, "r1", STUDY, "r1hash", {"comparable": False}, INSTANCES)


def count(store: Store, table: Any) -> int:
    with store.begin() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def test_migrations_make_exactly_the_schema(store: Store) -> None:
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), s.metadata) == []


def test_two_processes_open_a_new_store_at_once(store_url: str) -> None:
    code = "import sys; from opbench.store.database import open_store; open_store(sys.argv[1])"
    both = [subprocess.Popen([sys.executable, "-c", code, store_url], stderr=subprocess.PIPE) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in both] == [(b"", 0)] * 3


def test_a_store_of_a_newer_version_is_refused(store: Store, store_url: str) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"newer version of the workbench \(9999\)"):
        open_store(store_url)


def test_bad_urls_say_the_mend_and_never_the_password() -> None:
    with pytest.raises(StoreError, match="OPBENCH_STORE isn't a database URL"):
        open_store("nonsense")
    with pytest.raises(StoreError) as refused:
        open_store("postgresql+psycopg://me:s3cret@127.0.0.1:1/none")
    assert "s3cret" not in str(refused.value)
    assert "127.0.0.1" in str(refused.value)
    with pytest.raises(StoreError, match="no such kind of database"):
        open_store("frobnicate://x/y")


def test_a_plan_is_made_once(store: Store, ids: dict[Configuration, int]) -> None:
    again = create_run(store, "r1", STUDY, "r1hash", {"comparable": False}, INSTANCES)
    assert again == ids
    # BASE takes no post-processor: three configurations of three instances.
    assert sorted(ids) == sorted([BASE, RAG, Configuration("m", "rag", "reminder")])
    assert run_status(store, "r1").planned == 9


def test_a_record_is_written_with_its_calls_scores_and_vector(store: Store, ids: dict[Configuration, int]) -> None:
    finished = record(ids, BASE, "op/c1/Ana/repetition/1", cost_usd=0.5)
    finished.calls, finished.uses = [call()], [CallUse("k1", "response", False)]
    finished.judge, finished.scores = "offline", [Score("score", None, "empty response")]
    finished.embedding = ("minilm", np.array([1.0, 0.0], dtype=np.float32))
    save_records(store, "r1", [finished])
    data = read_run(store, "r1")
    row = data.records.iloc[0].to_dict()
    assert [row[name] for name in ("model", "memory", "mitigation", "instance", "status")] == [
        "m",
        "base",
        "none",
        "op/c1/Ana/repetition/1",
        "done",
    ]
    assert row["cost_usd"] == 0.5
    assert data.records["post_ms"].isna().all()
    assert data.scores["value"].isna().tolist() == [True]
    assert data.scores["reason"].tolist() == ["empty response"]
    assert data.vectors is not None
    assert data.vectors["m", "base", "none", "op/c1/Ana/repetition/1"].tolist() == [1.0, 0.0]
    assert not data.comparable


def test_writing_again_replaces_and_never_doubles(store: Store, ids: dict[Configuration, int]) -> None:
    first = record(ids, BASE, "locomo/c1/1", status="error", error_kind="timeout", error="too slow", response=None)
    save_records(store, "r1", [first])
    assert run_status(store, "r1").error_kinds == {"timeout": 1}
    assert failures(store, "r1")["reason"].tolist() == ["too slow"]
    second = record(ids, BASE, "locomo/c1/1")
    second.calls, second.uses = [call()], [CallUse("k1", "response", False)]
    second.judge, second.scores = "offline", [Score("f1", 0.5)]
    third = record(ids, RAG, "locomo/c1/1")
    third.calls, third.uses = [call()], [CallUse("k1", "response", True)]
    save_records(store, "r1", [second, third])
    assert count(store, s.records) == 2
    assert count(store, s.calls) == 1
    assert count(store, s.scores) == 1
    status = run_status(store, "r1")
    assert (status.done, status.errors, status.waiting, status.complete) == (2, 0, 7, False)


def test_a_transaction_that_fails_leaves_nothing(store: Store, ids: dict[Configuration, int]) -> None:
    good = record(ids, BASE, "locomo/c1/1")
    good.calls, good.uses = [call()], [CallUse("k1", "response", False)]
    bad = record(ids, RAG, "locomo/c1/1")
    bad.uses = [CallUse("a call that is nowhere", "response", False)]
    with pytest.raises(StoreError):
        save_records(store, "r1", [good, bad])
    assert (count(store, s.records), count(store, s.calls)) == (0, 0)


def test_what_is_no_longer_ones_own_is_not_written(store: Store, ids: dict[Configuration, int]) -> None:
    mine = record(ids, BASE, "locomo/c1/1")
    mine.calls, mine.uses = [call()], [CallUse("k1", "response", False)]
    mine.judge, mine.scores = "offline", [Score("f1", 0.5)]
    save_records(store, "r1", [mine])

    def lost(connection: Connection) -> None:
        connection.execute(s.runs.update().values(halted="a lease was looked at"))
        raise LeaseLost("another worker has it.")

    later = record(ids, BASE, "locomo/c1/1", response="Another.")
    later.calls = [call("k2")]
    with pytest.raises(LeaseLost):
        save_records(store, "r1", [later], lost)
    with store.begin() as connection:
        record_id, response = connection.execute(select(s.records.c.id, s.records.c.response)).one()
    with pytest.raises(LeaseLost):
        save_judgements(store, [Judgement(record_id, "offline", [Score("f1", 0.9)], [call("k3")], [])], lost)
    assert response == "It is wet."
    assert count(store, s.calls) == 1
    with store.begin() as connection:
        assert connection.scalar(select(s.scores.c.value)) == 0.5
        assert connection.scalar(select(s.runs.c.halted)) is None
    asked: list[bool] = []
    save_records(store, "r1", [later], lambda connection: asked.append(connection.in_transaction()))
    assert asked == [True]
    with store.begin() as connection:
        assert connection.scalar(select(s.records.c.response)) == "Another."


def test_a_record_that_is_made_again_has_an_id_of_its_own(store: Store, ids: dict[Configuration, int]) -> None:
    seen: list[int] = []
    for _ in range(3):
        save_records(store, "r1", [record(ids, BASE, "locomo/c1/1"), record(ids, RAG, "locomo/c1/1")])
        with store.begin() as connection:
            seen += connection.scalars(select(s.records.c.id).order_by(s.records.c.id))
    assert sorted(set(seen)) == seen, "whoever read the earlier ones must not take these for them"


def test_judgements_replace_the_scores_and_calls_of_their_judge(store: Store, ids: dict[Configuration, int]) -> None:
    finished = [record(ids, BASE, each.id) for each in INSTANCES[:2]]
    for each in finished:
        each.calls = [call("response"), call("old verdict")]
        each.uses = [CallUse("response", "response", False), CallUse("old verdict", "judge", False)]
        each.judge, each.scores = "judge", [Score("score", None, "judge: timeout", details={"transport": 1.0})]
    save_records(store, "r1", finished)
    with store.begin() as connection:
        first, second = connection.scalars(select(s.records.c.id).order_by(s.records.c.id))
    use = [CallUse("new verdict", "judge", False)]
    save_judgements(
        store,
        [
            Judgement(first, "judge", [Score("score", 0.25)], [call("new verdict")], use),
            Judgement(second, "judge", [Score("score", 0.75)], [call("new verdict")], use),
        ],
    )
    with store.begin() as connection:
        scores = connection.execute(select(s.scores.c.record_id, s.scores.c.value, s.scores.c.retriable)).all()
        uses = connection.execute(
            select(s.record_calls.c.record_id, s.record_calls.c.ordinal, s.record_calls.c.call_key)
        ).all()
    assert sorted(scores) == [(first, 0.25, False), (second, 0.75, False)]
    assert sorted(uses) == [(n, at, key) for n in (first, second) for at, key in enumerate(("response", "new verdict"))]


def test_two_who_keep_the_same_calls_do_not_wait_for_each_other_for_ever(store: Store) -> None:
    keys = [f"k{n}" for n in range(400)]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(5):
            orders = [[call(key) for key in order] for order in (keys, keys[::-1])]
            list(threads.map(lambda calls: save_calls(store, calls), orders, timeout=60))
            assert count(store, s.calls) == 400
            with store.begin() as connection:
                connection.execute(s.calls.delete())


def test_find_run(store: Store, ids: dict[Configuration, int]) -> None:
    create_run(store, "r2", STUDY.model_copy(update={"name": "second"}), "h2", {}, INSTANCES)
    assert set(run_ids(store)) == {"r1", "r2"}
    assert find_run(store, "second") == "r2"
    assert find_run(store, "r1") == "r1"
    with pytest.raises(UsageError, match="'r' fits 2 runs"):
        find_run(store, "r")
    with pytest.raises(UsageError, match="no run 'zz'"):
        find_run(store, "zz")


def test_only_one_worker_at_a_time(store: Store, ids: dict[Configuration, int]) -> None:
    mine = new_worker("r1", 8)
    claim(store, "r1", mine)
    claim(store, "r1", mine)  # its own row is no rival
    with pytest.raises(UsageError, match=r"run r1 is being worked on by process \d+"):
        claim(store, "r1", new_worker("r1", 8))
    assert run_status(store, "r1").working


def test_a_dead_workers_claim_is_void(store: Store, ids: dict[Configuration, int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    claim(store, "r1", new_worker("r1", 8) | {"pid": process.pid, "started_at": time.time() - 5})
    assert not run_status(store, "r1").working
    claim(store, "r1", new_worker("r1", 8))
    assert count(store, s.workers) == 1


def _filled(store: Store, ids: dict[Configuration, int]) -> None:
    finished = record(
        ids,
        RAG,
        "op/c1/Ana/repetition/1",
        retrieved=[{"text": "secret memory", "date": None, "score": 0.5}],
        context=[{"text": "secret memory", "date": None, "score": 0.5}],
        draft="secret draft",
    )
    finished.judge, finished.scores = "offline", [Score("score", 0.25, "secret reason", "secret raw")]
    finished.embedding = ("minilm", np.array([0.6, 0.8], dtype=np.float32))
    save_records(store, "r1", [finished])
    save_user_scores(
        store,
        [
            {
                "configuration_id": ids[RAG],
                "user_id": ANA.id,
                "metric": "repetition",
                "judge": "minilm",
                "value": 0.5,
                "n": 2,
                "reason": None,
            }
        ],
    )


def test_a_bundle_carries_a_run_to_another_store(store: Store, ids: dict[Configuration, int], tmp_path: Path) -> None:
    _filled(store, ids)
    file = export_run(store, "r1", tmp_path / "r1.opbench.zip")
    other = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    assert import_run(other, file) == "rec-r1"
    assert import_run(other, file) == "rec-r1"
    ours, theirs = read_run(store, "r1"), read_run(other, "rec-r1")
    assert theirs.recorded
    assert theirs.records.equals(ours.records)
    assert theirs.scores.equals(ours.scores)
    assert theirs.user_scores.equals(ours.user_scores)
    assert theirs.instances.equals(ours.instances)
    assert theirs.vectors is not None
    assert theirs.vectors["m", "rag", "none", "op/c1/Ana/repetition/1"].tolist() == pytest.approx([0.6, 0.8])
    assert run_ids(other) == ["rec-r1"]


def test_a_bundle_without_texts_has_none(store: Store, ids: dict[Configuration, int], tmp_path: Path) -> None:
    _filled(store, ids)
    file = export_run(store, "r1", tmp_path / "r1.opbench.zip", texts=False)
    with zipfile.ZipFile(file) as archive:
        everything = b"".join(archive.read(name) for name in archive.namelist())
    for sentence in (b"secret", b"It is wet", b"Is water dry", b"What now", b"9 May 2024"):
        assert sentence not in everything
    other = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    data = read_run(other, import_run(other, file))
    assert data.text_left_out
    assert data.vectors is None
    assert data.scores["value"].tolist() == [0.25]
    assert data.user_scores["value"].tolist() == [0.5]


def test_damaged_and_changed_bundles_are_refused(store: Store, ids: dict[Configuration, int], tmp_path: Path) -> None:
    _filled(store, ids)
    file = export_run(store, "r1", tmp_path / "r1.opbench.zip")
    other = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    cut = tmp_path / "cut.zip"
    cut.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"cut\.zip: isn't a whole bundle"):
        import_run(other, cut)
    with pytest.raises(DataError, match=r"none\.zip: can't be read"):
        import_run(other, tmp_path / "none.zip")
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content.replace(b"0.25", b"0.99") if name == "scores.jsonl" else content)
    with pytest.raises(DataError, match=r"scores\.jsonl was changed after the export"):
        import_run(other, changed)
    assert run_ids(other) == []


def test_a_missing_score_for_a_passing_reason_is_not_complete(store: Store, ids: dict[Configuration, int]) -> None:
    for configuration in ids:
        for instance in INSTANCES:
            finished = record(ids, configuration, instance.id)
            finished.judge, finished.scores = "offline", [Score("score", 0.5)]
            save_records(store, "r1", [finished])
    assert run_status(store, "r1").complete
    failed = record(ids, BASE, INSTANCES[0].id)
    failed.judge, failed.scores = "j", [Score("score", None, "judge: auth: no key", details={"transport": 1.0})]
    save_records(store, "r1", [failed])
    status = run_status(store, "r1")
    assert (status.done, status.unscored, status.retriable, status.complete) == (9, 1, 1, False)
    assert status.missing_reasons == {"judge: auth: no key": 1}


def test_an_embedder_that_failed_is_told_and_tried_again(store: Store, ids: dict[Configuration, int]) -> None:
    row = {
        "configuration_id": ids[BASE],
        "user_id": ANA.id,
        "metric": "repetition",
        "judge": "e",
        "value": None,
        "n": 0,
    }
    save_user_scores(store, [row | {"reason": "embedder e: can't be reached"}])
    status = run_status(store, "r1")
    assert status.retriable == 1
    assert status.missing_reasons == {"embedder e: can't be reached": 1}
    save_user_scores(store, [row | {"reason": "1 answered, two are needed for a similarity"}])
    assert run_status(store, "r1").retriable == 0


def test_a_changed_run_replaces_its_bundle(store: Store, ids: dict[Configuration, int], tmp_path: Path) -> None:
    _filled(store, ids)
    other = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    import_run(other, export_run(store, "r1", tmp_path / "first.zip"))
    save_records(
        store, "r1", [record(ids, RAG, "op/c1/Ana/repetition/1", status="error", error="later", response=None)]
    )
    assert import_run(other, export_run(store, "r1", tmp_path / "second.zip")) == "rec-r1"
    assert read_run(other, "rec-r1").records["status"].tolist() == ["error"]


def test_every_single_byte_of_damage_is_one_line(store: Store, ids: dict[Configuration, int], tmp_path: Path) -> None:
    _filled(store, ids)
    whole = export_run(store, "r1", tmp_path / "whole.zip").read_bytes()
    other = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    bad = tmp_path / "bad.zip"
    said = []
    for place in range(0, len(whole), 7):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            import_run(other, bad)
        except DataError as error:
            said.append(str(error))
    assert said
    assert not [message for message in said if "\n" in message]


def test_a_run_made_here_is_meant_before_its_bundle(
    store: Store, ids: dict[Configuration, int], tmp_path: Path
) -> None:
    create_run(store, "r1", STUDY.model_copy(update={"name": "mine"}), "r1hash", {}, INSTANCES)
    import_run(store, export_run(store, "r1", tmp_path / "r1.zip"))
    assert find_run(store, "mine") == "r1"
    assert find_run(store, "rec-r1") == "rec-r1"


def test_a_password_in_the_urls_parameters_is_not_told() -> None:
    with pytest.raises(StoreError) as refused:
        open_store("postgresql+psycopg://u@127.0.0.1:1/none?password=s3cret")
    assert "s3cret" not in str(refused.value)
    with pytest.raises(StoreError, match="OPBENCH_STORE isn't a database URL"):
        open_store("postgresql+psycopg://u@127.0.0.1:abc/none")


def test_the_first_schema_is_upgraded_in_place(store_url: str) -> None:
    from alembic import command
    from alembic.config import Config

    from opbench.store.database import MIGRATIONS

    old = open_store(store_url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with old.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    old.close()
    again = open_store(store_url)
    with again.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), s.metadata) == []
