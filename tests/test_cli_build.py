"""`opbench build` as a user meets it: with a scripted endpoint and the sample's people, to files that a run loads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench import cli
from opbench.benchmarks import built, load
from opbench.construction.responding import data_of
from opbench.settings import settings
from opbench.store.build_runs import candidates_of_run, runs_of_build
from opbench.store.builds import Ruling, list_builds, read_candidates, set_states
from opbench.store.database import open_store
from opbench.store.reading import run_status
from tests.construction.writer import schema_of, write
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint, default_reply

COUNTS = {
    **{"topics": 1, "irrelevant": 1, "baiting": 2, "fact": 1, "value": 1, "fine": 1, "coarse": 1},
    **{"subtopics": 1, "repetition": 2},
}
MODELS = ("generators", "extractor", "similarity", "checker", "embedder")
FEW = [f"--{name}={n}" for name, n in COUNTS.items()] + [f"--{role}=scripted" for role in MODELS]
RUN = ["build", "run", "--conversations", "sample", "--name", "Mine", *FEW, "--no-check-need"]
Call = Callable[..., tuple[int, str, str]]


def reply(body: dict[str, Any]) -> str:
    """A generator where a schema is asked for, else a model that responds."""
    return default_reply(body) if schema_of(body) is None else write(body)


@pytest.fixture
def endpoint(home: Path) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply) as served:
        use_endpoint(home, served)
        yield served
        del os.environ["OPBENCH_MODELS"]


@pytest.fixture
def opbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line in this process; gives exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["opbench", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def test_from_conversations_to_files_that_a_run_loads(
    endpoint: ScriptedEndpoint, opbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = opbench(*RUN, "--dry-run", "--json")
    planned = json.loads(out)
    assert code == 0
    # Two users: 10 general topics, 2 baiting, fact, value, 2 memory-level, 1 × 1 × 2 repetition.
    assert planned["users"] == 2
    assert sum(planned["candidates"].values()) == 36
    assert endpoint.ledger.total == 0

    code, out, err = opbench(*RUN)
    assert code == 0, (out, err)
    store = open_store(settings().store_url)
    (build,) = list_builds(store)
    assert f"build {build.id}: begun, conversations: sample" in err
    # Three topics are unrelated to a user's: 3 + 2 + 1 + 1 + 2 + 2 questions a user.
    assert sum(build.counts.values()) == 22
    asked = endpoint.ledger.total
    code, _, err = opbench(*RUN)
    assert code == 0
    assert f"build {build.id}: goes on" in err
    assert endpoint.ledger.total == asked, "nothing is asked twice"
    assert len(list_builds(store)) == 1

    code, out, _ = opbench("build", "status", "--json")
    status = json.loads(out)
    funnel = {row["step"]: row for row in status["funnel"]}
    dropped = sum(row["dropped"] for row in status["funnel"])
    assert funnel["generated"]["n"] == 22
    assert funnel["filtered"]["n"] == 22 - dropped - funnel["filtered"]["undecided"]
    kept = funnel["filtered"]["n"]
    assert kept > 0
    assert opbench("build", "status")[0] == 0

    code, out, _ = opbench("build", "show", "Mine", "--state", "kept", "--json")
    assert json.loads(out)["found"] == kept
    code, out, _ = opbench("build", "show", "--profiles")
    assert "sample-1/Ottilie" in out

    respond = ["build", "respond", "Mine", "--models=scripted", "--memories=random", "--embedder=scripted", "--limit=4"]
    code, out, err = opbench(*respond, "--dry-run", "--json")
    assert (code, json.loads(out)["to_do"]) == (0, 8), err
    code, out, err = opbench(*respond, "--json")
    assert code == 0, (out, err)
    (run_id,) = runs_of_build(store, build.id)
    state = run_status(store, run_id)
    assert (state.complete, state.done) == (True, 8)
    candidates = candidates_of_run(store, run_id)
    assert len(candidates) == 4
    assert {each.state for each in read_candidates(store, build.id, ids=list(candidates.values()))} == {"kept"}

    accepted = list(candidates.values())[:2]
    set_states(store, build.id, [Ruling(each, "accepted", "review", "both saw it") for each in accepted])
    # A run's data don't change when people decide; another export is another data set.
    before = built.exported()
    data_of(store, build.id, "accepted")
    assert set(before) < set(built.exported())
    folder = tmp_path / "mine"
    code, out, _ = opbench("build", "export", build.id, str(folder), "--json")
    assert code == 0
    assert sum(json.loads(out)["instances"].values()) == 2
    assert len(load(folder).op) == 2
    monkeypatch.setenv("OPBENCH_DATA", str(folder))
    settings.cache_clear()
    code, out, err = opbench(
        *("run", "--models", "scripted", "--memories", "base", "--benchmarks", "op", "--embedder", "scripted", "--json")
    )
    assert code == 0, (out, err)
    assert json.loads(out)["done"] == 2


def test_what_a_build_makes_is_settled_when_it_is_begun(endpoint: ScriptedEndpoint, opbench: Call) -> None:
    opbench(*RUN, "--subtypes", "fact", "--no-filter")
    code, _, err = opbench("build", "run", "Mine", "--fact", "3")
    assert code == 2
    assert "--fact: what build" in err
    assert "was settled when it was begun" in err
    code, out, _ = opbench("build", "filter", "Mine", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["generated"] == report["kept"] + sum(report["dropped"].values()) == 2


def test_an_unusable_answer_fails_its_unit_and_exit_code_1_says_so(home: Path, opbench: Call) -> None:
    with ScriptedEndpoint(reply=lambda body: "No.") as endpoint:
        use_endpoint(home, endpoint)
        code, out, err = opbench(*RUN, "--subtypes", "fact")
        del os.environ["OPBENCH_MODELS"]
    assert code == 1
    assert "2 failed" in out
    assert "goes on." in err


def test_renamed_stopped_deleted(endpoint: ScriptedEndpoint, opbench: Call) -> None:
    opbench(*RUN, "--subtypes", "fact", "--no-filter")
    store = open_store(settings().store_url)
    (build,) = list_builds(store)
    data = built.folder_of_build(build.id)
    data.mkdir(parents=True)
    assert opbench("build", "rename", "Mine", "My own")[0] == 0
    assert "My own" in opbench("build", "list")[1]
    assert "nobody is at work on it" in opbench("build", "stop", "My own")[1]
    code, _, err = opbench("build", "delete", "My own", "--yes")
    assert code == 0
    assert "2 candidates with all decisions" in err
    assert not list_builds(store)
    assert not data.exists()
    code, _, err = opbench("build", "status", "My own")
    assert code == 2
    assert "there is no build in this store yet" in err


def test_chats_become_conversations_that_a_build_takes(opbench: Call, tmp_path: Path) -> None:
    chats, output = tmp_path / "chats.jsonl", tmp_path / "chats.json"
    lines = [
        {"conversation": "c1", "speaker": name, "text": f"{name} says {n}", "time": f"2024-03-0{n}T10:00:00Z"}
        for n in (1, 2)
        for name in ("Nia", "Otto")
    ]
    chats.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    code, out, _ = opbench("build", "convert", str(chats), str(output), "--json")
    assert code == 0
    assert json.loads(out) == {"file": str(output), "conversations": 1, "sessions": 2, "turns": 4, "left_out": {}}
    code, out, _ = opbench("build", "run", "--conversations", str(output), "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["users"] == 2
    code, _, err = opbench("build", "convert", str(chats), str(output))
    assert code == 2
    assert "is there already" in err
