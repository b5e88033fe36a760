"""Studies from before there were memory libraries keep their run ids, and so their records. The values are what commit
30ae6d8 gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbench.benchmarks import load
from opbench.memories import MemoryContext, make_memory
from opbench.memories.history import history_sha256
from opbench.memories.random import RandomMemories
from opbench.models import load_registry
from opbench.running.call_keys import call_key
from opbench.running.prepare import prepare
from opbench.running.retrieval import Retrieval
from opbench.study import Study, study_hash
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

_HISTORY = "70e18f1130683fbc0dfaae3a57463a9461c8e2ee8a335c71783727273eac27a8"
_RETRIEVAL = "e98f816f7709d22baa9c3ac1fe71bd385c04ac98402cdeab20223766a7387542"


class Embedder:
    def identity(self) -> dict[str, str]:
        return {"kind": "e"}


def test_the_study_s_own_part_of_the_hash() -> None:
    assert study_hash(Study(models=("m",)), {}) == "74c3e0562c45bbb94ad7c35f1b3eb2a5ccdaab7298068bd91f29b5440964be38"
    wide = Study(
        models=("m",),
        memories=("base", "rag", "random"),
        mitigations=("none", "reminder"),
        limit=8,
        exclude=("x",),
    )
    assert study_hash(wide, {"a": 1}) == "9b7bad583a6f6904916327447421ec8880224f76c96db6c2b4be210625727e08"


def test_what_concerns_nothing_of_a_study_makes_no_other_run() -> None:
    op = Study(models=("m",), benchmarks=("op",))
    assert study_hash(op.model_copy(update={"protocol": "memos"}), {}) == study_hash(op, {}), "no LoCoMo question"
    both = Study(models=("m",))
    assert study_hash(both.model_copy(update={"protocol": "memos"}), {}) != study_hash(both, {})
    # A memory system that extracts has its extractor in its identity, beside the study.
    assert study_hash(both.model_copy(update={"extractor": "x"}), {}) == study_hash(both, {})


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("base", {"memory": "base"}),
        ("rag", {"memory": "rag", "format": "1", "embedder_kind": "e"}),
        ("rag-observations", {"memory": "rag-observations", "format": "1", "embedder_kind": "e"}),
        ("random", {"memory": "random", "format": "1"}),
    ],
)
def test_memory_systems_that_need_no_library(name: str, identity: dict[str, str], tmp_path: Path) -> None:
    context = MemoryContext(Embedder(), tmp_path, tmp_path, load_registry(), None)  # type: ignore[arg-type]
    assert make_memory(name, context).identity() == identity


def test_histories_and_retrievals() -> None:
    corpus = load("sample")
    assert history_sha256(corpus.conversations["sample-1"]) == _HISTORY
    study = Study(models=("m",), memories=("random",))
    retrieval = Retrieval(study, corpus, {"random": RandomMemories()}, {"sample-1": "h"})
    identity = retrieval.identity("random", corpus.locomo[0], "Who?", 5)
    assert call_key("retrieval", {**identity, "salt": ""}) == _RETRIEVAL


def test_what_decides_a_run_is_what_it_was(home: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint)
        prepared = prepare(Study(models=("scripted",), embedder="scripted", data="sample"))
    told_only = {"data_source", "comparable", "workbench", "git_commit", "python", "machine"}
    assert set(prepared.provenance) - told_only == {
        "data", "history", "response_prompts", "models", "embedder", "memories", "mitigations", "judge",
    }  # fmt: skip
    assert prepared.extractor is None
