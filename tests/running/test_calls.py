"""Keys of the call store: what was paid for once must be found again by every later version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from opbench.running.call_keys import canonical, chat_body, chat_key
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


@pytest.mark.parametrize("temperature", [0, 0.0, 0.7, 1, 1e-7])
@pytest.mark.parametrize("text", ['Say "a\\b"\n\t\x07\u2028 — Grüße 🍵', "", "\x7f</script>"])
def test_a_chats_key_is_that_of_its_canonical_form(temperature: float, text: str) -> None:
    messages = (Message("system", "Be brief."), Message("user", text))
    for request in (
        ChatRequest("m", messages, temperature, 9, 3),
        ChatRequest("m", messages, temperature, 9, further='{"seed":1}'),
    ):
        body = {
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "temperature": temperature,
            "max_tokens": 9,
            "repeat": request.repeat,
            **({"further": request.further} if request.further else {}),
        }
        wanted = json.dumps(
            ["chat", {"model": IDENTITY, "request": body, "salt": text}],
            sort_keys=True,
            ensure_ascii=False,
            separators=(",", ":"),
        )
        assert chat_key(canonical(IDENTITY), request, text) == hashlib.sha256(wanted.encode()).hexdigest()
        assert chat_body(request) == body


async def test_a_written_call_is_still_at_hand(tmp_path: Path) -> None:
    asked = 0

    async def complete(request: ChatRequest) -> ChatResult:
        nonlocal asked
        asked += 1
        return ChatResult("Hi.", "stop", 1, 1, 1.0)

    store = open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")
    calls = CallStore(store, complete, lambda name: IDENTITY, lambda name, i, o: 0.0, lambda name: 1)
    request = ChatRequest("m", (Message("user", "Hi"),))
    row, _ = await calls.chat(request)
    await calls.keep([row.key])
    assert calls.unwritten([row.key]) == []
    with store.begin() as connection:
        connection.exec_driver_sql("DROP TABLE calls")
    again, reused = await calls.chat(request)
    assert (again, reused, asked) == (row, True, 1), "without a look into the store"
    assert (calls.stats.made, calls.stats.reused) == (1, 1)
