"""A study with every memory system as its makers ship it: real libraries, MemOS's environment, PostgreSQL, SmolLM2.

The first two sessions of one of the sample's users, taken in by `opbench run` itself, which is killed in the middle and
started again. Nothing is asserted of the quality: a model this small has none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SYSTEMS = ("mem0", "memu", "memos", "memos-tree")
USER = "sample-1/Ottilie"
SESSIONS = 2
SAMPLE = Path("opbench/benchmarks/sample").resolve()
STUDY = [
    "--models=smollm2-135m",
    "--memories=base,rag," + ",".join(SYSTEMS),
    "--mitigations=none,few-shot-cot",
    "--benchmarks=op",
    f"--users={USER}",
    "--limit=1",
    "--max-tokens=24",
]
CONFIGURATIONS = 1 + 5 * 2


@pytest.fixture
def short_histories(tmp_path: Path) -> Path:
    """The sample as a data folder, its conversation cut after the second session, its questions those of that part."""
    folder = tmp_path / "data"
    (folder / "locomo").mkdir(parents=True)
    (folder / "opbench").mkdir()
    [conversation] = json.loads((SAMPLE / "locomo/sample.json").read_text())
    kept = {
        key: value
        for key, value in conversation["conversation"].items()
        if not (found := re.match(r"session_(\d+)", key)) or int(found[1]) <= SESSIONS
    }
    late = re.compile(r"D([3-9]|\d\d)\b")
    first = {f"session_{number}" for number in range(1, SESSIONS + 1)}
    conversation |= {
        "conversation": kept,
        **{
            part: {
                key: value for key, value in conversation[part].items() if re.findall(r"session_\d+", key)[0] in first
            }
            for part in ("event_summary", "observation", "session_summary")
        },
        "qa": [each for each in conversation["qa"] if not late.search(" ".join(each["evidence"]))],
    }
    (folder / "locomo/locomo10.json").write_text(json.dumps([conversation]))
    asked = (SAMPLE / "opbench/sample_overpersonalized.json").read_text()
    (folder / "opbench/locomo10_overpersonalized.json").write_text(asked)
    return folder


def opbench(environment: dict[str, str], *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "opbench", *words], env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def ingestions(environment: dict[str, str]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = opbench(environment, "memory", "list", "--json")["ingestions"]
    return listed


@pytest.mark.timeout(1800)
def test_a_study_over_all_memory_systems_survives_a_kill_and_asks_nothing_twice(
    home: Path, short_histories: Path
) -> None:
    environment = dict(os.environ) | {"OPBENCH_HOME": str(home), "OPBENCH_DATA": str(short_histories)}
    run = [sys.executable, "-m", "opbench", "run", *STUDY]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "first.log").open("wb") as log:
        first = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
        until = time.monotonic() + 900
        while not list((home / "memories").glob("*/*/*/*/checkpoints/[1-9]")) and first.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.2)
        first.kill()
        first.wait()
    assert any(each["state"] != "complete" for each in ingestions(environment)), (home / "first.log").read_text()

    subprocess.run(run, env=environment, check=True, timeout=1500)

    [status] = opbench(environment, "status", "--json")
    assert (status["planned"], status["done"], status["errors"]) == (CONFIGURATIONS, CONFIGURATIONS, 0)
    listed = ingestions(environment)
    assert sorted((each["system"], each["user"]) for each in listed) == sorted((system, USER) for system in SYSTEMS)
    for each in listed:
        assert each["state"] == "complete"
        shown = opbench(environment, "memory", "show", each["system"], each["user"], "--json")
        assert [session["number"] for session in shown["sessions"]] == [1, 2]
        assert len(shown["memories"]) == each["memories"]
        days = {session["day"] for session in shown["sessions"]}
        assert {memory["date"] for memory in shown["memories"]} <= days
    assert all(any(each["memories"] for each in listed if each["system"] == system) for system in SYSTEMS)
    found = opbench(environment, "memory", "search", ",".join(SYSTEMS), USER, "A walk by the lake", "--json")
    for system in found:
        similarities = [memory["score"] for memory in system["memories"]]
        assert similarities == sorted(similarities, reverse=True)
        assert all(-1 <= similarity <= 1 for similarity in similarities)

    # The same anew, in new folders: every call is in the call store.
    again = opbench(
        environment,
        *("memory", "ingest", *SYSTEMS, f"--users={USER}", "--extractor=smollm2-135m", "--rebuild", "--json"),
    )["ingestions"]
    assert {each["state"] for each in again} == {"complete"}
    assert [each["calls"] - each["reused"] for each in again] == [0] * 4
    assert sum(each["calls"] for each in again) >= 4 * SESSIONS
