"""Measuring similarities: numbers by hand, what is kept and taken up again, and the control."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

import opbench.mechanism.similarity as similarity
from opbench.benchmarks import load, select
from opbench.errors import ModelError, UsageError
from opbench.mechanism.similarity import Measured, measure, measure_similarities
from opbench.memories.random import RandomMemories
from opbench.models.embeddings import Embedded
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.similarities import (
    last_measured,
    measured_embedders,
    read_similarities,
    save_similarities,
    waiting_similarities,
)
from opbench.store.writing import FinishedRecord, create_run, save_records
from opbench.study import Configuration, make_study
from opbench.types import Instance

CORPUS = load("sample")
INSTANCES = select(CORPUS, ("op",), limit=20)
RUN = "r1"
NONE = Configuration("m", "rag", "none")
#: Degrees from the question, of memories by their text.
ANGLES = {"straight": 0.0, "sixty": 60.0, "square": 90.0, "against": 180.0}


class Embedding:
    """Memories of ANGLES lie by their angle from whatever else is asked; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        angles = np.radians([ANGLES.get(text, 0.0) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def make_run(store: Store, memories: Sequence[str] = ("base", "rag"), data: object = None, **study: Any) -> None:
    plan = make_study({"models": ["m"], "memories": memories, "data": "sample", **study})
    create_run(store, RUN, plan, "d", {"data": CORPUS.sha256 if data is None else data}, INSTANCES)


def add(
    store: Store,
    retrieved: Mapping[int, Sequence[str] | None],
    configuration: Configuration = NONE,
    finished_at: float = 1.0,
    status: str = "done",
) -> None:
    """Records of the instances with these places in the slice, and the texts that were retrieved."""
    c = s.configurations.c
    with store.begin() as connection:
        rows = connection.execute(s.configurations.select().where(c.run_id == RUN)).all()
    number = next(r.id for r in rows if (r.model, r.memory, r.mitigation) == tuple(vars_of(configuration)))
    records = []
    for place, texts in retrieved.items():
        values = {"status": status, "response": "yes", "finished_at": finished_at}
        values["retrieved"] = None if texts is None else [{"text": t, "date": None, "score": 0.5} for t in texts]
        records.append(FinishedRecord(number, INSTANCES[place].id, values))
    save_records(store, RUN, records)


def vars_of(configuration: Configuration) -> tuple[str, str, str]:
    return configuration.model, configuration.memory, configuration.mitigation


def cosines(store: Store, memory: str = "rag", embedder: str = "by-angle") -> dict[str, list[float | None]]:
    rows = read_similarities(store, RUN, embedder)
    mine = rows[rows["memory"] == memory]
    return dict(zip(mine["instance"], mine["cosines"], strict=True))


def name(place: int) -> str:
    return INSTANCES[place].id


@pytest.fixture
def light(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'light.sqlite3'}")
    yield opened
    opened.close()


async def test_cosines_stand_in_rank_order_blank_memories_have_none_and_nothing_retrieved_is_empty(
    store: Store,
) -> None:
    make_run(store, mitigations=("none", "reminder"))
    add(store, {0: ["sixty", "straight", " ", "against"], 1: [], 2: ["square"]})
    add(store, {0: ["sixty", "straight", " ", "against"]}, Configuration("m", "rag", "reminder"))
    add(store, {0: None}, Configuration("m", "base", "none"))
    add(store, {3: []}, status="error")
    told: list[tuple[int, int]] = []
    measured = await measure(store, RUN, "by-angle", Embedding(), lambda *numbers: told.append(numbers))
    found = cosines(store)
    assert found[name(0)] == [pytest.approx(0.5), pytest.approx(1.0), None, pytest.approx(-1.0)]
    assert found[name(1)] == []
    assert found[name(2)] == [pytest.approx(0.0, abs=1e-6)]
    assert name(3) not in found, "a retrieval that failed isn't an empty one"
    assert (measured.planned, measured.made) == (3, 3), "one a memory system and instance, whatever the post-processors"
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)
    assert measured_embedders(store, RUN) == ["by-angle"]


async def test_what_is_measured_isnt_measured_again_until_a_record_is_made_anew(store: Store) -> None:
    make_run(store)
    add(store, {0: ["sixty"], 1: ["square"]})
    await measure(store, RUN, "by-angle", Embedding())
    again = Embedding()
    assert (await measure(store, RUN, "by-angle", again)).made == 0
    assert again.asked == []
    assert waiting_similarities(store, RUN, "by-angle") == 0
    assert waiting_similarities(store, RUN, "another") == 2
    add(store, {1: ["against"]}, finished_at=time.time())
    add(store, {2: ["sixty"]})
    assert waiting_similarities(store, RUN, "by-angle") == 2
    assert (await measure(store, RUN, "by-angle", again)).made == 2
    assert cosines(store)[name(1)] == [pytest.approx(-1.0)]
    assert cosines(store)[name(0)] == [pytest.approx(0.5)]


async def test_another_embedder_of_the_same_name_measures_all_anew_and_numbers_never_mix(store: Store) -> None:
    make_run(store)
    add(store, {0: ["sixty"], 1: ["square"]})
    await measure(store, RUN, "by-angle", Embedding(), identity="one")
    save_similarities(store, RUN, "by-angle", [("rag", name(1), [0.125])], identity="two")
    assert cosines(store) == {name(1): [0.125]}, "what the other embedder measured isn't among these"
    assert waiting_similarities(store, RUN, "by-angle") == 1
    assert (await measure(store, RUN, "by-angle", Embedding(), identity="three")).made == 2
    assert cosines(store) == {name(0): [pytest.approx(0.5)], name(1): [pytest.approx(0.0, abs=1e-6)]}
    assert (await measure(store, RUN, "by-angle", Embedding(), identity="three")).made == 0


async def test_what_was_measured_of_a_record_that_was_made_anew_isnt_shown_until_it_is_measured_again(
    store: Store,
) -> None:
    make_run(store, k=2, mitigations=("none", "reminder"))
    add(store, {0: ["sixty"], 1: ["square"], 2: ["straight"]})
    await measure(store, RUN, "by-angle", Embedding())
    before = last_measured(store, RUN, "by-angle")
    assert before[0] == 6, "three retrievals and their drawn control"
    add(store, {0: ["against"]}, finished_at=9e9)
    add(store, {2: []}, status="error", finished_at=9e9)
    # A further post-processor's record rests on the same retrieval: that of instance 1 stays measured.
    add(store, {1: ["square"]}, Configuration("m", "rag", "reminder"), finished_at=9e9)
    assert cosines(store) == {name(1): [pytest.approx(0.0, abs=1e-6)]}
    assert set(cosines(store, "random")) == {name(0), name(1), name(2)}
    assert waiting_similarities(store, RUN, "by-angle") == 1
    add(store, {0: ["against"]}, finished_at=time.time())
    await measure(store, RUN, "by-angle", Embedding())
    assert cosines(store)[name(0)] == [pytest.approx(-1.0)]
    count, made_at = last_measured(store, RUN, "by-angle")
    assert (count, made_at > before[1]) == (6, True), "as many as before, and newer: nobody keeps the old numbers"


async def test_a_record_that_is_made_again_while_it_is_measured_waits_again(light: Store) -> None:
    make_run(light)
    add(light, {0: ["sixty"]})

    class Slow(Embedding):
        async def __call__(self, texts: Sequence[str]) -> np.ndarray:
            add(light, {0: ["against"]}, finished_at=time.time())
            return await super().__call__(texts)

    await measure(light, RUN, "by-angle", Slow())
    assert cosines(light) == {}
    assert waiting_similarities(light, RUN, "by-angle") == 1


async def test_the_control_is_k_memories_of_the_same_user_drawn_as_the_memory_system_random_draws_them(
    light: Store,
) -> None:
    make_run(light, k=3)
    add(light, {0: ["sixty"], 1: []})
    asked = Embedding()
    measured = await measure(light, RUN, "by-angle", asked)
    assert (measured.control, measured.note) == ("drawn", "")
    assert set(cosines(light, "random")) == {name(0), name(1)}
    assert {len(each) for each in cosines(light, "random").values()} == {3}
    assert set(await drawn(INSTANCES[0], 3)) | set(await drawn(INSTANCES[1], 3)) <= set(asked.asked)
    assert (await measure(light, RUN, "by-angle", again := Embedding())).control == "drawn"
    assert again.asked == [], "the control is measured once as well"


async def drawn(instance: Instance, k: int) -> list[str]:
    memories = RandomMemories()
    await memories.ingest(instance.user, CORPUS.conversations[instance.user.conversation].sessions)
    return [each.text for each in await memories.search(instance.user, instance.question, k)]


async def test_a_run_with_random_memories_is_its_own_control(light: Store) -> None:
    make_run(light, ("rag", "random"))
    add(light, {0: ["sixty"], 1: ["sixty"]})
    add(light, {0: ["square"]}, Configuration("m", "random", "none"))
    assert (await measure(light, RUN, "by-angle", Embedding())).control == "run"
    assert cosines(light, "random") == {name(0): [pytest.approx(0.0, abs=1e-6)]}


async def test_other_data_than_the_runs_give_no_control_and_say_so(light: Store) -> None:
    make_run(light, data={"other.json": "0" * 64})
    add(light, {0: ["sixty"]})
    measured = await measure(light, RUN, "by-angle", Embedding())
    assert measured.control == ""
    assert "aren't those that the run was made with" in measured.note
    assert cosines(light, "random") == {}
    assert cosines(light) == {name(0): [pytest.approx(0.5)]}


async def test_cancelling_and_failing_keep_what_was_measured(light: Store) -> None:
    make_run(light, ("rag", "random"))
    add(light, {place: ["sixty"] for place in range(20)})
    measured = await measure(light, RUN, "by-angle", Embedding(), cancelled=lambda: bool(len(cosines(light))))
    assert measured == Measured("by-angle", 20, 16, "run", cancelled=True)
    assert len(cosines(light)) == 16

    async def fail(texts: Sequence[str]) -> np.ndarray:
        raise ModelError("no answer in time", kind="timeout")

    with pytest.raises(ModelError, match="no answer in time"):
        await measure(light, RUN, "by-angle", fail)
    assert len(cosines(light)) == 16
    assert (await measure(light, RUN, "by-angle", Embedding())).made == 4


async def test_runs_without_texts_or_retrievals_say_what_to_do(light: Store) -> None:
    make_run(light)
    with pytest.raises(UsageError, match="has no retrieval yet"):
        await measure(light, RUN, "by-angle", Embedding())
    add(light, {0: ["sixty"]})
    with light.begin() as connection:
        connection.execute(update(s.runs).values(text_left_out=True))
    with pytest.raises(UsageError, match="came without texts"):
        await measure(light, RUN, "by-angle", Embedding())
    with pytest.raises(UsageError, match="came without texts"):
        waiting_similarities(light, RUN, "by-angle")


class Counting(Embedding):
    """An embedder as the registry makes one."""

    name = "minilm"

    def identity(self) -> dict[str, str]:
        return {"kind": "by-angle"}

    async def warm(self) -> None:
        pass

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        return await self(texts)

    async def embed_counted(self, texts: Sequence[str]) -> Embedded:
        return Embedded(await self(texts), 0)


def test_a_text_is_embedded_once_and_then_taken_from_the_call_store(
    light: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Counting()
    monkeypatch.setattr(similarity, "get_embedder", lambda name, registry, client: embedder)
    make_run(light, ("rag", "random"))
    add(light, {0: ["sixty", "square"], 1: ["sixty"]})
    measured = measure_similarities(light, RUN)
    assert (measured.embedder, measured.made) == ("minilm", 2), "the study's own embedder"
    assert sorted(embedder.asked) == sorted({"sixty", "square", INSTANCES[0].question, INSTANCES[1].question})
    before = cosines(light, embedder="minilm")
    with light.begin() as connection:
        connection.execute(s.similarities.delete())
    embedder.asked.clear()
    assert measure_similarities(light, RUN).made == 2
    assert embedder.asked == []
    assert cosines(light, embedder="minilm") == before


def test_an_unknown_embedder_is_named(light: Store) -> None:
    make_run(light)
    with pytest.raises(UsageError, match="nobody"):
        measure_similarities(light, RUN, "nobody")
