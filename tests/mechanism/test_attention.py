"""Measuring attention of a run: what is chosen, kept, gone on with and told, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update

from opbench import cli
from opbench.errors import StoreError, UsageError
from opbench.mechanism import measuring
from opbench.mechanism.attention import DEFINITION, PROGRESS, progress_line
from opbench.mechanism.measuring import Outcome, measure, plan, spread
from opbench.mechanism.reader import ReadingModel, load_reader
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.attention import SEGMENTS, Measured, read_attention, readers, save_attention, words
from opbench.store.database import Store, open_store
from opbench.store.writing import save_records
from tests.mechanism.read_run import ABSTAIN, BASE, COT, INSTANCES, MEMORIES, RAG, RUN, record, write
from tests.mechanism.tiny_reader import HEADS, LAYERS, model_folder

KEYS = [(each.model, each.memory, each.mitigation) for each in (BASE, RAG, COT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("reader") / "tiny")


@pytest.fixture(scope="module")
def reader(folder: Path) -> ReadingModel:
    return load_reader(str(folder))


def ids(store: Store) -> dict[tuple[str, str, str, str], int]:
    c, r = s.configurations.c, s.records.c
    query = select(r.id, c.model, c.memory, c.mitigation, r.instance_id).join(
        s.configurations, c.id == r.configuration_id
    )
    with store.begin() as connection:
        return {(row[1], row[2], row[3], row[4]): row[0] for row in connection.execute(query)}


# What is chosen.


def test_a_subtypes_instances_are_of_all_users_in_turn_and_subtypes_take_turns() -> None:
    there = [(f"{user}{subtype}{n}", user, subtype) for user in "ab" for subtype in "fv" for n in (1, 2)]
    assert spread(there, 3) == ["af1", "av1", "bf1", "bv1", "af2", "av2"]
    assert spread(there, 1) == ["af1", "av1"]
    assert len(spread(there, None)) == 8


def test_every_configuration_is_read_on_the_same_instances(store: Store) -> None:
    write(store, without=("op/c1/Ana/fact/1",))
    chosen = plan(store, RUN, limit=None)
    assert chosen.configurations == tuple(KEYS)
    assert chosen.uncalled == ((ABSTAIN.model, ABSTAIN.memory, ABSTAIN.mitigation),)
    assert chosen.instances == {"fact": 3, "value": 4}
    assert (chosen.users, chosen.unpaired, len(chosen.records)) == (2, 1, 21)
    by_key = {key: {each.instance for each in chosen.records if each.key == key} for key in KEYS}
    assert by_key[KEYS[0]] == by_key[KEYS[1]] == by_key[KEYS[2]]
    assert "op/c1/Ana/fact/1" not in by_key[KEYS[1]]
    # Without BASE nothing stands in the way.
    assert plan(store, RUN, configurations=KEYS[1:], limit=None).unpaired == 0
    assert plan(store, RUN, subtypes=["fact"], limit=1).instances == {"fact": 1}


def test_what_cannot_be_read_is_said(store: Store) -> None:
    write(store)
    with pytest.raises(UsageError, match="abstain answers without any call to a model"):
        plan(store, RUN, configurations=[(ABSTAIN.model, ABSTAIN.memory, ABSTAIN.mitigation)])
    with pytest.raises(UsageError, match="It has fact, value: choose with --subtypes"):
        plan(store, RUN, subtypes=["baiting"])
    with store.begin() as connection:
        connection.execute(update(s.runs).values(recorded=True))
    with pytest.raises(UsageError, match="came from a bundle, which holds no calls"):
        plan(store, RUN)


# What is kept.


def test_a_run_is_read_and_its_numbers_come_back(store: Store, reader: ReadingModel) -> None:
    write(store, digest=reader.digest)
    seen: list[tuple[int, float | None]] = []
    outcome = measure(
        store, plan(store, RUN, limit=None), reader, on_progress=lambda so_far, left: seen.append((so_far.done, left))
    )
    # Of 24 records the 4 of failed post-processing have the very text of none.
    assert (outcome.measured, outcome.alike, outcome.kept, outcome.done) == (20, 4, 0, 24)
    assert [done for done, _ in seen] == list(range(1, 25))
    assert seen[-1][1] == 0
    data = read_attention(store, RUN)
    assert (data.reader, len(data)) == (reader.name, 24)
    assert data.masses.shape == data.onset.shape == (24, LAYERS, HEADS, len(SEGMENTS))
    assert data.masses.sum(axis=-1) == pytest.approx(np.ones((24, LAYERS, HEADS)), abs=1e-3)
    assert list(data.records["instance"][:8]) == [each.id for each in INSTANCES]
    assert set(data.records["user"]) == {"c1/Ana", "c1/Bo"}
    assert data.records["own"].all()
    assert (data.records["prompt_tokens"] == data.records["told_tokens"]).all()
    assert Counter(data.records["state"].fillna("")) == {"": 16, "failed": 4, "kept": 4}
    memory, query = (data.tokens[:, SEGMENTS.index(name)] for name in ("memory", "query"))
    # "- (9 May 2024) likes tea" has 24 signs, a line's end, "- has a dog" 11.
    expected = {"base": 0, "none": 36, "failed": 36, "kept": 24}
    for place, (kind, state, user, subtype) in enumerate(
        zip(*(data.records[name].fillna("") for name in ("memory", "state", "user", "subtype")), strict=True)
    ):
        assert memory[place] == expected["base" if kind == "base" else state or "none"]
        assert query[place] == len(f"{user[3:]} asks {subtype} 1?")
    no_memory = data.masses[memory == 0][..., SEGMENTS.index("memory")]
    assert (no_memory == 0).all()
    assert no_memory.size


def test_the_words_of_a_prompt_come_back_with_their_weights(store: Store, reader: ReadingModel) -> None:
    write(store)
    measure(store, plan(store, RUN, configurations=[KEYS[1]], limit=1), reader)
    data = read_attention(store, RUN)
    found = words(store, int(data.records["record"][0]), data.reader)
    assert found is not None
    assert found.texts is not None
    assert len(found.texts) == len(found.segments) == len(found.weights) == data.records["prompt_tokens"][0]
    told = "".join(text for text, segment in zip(found.texts, found.segments, strict=True) if segment == "memory")
    assert told == "- (9 May 2024) likes tea\n- has a dog"
    in_memory = found.weights[np.array(found.segments) == "memory"].sum()
    assert in_memory == pytest.approx(data.masses[0, ..., SEGMENTS.index("memory")].mean(), abs=1e-5)
    # The endpoint told no digest of these weights.
    assert not data.records["own"].any()
    assert words(store, int(data.records["record"][0]), "another@0/v1") is None


def test_it_goes_on_where_it_was_stopped(store: Store, reader: ReadingModel) -> None:
    write(store)
    chosen = plan(store, RUN, limit=None)
    asked = iter([False] * 5 + [True])
    first = measure(store, chosen, reader, stopping=lambda: next(asked))
    assert (first.stopped, first.done, len(read_attention(store, RUN))) == (True, 5, 5)
    second = measure(store, chosen, reader)
    assert (second.stopped, second.kept, second.done) == (False, 5, 24)
    third = measure(store, chosen, reader)
    assert (third.measured, third.alike, third.kept) == (0, 0, 24)
    again = measure(store, chosen, reader, again=True)
    assert (again.measured, again.alike, again.kept) == (20, 4, 0)
    assert [each.records for each in readers(store, RUN)] == [24]


def test_a_record_that_was_made_again_is_read_again(store: Store, reader: ReadingModel) -> None:
    write(store)
    chosen = plan(store, RUN, configurations=[KEYS[1]], limit=None)
    measure(store, chosen, reader)
    before = read_attention(store, RUN)
    with store.begin() as connection:
        configuration = connection.execute(
            select(s.configurations.c.id).where(
                s.configurations.c.memory == "rag", s.configurations.c.mitigation == "none"
            )
        ).scalar_one()
    save_records(store, RUN, [record(configuration, INSTANCES[0], "Have two cups.", MEMORIES, "0" * 16)])
    # Its row went with it; the plan from before knows a record that is there no more.
    assert len(read_attention(store, RUN)) == len(before) - 1
    assert measure(store, chosen, reader).skipped == {"made again meanwhile": 1}
    outcome = measure(store, plan(store, RUN, configurations=[KEYS[1]], limit=None), reader)
    assert (outcome.measured, outcome.kept) == (1, 7)
    after = read_attention(store, RUN)
    response = SEGMENTS.index("response")
    assert after.tokens[0, response] == len("Have two cups.")
    assert (before.tokens[1:] == after.tokens[1:]).all()


def test_a_changed_text_under_the_same_record_is_read_again(store: Store, reader: ReadingModel) -> None:
    write(store)
    chosen = plan(store, RUN, configurations=[KEYS[0]], limit=None)
    measure(store, chosen, reader)
    with store.begin() as connection:
        connection.execute(
            update(s.attention).where(s.attention.c.record_id == chosen.records[0].record).values(text_sha256="x")
        )
    outcome = measure(store, chosen, reader)
    assert (outcome.measured, outcome.kept) == (1, 7)


def test_texts_are_kept_only_when_wanted(store: Store, reader: ReadingModel) -> None:
    write(store)
    chosen = plan(store, RUN, configurations=[KEYS[1]], limit=1)
    measure(store, chosen, reader, texts=False)
    data = read_attention(store, RUN)
    assert not data.records["texts"].any()
    found = words(store, int(data.records["record"][0]), data.reader)
    assert found is not None
    assert found.texts is None
    assert len(found.weights) == data.records["prompt_tokens"][0]
    # Wanted now: read again for their sake, and then they stay.
    assert measure(store, chosen, reader).measured == len(chosen.records)
    assert read_attention(store, RUN).records["texts"].all()
    assert measure(store, chosen, reader, texts=False).kept == len(chosen.records)
    assert read_attention(store, RUN).records["texts"].all()


def test_a_record_that_cannot_be_read_is_counted_with_its_reason(
    store: Store, reader: ReadingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store)
    # Prompts with a memory are longer than this, BASE's aren't.
    monkeypatch.setattr(reader, "longest", 300)
    outcome = measure(store, plan(store, RUN, limit=None), reader)
    assert outcome.skipped == {"longer than the 300 tokens that the reading model takes": 16}
    assert set(read_attention(store, RUN).records["memory"]) == {"base"}


def test_two_readers_are_never_mixed(store: Store) -> None:
    write(store)
    record_id = ids(store)[(*KEYS[0], INSTANCES[0].id)]
    for name, layers in (("one@0/v1", 1), ("two@0/v1", 3)):
        masses = np.full((2, layers, 2, len(SEGMENTS)), 1 / len(SEGMENTS), dtype=np.float32)
        assert save_attention(
            store, record_id, name, Measured("x", (1, 2, 3, 0, 5, 6), masses, None, np.ones(11, np.float32))
        )
    assert {each.name for each in readers(store, RUN)} == {"one@0/v1", "two@0/v1"}
    assert read_attention(store, RUN, "one@0/v1").masses.shape == (1, 1, 2, 6)
    assert read_attention(store, RUN, "two@0/v1").masses.shape == (1, 3, 2, 6)
    assert read_attention(store, RUN).reader == readers(store, RUN)[0].name
    with pytest.raises(UsageError, match="'three' has read none of its records"):
        read_attention(store, RUN, "three")


def test_what_was_read_of_a_record_isnt_kept_for_the_one_that_has_its_id_now(store: Store) -> None:
    write(store)
    record_id = ids(store)[(*KEYS[0], INSTANCES[0].id)]
    masses = np.full((2, 1, 1, len(SEGMENTS)), 1 / len(SEGMENTS), dtype=np.float32)
    read = Measured("x", (1, 2, 3, 0, 5, 6), masses, None, np.ones(11, np.float32))
    with store.begin() as connection:
        connection.execute(update(s.records).where(s.records.c.id == record_id).values(finished_at=200.0))
    assert not save_attention(store, record_id, "one@0/v1", read, finished_at=100.0)
    assert len(read_attention(store, RUN)) == 0
    assert save_attention(store, record_id, "one@0/v1", read, finished_at=200.0)
    assert not save_attention(store, record_id, "one@0/v1", read, finished_at=100.0)
    assert len(read_attention(store, RUN)) == 1, "what is kept of the new one stays"


def test_segments_of_another_order_come_in_ours(store: Store) -> None:
    write(store)
    record_id = ids(store)[(*KEYS[0], INSTANCES[0].id)]
    masses = (np.arange(6) / 15).reshape(1, 1, 1, 6).repeat(2, axis=0).astype(np.float32)
    save_attention(
        store, record_id, "one@0/v1", Measured("x", (0, 1, 2, 3, 4, 5), masses, None, np.ones(10, np.float32))
    )
    with store.begin() as connection:
        connection.execute(update(s.attention).values(segments=list(reversed(SEGMENTS))))
    data = read_attention(store, RUN)
    assert list(data.tokens[0]) == [5, 4, 3, 2, 1, 0]
    assert data.masses[0, 0, 0] * 15 == pytest.approx([5, 4, 3, 2, 1, 0])
    with store.begin() as connection:
        connection.execute(update(s.attention).values(heads=2))
    with pytest.raises(StoreError, match="Measure it again"):
        read_attention(store, RUN)


def test_nothing_measured_is_no_records(store: Store) -> None:
    write(store)
    data = read_attention(store, RUN)
    assert (len(data), data.reader, readers(store, RUN)) == (0, "", [])
    assert {"model", "memory", "mitigation", "subtype", "state", "own"} <= set(data.records.columns)


def test_a_revised_response_is_read_with_its_draft(store: Store, reader: ReadingModel) -> None:
    write(store)
    at = ids(store)[(*KEYS[1], INSTANCES[0].id)]
    with store.begin() as connection:
        connection.execute(update(s.records).where(s.records.c.id == at).values(response="Much longer than it was."))
    measure(store, plan(store, RUN, configurations=[KEYS[1]], subtypes=["fact"], limit=1), reader)
    data = read_attention(store, RUN)
    assert data.tokens[0, SEGMENTS.index("response")] == len("Have tea.")


# The command.


@pytest.fixture
def opbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        settings.cache_clear()
        monkeypatch.setattr("sys.argv", ["opbench", "mechanism", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def kept(home: Path) -> Store:
    store = open_store(settings().store_url)
    write(store)
    return store


def test_the_command_measures_and_goes_on(opbench: Any, kept: Store, folder: Path) -> None:
    code, out, _ = opbench("attention", RUN, "--dry-run", "--json", "--limit", "1")
    told = json.loads(out)
    assert (code, told["records"], told["instances"]) == (0, 6, {"fact": 1, "value": 1})
    assert readers(kept, RUN) == []
    line = ("attention", RUN, "--reader", str(folder), "--configurations", "base/none,rag/few-shot-cot", "--limit", "2")
    code, out, err = opbench(*line)
    assert code == 0
    assert "8 records measured" in out
    assert "another model's reading" in out
    lines = [found for each in err.splitlines() if (found := PROGRESS.fullmatch(each))]
    assert [(found["done"], found["planned"]) for found in lines] == [(str(n), "8") for n in range(1, 9)]
    assert set(read_attention(kept, RUN).records["mitigation"]) == {"none", "few-shot-cot"}
    code, out, _ = opbench(*line, "--json")
    told = json.loads(out)
    assert (code, told["measured"], told["measured_before"], told["skipped"]) == (0, 0, 8, {})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_record_in_hand(
    opbench: Any, kept: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    save, handlers = save_attention, (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))

    def asked_meanwhile(*given: Any) -> bool:
        os.kill(os.getpid(), number)
        return save(*given)

    monkeypatch.setattr(measuring, "save_attention", asked_meanwhile)
    code, out, err = opbench("attention", RUN, "--reader", str(folder), "--no-texts")
    assert code == 1
    assert "stopping after the record in hand" in err
    assert "1 records measured" in out
    assert "The same command goes on" in out
    assert len(read_attention(kept, RUN)) == 1
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("attention", "nowhere"), "no run 'nowhere'"),
        (("attention", RUN, "--reader", "org/model"), "reader org/model: no such folder"),
        (("attention", RUN, "--configurations", "rag"), "write a configuration as MEMORY/MITIGATION"),
        (("attention", RUN, "--configurations", "mem0/none"), "0 configurations fit"),
        (("attention", RUN, "--subtypes", "baiting"), "choose with --subtypes"),
    ],
)
def test_wrong_use_is_one_line(opbench: Any, kept: Store, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = opbench(*arguments)
    assert code == 2
    assert said in err.splitlines()[-1]


def test_lines_of_progress_can_be_read_back() -> None:
    found = PROGRESS.fullmatch(progress_line(12, 288, 201.6))
    assert found
    assert (found["done"], found["planned"], found["seconds"]) == ("12", "288", "202")
    found = PROGRESS.fullmatch(progress_line(0, 288, None))
    assert found
    assert found["seconds"] is None
    assert Outcome(3).done == 0


def test_the_definition_names_every_segment() -> None:
    assert all(f"*{name}*" in DEFINITION for name in SEGMENTS)
