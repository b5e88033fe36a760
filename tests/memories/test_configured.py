"""The user's memory servers: what a file makes known, and errors that tell the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbench.errors import UsageError
from opbench.memories.configured import MemorySpec, ServerFactory, configured
from opbench.memories.registry import ingesting_names, memory_label, memory_names, needs_extractor
from opbench.settings import settings

HTTP = """[memories.mine]
kind = "http"
ingest_url = "http://127.0.0.1:9000/ingest"
search_url = "http://127.0.0.1:9000/search"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written = tmp_path / "memories.toml"
    written.write_text(HTTP, encoding="utf-8")
    monkeypatch.setenv("OPBENCH_MEMORIES", str(written))
    settings.cache_clear()
    return written


def spec_factory(name: str) -> ServerFactory:
    factory = configured()[name]
    assert isinstance(factory, ServerFactory)
    return factory


def spec(name: str) -> MemorySpec:
    return spec_factory(name).spec


def test_a_server_is_a_memory_system_like_the_others(file: Path) -> None:
    file.write_text(HTTP + 'label = "Mine"\nversion = "1.4"\nkey_env = "MINE_KEY"\ntimeout_s = 30\n')
    assert "mine" in memory_names()
    assert "mine" in ingesting_names()
    assert memory_label("mine") == "Mine"
    assert not needs_extractor("mine")
    assert spec("mine").model_dump() == {
        "name": "mine",
        "kind": "http",
        "label": "Mine",
        "ingest_url": "http://127.0.0.1:9000/ingest",
        "search_url": "http://127.0.0.1:9000/search",
        "base_url": "",
        "version": "1.4",
        "key_env": "MINE_KEY",
        "timeout_s": 30.0,
    }


def test_without_a_label_it_is_the_name(file: Path) -> None:
    assert memory_label("mine") == "mine"
    assert spec("mine").timeout_s == 120.0


def test_a_memos_server_is_one_too(file: Path) -> None:
    file.write_text(
        '[memories.cloud]\nkind = "memos-api"\nbase_url = "https://me:pw@memos.example/api/"\nversion = "3"\n'
    )
    library = spec_factory("cloud").library()
    assert (library.name, library.label) == ("cloud", "cloud")
    assert library.identity()["base_url"] == "https://memos.example/api"
    assert library.identity()["version"] == "3"
    assert not needs_extractor("cloud")


def test_a_changed_file_is_read_again(file: Path) -> None:
    assert list(configured()) == ["mine"]
    file.write_text(HTTP + HTTP.replace("memories.mine", "memories.other"))
    assert list(configured()) == ["mine", "other"]


def test_without_a_file_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opbench.settings.ROOT", tmp_path)
    assert settings().memories_file == tmp_path / "memories.local.toml"
    assert configured() == {}
    (tmp_path / "memories.local.toml").write_text(HTTP)
    assert list(configured()) == ["mine"]


def test_a_file_that_is_named_but_missing(file: Path) -> None:
    file.unlink()
    with pytest.raises(UsageError, match=r"memories\.toml: no such file\. OPBENCH_MEMORIES names it"):
        configured()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[memories.mine\n", "no valid TOML"),
        ("[memory.mine]\nx = 1\n", "unknown table [memory]. Did you mean memories?"),
        ("memories = 3\n", "Write [memories.NAME]"),
        ("[memories.mine]\n", "[memories.mine]: kind: Field required"),
        (HTTP.replace('"http"', '"https"'), "kind = 'https'"),
        (HTTP + "timeout = 3\n", "unknown key timeout. Did you mean timeout_s?"),
        (HTTP + "timeout_s = 0\n", "timeout_s = 0: Input should be greater than 0"),
        (HTTP + "version = 2\n", "version = 2: Input should be a valid string"),
        (HTTP.replace("http://127.0.0.1:9000/search", "127.0.0.1:9000"), "search_url: is no address: write it like"),
        (HTTP.replace(":9000/search", ":70000/search"), "search_url: is no address"),
        ('[memories.mine]\nkind = "http"\ningest_url = "http://h/i"\n', "[memories.mine]: has no search_url: add it"),
        ('[memories.mine]\nkind = "memos-api"\n', "[memories.mine]: has no base_url: add it"),
        (HTTP + 'base_url = "http://h"\n', 'has base_url, which kind = "http" doesn\'t use: leave it out'),
        (HTTP.replace("memories.mine", "memories.mem0"), "[memories.mem0]: mem0 is a built-in memory system"),
        (HTTP.replace("memories.mine", 'memories."a b"'), "Rename it"),
        (HTTP + "[memories.mine.more]\nx = 1\n", "holds another table"),
        (HTTP + 'name = "x"\n', "for people, set label"),
    ],
)
def test_a_bad_file_gives_one_line_with_file_place_and_mend(file: Path, text: str, said: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        configured()
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "line", ['key_env = "sk-0123456789"\n', 'key = "sk-0123456789"\n', 'base_url = "ftp://me:sk-0123456789@h"\n']
)
def test_a_key_that_was_written_into_the_file_isnt_shown(file: Path, line: str) -> None:
    file.write_text(HTTP + line)
    with pytest.raises(UsageError) as error:
        configured()
    assert "sk-0123456789" not in str(error.value)


def test_every_field_is_described() -> None:
    assert [name for name, field in MemorySpec.model_fields.items() if not field.description] == []
