"""`opbench data` and `opbench audit --rule`: what the pages show, for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opbench.cli import app
from opbench.errors import UsageError
from opbench.settings import settings


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("OPBENCH_HOME", str(tmp_path))
    monkeypatch.delenv("OPBENCH_DATA", raising=False)
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def spoken(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_exclusions_are_listed_with_a_users_own(own_home: Path) -> None:
    (own_home / "exclusions").mkdir()
    (own_home / "exclusions" / "mine.csv").write_text("instance,reason\nlocomo/sample-1/2,odd\n")
    (own_home / "exclusions" / "bad.csv").write_text("x\n")
    assert [(row["name"], row["listed"], row["found"]) for row in spoken("data", "exclusions")] == [
        ("locomo-wrong-gold", 99, 0),
        ("locomo-wrong-evidence", 57, 0),
        ("mine", 1, 1),
    ]
    (row,) = spoken("data", "exclusions", "mine")
    assert (row["instance"], row["reason"], row["subtype"]) == ("locomo/sample-1/2", "odd", "single-hop")
    text = printed("data", "exclusions")
    assert "locomo-wrong-gold" in text
    assert "bad.csv: line 1: no column 'instance'" in text.replace("\n", "")


def test_an_unknown_list_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["data", "exclusions", "other"])
    assert isinstance(result.exception, UsageError)


def test_users_and_one_of_them() -> None:
    rows = spoken("data", "users", "--sample")
    assert [row["user"] for row in rows] == ["sample-1/Ottilie", "sample-1/Corvin"]
    assert (rows[0]["sessions"], rows[0]["op"], rows[0]["baiting"]) == (9, 29, 5)
    assert "pipe organs" in printed("data", "users", "sample-1/Ottilie", "--sample")
    assert len(spoken("data", "users", "sample-1/Ottilie")["topics"]) == 5
    assert isinstance(CliRunner().invoke(app, ["data", "users", "x/y"]).exception, UsageError)


def test_published_as_printed_and_by_a_rule() -> None:
    rows = spoken("data", "published")
    assert len(rows) == 20
    assert (rows[1]["op"], rows[1]["drop"], rows[1]["rule"], rows[1]["n_scored"]) == (55.96, 32.7, "published", None)
    by_rule = spoken("data", "published", "--rule", "task-mean")
    assert by_rule[1]["op"] == pytest.approx(58.45)
    for wrong in (["--rule", "mean"], ["--first-only"]):
        assert isinstance(CliRunner().invoke(app, ["data", "published", *wrong]).exception, UsageError)


def test_cases_say_where_they_come_from() -> None:
    said = spoken("data", "cases")
    assert said["origin"] == "invented"
    assert len(said["cases"]) == 6
    assert "origin: invented" in printed("data", "cases")


def test_the_ranking_by_one_rule() -> None:
    said = spoken("audit", "--rule", "task-mean")
    assert len(said["ranking"]) == 16
    assert len(said["pairs"]) == 9
    assert "9 of 120 pairs change their order" in printed("audit", "--rule", "task-mean")
    assert spoken("audit")[0]["published"] == 83.1
    for wrong in (["audit", "--rule", "mean"], ["audit", "--first-only"]):
        assert isinstance(CliRunner().invoke(app, wrong).exception, UsageError)
