"""Which data is used, and that it is never silently another one."""

import shutil
from pathlib import Path

import pytest

from opbench.benchmarks import SAMPLE, find, load
from opbench.errors import DataError
from opbench.settings import settings


def one_line(error: pytest.ExceptionInfo[DataError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_without_anything_it_is_the_sample(home: Path) -> None:
    assert load().source == "sample"


def test_data_goes_before_fetched(home: Path, real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(real_folder / "opbench", home / "data/opbench")
    shutil.copytree(real_folder / "locomo", home / "data/locomo")
    assert load().source == "cache"
    assert find(home / "data").source == "cache"
    monkeypatch.setenv("OPBENCH_DATA", str(SAMPLE))
    settings.cache_clear()
    corpus = load()
    assert (corpus.source, len(corpus.op)) == ("data", 58)


def test_half_fetched_data_is_not_used(home: Path, real_folder: Path) -> None:
    shutil.copytree(real_folder / "locomo", home / "data/locomo")
    assert load().source == "sample"


@pytest.mark.parametrize("missing", ["", "opbench", "locomo"])
def test_data_that_is_not_there_is_an_error(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    shutil.rmtree(folder / missing)
    monkeypatch.setenv("OPBENCH_DATA", str(folder))
    settings.cache_clear()
    with pytest.raises(DataError) as error:
        load()
    text = one_line(error)
    assert str(folder) in text
    assert "OPBENCH_DATA" in text
    assert missing in text


def test_a_folder_given_by_hand_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such data folder"):
        load(tmp_path / "nowhere")


def test_the_public_name_wins_over_other_files(folder: Path) -> None:
    (folder / "locomo/sample.json").rename(folder / "locomo/locomo10.json")
    (folder / "locomo/notes.json").write_text("[]")
    assert find(folder).locomo.name == "locomo10.json"


def test_several_files_of_other_names_are_refused(folder: Path) -> None:
    (folder / "locomo/notes.json").write_text("[]")
    with pytest.raises(DataError, match=r"several \.json files .*notes\.json, sample\.json") as error:
        load(folder)
    one_line(error)


def test_a_changed_file_is_read_again(folder: Path) -> None:
    assert load(folder) is load(folder)
    path = folder / "locomo/sample.json"
    path.write_text(path.read_text("utf-8").replace("Crumb & Signal", "Crumb and Signal"), "utf-8")
    assert any("Crumb and Signal" in turn.text for turn in load(folder).conversations["sample-1"].sessions[0].turns)
