"""Whose memories are searched, how two speakers' are put together, and what makes a retrieval the same as another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mitigations.base import Memory
from opbench.benchmarks import load
from opbench.errors import MemoryFault, ModelError
from opbench.memories import Ingesting
from opbench.running.retrieval import Retrieval, merged, searched_users
from opbench.study import Study
from opbench.types import Instance, Session, User

CORPUS = load("sample")
FIRST, SECOND = CORPUS.conversations["sample-1"].speakers
LOCOMO, OP = CORPUS.locomo[0], next(each for each in CORPUS.op if each.user.speaker == SECOND)


class TwoSpeakers(Ingesting):
    """Finds what the test says, by speaker."""

    def __init__(self, found: dict[str, list[Memory]]) -> None:
        self.found = found
        self.asked: list[tuple[str, str, int]] = []
        self.held_open: list[str] = []

    def identity(self) -> dict[str, str]:
        return {"memory": "two"}

    def digest(self, user: User, history: Sequence[Session]) -> str:
        return f"digest of {user.speaker}"

    def content(self, user: User) -> str:
        return f"memories of {user.speaker}"

    @asynccontextmanager
    async def held(self, user: User, history: Sequence[Session]) -> AsyncIterator[None]:
        self.held_open.append(user.speaker)
        try:
            yield
        finally:
            self.held_open.remove(user.speaker)

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        self.asked.append((user.speaker, query, k))
        return self.found[user.speaker][:k]


class Plain:
    """A memory system as plugins make them."""

    name, label = "plain", "Plain"

    def __init__(self) -> None:
        self.did: list[tuple[str, str]] = []

    def identity(self) -> dict[str, str]:
        return {"memory": "plain"}

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        self.did.append(("ingest", user.speaker))

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        self.did.append(("search", user.speaker))
        return [Memory("Tea.", "1 May 2023", 0.5)]

    async def aclose(self) -> None:
        pass


def memories(*scores: float | None, of: str) -> list[Memory]:
    return [Memory(f"{of}{number}", "14 January 2024", score) for number, score in enumerate(scores, 1)]


def retrieval(memory: Any, failures: Any = None, **fields: Any) -> Retrieval:
    study = Study(models=("m",), memories=("two",), **fields)
    return Retrieval(study, CORPUS, {"two": memory}, {"sample-1": "history"}, failures)


async def found(memory: Any, instance: Any, k: int, **fields: Any) -> list[str]:
    return [each.text for each in await retrieval(memory, **fields).search("two", instance, "Who?", k)]


def test_both_speakers_of_a_locomo_question_the_first_first() -> None:
    assert [user.id for user in searched_users(LOCOMO)] == [f"sample-1/{FIRST}", f"sample-1/{SECOND}"]
    assert searched_users(LOCOMO) == tuple(CORPUS.users[f"sample-1/{name}"] for name in (FIRST, SECOND))
    assert searched_users(OP) == (CORPUS.users[f"sample-1/{SECOND}"],)


async def test_uniform_takes_the_best_k_of_both() -> None:
    memory = TwoSpeakers({FIRST: memories(0.9, 0.5, 0.1, of="a"), SECOND: memories(0.7, 0.6, 0.2, of="b")})
    assert await found(memory, LOCOMO, 3) == [f"{FIRST}: a1", f"{SECOND}: b1", f"{SECOND}: b2"]
    assert memory.asked == [(FIRST, "Who?", 3), (SECOND, "Who?", 3)], "both with the same k, one after the other"


async def test_memos_keeps_both_lists() -> None:
    memory = TwoSpeakers({FIRST: memories(0.1, 0.05, of="a"), SECOND: memories(0.9, 0.8, 0.7, of="b")})
    assert await found(memory, LOCOMO, 2, protocol="memos") == [
        f"{FIRST}: a1", f"{FIRST}: a2", f"{SECOND}: b1", f"{SECOND}: b2",
    ]  # fmt: skip


async def test_op_bench_searches_the_users_own_and_names_nobody() -> None:
    for protocol in ("uniform", "memos"):
        memory = TwoSpeakers({FIRST: [], SECOND: memories(0.3, 0.2, of="b")})
        assert await found(memory, OP, 5, protocol=protocol) == ["b1", "b2"]
        assert memory.asked == [(SECOND, "Who?", 5)]


@pytest.mark.parametrize(
    ("one", "two", "k", "expected"),
    [
        ((0.5, 0.5), (0.5, 0.5), 4, ["a1", "b1", "a2", "b2"]),
        ((None, None, None), (None,), 4, ["a1", "b1", "a2", "a3"]),
        ((0.1, None), (0.9,), 2, ["a1", "b1"]),
        ((0.9, 0.8), (), 5, ["a1", "a2"]),
        ((), (), 5, []),
        ((0.2,), (0.9, 0.8, 0.7), 2, ["b1", "b2"]),
    ],
)
def test_merging(one: tuple[Any, ...], two: tuple[Any, ...], k: int, expected: list[str]) -> None:
    assert [each.text for each in merged([memories(*one, of="a"), memories(*two, of="b")], k)] == expected


async def test_plain_systems_are_as_they_were() -> None:
    memory = Plain()
    searching = retrieval(memory)
    async with searching.ready("two", LOCOMO):
        assert await searching.search("two", LOCOMO, "Who?", 5) == [Memory("Tea.", "1 May 2023", 0.5)]
    assert memory.did == [("ingest", FIRST), ("search", FIRST)]
    assert searching.identity("two", LOCOMO, "Who?", 5) == {
        "system": {"memory": "plain"},
        "user": f"sample-1/{FIRST}",
        "history": "history",
        "query": "Who?",
        "k": 5,
    }, "retrievals from before there were libraries keep their keys"


async def test_identity_of_ingested_memories_holds_their_stores() -> None:
    memory = TwoSpeakers({FIRST: [], SECOND: []})
    locomo = retrieval(memory).identity("two", LOCOMO, "Who?", 5)
    assert locomo["stores"] == [f"digest of {FIRST}", f"digest of {SECOND}"]
    assert locomo["contents"] == [f"memories of {FIRST}", f"memories of {SECOND}"]
    assert locomo != retrieval(memory, protocol="memos").identity("two", LOCOMO, "Who?", 5)
    op = retrieval(memory).identity("two", OP, "Who?", 5)
    assert op["stores"] == [f"digest of {SECOND}"]
    assert op == retrieval(memory, protocol="memos").identity("two", OP, "Who?", 5), "OP-Bench knows one way"


async def test_both_stores_stay_open_while_they_are_searched() -> None:
    memory = TwoSpeakers({FIRST: [], SECOND: []})
    assert await _ready(retrieval(memory), LOCOMO) == [FIRST, SECOND]
    assert memory.held_open == []


async def _ready(searching: Retrieval, instance: Instance) -> list[str]:
    """Who is held open while an instance's memory system is ready."""
    async with searching.ready("two", instance):
        return list(searching._memories["two"].held_open)  # type: ignore[attr-defined]


async def test_a_failed_ingestion_is_why_nothing_is_searched() -> None:
    memory = TwoSpeakers({FIRST: [], SECOND: []})
    failure = ModelError("refused", kind="auth")
    searching = retrieval(memory, {("two", f"sample-1/{SECOND}"): failure})
    with pytest.raises(ModelError) as raised:
        await _ready(searching, LOCOMO)
    assert raised.value is failure
    other = retrieval(memory, {("two", f"sample-1/{FIRST}"): MemoryFault("broken")})
    assert await _ready(other, OP) == [SECOND]
    assert memory.held_open == []
