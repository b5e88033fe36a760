"""A program: drives Mem0 and MemU from a first session to a search, and prints as JSON what it tried to reach beyond
this machine, and what it found. `python -m tests.memories.drive_in_process FOLDER [MODULE …]`: the modules are imported
first, before anything of ours could set up their surroundings."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from opbench.memories.library import Library
from tests.memories.driven import HISTORY, desk, facts_reply, only_loopback
from tests.scripted_endpoint import ScriptedEndpoint


def main(folder: Path, first: list[str]) -> dict[str, int]:
    """Hits by library."""
    for module in first:
        importlib.import_module(module)
    from opbench.memories.systems.mem0 import Mem0Library
    from opbench.memories.systems.memu import MemuLibrary

    fact = facts_reply("memory", lambda number, line: {"id": str(number), "text": line, "attributed_to": "user"})
    libraries: list[tuple[Library, Any]] = [
        (Mem0Library(), fact),
        (MemuLibrary(), facts_reply("facts", lambda number, line: line)),
    ]
    return {library.name: asyncio.run(_drive(library, reply, folder)) for library, reply in libraries}


async def _drive(library: Library, reply: Any, folder: Path) -> int:
    home = folder / library.name
    with ScriptedEndpoint(reply=reply) as endpoint:
        async with desk(endpoint, home) as at, at.open(library, home / "s") as (store, _):
            for session in HISTORY[:2]:
                await store.add(session)
            return len(await store.search("What about tomorrow, 2024-02-10?", 4))


if __name__ == "__main__":
    with only_loopback() as tried:
        told: dict[str, Any] = {}
        # Registered first, it runs last: what is sent when the process ends is seen too.
        atexit.register(lambda: print(json.dumps(told | {"tried": [str(each) for each in tried]})))
        told["found"] = main(Path(sys.argv[1]), sys.argv[2:])
        atexit._run_exitfuncs()
