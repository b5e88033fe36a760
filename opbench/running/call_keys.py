"""Keys of the call store: SHA-256 (hex) of the canonical JSON of all that determines an answer."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from opbench.types import ChatRequest


def canonical(value: object) -> str:
    """JSON with sorted keys, without spaces, and with all letters as they are."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def call_key(kind: str, identity: object) -> str:
    """The key of a call of a kind (`chat`, `retrieval`, `embedding`) with what determines its answer."""
    return _sha256(canonical([kind, identity]))


def chat_key(model: str, request: ChatRequest, salt: str) -> str:
    """As `call_key` of a chat: `model` is the canonical JSON of the model's identity, which is long and the same for
    all of a study's calls."""
    messages = ",".join(
        f'{{"content":{encode_basestring(message.content)},"role":{encode_basestring(message.role)}}}'
        for message in request.messages
    )
    # Calls from before there were such fields keep their keys.
    further = f'"further":{encode_basestring(request.further)},' if request.further else ""
    return _sha256(
        f'["chat",{{"model":{model},"request":{{{further}"max_tokens":{_number(request.max_tokens)},'
        f'"messages":[{messages}],"repeat":{_number(request.repeat)},"temperature":{_number(request.temperature)}}},'
        f'"salt":{encode_basestring(salt)}}}]'
    )


def chat_body(request: ChatRequest) -> dict[str, Any]:
    """What of a request determines its answer, beside the model: as `asdict` would give it."""
    body: dict[str, Any] = {
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "repeat": request.repeat,
    }
    if request.further:
        body["further"] = request.further
    return body


# 0 and 0.0 are equal, and written differently.
_number = lru_cache(maxsize=1024, typed=True)(json.dumps)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
