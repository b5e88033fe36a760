"""Looking calls up: many at a time, and what is found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import event

from opbench.errors import StoreError
from opbench.running.lookups import Lookups
from opbench.store.database import Store, open_store
from opbench.store.writing import CallRow, save_calls

MANY = 1_200  # more than one query's keys


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")


def row(key: str) -> CallRow:
    return CallRow(key, "chat", "m", {"messages": [key]}, f"answer to {key}", "stop", 3, 4, 0.5, 12.0, 2, 99.0, 8)


async def test_what_is_asked_for_together_is_few_queries(store: Store) -> None:
    save_calls(store, [row(f"key {n}") for n in range(0, MANY, 2)])
    asked: list[str] = []
    event.listen(
        store.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *rest: asked.append(statement) if "FROM calls" in statement else None,
    )
    lookups = Lookups(store)
    found = await asyncio.gather(*(lookups.find(f"key {n}") for n in range(MANY)))
    assert [each is not None for each in found] == [n % 2 == 0 for n in range(MANY)]
    assert len(asked) == 3, "500 keys at the most in a query"
    assert found[2] == CallRow("key 2", "chat", "m", None, "answer to key 2", "stop", 3, 4, 0.5, 12.0, 2, 99.0, 8)
    assert await lookups.find("key 4") is not None, "and later ones are found as well"


async def test_one_who_gives_up_leaves_the_others_their_answer(store: Store) -> None:
    save_calls(store, [row("k")])
    lookups = Lookups(store)
    impatient, patient = (asyncio.create_task(lookups.find("k")) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    found = await patient
    assert found is not None
    assert found.response == "answer to k"


async def test_a_store_that_cannot_be_read_is_told_to_all_who_ask(store: Store) -> None:
    lookups = Lookups(store)
    with store.begin() as connection:
        connection.exec_driver_sql("DROP TABLE record_calls")
        connection.exec_driver_sql("DROP TABLE calls")
    told = await asyncio.gather(*(lookups.find(key) for key in "abc"), return_exceptions=True)
    assert [type(each) for each in told] == [StoreError] * 3
    assert "no such table" in str(told[0])
