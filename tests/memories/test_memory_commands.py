"""`opbench memory` as a user meets it, with the plugin of docs/examples as the library behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench import cli
from opbench.benchmarks import load
from opbench.memories.manifest import read_manifests
from opbench.settings import ROOT, settings
from tests.memories.contract import said
from tests.memories.memory_server import MemoryServer
from tests.scripted_endpoint import ScriptedEndpoint

PLUGIN = str(ROOT / "docs" / "examples" / "memory_plugin.py")
CORPUS = load("sample")
HISTORY = CORPUS.conversations["sample-1"].sessions
USER = "sample-1/Ottilie"
MODELS = ["--extractor", "scripted", "--embedder", "scripted", "--data", "sample", "--plugin", PLUGIN]


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    """Facts are what was said: each turn gives one."""
    with ScriptedEndpoint(reply=lambda body: "\n".join(said(body))) as served:
        file = tmp_path / "models.toml"
        file.write_text(served.registry_toml("scripted", attempts=1))
        monkeypatch.setenv("OPBENCH_MODELS", str(file))
        yield served


@pytest.fixture
def opbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `opbench memory …` in this process; returns (exit code, standard output, standard error)."""

    def run(*line: str) -> tuple[int, str, str]:
        settings.cache_clear()
        monkeypatch.setattr("sys.argv", ["opbench", "memory", *line])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def chats(endpoint: ScriptedEndpoint) -> int:
    return sum("messages" in body for body in endpoint.ledger.bodies)


def test_ingest_list_search_show_reset(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    code, out, err = opbench("ingest", "facts", *MODELS, "--json")
    assert code == 0, err
    assert chats(endpoint) == 2 * len(HISTORY)
    turns = sum(len(session.turns) for session in HISTORY)
    rows = json.loads(out)["ingestions"]
    assert [(row["user"], row["state"], row["memories"], row["empty"]) for row in rows] == [
        (user, "complete", turns, 0) for user in CORPUS.users
    ]
    assert f"{2 * len(HISTORY)}/{2 * len(HISTORY)} sessions, {2 * turns:,} memories" in err

    code, out, _ = opbench("list", "--plugin", PLUGIN, "--json")
    assert code == 0
    listed = json.loads(out)
    (facts,) = [each for each in listed["systems"] if each["name"] == "facts"]
    assert (facts["from"], facts["installed"], facts["needs_extractor"]) == ("plugin", True, True)
    assert {each["name"] for each in listed["systems"]} >= {"base", "rag", "mem0", "memu", "memos", "memos-tree"}
    assert {(each["user"], each["sessions_done"], each["memories"]) for each in listed["ingestions"]} == {
        (user, len(HISTORY), turns) for user in CORPUS.users
    }
    assert "complete" in opbench("list", "--plugin", PLUGIN)[1]

    turn, day = HISTORY[4].turns[2], HISTORY[4].day
    text = f"({day}) {turn.speaker}: {turn.text}"
    code, out, _ = opbench("search", "facts", USER, text, "--k", "2", "--plugin", PLUGIN, "--json")
    assert code == 0
    (answer,) = json.loads(out)
    assert len(answer["memories"]) == 2
    assert (answer["memories"][0]["text"], answer["memories"][0]["date"]) == (text, day)
    assert answer["memories"][0]["score"] == pytest.approx(1.0, abs=1e-4)
    code, out, _ = opbench("search", "facts,facts", USER, text, "--plugin", PLUGIN)
    assert code == 0
    assert out.count("Facts, ") == 2, "a column each"

    code, out, _ = opbench("show", "facts", USER, "--plugin", PLUGIN, "--json")
    assert code == 0
    shown = json.loads(out)
    assert len(shown["memories"]) == turns
    assert {memory["date"] for memory in shown["memories"]} == {session.day for session in HISTORY}
    assert [entry["added"]["memories"] for entry in shown["sessions"]] == [len(each.turns) for each in HISTORY]
    assert shown["identity"]["extractor_served"] == "scripted"
    assert "history " in opbench("show", "facts", USER, "--plugin", PLUGIN)[1]

    code, _, err = opbench("reset", "facts", "--users", USER, "--yes")
    assert code == 0
    assert f"{USER}  " in err
    assert f"{turns} memories of {len(HISTORY)} sessions" in err
    assert [manifest.user for manifest in read_manifests(settings().kept)] == ["sample-1/Corvin"]

    asked = chats(endpoint)
    code, out, _ = opbench("ingest", "facts", *MODELS, "--users", USER, "--json")
    assert code == 0
    assert chats(endpoint) == asked, "the call store has all of it"
    (row,) = json.loads(out)["ingestions"]
    assert (row["calls"], row["reused"]) == (len(HISTORY), len(HISTORY))


def test_a_dry_run_tells_what_it_takes_and_asks_nobody(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    code, out, _ = opbench("ingest", "facts", *MODELS, "--dry-run", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["sessions"], told["calls"]) == (18, 18)
    assert (told["completion_tokens"], told["embedded_tokens"]) == (18 * 150, 18 * 150)
    prompt = len("List what this conversation tells about {speaker}, one short fact a line. No other text.") + len(
        "\n\n{dialogue}"
    )
    tokens = 2 * sum(
        (prompt + sum(len(f"({each.day}) {turn.speaker}: {turn.text}") for turn in each.turns)) // 4 for each in HISTORY
    )
    assert told["prompt_tokens"] == tokens
    # The registry's prices: 1 and 2 dollars per million tokens, embedding 1.
    assert told["cost_usd"] == pytest.approx((tokens + 2 * 2700 + 2700) / 1e6)
    assert endpoint.ledger.total == 0
    assert read_manifests(settings().kept) == []
    code, out, _ = opbench("ingest", "facts", *MODELS, "--dry-run")
    assert "in all" in out
    assert "rules of thumb" in out


def test_what_is_in_is_not_quoted_again(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    assert opbench("ingest", "facts", *MODELS, "--users", USER)[0] == 0
    told = json.loads(opbench("ingest", "facts", *MODELS, "--dry-run", "--json")[1])
    assert [(line["user"], line["sessions"]) for line in told["lines"]] == [(USER, 0), ("sample-1/Corvin", 9)]
    assert "All of this is in already" in opbench("ingest", "facts", *MODELS, "--users", USER, "--dry-run")[1]


def test_a_conversation_is_both_speakers(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    told = json.loads(opbench("ingest", "facts", *MODELS, "--users", "sample-1", "--dry-run", "--json")[1])
    assert [line["user"] for line in told["lines"]] == [USER, "sample-1/Corvin"]


def test_a_model_that_fails_is_exit_code_1_with_the_reason(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [None, None, None, None, None]
    endpoint.faults = {"not_found": 1.0}
    code, out, err = opbench("ingest", "facts", *MODELS, "--users", USER, "--concurrency", "1")
    assert code == 1
    assert "failed" in out
    assert "The model does not exist" in out
    assert "goes on where it stopped" in err
    code, _, err = opbench("search", "facts", USER, "tea", "--plugin", PLUGIN)
    assert code == 2
    assert "of 9 sessions" in err
    assert f"opbench memory ingest facts --users {USER}" in err
    assert "stopped: " in opbench("show", "facts", USER, "--plugin", PLUGIN)[1]
    endpoint.faults = {}
    assert opbench("ingest", "facts", *MODELS, "--users", USER)[0] == 0


def test_a_budget_begins_no_session_beyond_it(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    code, out, err = opbench(
        "ingest", "facts", *MODELS, "--users", USER, "--concurrency", "1", "--budget", "0.001", "--json"
    )
    assert code == 1
    assert "the budget of $0.0010 is reached" in err
    (row,) = json.loads(out)["ingestions"]
    assert row["state"] == "stopped"
    assert 0 < row["sessions"] < len(HISTORY)
    assert chats(endpoint) == row["sessions"]


def test_ctrl_c_finishes_what_is_in_flight(opbench: Any, endpoint: ScriptedEndpoint, home: Path) -> None:
    endpoint.latency_s = 0.3
    process = subprocess.Popen(
        [sys.executable, "-m", "opbench", "memory", "ingest", "facts", *MODELS, "--users", USER],
        cwd=ROOT,
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not [each for each in read_manifests(home / "memories") if each.sessions]:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "finishing the sessions in flight" in err
    (manifest,) = read_manifests(home / "memories")
    assert manifest.state == "partial"
    assert len(manifest.sessions) == chats(endpoint), "what was asked is in"
    endpoint.latency_s = 0.0
    assert opbench("ingest", "facts", *MODELS, "--users", USER)[0] == 0
    assert chats(endpoint) == len(HISTORY)


def test_rebuild_deletes_first(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    opbench("ingest", "facts", *MODELS, "--users", USER)
    (first,) = read_manifests(settings().kept)
    code, _, err = opbench("ingest", "facts", *MODELS, "--users", USER, "--rebuild")
    assert code == 0
    assert "1 ingestions deleted" in err
    (second,) = read_manifests(settings().kept)
    assert second.digest == first.digest
    assert second.started_at > first.started_at


def test_versions_side_by_side_are_told_apart(
    opbench: Any, endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opbench("ingest", "facts", *MODELS, "--users", USER)
    changed = tmp_path / "changed.toml"
    served = "\n".join(
        line.replace('"scripted"', '"other"') if line.startswith("served") else line
        for line in endpoint.registry_toml("scripted", attempts=1).splitlines()
    )
    changed.write_text(served)
    monkeypatch.setenv("OPBENCH_MODELS", str(changed))
    assert opbench("ingest", "facts", *MODELS, "--users", USER)[0] == 0
    newest, oldest = read_manifests(settings().kept)
    code, _, err = opbench("search", "facts", USER, "tea", "--plugin", PLUGIN)
    assert code == 2
    assert "has 2 ingestions" in err
    assert newest.digest[:12] in err
    assert oldest.digest[:12] in err
    assert "--digest" in err
    code, out, _ = opbench("search", "facts", USER, "tea", "--digest", newest.digest[:8], "--plugin", PLUGIN)
    assert code == 0, out
    code, out, _ = opbench("search", "facts", USER, "tea", "--digest", oldest.digest[:8], "--plugin", PLUGIN)
    assert code == 1, "its embedder isn't what it was"
    code, _, err = opbench("reset", "facts", "--users", USER, "--yes")
    assert code == 2
    assert "--all-versions" in err
    assert opbench("reset", "facts", "--all-versions", "--yes")[0] == 0
    assert read_manifests(settings().kept) == []


def test_reset_asks_before_it_deletes(
    opbench: Any, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    opbench("ingest", "facts", *MODELS, "--users", USER)
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: PTH123, SIM115
    code, _, err = opbench("reset", "facts")
    assert code == 1
    assert "Delete these?" in err
    assert len(read_manifests(settings().kept)) == 1


def test_a_server_of_ones_own(
    opbench: Any, endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryServer() as server:
        file = tmp_path / "memories.toml"
        file.write_text(
            f'[memories.mine]\nkind = "http"\ningest_url = "{server.url}/ingest"\nsearch_url = "{server.url}/search"\n'
        )
        monkeypatch.setenv("OPBENCH_MEMORIES", str(file))
        code, out, err = opbench("ingest", "mine", "--users", USER, "--embedder", "scripted", "--data", "sample")
        assert code == 0, err
        assert len(server.sent("/ingest")) == len(HISTORY)
        (mine,) = [each for each in json.loads(opbench("list", "--json")[1])["systems"] if each["name"] == "mine"]
        assert (mine["from"], mine["needs_extractor"]) == ("server", False)
        turn, day = HISTORY[1].turns[0], HISTORY[1].day
        code, out, _ = opbench("search", "mine", USER, f"({day}) {turn.speaker}: {turn.text}", "--k", "1", "--json")
        assert code == 0
        assert json.loads(out)[0]["memories"][0]["date"] == day
        assert "stays there" in opbench("reset", "mine", "--yes")[2]
    assert chats(endpoint) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["ingest", "memo"], "no memory system 'memo'. Did you mean 'memos'"),
        (["ingest", "rag"], "rag needs no ingestion"),
        (["ingest", ","], "name a memory system"),
        (["ingest", "mem0", "--data", "sample"], "say --extractor"),
        (["ingest", "mem0", "--data", "simple"], "--data simple: say auto or sample"),
        (["ingest", "facts", *MODELS, "--users", "sample-1/Otilie"], "Did you mean sample-1/Ottilie"),
        (["ingest", "facts", *MODELS, "--budget", "0"], "buys nothing"),
        (["search", "mem0", USER, "tea"], f"opbench memory ingest mem0 --users {USER}"),
        (["search", "mem0", USER, " "], "the query is empty"),
        (["search", ",", USER, "tea"], "name a memory system"),
        (["reset", ","], "name a memory system"),
        (["show", "rag", USER], "rag keeps no ingestions"),
        (["show", "memo-tree", USER], "Did you mean 'memos-tree'"),
        (["reset", "mem0", "--users", USER], "has taken in nothing of"),
        (["install", "mem0"], "nothing to install for 'mem0'"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    opbench: Any, endpoint: ScriptedEndpoint, line: list[str], said: str
) -> None:
    code, out, err = opbench(*line)
    assert code == 2
    assert out == ""
    assert err.startswith("opbench: ")
    assert err.count("\n") == 1
    assert said in err


def test_a_budget_needs_prices(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    file = Path(os.environ["OPBENCH_MODELS"])
    file.write_text(file.read_text().replace("price_out = 2.0\n", ""))
    code, _, err = opbench("ingest", "facts", *MODELS, "--budget", "1")
    assert code == 2
    assert "the registry has no price for it" in err
