"""MemU (https://github.com/NevaMind-AI/memU; on PyPI `memu-cli`): its store and its retrieval, fed by our extractor.

Since 2026 MemU's service asks no language model: the agent that hosts it distils a dialogue into memories, and MemU
stores, embeds and finds them. That agent is here our prompt (prompts/memu_extraction.txt), one call a session.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import threading
from functools import cache
from pathlib import Path
from typing import Any

import openai

from mitigations.base import Memory
from opbench.gateway.lease import Lease
from opbench.memories.library import Added, Estimate, tokens
from opbench.memories.systems.driving import Loop, async_client, fault, installed
from opbench.memories.views import own_view
from opbench.settings import settings
from opbench.types import Session, User

_FORMAT = "1"  # raised when the same history would give another store
_PROMPT = Path(__file__).parent / "prompts" / "memu_extraction.txt"
_MAX_TOKENS = 2000
_FACTS_A_SESSION = 10
_TOKENS_A_FACT = 30
_FILE = "session_"
_REBUILD = "If it stays so, ingest anew: opbench memory reset"
_AGAIN = "The session wasn't kept: ingest again"

#: What an answer must look like. The bounds keep a small model's answer short where a grammar enforces them.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "maxItems": 8, "items": {"type": "string", "minLength": 20, "maxLength": 200}}
    },
    "required": ["facts"],
    "additionalProperties": False,
}

#: Telemetry, events and what it would fetch, all off; its configuration file isn't the person's.
_ENVIRONMENT = {
    "MEMU_TELEMETRY": "0",
    "DO_NOT_TRACK": "1",
    "MEMU_EVENTS_BASE_URL": "",
    "MEMU_TEMPLATE_BASE_URL": "",
    "MEMU_DOCS_BASE_URL": "",
}


class MemuLibrary:
    """MemU with one SQLite file a user, one recall file a session and one segment a fact."""

    name = "memu"
    label = "MemU"
    note = "MemU's store and retrieval, our extractor"

    def identity(self) -> dict[str, str]:
        return {
            "memory": self.name,
            "format": _FORMAT,
            "memu-cli": installed(self.name, "memu-cli"),
            "store": "sqlite, cosine, one file a user",
            "tracks": "memory, one recall file a session",
            "temperature": "0",
            "max_tokens": str(_MAX_TOKENS),
            "prompt": hashlib.sha256(_PROMPT.read_bytes()).hexdigest()[:16],
            "schema": hashlib.sha256(json.dumps(SCHEMA, sort_keys=True).encode()).hexdigest()[:16],
        }

    async def open(self, folder: Path, user: User, lease: Lease) -> MemuStore:
        installed(self.name, "memu-cli")
        lease.schema = SCHEMA
        loop = Loop("memu")
        try:
            service, client = await loop.run(_opened(folder, lease))
        except Exception as error:
            await loop.aclose(_nothing())
            raise fault(self.label, user, lease, error, _REBUILD) from error
        return MemuStore(self.label, user, lease, service, client, loop)

    def estimate(self, session: Session, user: User) -> Estimate:
        """One call a session. Prompt: ours and the session; completion: ten facts of 30 tokens. Embedded: the facts,
        and the session's name with its date. Four characters a token."""
        texts = [turn.text for turn in own_view(session, user)]
        if not texts:
            return Estimate(0, 0, 0, 0)
        made = _FACTS_A_SESSION * _TOKENS_A_FACT
        name = tokens([f"{_FILE}{session.number}: {session.day}"])
        return Estimate(1, tokens([_PROMPT.read_text(encoding="utf-8"), *texts]), made, made + name)


class MemuStore:
    """One user's MemU."""

    def __init__(
        self, label: str, user: User, lease: Lease, service: Any, client: openai.AsyncOpenAI, loop: Loop
    ) -> None:
        self._label = label
        self._user = user
        self._lease = lease
        self._service = service
        self._client = client
        self._loop = loop

    async def add(self, session: Session) -> Added:
        if not session.turns:
            return Added(0, 0, 0)
        calls = self._lease.usage.calls
        try:
            kept = await self._loop.run(self._distil(session))
        except Exception as error:
            self._lease.raise_failure()
            raise fault(self._label, self._user, self._lease, error, _AGAIN) from error
        extractions = self._lease.usage.calls - calls
        return Added(kept, extractions, 0 if kept else extractions)

    async def _distil(self, session: Session) -> int:
        values = {"user": self._user.speaker, "other": self._user.other, "date": session.day}
        reply = await self._client.chat.completions.create(
            model=self._lease.model,
            messages=[
                {"role": "system", "content": _filled(values)},
                {"role": "user", "content": "\n".join(turn.text for turn in own_view(session, self._user))},
            ],
            temperature=0,
            max_tokens=_MAX_TOKENS,
        )
        facts = read_facts(reply.choices[0].message.content or "")
        if facts:
            file = {
                "name": f"{_FILE}{session.number}",
                "track": "memory",
                "description": session.day,
                "content": "\n".join(facts),
            }
            await self._service.commit_results(recall_files=[file], user={"user_id": self._user.id})
        return len(facts)

    async def search(self, query: str, k: int) -> list[Memory]:
        """At most k memories by the cosine similarity of their embeddings, which is all that ranks."""
        if k <= 0 or not query.strip():
            return []
        try:
            found = await self._loop.run(self._retrieve(query, k))
        except Exception as error:
            self._lease.raise_failure()
            raise fault(self._label, self._user, self._lease, error, _REBUILD) from error
        return found

    async def _retrieve(self, query: str, k: int) -> list[Memory]:
        # The number of hits is a setting of the whole service, and several searches may be under way.
        service = copy.copy(self._service)
        service.progressive_retrieve_config = _retrieval(k)
        found = await service.progressive_retrieve(query, where={"user_id": self._user.id})
        days = {file["id"]: file["description"] for file in found["files"]}
        return [
            Memory(one["text"], days[one["recall_file_id"]], round(float(one["score"]), 6)) for one in found["segments"]
        ]

    async def memories(self) -> list[Memory]:
        return await self._loop.run(self._listed())

    async def _listed(self) -> list[Memory]:
        where = {"user_id": self._user.id}
        store = self._service.database
        files = store.recall_file_repo.list_recall_files(where)
        numbers = {key: int(file.name.removeprefix(_FILE)) for key, file in files.items()}
        segments = store.recall_file_segment_repo.list_segments(where)
        segments.sort(key=lambda one: (numbers[one.recall_file_id], one.created_at))
        return [Memory(one.text, files[one.recall_file_id].description) for one in segments]

    async def aclose(self) -> None:
        await self._loop.aclose(self._close())

    async def _close(self) -> None:
        await self._client.close()
        self._service.database.close()


def read_facts(answer: str) -> list[str]:
    """The facts of an answer as lines that MemU keeps, each once: it skips blank lines and those that begin with `#`,
    which are headings to it. Empty when the answer can't be read."""
    found = re.search(r"\{.*\}", re.sub(r"<think>.*?</think>", "", answer, flags=re.DOTALL), re.DOTALL)
    try:
        facts = json.loads(found[0], strict=False)["facts"] if found else []
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    if not isinstance(facts, list):
        return []
    lines = [re.sub(r"^[#\s]+", "", " ".join(fact.split())) for fact in facts if isinstance(fact, str)]
    return list(dict.fromkeys(line for line in lines if line))


def _filled(values: dict[str, str]) -> str:
    """The prompt. Filled in one pass, so that a name with braces stays a name."""
    text = _PROMPT.read_text(encoding="utf-8").strip()
    return re.sub(r"\{(user|other|date)\}", lambda match: values[match[1]], text)


def _retrieval(k: int) -> Any:
    return _library().app.ProgressiveRetrieveConfig.model_validate(
        {"file": {"top_k": k, "tracks": ["memory"]}, "resource": {"enabled": False}}
    )


async def _opened(folder: Path, lease: Lease) -> tuple[Any, openai.AsyncOpenAI]:
    """The library's own object, opened on `folder`, and the client that it embeds with."""
    service = _service(folder, lease)
    embedding = service._get_embedding_client("embedding")
    # Its own would try again what the gateway has given up, and go through MEMU_HTTP_PROXY.
    await embedding.client.close()
    embedding.client = async_client(lease)
    return service, embedding.client


def _service(folder: Path, lease: Lease) -> Any:
    memu = _library()
    folder.mkdir(parents=True, exist_ok=True)
    database = {"metadata_store": {"provider": "sqlite", "dsn": f"sqlite:///{folder / 'memu.sqlite3'}"}}
    profile = {
        "provider": "openai",
        "base_url": lease.base_url,
        "api_key": lease.key,
        "embed_model": lease.embedder,
    }
    with _building:
        return memu.MemoryService(database_config=database, embedding_profiles={"default": profile})


async def _nothing() -> None:
    pass


_import = threading.Lock()
#: It makes its tables' classes once for all stores, without a lock.
_building = threading.Lock()


@cache
def _imported() -> Any:
    os.environ.update(_ENVIRONMENT)
    os.environ["MEMU_CONFIG_ENV"] = str(settings().cache / "memu" / "config.env")
    import memu
    import memu.app

    return memu


def _library() -> Any:
    """The module, imported so that nothing of it leaves the machine or reads the person's home."""
    with _import:
        return _imported()
