"""Stores of earlier versions, on SQLite and PostgreSQL: upgraded where they are, with all that is in them."""

from __future__ import annotations

import json

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import func, insert, inspect, select, text

from opbench.store import schema as s
from opbench.store.database import MIGRATIONS, Store, open_store
from opbench.store.reading import read_run, run_status
from opbench.study import Study

STUDY = Study(models=("m",), memories=("rag",))
#: As version 0002 had them: without `runs.halted`.
OLD = (
    "INSERT INTO runs VALUES ('r1', 'old', 'h', :study, '{}', 1.0, 'go', :no, :no)",
    "INSERT INTO configurations VALUES (7, 'r1', 'm', 'rag', 'none')",
    "INSERT INTO instances VALUES ('r1', 'op/a/fact/1', 0, 'op', 'a', :yes, 'fact', 'Q?', NULL)",
    "INSERT INTO instances VALUES ('r1', 'op/a/fact/2', 1, 'op', 'a', :yes, 'fact', 'Q?', NULL)",
    (
        "INSERT INTO records (id, run_id, configuration_id, instance_id, status, response, response_ms, finished_at) "
        "VALUES (3, 'r1', 7, 'op/a/fact/1', 'done', 'A response.', 120.5, 2.0)"
    ),
    (
        "INSERT INTO records (id, run_id, configuration_id, instance_id, status, error_kind, error, finished_at) "
        "VALUES (4, 'r1', 7, 'op/a/fact/2', 'error', 'timeout', 'too slow', 2.0)"
    ),
    "INSERT INTO scores VALUES (3, 'j', 'score', 0.25, NULL, 'raw', :no)",
)


def _to(store: Store, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def _old_store(url: str) -> None:
    """A store of version 0002 with a run of two records."""
    store = open_store(url)
    _to(store, "0002")
    values = {"study": json.dumps(STUDY.model_dump(mode="json")), "yes": True, "no": False}
    with store.begin() as connection:
        for statement in OLD:
            named = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(text(statement), named)
    store.close()


def test_a_store_of_the_second_version_keeps_its_runs(store_url: str) -> None:
    _old_store(store_url)
    store = open_store(store_url)
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), s.metadata) == []
    status = run_status(store, "r1")
    assert (status.planned, status.done, status.errors, status.halted) == (2, 1, 1, None)
    data = read_run(store, "r1")
    assert data.records["response_ms"].dropna().tolist() == [120.5]
    assert data.records["error"].dropna().tolist() == ["too slow"]
    assert data.scores["value"].tolist() == [0.25]


def test_the_indexes_are_there(store_url: str) -> None:
    _old_store(store_url)
    store = open_store(store_url)
    names = {index["name"] for table in ("records", "scores") for index in inspect(store.engine).get_indexes(table)}
    assert {"ix_records_status", "ix_records_narrow", "ix_scores_narrow", "ix_scores_missing"} <= names
    assert "ix_records_run_status" not in names


def test_going_back_a_version_deletes_no_run(store_url: str) -> None:
    _old_store(store_url)
    store = open_store(store_url)
    _to(store, "0002")
    with store.begin() as connection:
        assert connection.scalar(select(func.count()).select_from(s.records)) == 2
        assert connection.scalar(text("SELECT name FROM runs")) == "old"
    assert "human_scores" not in inspect(store.engine).get_table_names()


def test_peoples_scores_are_a_history_and_go_with_their_run(store_url: str) -> None:
    _old_store(store_url)
    store = open_store(store_url)
    said = {
        "run_id": "r1",
        "configuration_id": 7,
        "instance_id": "op/a/fact/1",
        "response_sha256": "0" * 64,
        "note": "",
        "rater": "me",
        "made_at": 3.0,
    }
    with store.begin() as connection:
        connection.execute(insert(s.human_scores), [said | {"value": 0.5}, said | {"value": None}])
        kept = connection.scalars(select(s.human_scores.c.value).order_by(s.human_scores.c.id)).all()
        assert kept == [0.5, None]
        connection.execute(s.runs.delete())
        assert connection.scalar(select(func.count()).select_from(s.human_scores)) == 0
