"""No mitigation: the memories as retrieved."""

from __future__ import annotations

from collections.abc import Sequence

from mitigations.base import Ask, Memory, Processed, Search
from mitigations.context import prepare
from mitigations.method import Method


class NoMitigation(Method):
    """Passes the memories as retrieved."""

    def __init__(self, name: str = "none") -> None:
        super().__init__(name, "none", "None")

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        return prepare(memories).pass_through()
