"""A store for what no database does differently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opbench.store.database import Store, open_store


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Store]:
    """A new store on SQLite."""
    opened = open_store(f"sqlite:///{tmp_path / 'lite.sqlite3'}")
    yield opened
    opened.close()
