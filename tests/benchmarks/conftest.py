"""Real data by OPBENCH_DATA, and small data folders that a test can damage."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import SAMPLE, load
from opbench.settings import settings
from opbench.types import Corpus

OP, LOCOMO = "opbench/sample_overpersonalized.json", "locomo/sample.json"


@pytest.fixture(scope="session")
def real_folder(real_data: Path) -> Path:
    return real_data


@pytest.fixture(scope="session")
def real(real_folder: Path) -> Corpus:
    return load(real_folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder of the test's own, and no OPBENCH_DATA."""
    monkeypatch.setenv("OPBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPBENCH_DATA", raising=False)
    settings.cache_clear()
    yield tmp_path / "home"
    settings.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with the sample's files."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "data"))


Change = Callable[[str, Callable[[Any], Any]], Path]


@pytest.fixture
def change(folder: Path) -> Change:
    """Changes the JSON of one file of `folder`; gives the folder."""

    def apply(name: str, how: Callable[[Any], Any]) -> Path:
        path = folder / name
        data = json.loads(path.read_text("utf-8"))
        replacement = how(data)
        path.write_text(json.dumps(data if replacement is None else replacement, ensure_ascii=False), "utf-8")
        return folder

    return apply
