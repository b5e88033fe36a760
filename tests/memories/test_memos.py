"""MemOS's general_text memory by the contract of all memory systems."""

from __future__ import annotations

from typing import Any

import pytest

from opbench.memories.library import Library
from opbench.memories.systems.memos import MemosLibrary
from tests.memories.contract import MemoryContract
from tests.memories.memos_process import all_said, extraction

pytestmark = pytest.mark.usefixtures("one_process")


class TestMemos(MemoryContract):
    def make_library(self) -> Library:
        return MemosLibrary()

    def answer(self, body: dict[str, Any]) -> str:
        return extraction(all_said(body))
