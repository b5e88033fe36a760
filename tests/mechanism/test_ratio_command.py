"""`opbench mechanism ratio` says what the page says, of a made run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opbench.cli import app
from opbench.errors import UsageError
from opbench.settings import settings
from opbench.store.database import open_store
from tests.pages.read_run import HEADS, LAYERS, OWN, write_read
from tests.pages.wide_run import WIDE, write_wide


@pytest.fixture
def read(home: Path) -> Iterator[str]:
    store = open_store(settings().store_url)
    yield write_read(store)
    store.close()


def ask(*words: str) -> str:
    ended = CliRunner().invoke(app, ["mechanism", "ratio", WIDE, *words])
    assert ended.exit_code == 0, ended.exception
    return ended.stdout


def rows(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ask(*words, "--json"))["rows"]
    return found


def test_the_ratio_by_configuration_with_what_it_comes_to(read: str) -> None:
    told = json.loads(ask("--json"))
    by_name = {(row["memory"], row["mitigation"]): row for row in told["rows"]}
    assert by_name["rag", "none"]["value"] == pytest.approx(3.0)
    assert by_name["rag", "none"]["n"] == 144
    assert by_name["base", "none"]["value"] is None
    assert told["reader"] == OWN
    assert any("Per token, memory gets 3.00× the attention of the query" in note for note in told["notes"])
    assert "0 of them answered by the reading model itself" in told["notes"][0]


def test_filters_and_tables(read: str) -> None:
    by_task = rows("--of", "tasks", "--memory", "rag", "--mitigation", "none")
    assert len(by_task) == 6
    assert [row["value"] for row in by_task] == pytest.approx([3.0] * 6)
    assert len(rows("--of", "layers", "--memory", "rag", "--mitigation", "none")) == LAYERS
    assert len(rows("--of", "heads", "--memory", "rag,random")) == 3 * LAYERS * HEADS
    assert [row["n"] for row in rows("--user", "conv-0/Ada", "--memory", "random")] == [12]
    assert {row["kind"] for row in rows("--of", "changes")} == {"memory", "random", "mitigation"}
    assert {row["segment"] for row in rows("--of", "shares", "--memory", "base")} == {
        "first",
        "instructions",
        "query",
        "response",
    }


def test_a_file_says_where_it_is_from(read: str) -> None:
    (row,) = csv.DictReader(io.StringIO(ask("--csv", "--memory", "random").removeprefix("\ufeff")))
    assert (row["run"], row["reader"], row["position"]) == (WIDE, OWN, "response")
    assert float(row["value"]) == pytest.approx(2.0)


def test_what_isnt_there_is_said_with_the_mend(home: Path) -> None:
    store = open_store(settings().store_url)
    write_wide(store)
    ended = CliRunner().invoke(app, ["mechanism", "ratio", WIDE])
    assert isinstance(ended.exception, UsageError)
    assert f"'opbench mechanism attention {WIDE}'" in str(ended.exception)
    store.close()


def test_a_name_that_wasnt_read_is_refused(read: str) -> None:
    ended = CliRunner().invoke(app, ["mechanism", "ratio", WIDE, "--memory", "mem0"])
    assert isinstance(ended.exception, UsageError)
    assert "no memory 'mem0' was read. There are: base, rag, random." in str(ended.exception)
