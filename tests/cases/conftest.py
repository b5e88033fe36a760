"""A desk, a store and the scripted endpoint, for tests that ask cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opbench.cases.desk import Desk
from opbench.store.database import Store, open_store
from tests.cases.asking import serving
from tests.scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")
    yield opened
    opened.close()


@pytest.fixture
def endpoint(home: Path) -> Iterator[ScriptedEndpoint]:
    with serving(home) as made:
        yield made
