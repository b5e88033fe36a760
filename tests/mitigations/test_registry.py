"""Names, plugins, entry points, hashes, and that the package stands alone."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import mitigations
from mitigations import BrokenPlugin, PostProcessor, UnknownMitigation, get, load_plugin, names, register, registry
from mitigations.none import NoMitigation
from mitigations.reminder import Reminder

PACKAGE = Path(mitigations.__file__).parent
MAIN = ("none", "reminder", "self-critic", "few-shot-cot", "comorag", "marag", "self-recheck")
PLUGIN = "import mitigations\nfrom mitigations.none import NoMitigation\nmitigations.register(NoMitigation('mine'))\n"


@pytest.fixture(autouse=True)
def methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))


def test_names() -> None:
    assert names()[:7] == MAIN
    assert set(names()[7:]) == {
        "empty", "abstain", "reminder-original", "self-critic-original", "few-shot-cot-original", "comorag-invite-none",
        "marag-per-memory", "self-recheck-verdicts", "self-recheck-twice",
    }  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_every_method_meets_the_contract(name: str) -> None:
    method = get(name)
    assert isinstance(method, PostProcessor)
    assert method.name == name
    assert method.family in ("none", "filter", "compression", "revision", "control")
    assert method.label
    assert len(method.prompt_sha256) == 64


def test_families_and_calls_of_the_paper() -> None:
    families = {name: get(name).family for name in MAIN}
    assert families == {
        "none": "none", "reminder": "filter", "self-critic": "revision", "few-shot-cot": "filter",
        "comorag": "compression", "marag": "compression", "self-recheck": "filter",
    }  # fmt: skip
    assert {name: get(name).calls for name in MAIN} == {name: int(name != "none") for name in MAIN}


def test_hashes_that_runs_rest_on() -> None:
    """Runs are found again by these: a new method, field or base class must leave them as they are."""
    assert {name: get(name).prompt_sha256[:12] for name in MAIN} == {
        "none": "cb4c8c16110d", "reminder": "8133024f0a76", "self-critic": "a4bc6c710956",
        "few-shot-cot": "063db3ac846a", "comorag": "15cfed890308", "marag": "8b23c917adf6",
        "self-recheck": "2c45c74210ae",
    }  # fmt: skip


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownMitigation, match=r"unknown mitigation 'remindr': did you mean reminder"):
        get("remindr")
    with pytest.raises(UnknownMitigation, match="did you mean self-critic"):
        get("Self_Critic")
    with pytest.raises(UnknownMitigation, match="there are none, reminder"):
        get("xyzzy")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'reminder' is registered already"):
        register(Reminder())
    with pytest.raises(ValueError, match="NoMitigation is no post-processor: register an instance"):
        register(NoMitigation)  # type: ignore[arg-type]


def test_plugin_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    assert load_plugin(file) == ("mine",)
    assert load_plugin(str(file)) == ("mine",)  # twice is once
    assert get("mine").family == "none"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError"),
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("x = 1", "registers no method"),
        (PLUGIN.replace("mine", "reminder"), "'reminder' is registered already"),
        (PLUGIN + "1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_broken_plugin_names_file_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    before = names()
    with pytest.raises(BrokenPlugin, match=reason) as caught:
        load_plugin(file)
    assert str(file) in str(caught.value)
    assert names() == before
    with pytest.raises(BrokenPlugin, match=reason):  # and again
        load_plugin(file)


def test_a_missing_plugin(tmp_path: Path) -> None:
    with pytest.raises(BrokenPlugin, match="no such file"):
        load_plugin(tmp_path / "nowhere.py")


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed_methods.py").write_text(
        "from mitigations.none import NoMitigation\n"
        "mine = NoMitigation('installed')\n"
        "def make():\n    return NoMitigation('made')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        EntryPoint("installed", "installed_methods:mine", registry.GROUP),
        EntryPoint("made", "installed_methods:make", registry.GROUP),
        EntryPoint("renamed", "installed_methods:mine", registry.GROUP),
        EntryPoint("gone", "no_such_module_at_all:x", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == registry.GROUP else [])
    assert names()[-4:] == ("installed", "made", "renamed", "gone")
    assert get("installed").name == "installed"
    assert get("made").name == "made"
    with pytest.raises(BrokenPlugin, match="its method is named 'installed', not 'renamed'"):
        get("renamed")
    with pytest.raises(BrokenPlugin, match="mitigation 'gone' of an installed package"):
        get("gone")
    assert get("reminder").name == "reminder"


def test_a_hash_for_every_method_that_changes_with_prompt_and_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert len({get(name).prompt_sha256 for name in names()}) == len(names())
    assert Reminder().prompt_sha256 == Reminder().prompt_sha256 == get("reminder").prompt_sha256
    assert Reminder(max_tokens=256).prompt_sha256 != Reminder().prompt_sha256
    for file in (PACKAGE / "prompts").glob("*.txt"):
        (tmp_path / file.name).write_bytes(file.read_bytes() + (b" " if file.name == "reminder.txt" else b""))
    monkeypatch.setattr("mitigations.method.PROMPTS", tmp_path)
    assert Reminder().prompt_sha256 != get("reminder").prompt_sha256


def test_no_module_imports_opbench() -> None:
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "opbench" for name in imported), file


def test_the_package_stands_alone(tmp_path: Path) -> None:
    """A copy of it, in a Python without any installed package, reads a reply."""
    (tmp_path / "mitigations").symlink_to(PACKAGE)
    program = (
        "import asyncio, sys\n"
        "from mitigations import *\n"
        "async def ask(messages, **_): return Reply('[1]')\n"
        "print([asyncio.run(get(name).process('q', [Memory('Mara keeps bees.')], ask)).state for name in names()])\n"
        "assert not {'opbench', 'openai', 'numpy', 'streamlit'} & {name.split('.')[0] for name in sys.modules}\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "nothing" in run.stdout
