"""MemOS's `general_text` memory on an embedded Qdrant, one folder a user."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import models  # type: ignore[import-not-found]
from memos.configs.memory import MemoryConfigFactory
from memos.memories.factory import MemoryFactory


class GeneralStore:
    """One user's memories. Writing and searching Qdrant is serialised: its embedded form loses rows otherwise."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._memory: Any = MemoryFactory.from_config(
            MemoryConfigFactory(
                backend="general_text",
                config={
                    "extractor_llm": models.extractor(settings),
                    "embedder": models.embedder(settings),
                    "vector_db": {
                        "backend": "qdrant",
                        "config": {
                            "collection_name": "memories",
                            "path": str(folder / "qdrant"),
                            "vector_dimension": settings["dimensions"],
                            "distance_metric": "cosine",
                        },
                    },
                },
            )
        )
        models.no_retries(self._memory.extractor_llm.client, self._memory.embedder.client)
        self._lock = threading.Lock()

    def add(self, session: dict[str, Any]) -> dict[str, int]:
        items = [item for item in self._extract(session["messages"]) if item.memory.strip()]
        for place, item in enumerate(items):
            item.metadata.session_id = str(session["number"])
            item.metadata.updated_at = session["date"]
            item.metadata.info = {"day": session["day"], "session": session["number"], "place": place}
        if items:
            with self._lock:
                self._memory.add(items)
        return {"memories": len(items), "extractions": 1, "empty": int(not items)}

    def _extract(self, messages: list[dict[str, str]]) -> list[Any]:
        """MemOS's memories of a session; none when it can't read the model's answer, of which it raises whatever
        reading it ran into."""
        answered = False
        generate = self._memory.extractor_llm.generate

        def noting(*arguments: Any, **named: Any) -> Any:
            nonlocal answered
            answer = generate(*arguments, **named)
            answered = True
            return answer

        self._memory.extractor_llm.generate = noting
        try:
            items: list[Any] = self._memory.extract(messages)
        except Exception as error:
            if not answered:
                raise
            print(f"an answer that MemOS can't read: {type(error).__name__}: {error}", flush=True)
            return []
        finally:
            self._memory.extractor_llm.generate = generate
        return items

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        # The two steps of MemOS's `search`, which throws the similarities away.
        vector = self._memory.embedder.embed([query])[0]
        with self._lock:
            hits = self._memory.vector_db.search(vector, k)
        return [_told(hit.payload, hit.score) for hit in sorted(hits, key=lambda hit: hit.score, reverse=True)]

    def memories(self) -> list[dict[str, Any]]:
        with self._lock:
            payloads = [item.payload for item in self._memory.vector_db.get_all(scroll_limit=1000)]
        payloads.sort(key=lambda payload: _order(payload["metadata"]["info"]))
        return [_told(payload, None) for payload in payloads]

    def close(self) -> None:
        with self._lock:
            self._memory.vector_db.client.close()


def _order(info: dict[str, Any]) -> tuple[int, int]:
    return info["session"], info["place"]


def _told(payload: dict[str, Any], similarity: float | None) -> dict[str, Any]:
    return {"text": payload["memory"], "day": payload["metadata"]["info"]["day"], "similarity": similarity}
