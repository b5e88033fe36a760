"""No mitigation, and the control that a filter has to beat: an always empty memory."""

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


class DropAll(Method):
    """Always keeps nothing: what a filter scores that abstains every time."""

    def __init__(self, name: str = "drop-all") -> None:
        super().__init__(name, "none", "Empty memory")

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        return Processed("nothing", (), prepare(memories).memories, reason="drop-all keeps no memory")
