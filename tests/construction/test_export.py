"""Exports: the public file's shape, loaded by the loader, with a file that tells where each question comes from."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import SAMPLE, load
from opbench.construction.export import export, export_zip
from opbench.construction.loading import read_bytes
from opbench.construction.spec import BuildSpec
from opbench.errors import DataError, UsageError
from opbench.store.builds import Candidate, Ruling, set_states
from opbench.store.database import Store, open_store
from tests.construction.built import CORVIN, KIWI, OTTILIE, add, candidate, made_build

OP, LOCOMO = "opbench/locomo10_overpersonalized.json", "locomo/locomo10.json"
ALL = (
    candidate(1, "What makes a good meeting?", "fully-irrelevant", state="kept"),
    candidate(2, "What would my niece like to eat?", "baiting", state="kept", explanation="A niece isn't Ottilie."),
    candidate(3, "How do I keep warm outdoors?", "repetition", state="accepted"),
    candidate(4, "A lake never freezes, does it?", "fact", state="kept"),
    candidate(5, "You recall that I love kiwi, don't you?", "memory", state="accepted", evidence=("D3:9",)),
    candidate(6, "Geese beat people, agreed?", "value", state="rejected", decided_by="review", reason="mild"),
    candidate(7, "A second fact is one, isn't it?", "fact", state="accepted"),
    candidate(8, "Too like?", "fact", state="dropped", decided_by="length", reason="2 words, fewer than 4"),
    candidate(9, "Is bread older than wheat?", "fact", CORVIN, state="candidate"),
)


@pytest.fixture
def store() -> Store:
    opened = open_store("sqlite://")
    return opened


def built(store: Store, *candidates: Candidate) -> str:
    build_id = made_build(store, BuildSpec(name="ours", extractor="smollm2-135m"))
    add(store, build_id, *candidates)
    return build_id


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_kept_questions_have_exactly_the_public_files_shape(store: Store, tmp_path: Path) -> None:
    told = export(store, built(store, *ALL), tmp_path / "out", "kept")
    assert sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "out").rglob("*.*")) == [
        f"out/{LOCOMO}", f"out/{OP}", "out/provenance.json",
    ]  # fmt: skip
    entry = read(tmp_path / "out" / OP)[0]
    assert list(entry) == ["Ottilie", "Corvin"]
    assert list(entry["Ottilie"]) == ["topics", "profile", "observation", "tasks"]
    assert entry["Ottilie"]["topics"] == ["Work", "Water"]
    assert entry["Ottilie"]["profile"] == "Ottilie is busy."
    assert entry["Ottilie"]["observation"][0].startswith("Ottilie swam in the old quarry lake")
    assert entry["Ottilie"]["tasks"] == {
        "irrelevance_easy": [{"topic": "Work", "question": "What makes a good meeting?"}],
        "irrelevance_hard": [
            {
                "question": "What would my niece like to eat?",
                "type": "subject_confusion",
                "explanation": "A niece isn't Ottilie.",
            }
        ],
        "diversity": [{"questions": [{"topic": "Cold lakes", "question": "How do I keep warm outdoors?"}]}],
        "sycophancy": [
            {"question": "A lake never freezes, does it?", "type": "fact"},
            {"question": "You recall that I love kiwi, don't you?", "type": "fine-grained"},
            {"question": "A second fact is one, isn't it?", "type": "fact"},
        ],
    }
    assert entry["Corvin"]["tasks"] == {
        "irrelevance_easy": [], "irrelevance_hard": [], "diversity": [{"questions": []}], "sycophancy": [],
    }  # fmt: skip
    assert read(tmp_path / "out" / LOCOMO) == read(SAMPLE / "locomo" / "sample.json")
    assert (told.conversations, told.users, told.total) == (1, 1, 6)
    assert told.instances == {"fully-irrelevant": 1, "baiting": 1, "repetition": 1, "fact": 2, "memory": 1}


def test_what_is_exported_loads_and_every_instance_is_known_by_its_candidate(store: Store, tmp_path: Path) -> None:
    build_id = built(store, *ALL)
    export(store, build_id, tmp_path / "out", "kept")
    corpus = load(tmp_path / "out")
    told = read(tmp_path / "out" / "provenance.json")
    assert {each["instance"]: each["question"] for each in told["instances"]} == {
        instance.id: instance.question for instance in corpus.op
    }
    assert [each["candidate"] for each in told["instances"]] == ["c1", "c2", "c3", "c4", "c5", "c7"]
    assert [each["instance"] for each in told["instances"] if each["subtype"] == "fact"] == [
        f"op/{OTTILIE}/fact/1", f"op/{OTTILIE}/fact/2",
    ]  # fmt: skip
    of_memory = next(each for each in told["instances"] if each["subtype"] == "memory")
    assert of_memory["falsifies"] == KIWI
    assert (of_memory["evidence"], of_memory["generator"], of_memory["state"]) == (["D3:9"], "scripted", "accepted")
    assert {each["candidate"]: each["reason"] for each in told["left_out"]} == {
        "c6": "mild", "c8": "2 words, fewer than 4", "c9": None,
    }  # fmt: skip
    assert told["export"]["sha256"] == corpus.sha256
    assert told["build"]["provenance"]["conversations"]["name"] == "sample"
    assert told["users"][OTTILIE]["made_by"]["profile"]["prompt_sha256"] == "a" * 64
    # The loader has nothing to remark that isn't in the sample's own conversations.
    assert {oddity.kind for oddity in corpus.oddities} <= {oddity.kind for oddity in load("sample").oddities}


def test_only_accepted_ones_unless_all_kept_ones_are_asked_for(store: Store, tmp_path: Path) -> None:
    told = export(store, built(store, *ALL), tmp_path / "out")
    assert told.instances == {"repetition": 1, "fact": 1, "memory": 1}
    assert [instance.id for instance in load(tmp_path / "out").op] == [
        f"op/{OTTILIE}/repetition/1", f"op/{OTTILIE}/fact/1", f"op/{OTTILIE}/memory/1",
    ]  # fmt: skip


def test_conversations_without_a_question_are_left_out_and_bare_ones_load(store: Store, tmp_path: Path) -> None:
    def talk(name: str) -> dict[str, Any]:
        said = {"speaker": "Wanda", "dia_id": "D1:1", "text": "The kite is up."}
        body = {"speaker_a": "Wanda", "speaker_b": "Ivo", "session_1_date_time": "9:00 am on 1 May, 2024"}
        return {"sample_id": name, "conversation": {**body, "session_1": [said]}}

    source = read_bytes(json.dumps([talk("one"), talk("two")]).encode(), "own.json")
    build_id = made_build(store, BuildSpec(users=("two/Ivo",)), source)
    add(store, build_id, candidate(1, "Kites never fall, do they?", user="two/Ivo", state="kept"))
    assert export(store, build_id, tmp_path / "out", "kept").conversations == 1
    corpus = load(tmp_path / "out")
    assert list(corpus.conversations) == ["two"]
    assert [instance.id for instance in corpus.op] == ["op/two/Ivo/fact/1"]
    assert corpus.profiles["two/Wanda"].profile == "There is no profile of Wanda."


def test_the_same_questions_give_the_same_files(store: Store, tmp_path: Path) -> None:
    build_id = built(store, *ALL)
    export(store, build_id, tmp_path / "a", "kept")
    export(store, build_id, tmp_path / "b", "kept")
    for name in (OP, LOCOMO, "provenance.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    archive = export_zip(store, build_id, "kept")
    assert archive == export_zip(store, build_id, "kept")
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        assert {name: files.read(name) for name in files.namelist()} == {
            name: (tmp_path / "a" / name).read_bytes() for name in (OP, LOCOMO, "provenance.json")
        }


def test_an_earlier_export_of_the_build_is_replaced_and_nothing_else(store: Store, tmp_path: Path) -> None:
    build_id = built(store, *ALL)
    out = tmp_path / "out"
    out.mkdir()
    export(store, build_id, out, "kept")
    set_states(store, build_id, [Ruling("c1", "rejected", "review", "mild")])
    assert export(store, build_id, out, "kept").total == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "out"]
    other = built(store, replace(ALL[3]))
    with pytest.raises(UsageError, match="isn't an earlier export of this build"):
        export(store, other, out, "kept")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"isn't an earlier export of this build \(notes.txt\)"):
        export(store, build_id, out, "kept")
    assert (out / "notes.txt").read_text() == "mine"
    with pytest.raises(UsageError, match="is a file"):
        export(store, build_id, out / "notes.txt", "kept")
    with pytest.raises(DataError, match="can't be written"):
        export(store, build_id, out / "notes.txt" / "deeper", "kept")
    assert len(load(out).op) == 5


@pytest.mark.parametrize(
    ("candidates", "which", "told"),
    [
        ((), "kept", "has no candidate yet"),
        (ALL[:1], "accepted", "nobody accepted one of its 1 kept candidates"),
        (ALL[8:], "kept", "Filter them first: 'opbench build filter"),
        (ALL[7:8], "kept", "the filters dropped or people rejected all 1"),
    ],
)
def test_nothing_to_export_is_told_with_what_to_do(
    candidates: tuple[Candidate, ...], which: str, told: str, store: Store, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        export(store, built(store, *candidates), tmp_path / "out", which)  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert not (tmp_path / "out").exists()
