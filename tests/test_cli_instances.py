"""`opbench instances`, `show`, `rate` and `compare` on a run that was written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from opbench import cli
from opbench.settings import settings
from opbench.store import human
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from tests.pages.made_run import MADE, write_run


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = open_store(settings().store_url)
    write_run(opened, failed=1)
    yield opened
    opened.close()


@pytest.fixture
def opbench(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*line: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["opbench", *line])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def fact(opbench: Any) -> str:
    code, out, _ = opbench("instances", MADE, "--subtype", "fact", "--limit", "1", "--json")
    assert code == 0
    return str(json.loads(out)["rows"][0]["instance"])


def test_instances_that_fit(opbench: Any) -> None:
    # Reminder scores 0.7 on judged OP-Bench instances; LoCoMo and the other configurations lie outside.
    code, out, _ = opbench("instances", MADE, "--min", "0.65", "--max", "0.75", "--json")
    found = json.loads(out)
    assert code == 0
    assert {row["mitigation"] for row in found["rows"]} == {"reminder"}
    assert {row["score"] for row in found["rows"]} == {0.7}
    assert found["found"] == len(found["rows"])


def test_a_page_of_instances(opbench: Any) -> None:
    first = json.loads(opbench("instances", MADE, "--limit", "2", "--json")[1])
    second = json.loads(opbench("instances", MADE, "--limit", "2", "--skip", "1", "--json")[1])
    assert first["found"] == 96
    assert first["rows"][1] == second["rows"][0]
    assert "2 to 3 of 96." in opbench("instances", MADE, "--limit", "2", "--skip", "1")[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--user", "conv-1/Nobody"], "no user 'conv-1/Nobody' in this run"),
        (["--mitigation", "magic"], "no post-processor 'magic'"),
        (["--min", "0.9", "--max", "0.1"], "give a range within 0 and 1"),
    ],
)
def test_wrong_filters_are_one_line(opbench: Any, more: list[str], message: str) -> None:
    code, _, err = opbench("instances", MADE, *more)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_show_tells_which_configurations_fit(opbench: Any, fact: str) -> None:
    code, _, err = opbench("show", MADE, fact)
    assert code == 2
    assert "4 configurations fit. Tell it with --model, --memory and --mitigation" in err
    assert "smollm2-135m/rag/marag" in err


def test_show_writes_out_what_would_steer_a_terminal(opbench: Any, store: Store, fact: str) -> None:
    with store.begin() as connection:
        connection.execute(update(s.records).where(s.records.c.status == "done").values(response="a\x1b[2Jb\u202e"))
    code, out, _ = opbench("show", MADE, fact, "--memory", "rag", "--mitigation", "reminder")
    assert code == 0
    assert "  a⟨ESC⟩[2Jb⟨RLO⟩" in out
    assert "\x1b" not in out
    assert "offline, score: 0.700" in out


def test_what_would_steer_a_terminal_is_written_out_in_tables_failures_and_errors(opbench: Any, store: Store) -> None:
    """A bundle's names, an endpoint's error and a file's name are what others wrote."""
    evil = "\x1b]0;title\x07\x9b31m\u202e"
    shown = "⟨ESC⟩]0;title⟨BEL⟩⟨U+009B⟩31m⟨RLO⟩"
    with store.begin() as connection:
        connection.execute(update(s.runs).values(name=f"run {evil}"))
        connection.execute(update(s.records).where(s.records.c.status == "error").values(error=f"said {evil}"))
        connection.execute(
            update(s.configurations).where(s.configurations.c.memory == "base").values(model=f"m {evil}")
        )
    for line in (("status", MADE), ("status",), ("instances", MADE), ("table", MADE, "--of", "op")):
        _, out, err = opbench(*line)
        assert not set(evil) - set("]0;title31m") & set(out + err), line
        assert shown in out, line
    code, out, err = opbench("import", f"/nowhere/{evil}.zip")
    assert code == 1
    assert shown in err
    assert "\x1b" not in out + err


def test_base_needs_no_post_processor_told(opbench: Any, fact: str) -> None:
    assert "offline, score: 0.900" in opbench("show", MADE, fact, "--memory", "base")[1]


def test_rate_and_withdraw(opbench: Any, store: Store, fact: str) -> None:
    of = ("--memory", "rag", "--mitigation", "reminder", "--rater", "ann")
    assert opbench("rate", MADE, fact, "--score", "0.4", "--note", "too eager", *of)[0] == 0
    assert opbench("rate", MADE, fact, "--withdraw", *of)[0] == 0
    entries = human.history(store, MADE, ("smollm2-135m", "rag", "reminder"), fact)
    assert [(entry.value, entry.note, entry.rater) for entry in entries] == [
        (None, "", "ann"),
        (0.4, "too eager", "ann"),
    ]
    shown = json.loads(opbench("show", MADE, fact, "--memory", "rag", "--mitigation", "reminder", "--json")[1])
    assert [each["value"] for each in shown["human_scores"]] == [None, 0.4]


@pytest.mark.parametrize("more", [[], ["--score", "0.4", "--withdraw"], ["--score", "1.4"]])
def test_rate_refuses_what_is_no_score(opbench: Any, fact: str, more: list[str]) -> None:
    code, _, err = opbench("rate", MADE, fact, "--memory", "rag", "--mitigation", "none", *more)
    assert code == 2
    assert err.count("\n") == 1


def test_compare_two_configurations(opbench: Any) -> None:
    code, out, _ = opbench("compare", f"{MADE}:rag/none", ":rag/reminder", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["op_change"] == pytest.approx(20.0)
    whole = next(row for row in found["summary"] if row["subtype"] == "all")
    assert (whole["change"], whole["worse"], whole["n_paired"]) == (pytest.approx(-15.0), 12, 12)
    assert len(found["worse"]) == 10
    judged = {"judge": "offline", "comparable": False, "recorded": False, "marks": []}
    assert found["before"] == {"run": MADE, "configuration": "smollm2-135m · rag · none", **judged}
    # One of the two users has a single repetition question, which makes no similarity.
    assert (found["op_n_paired"], found["op_n_planned"]) == (11, 12)
    assert found["op_interval_note"] == "2 users, an interval needs 5"
    assert found["doubts"] == []
    assert {row["what"] for row in found["differs"]} >= {"post-processor: name"}


def test_compare_for_people(opbench: Any) -> None:
    code, out, _ = opbench("compare", f"{MADE}:smollm2-135m/rag/none", f"{MADE}:rag/reminder", "--top", "1")
    assert code == 0
    assert "Got better by most" in out
    said = " ".join(out.split())
    assert (
        "OP-Bench average (task-mean): +20.00 points, no interval (2 users, an interval needs 5), n = 11 of 12, paired."
    ) in said
    assert f"Run {MADE}: judge offline, not comparable with the paper." in said
    assert "LoCoMo by token F1" in said


def test_instances_say_whose_scores_they_are(opbench: Any) -> None:
    _, out, _ = opbench("instances", MADE, "--limit", "1", "--json")
    found = json.loads(out)
    assert (found["judge"], found["comparable"], found["marks"]) == ("offline", False, [])
    assert found["metrics"] == {"op": "score", "locomo": "f1"}
    _, out, _ = opbench("instances", MADE, "--limit", "1")
    said = " ".join(out.split())
    assert "Scores 0 to 1 by offline; LoCoMo: token F1. Repetition is scored by user, not here." in said
    assert "Not comparable with the paper." in said


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ((MADE, MADE), "4 configurations fit"),
        ((f"{MADE}:marag", ":rag/none"), "write a configuration as MEMORY/MITIGATION"),
        ((f"{MADE}:rag/none", "nowhere"), "no run 'nowhere'"),
        ((f"{MADE}:rag/none", ":mem0/none"), "0 configurations fit"),
    ],
)
def test_compare_says_what_is_wrong(opbench: Any, sides: tuple[str, str], message: str) -> None:
    code, _, err = opbench("compare", *sides)
    assert code == 2
    assert message in err
