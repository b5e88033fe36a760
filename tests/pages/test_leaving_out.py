"""What the sidebar leaves out is gone from averages, is said, and stands in the link."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from opbench.benchmarks import load, select
from opbench.cli import app as command_line
from opbench.settings import settings
from opbench.store.database import Store
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run


@pytest.fixture
def gone(store: Store) -> list[str]:
    """Five LoCoMo questions of the made run's twelve, on a list of the user's own called `mine`."""
    write_run(store)
    instances = select(load("sample"), ("op", "locomo"), limit=12)
    ids = [instance.id for instance in instances if instance.benchmark == "locomo"][:5]
    _write("mine", ids)
    return ids


def _write(name: str, ids: list[str]) -> None:
    folder = settings().home / "exclusions"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text("instance,reason\n" + "".join(f"{each},doubtful\n" for each in ids))


def reminder(frame: pd.DataFrame) -> Any:
    return frame.set_index(["memory", "mitigation"]).loc[("RAG", "Reminder")]


def test_a_list_in_the_link_is_left_out_and_said(visit: Open, gone: list[str]) -> None:
    whole = reminder(visit(run=MADE).dataframe[0].value)
    assert whole["locomo_of"].startswith("12 of 12")
    app = visit(run=MADE, without="mine")
    # 12 LoCoMo questions less 5; OP-Bench stays as it is.
    assert reminder(app.dataframe[0].value)["locomo_of"].startswith("7 of 7")
    assert reminder(app.dataframe[0].value)["op_of"] == whole["op_of"]
    assert any("without mine" in element.value.replace("\\", "") for element in app.markdown)


def test_a_list_that_was_changed_is_read_anew(visit: Open, gone: list[str]) -> None:
    assert reminder(visit(run=MADE, without="mine").dataframe[0].value)["locomo_of"].startswith("7 of 7")
    _write("mine", gone[:3])
    assert reminder(visit(run=MADE, without="mine").dataframe[0].value)["locomo_of"].startswith("9 of 9")


def test_an_unknown_list_in_the_link_is_a_sentence(visit: Open, gone: list[str]) -> None:
    app = visit(run=MADE, without="nosuchlist")
    assert "without=nosuchlist" in app.warning[0].value.replace("\\", "")
    assert reminder(app.dataframe[0].value)["locomo_of"].startswith("12 of 12")


def test_repetition_questions_cannot_be_left_out(visit: Open, gone: list[str]) -> None:
    repeated = [i.id for i in select(load("sample"), ("op",), limit=12) if i.subtype == "repetition"]
    _write("repeated", repeated[:1])
    app = visit(run=MADE, without="repeated")
    assert "can't be left out" in app.error[0].value.replace("\\", "")


def test_the_command_line_leaves_out_the_same(gone: list[str]) -> None:
    said = CliRunner().invoke(command_line, ["table", MADE, "--of", "locomo", "--exclude", "mine", "--json"])
    assert said.exit_code == 0, said.output
    table = json.loads(said.output)
    assert table["exclude"] == ["mine"]
    assert {row["n_planned"] for row in table["rows"]} == {7}


def test_latency_of_one_benchmark(gone: list[str]) -> None:
    said = CliRunner().invoke(command_line, ["table", MADE, "--of", "latency", "--benchmark", "op", "--json"])
    assert {row["n"] for row in json.loads(said.output)["rows"] if row["stage"] == "response"} == {12}
