"""From the body of a successful response to our values, trusting nothing in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from opbench.models.embeddings import Vectors
from opbench.models.failures import Failure, from_status, storable
from opbench.types import ChatResult

_CHARSET = re.compile(r"""charset=["']?([\w.:-]+)""", re.I)
#: What the store's columns hold: signs, and PostgreSQL's INTEGER.
_LONGEST_REASON, _MOST_TOKENS = 32, 2**31 - 1


def decode(reply: bytes | str, headers: Mapping[str, str], secret: str | None = None) -> dict[str, Any]:
    """The reply's JSON object, without `secret` should the endpoint quote it.

    Raises Failure, also for an error that came with status 200, as some routers send it.
    """
    if isinstance(reply, bytes) and "charset" in headers.get("content-type", ""):
        reply = _text_of(reply, headers)
    if secret is not None:
        reply = _without(reply, secret)
    try:
        data = orjson.loads(reply)
    except orjson.JSONDecodeError:
        data = _leniently(reply if isinstance(reply, str) else _text_of(reply, headers), headers)
    if not isinstance(data, dict):
        raise Failure("bad_reply", f"JSON of type {type(data).__name__}")
    error_body = data.get("error")
    if isinstance(error_body, dict) and not data.get("choices"):
        code = error_body.get("code")
        raise from_status(code if isinstance(code, int) and 400 <= code < 600 else 502, data, headers)
    return data


def _leniently(text: str, headers: Mapping[str, str]) -> Any:
    """JSON with what the fast parser refuses and endpoints send: halves of characters, bytes that aren't UTF-8."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        kind = headers.get("content-type", "no content type")
        raise Failure("bad_reply", f"no JSON but {len(text)} characters of {kind}") from error


def error_body(reply: bytes, headers: Mapping[str, str]) -> object:
    """The JSON value of an unsuccessful reply, or its text when it is none."""
    text = _text_of(reply, headers)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()


def _text_of(reply: bytes, headers: Mapping[str, str]) -> str:
    named = _CHARSET.search(headers.get("content-type", ""))
    try:
        return reply.decode(named[1] if named else "utf-8", "replace")
    except (LookupError, ValueError):
        return reply.decode("utf-8", "replace")


def _without(reply: bytes | str, secret: str) -> bytes | str:
    for written in {secret, secret.replace("/", r"\/")}:
        if isinstance(reply, bytes):
            reply = reply.replace(written.encode(), b"[key]")
        else:
            reply = reply.replace(written, "[key]")
    return reply


def chat_result(data: dict[str, Any], duration_ms: float) -> ChatResult:
    """The chat answer in a reply's JSON. Raises Failure when there is none, or when a filter cut it."""
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Failure("bad_reply", "a reply without choices")
    finish = choice.get("finish_reason")
    if finish == "content_filter":
        raise Failure("content_filter", "finish_reason content_filter")
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return ChatResult(
        text=_text(message),
        finish_reason=storable(finish)[:_LONGEST_REASON] if isinstance(finish, str) else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        duration_ms=duration_ms,
    )


def _text(message: dict[str, Any]) -> str:
    return storable(_raw_text(message))


def _raw_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    if isinstance(content, str):
        return content
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def vectors(data: dict[str, Any], n: int) -> Vectors:
    """Rows in the texts' order, each of length 1. Raises Failure when rows are missing, ragged, or no vectors."""
    try:
        rows = sorted(data["data"], key=lambda row: int(row["index"]))
        matrix = np.asarray([row["embedding"] for row in rows], dtype=np.float32)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise Failure("bad_reply", f"embeddings that can't be read ({type(error).__name__})") from error
    if [int(row["index"]) for row in rows] != list(range(n)) or matrix.ndim != 2:
        raise Failure("bad_reply", f"{len(rows)} embeddings for {n} texts")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise Failure("bad_reply", "an embedding of length 0 or without a finite length")
    return np.asarray(matrix / lengths, dtype=np.float32)


def embedding_tokens(data: dict[str, Any]) -> int | None:
    """Tokens that an embedding request took, as the endpoint counts them; None when it doesn't say."""
    usage = data.get("usage")
    return _count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
