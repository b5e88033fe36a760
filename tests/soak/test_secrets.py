"""No key, no Authorization header and no password is found in anything that a run leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.soak import planted
from tests.soak.places import postgres
from tests.soak.process import Starter
from tests.soak.provider import Plan
from tests.soak.world import ROOT, World

#: Refused for ever are some, and the refusal quotes the key; others are refused for passing reasons.
FAULTS = {"server": 0.05, "html": 0.03, "half": 0.03}
FOREVER = {"unauthorized": 0.15, "filter_400": 0.05}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_planted_secrets_are_found_nowhere(kind: str, tmp_path: Path) -> None:
    starter = Starter()
    with postgres() as server:
        url = server.url if kind == "postgresql" else None
        with World("secrets", tmp_path, starter, Plan(3, FAULTS, FOREVER), models=1, store_url=url) as world:
            registry = planted.registry(world.url, ["m0", "judge"])
            (world.home / "models.toml").write_text(registry, encoding="utf-8")
            environment = world.environment | {"SOAK_KEY": planted.KEY}
            seen = set[str]()

            def opbench(*arguments: str) -> bytes:
                process = starter.start(arguments, environment, tmp_path / "said" / arguments[0])
                assert process.wait() == 0, process.said()
                return process.log.read_bytes()

            plugin = f"--plugin={ROOT / 'tests/soak/faulty_plugin.py'}"
            run = [*world.arguments, plugin, "--mitigations=none,careless", "--concurrency=16", "--workers=2"]
            # Started as people start it: its arguments and those of its members are looked at.
            process = subprocess.Popen(
                [sys.executable, "-m", "opbench", *run],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            watch = threading.Thread(target=_watch, args=(process, seen))
            watch.start()
            said = {"run": process.communicate(timeout=200)[0]}
            watch.join()
            assert process.returncode == 1, "refused ones are missing"
            assert b"Traceback" in said["run"], "the plugin's fault is told with its place"
            run_id = world.status().run_id
            assert {"auth", "internal"} <= set(world.status().error_kinds)
            said["status"] = opbench("status", run_id, "--json")
            said["instances"] = opbench("instances", run_id, "--json")
            (tmp_path / "out").mkdir()
            opbench("export", run_id, str(tmp_path / "out" / "bundle.zip"))
            opbench("report", run_id, str(tmp_path / "out" / "report.html"), "--with-texts")
            found = [hit for name, text in said.items() for hit in planted.hits(f"what {name} said", text)]
            found += [hit for line in seen for hit in planted.hits("a process's arguments", line.encode())]
            found += planted.in_folder(tmp_path, "models.toml")
            if kind == "postgresql":
                found += planted.hits("the database", server.dump())
    assert found == []
    assert any("opbench" in line for line in seen), "arguments were looked at"


def _watch(process: subprocess.Popen[bytes], seen: set[str]) -> None:
    """Note the command lines of the process and of all that it starts."""
    while process.poll() is None:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parents = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(folder.name) == process.pid or int(parents[1]) == process.pid or int(parents[2]) == os.getpgrp():
                    seen.add((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (OSError, ValueError):
                continue
        time.sleep(0.2)


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text(f"key {planted.KEY}")
    (tmp_path / "header.log").write_text("Authorization: Bearer something")
    coded = subprocess.run(["base64"], input=f"ab{planted.BODY_KEY}cd".encode(), capture_output=True, check=True)
    (tmp_path / "coded").write_bytes(coded.stdout)
    assert len({hit.split(" in ")[1].split(":")[0] for hit in planted.in_folder(tmp_path)}) == 3
