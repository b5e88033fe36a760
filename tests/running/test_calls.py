"""Keys of the call store: what was paid for once must be found again by every later version."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from opbench.running.calls import CallStore
from opbench.store.database import open_store
from opbench.types import ChatRequest, ChatResult, Message

IDENTITY = {"kind": "endpoint", "base_url": "http://h/v1", "served": "m", "extra_body": "{}"}


async def key_of(request: ChatRequest, folder: Path, kind: str = "chat", salt: str = "") -> str:
    async def complete(request: ChatRequest) -> ChatResult:
        return ChatResult("Hi.", "stop", 1, 1, 1.0)

    store = open_store(f"sqlite:///{folder / 's.sqlite3'}")
    try:
        calls = CallStore(store, complete, lambda name: IDENTITY, lambda name, i, o: 0.0, lambda name: 1)
        row, _ = await calls.chat(request, salt, kind=kind)
        await calls.keep([row.key])
        again = CallStore(store, complete, lambda name: IDENTITY, lambda name, i, o: 0.0, lambda name: 1)
        kept, reused = await again.chat(request)
        assert (kept.key, kept.kind, kept.response, reused) == (row.key, kind, "Hi.", True)
        return row.key
    finally:
        store.close()


@pytest.mark.parametrize("kind", ["chat", "library"])
async def test_a_call_without_further_fields_has_the_key_of_before_there_were_any(tmp_path: Path, kind: str) -> None:
    # The canonical form, written out: sorted keys, no spaces.
    canonical = (
        '["chat",{"model":{"base_url":"http://h/v1","extra_body":"{}","kind":"endpoint","served":"m"},'
        '"request":{"max_tokens":9,"messages":[{"content":"Grüße","role":"user"}],"repeat":0,"temperature":0.0},'
        '"salt":""}]'
    )
    request = ChatRequest("m", (Message("user", "Grüße"),), 0.0, 9)
    assert await key_of(request, tmp_path, kind=kind) == hashlib.sha256(canonical.encode()).hexdigest()


async def test_further_fields_are_part_of_the_key(tmp_path: Path) -> None:
    canonical = (
        '["chat",{"model":{"base_url":"http://h/v1","extra_body":"{}","kind":"endpoint","served":"m"},'
        '"request":{"further":"{\\"seed\\":1}","max_tokens":9,"messages":[{"content":"Hi","role":"user"}],'
        '"repeat":0,"temperature":0.0},"salt":""}]'
    )
    request = ChatRequest("m", (Message("user", "Hi"),), 0.0, 9, further='{"seed":1}')
    assert await key_of(request, tmp_path) == hashlib.sha256(canonical.encode()).hexdigest()
