"""The scripted endpoint keeps its word: other tests count on its schedule."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.scripted_endpoint import MIXED, ScriptedEndpoint, default_reply


def test_the_schedule_depends_on_seed_request_and_attempt_alone() -> None:
    share = dict.fromkeys(MIXED, 0.2 / len(MIXED))
    requests = [f"r{i}" for i in range(2000)]
    first, same, other = (ScriptedEndpoint(faults=share, seed=seed) for seed in (1, 1, 2))
    plan = [first.fault(r, 1) for r in requests]
    assert plan == [same.fault(r, 1) for r in requests]
    assert plan != [other.fault(r, 1) for r in requests]
    assert plan != [first.fault(r, 2) for r in requests]
    failing = [fault for fault in plan if fault]
    assert 0.17 < len(failing) / 2000 < 0.23
    assert set(failing) == set(MIXED)


def test_a_persistent_fault_never_heals() -> None:
    endpoint = ScriptedEndpoint(faults={"server": 0.5}, persistent=True)
    plans = [{endpoint.fault(f"r{i}", attempt) for attempt in range(1, 9)} for i in range(50)]
    assert all(len(plan) == 1 for plan in plans)
    assert {None, "server"} == set().union(*plans)


def test_whoever_asks_for_a_score_gets_one() -> None:
    def answer(text: str) -> str:
        return default_reply({"messages": [{"role": "user", "content": text}]})

    assert answer("Give a score from 0 to 1.").startswith("Score: ")
    assert "Score" not in answer("What did Ana score in the match of 1 May?")
    assert answer("How are you?") == answer("How are you?") != answer("How are they?")


def test_as_a_program_it_prints_its_url_and_shows_its_ledger() -> None:
    command = [sys.executable, "-m", "tests.scripted_endpoint", "--faults", "1", "--kinds", "server", "--seed", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            body = json.dumps({"model": "scripted", "messages": []}).encode()
            with pytest.raises(urllib.error.HTTPError, match="500"):
                urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=10)
            with urllib.request.urlopen(url.replace("/v1", "/ledger"), timeout=10) as reply:
                ledger = json.load(reply)
        finally:
            process.terminate()
    assert (ledger["total"], ledger["faults"], ledger["answered"]) == (1, {"server": 1}, {})
