"""`opbench review` from the first command to the last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opbench.cli import app
from opbench.errors import UsageError
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.store.reviews import get_review
from tests.review.made import write_run


def _run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["review", *words])
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def run(home: Path) -> None:
    store = open_store(settings().store_url)
    write_run(store)
    store.close()


def test_nobody_can_work_out_the_order_of_the_responses_from_an_items_id() -> None:
    """The order follows from seed, item and reviewer; the last two are told to browsers, so the first is drawn."""
    store = open_store(settings().store_url)
    told = [_run("create", "--checks", "none").strip() for _ in range(2)]
    seeds = {get_review(store, review).spec.seed for review in told}
    assert len(seeds) == 2
    assert min(seeds) > 2**20
    named = _run("create", "--checks", "none", "--seed", "7").strip()
    assert get_review(store, named).spec.seed == 7
    store.close()


def test_a_review_from_its_making_to_its_end(tmp_path: Path) -> None:
    assert "no review yet" in _run("list")
    planned = json.loads(_run("create", "--limit", "2", "--dry-run", "--json"))
    assert (planned["review"], planned["items"], planned["answers"], planned["checks"]) == (None, 2, 4, 8)
    review = _run("create", "--limit", "2", "--name", "small", "--checks", "none", "--memory", "rag/none").strip()
    link = _run("invite", "ann", "--address", "https://bench.example.org/").strip()
    assert link.startswith("https://bench.example.org/review#")
    assert json.loads(_run("renew", "ann", "--json"))["link"] != link
    _run("invite", "bob")
    _run("invite", "sue", "--senior")
    for who in ("ann", "bob"):
        task = json.loads(_run("next", who, "--json"))["task"]
        choice = "a" if task["a"].startswith("personal") else "b"
        following = json.loads(_run("answer", who, choice, "--comment", "hm", "--json"))
        assert following["outlook"]["answered"] == 1
    _run("answer", "ann", "neither", "--flag")
    _run("undo", "ann")
    _run("answer", "ann", "neither", "--flag")
    _run("answer", "bob", "neither")
    status = json.loads(_run("status", "--json"))
    assert (status["progress"]["accepted"], status["progress"]["disputed"]) == (1, 1)
    (disputed,) = json.loads(_run("items", "--decision", "disputed", "--json"))
    shown = json.loads(_run("show", disputed["item"], "--json"))
    assert [each["verdict"] for each in shown["said"]] == ["neither", "neither"]
    _run("answer", "sue", "neither")
    assert json.loads(_run("list", "--json"))[0]["progress"]["rejected"] == 1
    assert "small" in _run("list")
    assert "1 accepted, 1 rejected" in _run("status")
    assert json.loads(_run("agreement", "--json"))["agreement"][0]["percent"] == 100.0
    assert "Agreement" in _run("agreement")
    whole = tmp_path / "r.jsonl"
    _run("export", "--form", "jsonl", "--out", str(whole))
    with pytest.raises(UsageError, match="is there already"):
        _run("export", "--form", "jsonl", "--out", str(whole))
    assert "0 new, 7 here before" in _run("import", str(whole), "--review", "small")
    copy = _run("import", str(whole), "--new").strip()
    assert (
        json.loads(_run("status", copy, "--json"))["progress"]
        == json.loads(_run("status", review, "--json"))["progress"]
    )
    assert "0 items in hand" in _run("leave", "bob", "--review", review)
    _run("role", "ann", "senior", "--review", review)
    _run("close", review)
    with pytest.raises(UsageError, match="is closed"):
        _run("next", "ann", "--review", review)
    _run("reopen", review)
    _run("rename", review, "other")
    _run("delete", "other", "--yes")
    _run("delete", copy, "--yes")
    assert "no review yet" in _run("list")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["create", "--memory", "mem0/none"], "has no 'mem0/none'. There are: m/rag/none"),
        (["create", "--checks", "nowhere.jsonl"], "can't be read"),
        (["status"], "no review in this store yet"),
        (["import", "nowhere.csv"], "can't be read"),
    ],
)
def test_what_cant_be_is_told(words: list[str], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        _run(*words)


def test_a_conflict_makes_the_exit_code_1(tmp_path: Path) -> None:
    _run("create", "--limit", "1", "--checks", "none")
    _run("invite", "ann")
    item = json.loads(_run("next", "ann", "--json"))["task"]["item"]
    _run("answer", "ann", "neither")
    file = tmp_path / "a.csv"
    file.write_text(f"item,reviewer,verdict\n{item},x1,both\n")
    assert "1 conflicts" in _run("import", str(file), "--name", "x1=ann", code=1)
    assert "1 new" in _run("import", str(file), "--name", "x1=ann", "--replace")
