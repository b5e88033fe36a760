"""Where a build's conversations come from, and that later steps find the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import SAMPLE
from opbench.construction.loading import Source, keep, read_source, source_of
from opbench.errors import DataError

BARE: dict[str, Any] = {
    "sample_id": "talk-1",
    "conversation": {
        "speaker_a": "Wanda",
        "speaker_b": "Ivo",
        "session_1_date_time": "9:00 am on 1 May, 2024",
        "session_1": [{"speaker": "Wanda", "dia_id": "D1:1", "text": "The kite is up."}],
    },
}


def written(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_the_sample_comes_with_its_questions_summaries_and_observations() -> None:
    source = read_source("sample")
    assert source.name == "sample"
    assert list(source.users) == ["sample-1/Ottilie", "sample-1/Corvin"]
    assert sorted(source.summaries["sample-1"]) == list(range(1, 10))
    assert source.locomo
    assert source.conversations["sample-1"].sessions[0].observations


def test_conversations_alone_do(tmp_path: Path) -> None:
    source = read_source(written(tmp_path / "own.json", [BARE]))
    assert list(source.users) == ["talk-1/Wanda", "talk-1/Ivo"]
    assert (source.locomo, source.summaries) == ((), {"talk-1": {}})
    # One conversation needs no list around it.
    assert read_source(written(tmp_path / "one.json", BARE)).sha256 == source.sha256


def test_a_folder_of_files_and_a_data_folder_are_read(tmp_path: Path) -> None:
    other = BARE | {"sample_id": "talk-2"}
    written(tmp_path / "several" / "a.json", [BARE])
    written(tmp_path / "several" / "b.json", [other])
    source = read_source(tmp_path / "several")
    assert list(source.conversations) == ["talk-1", "talk-2"]
    assert source.name == "several"
    assert read_source(SAMPLE).sha256 == read_source("sample").sha256


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "no .json file in it"),
        ({"a.json": []}, "no conversation in it"),
        ({"a.json": [BARE], "b.json": [BARE]}, 'b.json: [0]: the conversation "talk-1" is in another file too'),
        ({"a.json": [BARE, 5]}, "a.json: [1]: expected an object"),
        ({"a.json": [{"sample_id": "x"}]}, 'a.json: [0]: the key "conversation" is missing'),
        ({"a.json": [BARE | {"conversation": BARE["conversation"] | {"session_1": []}}]}, "nobody says anything in it"),
        ({"a.json": [BARE | {"session_summary": {"session_1_summary": 5}}]}, "session_1_summary: expected a text"),
    ],
)
def test_wrong_conversations_are_told(files: dict[str, object], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    for name, value in files.items():
        written(folder / name, value)
    with pytest.raises(DataError) as caught:
        read_source(folder)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b'[{"a": ', b"\xe9"], ids=["empty", "cut", "latin-1"])
def test_nobody_is_sent_for_the_public_file_for_one_of_their_own(content: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "own.json").write_bytes(content)
    with pytest.raises(DataError, match="get it again from where it came") as caught:
        read_source(path)
    assert "fetch" not in str(caught.value)


def test_a_file_that_isnt_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_source(tmp_path / "absent.json")


def test_later_steps_find_the_same_conversations_without_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "own.json", [BARE])
    source = read_source(path)
    keep(source)
    keep(source)
    path.unlink()
    found: Source = source_of({"conversations": source.stamp()})
    assert (found.name, found.sha256, found.raw) == ("own.json", source.sha256, [BARE])


def test_conversations_that_are_in_another_home_are_told() -> None:
    with pytest.raises(DataError, match=r"the build's conversations \(own.json\) aren't in this home"):
        source_of({"conversations": {"name": "own.json", "sha256": "0" * 64}})
