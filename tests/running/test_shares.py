"""What several processes send an endpoint together: what calls are kept with, and what is said when it is too much."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opbench.commands.run import _tell_of_few_places
from opbench.running.prepare import Prepared, connect, prepare
from opbench.store.database import Store, open_store
from opbench.study import Study
from tests.running.study import STUDY, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")
    yield opened
    opened.close()


def member(home: Path, places: int, of: int) -> Prepared:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint, concurrency=places)
        return prepare(Study(**STUDY), share=of)


@pytest.mark.parametrize(
    ("places", "of", "concurrency", "together"),
    [
        (2, 4, 8, 4),  # a request each, though the entry allows two
        (10, 4, 8, 8),  # two each
        (10, 4, 6, 6),  # no more than records at a time
        (3, 1, 8, 3),
        (8, 1, 6, 6),
    ],
)
async def test_calls_are_kept_with_what_all_processes_send(
    home: Path, store: Store, places: int, of: int, concurrency: int, together: int
) -> None:
    prepared = member(home, places, of)
    assert connect(store, prepared, concurrency, of)._concurrency("scripted") == together
    await prepared.aclose()


async def test_more_workers_than_places_are_told(home: Path) -> None:
    prepared = member(home, 2, 1)
    told: list[str] = []
    _tell_of_few_places(prepared, 2, told.append)
    assert told == []
    _tell_of_few_places(prepared, 3, told.append)
    assert told == [
        "scripted: concurrency = 2 in its registry entry, and 3 workers send it a request each: "
        "take --workers 2, or raise its concurrency"
    ]
    await prepared.aclose()
