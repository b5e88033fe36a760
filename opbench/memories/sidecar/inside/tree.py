"""MemOS's `tree_text` memory on PostgreSQL with pgvector: a schema for each open store.

The folder holds its two tables as PostgreSQL copies them out (text, every bit of a vector kept), read when a store is
opened and written after each `add`; the server and its data are this process's and gone with it.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models  # type: ignore[import-not-found]
import psycopg2
from memos.configs.mem_reader import MemReaderConfigFactory
from memos.configs.memory import MemoryConfigFactory
from memos.graph_dbs.postgres import PostgresGraphDB
from memos.mem_reader import simple_struct
from memos.memories.factory import MemoryFactory

USER = "user"
"""MemOS's name of the one user in a schema."""
ROOM = 1_000_000
"""Memories of each sort that MemOS may keep: more than any history gives."""
TABLES = {
    "memories": "id, memory, properties, embedding, user_name, created_at, updated_at",
    "edges": "source_id, target_id, edge_type, created_at",
}
#: Searches at once in this process: each takes about five connections, and MemOS fails when its pool is empty.
SEARCHES = threading.BoundedSemaphore(8)
CONNECTIONS = 48


def _decoded(parse_row: Any) -> Any:
    """Upstream fault: embeddings come back from PostgreSQL as text, and the reranker then gives every hit 0.5."""

    def parse(self: Any, row: Any, include_embedding: bool = False) -> dict[str, Any]:
        node: dict[str, Any] = parse_row(self, row, include_embedding)
        if isinstance(node["metadata"].get("embedding"), str):
            node["metadata"]["embedding"] = json.loads(node["metadata"]["embedding"])
        return node

    return parse


PostgresGraphDB._parse_row = _decoded(PostgresGraphDB._parse_row)


class _NoChunker:
    """Documents are chunked, conversations aren't; MemOS's chunkers need packages and a download for nothing."""

    def __init__(self, config: Any) -> None:
        self.config = config


simple_struct.ChunkerFactory.from_config = staticmethod(lambda factory: _NoChunker(factory.config))


@dataclass
class Extraction:
    """An answer of the extractor."""

    read: bool
    """Whether MemOS could read it."""
    memories: int = 0
    """Memories that MemOS made of it."""


class Reader(simple_struct.SimpleStructMemReader):  # type: ignore[misc]
    """MemOS's reader, which counts its extractions and leaves memories without text out."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._here = threading.local()
        self._extractions: list[Extraction] = []

    def counted(self) -> tuple[int, int]:
        """Extractions since the last time, and of these the ones that gave no memory."""
        with self._lock:
            done, self._extractions = self._extractions, []
        return len(done), sum(not (each.read and each.memories) for each in done)

    def _safe_parse(self, text: str | None) -> dict[str, Any] | None:
        read: Any = super()._safe_parse(text)
        # Without an answer that it can read MemOS stores the turns themselves: counted as empty all the same.
        extraction = self._here.extraction = Extraction(isinstance(read, dict) and bool(read))
        with self._lock:
            self._extractions.append(extraction)
        told: dict[str, Any] | None = read
        return told

    def _make_memory_item(self, value: str, *arguments: Any, **named: Any) -> Any:
        if not value.strip():
            raise ValueError("a memory without text")  # logged by MemOS, which goes on with the next
        item = super()._make_memory_item(value, *arguments, **named)
        self._here.extraction.memories += 1  # MemOS makes an answer's memories in the thread that read it
        return item


class TreeStore:
    """One user's memories."""

    def __init__(self, folder: Path, settings: dict[str, Any], postgres: Any, schema: str) -> None:
        self._folder = folder
        self._postgres = postgres
        self._schema = schema
        self._memory: Any = MemoryFactory.from_config(
            MemoryConfigFactory(
                backend="tree_text",
                config={
                    "extractor_llm": models.extractor(settings),
                    "dispatcher_llm": models.extractor(settings),
                    "embedder": models.embedder(settings),
                    "graph_db": {
                        "backend": "postgres",
                        "config": {
                            **postgres.address(),
                            "schema_name": schema,
                            "user_name": USER,
                            "embedding_dimension": settings["dimensions"],
                            "maxconn": CONNECTIONS,
                        },
                    },
                    "memory_size": {"WorkingMemory": 20, "LongTermMemory": ROOM, "UserMemory": ROOM},
                    "reorganize": False,
                    "include_embedding": True,
                },
            )
        )
        config = MemReaderConfigFactory(
            backend="simple_struct",
            config={
                "llm": models.extractor(settings),
                "embedder": models.embedder(settings),
                "chunker": {"backend": "sentence", "config": {}},
            },
        ).config
        self._reader = Reader(config)
        models.no_retries(
            self._memory.extractor_llm.client,
            self._memory.dispatcher_llm.client,
            self._memory.embedder.client,
            self._reader.llm.client,
            self._reader.embedder.client,
        )
        self._lock = threading.Lock()
        self._load()
        self._held = self._count()

    def add(self, session: dict[str, Any]) -> dict[str, int]:
        with self._lock:
            before = self._held
            self._reader.counted()
            # Without a chat_time MemOS writes the present time into the prompt.
            messages = [{**message, "chat_time": session["chat_time"]} for message in session["messages"]]
            info = {"user_id": USER, "session_id": str(session["number"])}
            groups = self._reader.get_memory([messages], type="chat", info=info, mode="fine") if messages else []
            # They come in the order in which the model answered.
            said = {message["content"]: place for place, message in reversed(list(enumerate(messages)))}
            groups = [group for group in groups if group]
            groups.sort(key=lambda group: said.get(group[0].metadata.sources[0].content, 0))
            items = [item for group in groups for item in group]
            for place, item in enumerate(items):
                item.metadata.created_at = session["date"]
                item.metadata.info = {"day": session["day"], "session": session["number"], "place": place}
            kept = self._memory.add(items, user_name=USER)
            self._held = self._count()
            added = self._held - before
            if added != len(kept):
                raise RuntimeError(f"PostgreSQL took {added} of {len(kept)} memories (MemOS logs why and goes on)")
            self._dump()
            extractions, empty = self._reader.counted()
            return {"memories": added, "extractions": extractions, "empty": empty}

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        # MemOS cuts to k and drops repeated texts afterwards: ask for more until k of different text are there.
        asked = 2 * k
        while True:
            with SEARCHES:
                found = self._memory.search(
                    query, asked, mode="fast", user_name=USER, info={"user_id": "", "session_id": ""}
                )
            if len(found) >= k or asked >= self._held:
                return [_told(item.memory, item.metadata.info, item.metadata.relativity) for item in found[:k]]
            asked *= 4

    def memories(self) -> list[dict[str, Any]]:
        nodes = self._memory.graph_store.export_graph(user_name=USER)["nodes"]
        nodes.sort(key=lambda node: (node["metadata"]["info"]["session"], node["metadata"]["info"]["place"]))
        return [_told(node["memory"], node["metadata"]["info"], None) for node in nodes]

    def close(self) -> None:
        with self._lock:
            self._memory.graph_store.close()
            self._run(f"DROP SCHEMA {self._schema} CASCADE")

    # --- the folder's tables ----------------------------------------------------------------------------------------

    def _load(self) -> None:
        with self._connection() as connection, connection.cursor() as cursor:
            for table, columns in TABLES.items():
                path = self._folder / f"{table}.copy"
                if path.exists():
                    with path.open("rb") as file:
                        cursor.copy_expert(f"COPY {self._schema}.{table} ({columns}) FROM STDIN", file)

    def _dump(self) -> None:
        with self._connection() as connection, connection.cursor() as cursor:
            for table, columns in TABLES.items():
                path = self._folder / f"{table}.copy"
                part = path.with_suffix(".part")
                with part.open("wb") as file:
                    # ctid is the order of the rows, which decides between equals.
                    query = f"SELECT {columns} FROM {self._schema}.{table} ORDER BY ctid"
                    cursor.copy_expert(f"COPY ({query}) TO STDOUT", file)
                part.replace(path)

    def _count(self) -> int:
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {self._schema}.memories")
            return int(cursor.fetchone()[0])

    def _run(self, statement: str) -> None:
        with self._connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def _connection(self) -> Any:
        return _Connection(self._postgres)


class _Connection:
    """A connection for one block: committed and closed after it."""

    def __init__(self, postgres: Any) -> None:
        address = postgres.address()
        self._connection: Any = psycopg2.connect(
            host=address["host"], port=address["port"], user=address["user"], dbname=address["db_name"]
        )

    def __enter__(self) -> Any:
        return self._connection

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._connection.commit()
        self._connection.close()


def _told(text: str, info: dict[str, Any], similarity: float | None) -> dict[str, Any]:
    return {"text": text, "day": info["day"], "similarity": similarity}
