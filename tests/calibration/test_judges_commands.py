"""`opbench judges` as people type it, and as a page starts it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opbench.calibration.launching import JudgeOrder, Started, progress_line
from opbench.cli import app
from opbench.errors import UsageError
from opbench.settings import settings
from opbench.store.database import open_store
from tests.running.study import reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

runner = CliRunner()


def opbench(*words: str) -> str:
    result = runner.invoke(app, ["judges", *words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_calibrating_the_rule_judge_and_the_control(use_real_data: Path) -> None:
    told = json.loads(opbench("calibrate", "published", "--judge", "offline", "--judge", "random", "--json"))
    offline, control = told["judges"]
    assert (offline["label"], control["label"]) == ("offline", "random")
    assert offline["n"] == control["n"] == 20
    assert offline["spearman_low"] > 0
    assert control["spearman_low"] < 0 < control["spearman_high"]
    assert offline["cost_usd"] == 0
    assert "no agreement with people is shown" in told["says"][1]
    # Judged already: the tables come without asking anybody, also by subtype, with the worst ones to read.
    table = opbench("calibrate", told["set"], "--by", "subtype", "--worst", "2")
    assert "fully-irrelevant" in table
    assert table.count("asked: ") == 4
    assert "random" in opbench("list")
    assert json.loads(opbench("sets", "list", "--json"))[0]["id"] == told["set"]


def test_traps_bias_and_consistency_of_the_control() -> None:
    rows = json.loads(opbench("traps", "--data", "sample", "--judge", "random", "--judge", "offline", "--json"))
    accepted = [row for row in rows["acceptance"] if row["label"] == "random" and row["kind"] == "vague"]
    assert accepted[0]["n"] == 27
    assert accepted[0]["low"] < 50 < accepted[0]["high"]
    assert {row["note"] for row in rows["acceptance"] if row["label"] == "offline"} == {"gives f1, no verdict"}
    effects = json.loads(opbench("bias", "--data", "sample", "--judge", "random", "--json"))["effects"]
    assert len(effects) == 8
    assert all(row["low"] < 0 < row["high"] for row in effects if row["low"] is not None)
    same = json.loads(opbench("consistency", "published", "--judge", "random", "--judge", "offline", "--json"))
    by_label = {row["label"]: row for row in same["consistency"]}
    assert (by_label["random"]["same"], by_label["offline"]["same"]) == (0, 100)
    assert by_label["random"]["reliability"] < 0.5
    assert json.loads(opbench("ceiling", "--data", "sample", "--json"))["categories"][-1]["ceiling"] is None


def test_invented_cases_are_not_called_the_paper_s() -> None:
    told = json.loads(opbench("calibrate", "published", "--judge", "offline", "--json"))
    assert any("invented" in sentence for sentence in told["says"])
    assert not any("paper's judge" in sentence for sentence in told["says"])


def test_a_set_goes_out_and_comes_back(tmp_path: Path) -> None:
    opbench("sets", "add", "published")
    (known,) = json.loads(opbench("sets", "list", "--json"))
    file = tmp_path / "set.csv"
    opbench("sets", "export", known["id"], str(file))
    again = json.loads(opbench("sets", "add", "csv", str(file), "--json"))
    assert (again["responses"], again["rated"]) == (known["responses"], known["rated"])
    opbench("sets", "rename", again["id"], "mine")
    opbench("sets", "delete", "mine")
    assert [row["id"] for row in json.loads(opbench("sets", "list", "--json"))] == [known["id"]]
    assert isinstance(runner.invoke(app, ["judges", "sets", "export", known["id"], str(file)]).exception, UsageError)


def test_wrong_use_is_one_line() -> None:
    for words in (["calibrate"], ["consistency", "nothing"], ["sets", "add", "run"], ["rescore"], ["delete", "x"]):
        error = runner.invoke(app, ["judges", *words]).exception
        assert isinstance(error, UsageError), words
        assert "\n" not in str(error)


def test_the_order_under_another_judge_is_told_and_shared(home: Path, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        store = open_store(settings().store_url)
        _, run_id, _ = asyncio.run(run_here(store, mitigations=("none", "reminder"), benchmarks=("op",), limit=14))
        store.close()
    opbench("rescore", run_id, "--judge", "offline", "--judge", "random")
    told = json.loads(opbench("stability", run_id, "--json"))
    assert {row["label"] for row in told["orders"]} == {"scripted", "offline", "random"}
    assert {row["control"] for row in told["orders"] if row["label"] == "random"} == {True}
    assert all(-1 <= row["tau"] <= 1 for row in told["correlations"])
    # The sentence is the page's, and the reference tells nothing apart with the sample's two users.
    assert "set against scripted · task-mean" in told["meaning"]
    assert all(row["better"] != row["worse"] for row in told["flips"])
    assert "set against scripted" in " ".join(opbench("stability", run_id).split())
    shared = tmp_path / "run.judgings.jsonl"
    opbench("share", run_id, str(shared))
    assert "0 new judgements" in opbench("take", str(shared))
    only = opbench("rescore", run_id, "--judge", "random", "--configurations", "base/none", "--dry-run")
    assert "random: 0 judgements to make" in only


def test_an_order_is_the_command_that_does_it() -> None:
    order = JudgeOrder(
        ("offline", "gpt-4o-mini@own"), run_id="abc", repeats=3, temperature=0.7, subtypes=("fact", "value")
    )
    assert order.command() == (
        "opbench judges rescore abc --judge offline --judge gpt-4o-mini@own --repeats 3 --temperature 0.7 "
        "--subtypes fact,value"
    )
    assert JudgeOrder(("random",), set_id="s1").arguments() == ["judges", "calibrate", "s1", "--judge", "random"]
    with pytest.raises(UsageError, match="name what is to be judged"):
        JudgeOrder(("random",)).arguments()


def test_progress_is_read_from_what_the_process_wrote(tmp_path: Path) -> None:
    log = tmp_path / "log"
    order = JudgeOrder(("random",), set_id="s1")
    started = Started("x", order, 1, 0.0, log, working=True)
    assert started.progress() is None
    log.write_text(f"a warning\n{progress_line('m · own', 1200, 3000, 61.4)}\nm · own: 12 judged, 0 judged before\n")
    found = started.progress()
    assert found is not None
    assert (found.label, found.done, found.planned, found.seconds_left) == ("m · own", 1200, 3000, 61)
    assert started.last_words() == ["a warning", "m · own: 12 judged, 0 judged before"]
