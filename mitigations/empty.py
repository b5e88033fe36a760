"""Control: an always empty memory. A filter that scores no better might as well keep nothing."""

from __future__ import annotations

from collections.abc import Sequence

from mitigations.base import Ask, Memory, Processed, Search
from mitigations.context import prepare
from mitigations.method import Method


class Empty(Method):
    """Keeps nothing, whatever was retrieved: the response prompt is the no-memory one, so the response is BASE's."""

    response = "nothing"

    def __init__(self, name: str = "empty") -> None:
        super().__init__(name, "control", "Empty memory")

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        return Processed("nothing", (), prepare(memories).memories, reason="control: keeps no memory, ever")
