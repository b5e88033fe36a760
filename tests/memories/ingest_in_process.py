"""Ingests the sample with a contract's library, in a process that a test may kill: MODULE:CLASS SESSIONS."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

from tests.memories.contract import sample, world


async def main(place: str, sessions: int) -> None:
    module, _, name = place.partition(":")
    contract = getattr(import_module(module), name)()
    user, history = sample(sessions)
    async with world(contract.make_library()) as here:
        await here.memory.fill(user, history)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
