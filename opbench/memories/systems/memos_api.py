"""A MemOS server's own HTTP API, as MemOS's LoCoMo evaluation uses it: one `/product/add` a session, `/product/search`.

The server keeps the memories and asks its own models, so calls and tokens aren't counted here. A session that is
delivered twice (an answer that didn't arrive, a process that was killed) doesn't count twice: after each delivery the
memories that the server holds of this session, beyond those that it just answered with, are deleted there.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mitigations.base import Memory
from opbench import addresses
from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories.library import Added, Estimate
from opbench.memories.systems.http import space
from opbench.memories.systems.posting import Poster
from opbench.memories.views import own_view
from opbench.models.failures import storable
from opbench.types import Session, User

_FORMAT = "1"  # raised when the same history would be delivered in another way
_KEPT = "sessions.json"
_TEXT_TYPES = ("LongTermMemory", "UserMemory")
"""What counts as a memory. Its working memory holds copies of these."""


class MemosApi:
    """A MemOS server, as a library."""

    extracts = False
    """It asks its own models; what they cost isn't known here."""

    def __init__(
        self,
        name: str,
        label: str,
        *,
        base_url: str,
        version: str = "",
        key_env: str | None = None,
        timeout_s: float = 120.0,
        mend: str = "the memory registry",
    ) -> None:
        """`base_url` is the server's address before `/product`; `mend` is where its entry stands, for errors."""
        self.name = name
        self.label = label
        self.note = "A MemOS server: its models and settings are its own, and what they cost isn't counted here."
        self._base_url = base_url.rstrip("/")
        self._version = version
        self._key_env = key_env
        self._timeout_s = timeout_s
        self._mend = mend

    def identity(self) -> dict[str, str]:
        return {
            "system": "memos-api",
            "store_format": _FORMAT,
            "base_url": addresses.shown(self._base_url),
            "version": self._version,
            "add": "sync, fine",
            "search": "fast, relativity 0, text memories only",
        }

    async def open(self, folder: Path, user: User, lease: Lease) -> MemosApiStore:
        poster = Poster(
            f"{self.name} {user.id}",
            key_env=self._key_env,
            timeout_s=self._timeout_s,
            mend=self._mend,
            local=addresses.local(self._base_url),
        )
        store = MemosApiStore(poster, folder / _KEPT, user, space(folder), self._base_url)
        try:
            if lease.phase == "ingest":
                await store.clear_unknown()
        except BaseException:
            await store.aclose()
            raise
        return store

    def estimate(self, session: Session, user: User) -> Estimate:
        """Nothing of ours: the server asks its own models."""
        return Estimate(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """A session that the server took in, with the ids of what it made of it."""

    number: int
    day: str
    ids: list[str]


class MemosApiStore:
    """One user's memory cube at the server, under a name that no other user or ingestion has."""

    def __init__(self, poster: Poster, kept: Path, user: User, space: str, base_url: str) -> None:
        self._poster = poster
        self._kept = kept
        self._user = user
        self._base_url = base_url
        self.cube = f"opbench-{space}-{re.sub('[^A-Za-z0-9]+', '-', user.id)}"
        """User id and cube id at the server."""
        told = json.loads(kept.read_text("utf-8")) if kept.exists() else []
        self._delivered = {each["number"]: _Delivered(**each) for each in told}

    async def clear_unknown(self) -> None:
        """Before the first session: delete what an ingestion of the same that was thrown away left at the server."""
        if not self._delivered:
            await self._delete([each["id"] for each in await self._list()])

    async def add(self, session: Session) -> Added:
        when = f"{session.date:%I:%M %p on %d %B, %Y}"  # MemOS's own form
        name = f"session-{session.number}"
        data = await self._ask(
            "/product/add",
            {
                "user_id": self.cube,
                "writable_cube_ids": [self.cube],
                "session_id": name,
                "async_mode": "sync",
                "mode": "fine",
                "messages": [
                    {"role": turn.role, "content": turn.text, "chat_time": when}
                    for turn in own_view(session, self._user)
                ],
            },
        )
        if not isinstance(data, list) or not all(
            isinstance(each, dict) and isinstance(each.get("memory_id"), str) for each in data
        ):
            raise self._fault("answered /product/add without the ids of what it made", "It must be MemOS 2.0.33's API")
        ids = [each["memory_id"] for each in data if each.get("memory_type") in _TEXT_TYPES]
        await self._delete(
            [each["id"] for each in await self._list() if _session(each) == name and each["id"] not in ids]
        )
        self._delivered[session.number] = _Delivered(session.number, session.day, ids)
        self._kept.write_text(json.dumps([asdict(each) for each in self._delivered.values()]), "utf-8")
        return Added(len(ids), 1, int(not ids))

    async def search(self, query: str, k: int) -> list[Memory]:
        if k < 1:
            return []
        data = await self._ask(
            "/product/search",
            {
                "query": query,
                "user_id": self.cube,
                "readable_cube_ids": [self.cube],
                "mode": "fast",
                "top_k": k,
                "relativity": 0,  # its default of 0.45 would drop hits in silence
                "dedup": None,
                "include_preference": False,
                "search_tool_memory": False,
                "include_skill_memory": False,
            },
        )
        days = self._days()
        found: dict[str, Memory] = {}  # by text: its working memory repeats what the others hold
        for each in self._nodes("/product/search", data):
            score = each.get("metadata", {}).get("relativity")
            text = storable(each["memory"])
            found.setdefault(text, Memory(text, self._day(each, days), score if isinstance(score, float) else None))
        return list(found.values())[:k]

    async def memories(self) -> list[Memory]:
        days = self._days()
        order = {identifier: place for place, identifier in enumerate(days)}
        nodes = sorted(await self._list(), key=lambda each: order.get(each["id"], len(order)))
        return [Memory(storable(each["memory"]), self._day(each, days)) for each in nodes]

    async def aclose(self) -> None:
        await self._poster.aclose()

    def _days(self) -> dict[str, str]:
        """The day of each memory that an add answered with, by id, in the order of the sessions."""
        return {
            identifier: self._delivered[number].day
            for number in sorted(self._delivered)
            for identifier in self._delivered[number].ids
        }

    def _day(self, node: dict[str, Any], days: dict[str, str]) -> str | None:
        """The session's day; None for what the server made of several sessions later."""
        if node["id"] in days:
            return days[node["id"]]
        number = (_session(node) or "").removeprefix("session-")
        delivered = self._delivered.get(int(number)) if number.isdecimal() else None
        return delivered.day if delivered else None

    async def _list(self) -> list[dict[str, Any]]:
        """All text memories of the cube."""
        body = {
            "mem_cube_id": self.cube,
            "user_id": self.cube,
            "include_preference": False,
            "include_tool_memory": False,
            "include_skill_memory": False,
        }
        nodes = self._nodes("/product/get_memory", await self._ask("/product/get_memory", body))
        return [each for each in nodes if each.get("metadata", {}).get("memory_type") in _TEXT_TYPES]

    async def _delete(self, ids: list[str]) -> None:
        if ids:
            body = {"writable_cube_ids": [self.cube], "memory_ids": ids}
            data = await self._ask("/product/delete_memory", body)
            if not isinstance(data, dict) or data.get("status") != "success":
                raise self._fault(f"didn't delete {len(ids)} memories of an earlier delivery", "Its log says why")

    async def _ask(self, path: str, body: dict[str, Any]) -> Any:
        """The `data` of the reply."""
        reply = await self._poster.post("base_url", self._base_url + path, body)
        if reply.get("code", 200) != 200:
            said = " ".join(storable(str(reply.get("message", ""))).split())[:200]
            raise self._fault(f"answered {path} with code {reply['code']}: {said}", "Its log says why")
        return reply.get("data")

    def _nodes(self, path: str, data: Any) -> list[dict[str, Any]]:
        """The memories of a reply's `text_mem`."""
        cubes = data.get("text_mem") if isinstance(data, dict) else None
        if isinstance(cubes, list) and all(isinstance(cube, dict) for cube in cubes):
            nodes = [node for cube in cubes for node in cube.get("memories") or []]
            if all(
                isinstance(node, dict)
                and isinstance(node.get("id"), str)
                and isinstance(node.get("memory"), str)
                and isinstance(node.get("metadata", {}), dict)
                for node in nodes
            ):
                return nodes
        raise self._fault(f"answered {path} without text memories", "It must be MemOS 2.0.33's API")

    def _fault(self, said: str, mend: str) -> MemoryFault:
        return MemoryFault(f"{self._user.id}: the MemOS server at {addresses.shown(self._base_url)} {said}. {mend}.")


def _session(node: dict[str, Any]) -> str | None:
    found = node.get("metadata", {}).get("session_id")
    return found if isinstance(found, str) else None
