"""Mem0 and MemU reach nothing beyond this machine, and leave nothing in the person's home folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opbench.settings import ROOT
from tests.memories.driven import only_loopback


def drive(tmp_path: Path, *first: str, **environment: str) -> dict[str, Any]:
    person = tmp_path / "person"
    person.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEM0_", "MEMU_", "DO_NOT"))}
    told = subprocess.run(
        [sys.executable, "-m", "tests.memories.drive_in_process", str(tmp_path / "stores"), *first],
        env=kept | {"HOME": str(person), "OPBENCH_HOME": str(tmp_path / "home")} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "posthog" not in told.stderr.lower()
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


def test_they_stay_on_this_machine_and_out_of_the_home_folder(tmp_path: Path) -> None:
    proxy = "http://192.0.2.1:3128"
    surroundings = {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "OPENROUTER_API_KEY": "or-key", "OPENAI_API_KEY": "key"}
    assert drive(tmp_path, **surroundings) == {"tried": [], "found": {"mem0": 4, "memu": 4}}
    assert list((tmp_path / "person").rglob("*")) == []


def test_they_do_so_whoever_imported_them_first(tmp_path: Path) -> None:
    found = drive(tmp_path, "mem0", "memu", MEM0_TELEMETRY="True", MEM0_TELEMETRY_SAMPLE_RATE="1", MEMU_TELEMETRY="1")
    assert found == {"tried": [], "found": {"mem0": 4, "memu": 4}}


def test_the_guard_sees_what_leaves() -> None:
    with only_loopback() as tried:
        with pytest.raises(OSError, match="leave"):
            socket.create_connection(("192.0.2.1", 443), timeout=1)
        with pytest.raises(OSError, match="leave"):
            socket.getaddrinfo("example.org", 443)
    assert tried == ["192.0.2.1", "example.org"]
