"""Anyone's own memory system behind two addresses: one takes in a session, one searches (docs/memory-systems.md).

    POST ingest  {"id", "user", "speaker", "other", "session": {"number", "date", "messages": [{"role", "name",
                  "content"}]}}  ->  {"memories": 7} or {"memories": [{"text", "date"}]}
    POST search  {"user", "query", "k"}  ->  {"memories": [{"text", "score", "date"}], "count": 61}

The server keeps the memories. What we keep of a user is what it told of every session, so that a session that it
took in counts, and a server that lost its memories is found out. An id is the same whenever a session of an ingestion
is sent again: a server that has it changes nothing and answers as before.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mitigations.base import Memory
from opbench import addresses
from opbench.errors import MemoryFault
from opbench.gateway.lease import Lease
from opbench.memories.library import Added, Estimate
from opbench.memories.manifest import OPEN
from opbench.memories.systems.posting import Poster
from opbench.memories.views import own_view
from opbench.models.failures import storable
from opbench.types import Session, User

LONGEST_MEMORY = 100_000
"""Most characters of one memory."""
_MOST_MEMORIES = 10_000
_KEPT = "sessions.json"


class Http:
    """A memory server, as a library."""

    extracts = False
    """It asks its own models; what they cost isn't known here."""

    def __init__(
        self,
        name: str,
        label: str,
        *,
        ingest_url: str,
        search_url: str,
        version: str,
        key_env: str | None,
        timeout_s: float,
        mend: str,
    ) -> None:
        """`mend` is where its entry stands, for errors."""
        self.name = name
        self.label = label
        self.note = "Another's server: what its own models cost isn't counted here."
        self._ingest_url = ingest_url
        self._search_url = search_url
        self._version = version
        self._key_env = key_env
        self._timeout_s = timeout_s
        self._mend = mend

    def identity(self) -> dict[str, str]:
        return {
            "system": "http",
            "format": "1",
            "ingest_url": addresses.shown(self._ingest_url),
            "search_url": addresses.shown(self._search_url),
            "version": self._version,
        }

    async def open(self, folder: Path, user: User, lease: Lease) -> HttpStore:
        poster = Poster(
            f"{self.name} {user.id}",
            key_env=self._key_env,
            timeout_s=self._timeout_s,
            mend=self._mend,
            local=addresses.local(self._ingest_url) and addresses.local(self._search_url),
        )
        store = HttpStore(
            poster, folder / _KEPT, user, space(folder), ingest_url=self._ingest_url, search_url=self._search_url
        )
        try:
            await store.check(whole=lease.phase == "search")
        except BaseException:
            await store.aclose()
            raise
        return store

    def estimate(self, session: Session, user: User) -> Estimate:
        """Nothing of ours: the server asks its own models."""
        return Estimate(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Told:
    """What the server told of a session. `texts` are [text, ISO date] pairs, None when it told a number only."""

    number: int
    day: str
    date: str
    memories: int
    texts: list[list[str]] | None
    began: str
    """The session's first words: a query that must find something if the server still has the session."""


class HttpStore:
    """One user's memories at the server, under a name that no other user or ingestion has."""

    def __init__(self, poster: Poster, kept: Path, user: User, space: str, *, ingest_url: str, search_url: str) -> None:
        self._poster = poster
        self._kept = kept
        self._user = user
        self._name = f"{space}/{user.id}"
        self._ingest_url = ingest_url
        self._search_url = search_url
        self._told = [_Told(**each) for each in json.loads(kept.read_text("utf-8"))] if kept.exists() else []

    async def check(self, *, whole: bool) -> None:
        """See that the server still has what it took in; and no more, when the `whole` history is in.

        Before that it may have more: a session that was in flight when a process was killed.

        Raises:
            MemoryFault: it has nothing of it, or another number.
        """
        last = next((told for told in reversed(self._told) if told.memories), None)
        if last is None:
            return
        reply = await self._ask_search(last.began, 1)
        told = sum(each.memories for each in self._told)
        count = reply.get("count")
        if count is not None and not (isinstance(count, int) and (count == told or (count > told and not whole))):
            raise self._fault(f"holds {count!r} memories of this user and told of {told} when it took them in", True)
        if not reply["memories"]:
            raise self._fault(f"finds nothing of the {told} memories that it told of when it took them in", True)

    async def add(self, session: Session) -> Added:
        began = self._probe(session)
        reply = await self._poster.post(
            "ingest_url",
            self._ingest_url,
            {
                "id": hashlib.sha256(f"{self._name}\0{session.number}".encode()).hexdigest()[:32],
                "user": self._name,
                "speaker": self._user.speaker,
                "other": self._user.other,
                "session": {
                    "number": session.number,
                    "date": session.date.date().isoformat(),
                    "messages": [
                        {"role": turn.role, "name": turn.speaker, "content": turn.text}
                        for turn in own_view(session, self._user)
                    ],
                },
            },
        )
        memories = reply.get("memories")
        years = {*self._years(), session.date.year}
        texts: list[list[str]] | None = None
        if isinstance(memories, list):
            if len(memories) > _MOST_MEMORIES:
                raise self._fault(f"answered ingest with {len(memories):,} memories, more than {_MOST_MEMORIES:,}")
            days = session.date.date()
            texts = [
                [memory.text, (when or days).isoformat()]
                for memory, when in (self._memory("ingest", each, years) for each in memories)
            ]
            count = len(texts)
        elif isinstance(memories, int) and not isinstance(memories, bool) and 0 <= memories <= _MOST_MEMORIES:
            count = memories
        else:
            raise self._fault(
                f"answered ingest without memories as a list or a number from 0 to {_MOST_MEMORIES:,}: {_short(reply)}"
            )
        told = _Told(session.number, session.day, session.date.date().isoformat(), count, texts, began)
        self._told = [*(each for each in self._told if each.number != session.number), told]
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        self._kept.write_text(json.dumps([asdict(each) for each in self._told], ensure_ascii=False), "utf-8")
        return Added(count, 1, 0 if count else 1)

    async def search(self, query: str, k: int) -> list[Memory]:
        if not self._told:
            return []
        reply = await self._ask_search(query, k)
        years = self._years()
        return [self._memory("search", each, years)[0] for each in reply["memories"]]

    async def memories(self) -> list[Memory]:
        """As the server told them; of a session of which it told a number only, so many lines that say that."""
        found = []
        for told in self._told:
            if told.texts is None:
                found += [Memory(f"(session {told.number}: the server tells no texts)", told.day)] * told.memories
            else:
                found += [Memory(text, _prose(date.fromisoformat(day))) for text, day in told.texts]
        return found

    async def aclose(self) -> None:
        await self._poster.aclose()

    async def _ask_search(self, query: str, k: int) -> dict[str, Any]:
        """The search's reply, whose `memories` is a list of at most k."""
        body = {"user": self._name, "query": query, "k": k}
        reply = await self._poster.post("search_url", self._search_url, body)
        memories = reply.get("memories")
        if not isinstance(memories, list):
            raise self._fault(f"answered search without a list of memories: {_short(reply)}")
        if len(memories) > k:
            raise self._fault(f"answered search with {len(memories):,} memories, and was asked for at most {k}")
        return reply

    def _memory(self, what: str, value: object, years: set[int]) -> tuple[Memory, date | None]:
        """A memory of a reply, with its date as a date too."""
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            raise self._fault(f"answered {what} with a memory that has no text: {_short(value)}")
        text = storable(value["text"]).strip()
        if not text:
            raise self._fault(f"answered {what} with an empty memory")
        if len(text) > LONGEST_MEMORY:
            raise self._fault(
                f"answered {what} with a memory of {len(text):,} characters, more than {LONGEST_MEMORY:,}"
            )
        score = value.get("score")
        if score is not None and (
            isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score)
        ):
            raise self._fault(f"answered {what} with the score {_short(score)}, which is no number")
        when = self._date(what, value.get("date"), years)
        return Memory(text, None if when is None else _prose(when), None if score is None else float(score)), when

    def _date(self, what: str, value: object, years: set[int]) -> date | None:
        if value is None:
            return None
        try:
            when = date.fromisoformat(value[:10]) if isinstance(value, str) else None
        except ValueError:
            when = None
        if when is None:
            raise self._fault(f"answered {what} with the date {_short(value)}: a date is written 2023-05-08")
        if not min(years) <= when.year <= max(years):
            raise self._fault(
                f"answered {what} with the date {when.isoformat()}, but the history is of {_span(years)}: a memory has "
                "the date of its session, not today's"
            )
        return when

    def _years(self) -> set[int]:
        return {date.fromisoformat(told.date).year for told in self._told}

    def _probe(self, session: Session) -> str:
        return session.turns[0].text[:200] if session.turns else self._user.speaker

    def _fault(self, said: str, lost: bool = False) -> MemoryFault:
        mend = (
            "Give it back what it had; or clear this user there too, and build the memories anew"
            if lost
            else "docs/memory-systems.md says what it must answer"
        )
        return MemoryFault(f"{self._name.split('/', 1)[1]}: the memory server {said}. {mend}.")


def space(folder: Path) -> str:
    """A name of the ingestion to which a store's folder belongs: no two have the same.

    It is the same in every process and at every try, since a session in flight when a process is killed is sent again.
    """
    for each in folder.parents:
        if each.name == OPEN:
            return each.parent.name
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def _prose(when: date) -> str:
    return f"{when.day} {when:%B %Y}"


def _span(years: set[int]) -> str:
    return f"{min(years)}" if len(years) == 1 else f"{min(years)} to {max(years)}"


def _short(value: object) -> str:
    """A value of a reply in an error: one line, short."""
    text = " ".join(storable(json.dumps(value, ensure_ascii=False, default=str)).split())
    return text if len(text) <= 80 else f"{text[:79]}…"
