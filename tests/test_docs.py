"""What the docs must not lose sight of: settings, commands, files they point at."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer

from opbench import cli
from opbench.benchmarks import load
from opbench.memories.configured import configured
from opbench.memories.registry import BUILT_IN, memory_label
from opbench.models import load_registry
from opbench.settings import ROOT, Settings, settings
from opbench.study import make_study

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "mitigations" / "README.md"]


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text("utf-8")
    for name in Settings.model_fields:
        assert f"`OPBENCH_{name.upper()}`" in text


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    group = typer.main.get_command(cli.app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert re.search(rf"opbench {name}\b", text), name
        if name == "memory":
            for each in command.commands:
                assert re.search(rf"opbench memory {each}\b", text), each


def test_the_docs_memory_servers_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "memory-systems.md").read_text("utf-8")
    servers = re.findall(r"```toml\n(.*?)```", text, re.S)
    file = tmp_path / "memories.toml"
    file.write_text("\n".join(servers))
    monkeypatch.setenv("OPBENCH_MEMORIES", str(file))
    settings.cache_clear()
    assert list(configured()) == ["mine", "my-memos"]
    assert memory_label("mine") == "Mine"


def test_the_docs_requests_are_what_a_server_is_sent() -> None:
    """The keys of the JSON that docs/memory-systems.md shows; tests/memories/test_http.py sees that they are sent."""
    text = (ROOT / "docs" / "memory-systems.md").read_text("utf-8")
    sent, found = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.S))
    assert list(sent) == ["id", "user", "speaker", "other", "session"]
    assert list(sent["session"]) == ["number", "date", "messages"]
    assert list(sent["session"]["messages"][0]) == ["role", "name", "content"]
    assert list(found["memories"][0]) == ["text", "score", "date"]


def test_every_memory_system_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "memory-systems.md").read_text("utf-8")
    for name in BUILT_IN:
        assert f"| `{name}` |" in text, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_the_readmes_study_and_model_are_accepted(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    study, model = blocks
    assert make_study(tomllib.loads(study)).name == "gpt-4o-mini, filters"
    file = tmp_path / "models.toml"
    file.write_text(model)
    assert load_registry(ROOT / "models.toml", file).model("my-model").base_url == "http://127.0.0.1:8000/v1"


def test_the_benchmarks_data_is_not_in_the_tree() -> None:
    names = {path.name for path in ROOT.rglob("*.json*") if ".venv" not in path.parts}
    assert not names & {"locomo10.json", "locomo10_overpersonalized.json", "appendix_cases.jsonl"}


def test_the_recorded_studies_hold_no_sentence_of_the_benchmarks(real_data: Path) -> None:
    corpus = load(real_data)
    sentences = {instance.question for instance in (*corpus.op, *corpus.locomo)}
    for conversation in corpus.conversations.values():
        for session in conversation.sessions:
            sentences |= {turn.text for turn in session.turns} | {fact.text for fact in session.observations}
    # As it is and as JSON has it, which is the same for most: that isn't looked for twice.
    forms = {form for each in sentences if len(each) > 20 for form in (each, json.dumps(each)[1:-1])}
    bundles = sorted((ROOT / "results" / "demo").glob("*.zip"))
    assert len(bundles) == 3
    for bundle in bundles:
        with zipfile.ZipFile(bundle) as archive:
            text = "".join(archive.read(name).decode() for name in archive.namelist())
        found = [form for form in forms if form in text]
        assert not found, f"{bundle.name}: {len(found)} sentences"
