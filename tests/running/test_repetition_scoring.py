"""Users' repetition scores from what is stored: of some pairs, of all, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from opbench.errors import ModelError
from opbench.running.repetition import embed_missing, score_users
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.writing import FinishedRecord, create_run, save_records
from opbench.study import Configuration, Study
from opbench.types import Instance, User

ANA, BO = User("c1", "Ana", "Bo", True), User("c1", "Bo", "Ana", False)
QUESTIONS = 70  # more than one request's responses
INSTANCES = [
    *(Instance(f"op/c1/Ana/repetition/{n}", "op", ANA, "repetition", "?") for n in range(QUESTIONS)),
    Instance("op/c1/Bo/repetition/1", "op", BO, "repetition", "?"),
    Instance("op/c1/Bo/fact/1", "op", BO, "fact", "?"),
]
STUDY = Study(models=("m", "n"), memories=("base",))
UP, RIGHT = (np.array(vector, dtype=np.float32) for vector in ([0, 1], [1, 0]))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")


@pytest.fixture
def ids(store: Store) -> list[int]:
    made = create_run(store, "r", STUDY, "h", {}, INSTANCES)
    return [made[Configuration(model, "base", "none")] for model in ("m", "n")]


def done(configuration: int, instance: str, vector: np.ndarray | None, response: str = "Tea.") -> FinishedRecord:
    values = {"status": "done", "response": response, "finished_at": 1.0}
    return FinishedRecord(configuration, instance, values, embedding=None if vector is None else ("e", vector))


def scores(store: Store) -> dict[tuple[int, str], Any]:
    with store.begin() as connection:
        rows = connection.execute(select(s.user_scores)).all()
    return {(row.configuration_id, row.user_id): (row.value, row.n, row.reason) for row in rows}


def test_pairs_are_scored_by_themselves(store: Store, ids: list[int]) -> None:
    one, two = ids
    # Three responses, two of them alike: cosines 1, 0 and 0, so repetition is 1 - 1/3.
    vectors = (UP, UP, RIGHT)
    for configuration in ids:
        save_records(store, "r", [done(configuration, f"op/c1/Ana/repetition/{n}", v) for n, v in enumerate(vectors)])
        save_records(store, "r", [done(configuration, "op/c1/Bo/repetition/1", UP)])
    score_users(store, "r", "e", {(one, "c1/Ana")})
    assert scores(store) == {(one, "c1/Ana"): (pytest.approx(2 / 3), 3, None)}
    alone = (None, 1, "1 answered, two are needed for a similarity")
    score_users(store, "r", "e")
    score_users(store, "r", "e")
    assert scores(store) == {
        (one, "c1/Ana"): (pytest.approx(2 / 3), 3, None),
        (two, "c1/Ana"): (pytest.approx(2 / 3), 3, None),
        (one, "c1/Bo"): alone,
        (two, "c1/Bo"): alone,
    }
    score_users(store, "r", "another embedder", {(two, "c1/Bo")}, "embedder e: it is down")
    with store.begin() as connection:
        row = connection.execute(select(s.user_scores).where(s.user_scores.c.judge == "another embedder")).one()
    assert (row.value, row.n, row.reason) == (None, 0, "embedder e: it is down")


async def test_only_what_has_no_vector_is_embedded(store: Store, ids: list[int]) -> None:
    one, two = ids
    save_records(
        store,
        "r",
        [
            *(done(one, f"op/c1/Ana/repetition/{n}", None, f"Answer {n}") for n in range(QUESTIONS)),
            done(two, "op/c1/Ana/repetition/0", UP),
            done(two, "op/c1/Ana/repetition/1", None, "<think>tea?</think>"),
            done(two, "op/c1/Bo/fact/1", None),
            FinishedRecord(two, "op/c1/Bo/repetition/1", {"status": "error", "error": "too slow", "finished_at": 1.0}),
        ],
    )
    asked: list[str] = []

    async def embed(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.tile(RIGHT, (len(texts), 1))

    async def down(texts: Sequence[str]) -> np.ndarray:
        raise ModelError("it is down", kind="connection")

    assert await embed_missing(store, "r", "e", down) == "embedder e: it is down"
    assert await embed_missing(store, "r", "e", embed) is None
    # In any order; a response of hidden thoughts alone says nothing.
    assert sorted(asked) == sorted(f"Answer {n}" for n in range(QUESTIONS))
    assert await embed_missing(store, "r", "e", embed) is None
    assert len(asked) == QUESTIONS, "and once"
    score_users(store, "r", "e")
    assert scores(store) == {
        (one, "c1/Ana"): (pytest.approx(0.0), QUESTIONS, None),
        (two, "c1/Ana"): (None, 1, "1 answered, two are needed for a similarity"),
        (two, "c1/Bo"): (None, 0, "0 answered, two are needed for a similarity"),
    }
