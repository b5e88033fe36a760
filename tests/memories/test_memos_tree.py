"""MemOS's tree_text memory on PostgreSQL by the contract of all memory systems."""

from __future__ import annotations

from typing import Any

import pytest

from opbench.memories.library import Library
from opbench.memories.systems.memos_tree import MemosTreeLibrary
from tests.memories.contract import MemoryContract
from tests.memories.memos_process import all_said, extraction

pytestmark = pytest.mark.usefixtures("one_process")


class TestMemosTree(MemoryContract):
    def make_library(self) -> Library:
        return MemosTreeLibrary()

    def answer(self, body: dict[str, Any]) -> str:
        # A window begins with the last two turns of the one before: what both would give is left out, since a
        # memory that was extracted twice is kept twice and found once.
        lines = all_said(body)
        return extraction(lines if len(lines) < 6 else lines[2:-2])
