"""A post-processor that fails as careless code does: its error, and so its traceback, quotes the key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mitigations.base import Ask, Memory, Processed, Search
from mitigations.method import Method
from mitigations.registry import register


class Careless(Method):
    def __init__(self) -> None:
        super().__init__("careless", "filter", "Careless", calls=0)

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        headers: dict[str, Any] = {"Authorization": f"Bearer {os.environ['SOAK_KEY']}"}
        raise RuntimeError(f"401 from the endpoint, sent {headers}, key {os.environ['SOAK_KEY']}")


register(Careless())
