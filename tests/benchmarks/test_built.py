"""Studies of questions that a build made: named by the build and a digest, read from a copy in the home."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opbench.benchmarks import SAMPLE, load
from opbench.benchmarks.built import build_of, corpus_of, exported, folder, name
from opbench.errors import DataError, UsageError
from opbench.running.prepare import prepare
from opbench.sharing.marks import remarks
from opbench.study import Study, make_study

DIGEST = "0123456789abcdef"
DATA = "build:a1b2c3:0123456789ab"


@pytest.fixture
def there(home: Path) -> Path:
    """The sample's files as a build's."""
    made = folder(DATA)
    shutil.copytree(SAMPLE, made)
    return made


def test_a_name_tells_build_and_digest(home: Path) -> None:
    assert name("a1b2c3", DIGEST) == DATA
    assert build_of(DATA) == "a1b2c3"
    assert build_of("auto") is None
    assert build_of("sample") is None
    assert folder(DATA) == home / "builds" / "a1b2c3" / "data" / "0123456789ab"


def test_its_questions_are_read_and_marked_as_a_builds(there: Path) -> None:
    found = corpus_of(DATA)
    assert found.source == "build"
    assert found.op == load("sample").op
    assert corpus_of("sample").source == "sample"
    assert exported() == [DATA]
    assert remarks({"data_source": "build"}) == ["questions of a build"]
    assert remarks({"data_source": "data"}) == []


def test_one_that_isnt_here_says_what_mends_it() -> None:
    with pytest.raises(DataError, match=r"questions of build a1b2c3 .* aren't here.*OPBENCH_HOME"):
        corpus_of(DATA)


def test_a_study_of_it_is_another_study_and_never_comparable_with_the_paper(there: Path) -> None:
    study = Study(models=("smollm2-135m",), benchmarks=("op",), data=DATA, limit=2)
    prepared = prepare(study)
    assert prepared.provenance["data_source"] == "build"
    assert prepared.provenance["comparable"] is False
    assert prepared.run_id != prepare(study.model_copy(update={"data": "sample"})).run_id


@pytest.mark.parametrize(
    "wrong", ["builds", "build:", "build:a1:xyz", "build:../x:0123456789ab", "build:a1:0123456789abc", ""]
)
def test_what_names_no_data_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"flags: data: '.*' is none of auto, sample and build:<id>:<digest>"):
        make_study({"models": ["m"], "data": wrong}, where="flags")
