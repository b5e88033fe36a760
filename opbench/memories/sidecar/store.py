"""A user's store in MemOS's process, as a `UserStore`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mitigations.base import Memory
from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories.library import Added
from opbench.memories.sidecar.client import Died, Process, Refused, Sidecar
from opbench.memories.views import own_view
from opbench.types import Session, User

CLOSES_WITHIN_S = 15.0
#: What a small model is held to where its endpoint enforces schemas: MemOS's own shape, with bounds.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "memory list": {
            "type": "array",
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "maxLength": 40},
                    "memory_type": {"type": "string", "enum": ["LongTermMemory", "UserMemory"]},
                    "value": {"type": "string", "maxLength": 160},
                    "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 20}},
                },
                "required": ["key", "memory_type", "value", "tags"],
                "additionalProperties": False,
            },
        },
        "summary": {"type": "string", "maxLength": 120},
    },
    "required": ["memory list", "summary"],
    "additionalProperties": False,
}
MAX_TOKENS = 4096
"""Of one extraction; MemOS's default of 8,192 is more than many context windows leave."""


class SidecarStore:
    """One user's memories. The process may die: what only reads is asked again of the next one, which opens the folder
    anew; an `add` that it interrupted fails."""

    def __init__(self, sidecar: Sidecar, kind: str, name: str, folder: Path, user: User, lease: Lease) -> None:
        self._sidecar = sidecar
        self._kind = kind
        self._name = name
        self._folder = folder
        self._user = user
        self._lease = lease
        self._lock = threading.Lock()
        self._opened: tuple[Process, str] | None = None

    async def open(self) -> None:
        """Open the folder now rather than at the first call."""
        try:
            await asyncio.to_thread(self._in_process)
        except (Died, Refused) as error:
            raise self._fault(error) from None

    async def add(self, session: Session) -> Added:
        messages = [{"role": turn.role, "content": turn.text} for turn in own_view(session, self._user)]
        if not messages:
            return Added(0, 0, 0)
        counts = await self._call(
            "add",
            again=False,
            session={
                "number": session.number,
                "day": session.day,
                "date": session.date.isoformat(),
                "chat_time": f"{session.date:%I:%M %p on %d %B, %Y}",  # MemOS's own form
                "messages": messages,
            },
        )
        return Added(**counts)

    async def search(self, query: str, k: int) -> list[Memory]:
        return [_memory(found) for found in await self._call("search", again=True, query=query, k=k)]

    async def memories(self) -> list[Memory]:
        return [_memory(found) for found in await self._call("memories", again=True)]

    async def aclose(self) -> None:
        if self._opened is None:
            return
        process, handle = self._opened
        self._opened = None
        try:
            async with asyncio.timeout(CLOSES_WITHIN_S):
                await asyncio.wrap_future(process.ask("close", store=handle))
        except (Died, Refused, TimeoutError):
            pass  # gone with its process, or as soon as the call that holds it is answered

    async def _call(self, method: str, *, again: bool, **parameters: Any) -> Any:
        try:
            while True:
                process, handle = await asyncio.to_thread(self._in_process)
                try:
                    return await asyncio.wrap_future(process.ask(method, store=handle, **parameters))
                except Died:
                    if not again:
                        raise
                    again = False
        except (Died, Refused) as error:
            self._lease.raise_failure()
            raise self._fault(error) from None

    def _in_process(self) -> tuple[Process, str]:
        """The process that runs and the store's handle in it; opens the store where it isn't open."""
        with self._lock:
            process = self._sidecar.process()
            if self._opened is None or self._opened[0] is not process:
                lease = self._lease
                settings = {
                    "base_url": lease.base_url,
                    "key": lease.key,
                    "model": lease.model,
                    "embedder": lease.embedder,
                    "dimensions": lease.dimensions,
                    "max_tokens": MAX_TOKENS,
                }
                opening: dict[str, Any] = {"kind": self._kind, "folder": str(self._folder), "settings": settings}
                try:
                    opened = process.ask("open", **opening).result()
                except Died:  # it may have ended for idleness just now
                    process = self._sidecar.process()
                    opened = process.ask("open", **opening).result()
                self._opened = (process, opened["store"])
            return self._opened

    def _fault(self, error: Exception) -> MemoryFault:
        what = str(error) if isinstance(error, Refused) else "MemOS's process died"
        line = " ".join(what.replace(self._lease.key, "***").split())[:400]
        return MemoryFault(f"{self._name}, {self._user.id}: {line} (log: {self._sidecar.log})")


def _memory(told: Mapping[str, Any]) -> Memory:
    return Memory(told["text"], told["day"], told["similarity"])
