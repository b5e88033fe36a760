"""Chat completions as they come in and go out: OpenAI's body to a ChatRequest, an answer to OpenAI's reply."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from opbench.gateway.lease import Lease
from opbench.gateway.refusals import Refused
from opbench.models.failures import storable
from opbench.store.writing import CallRow
from opbench.types import ChatRequest, Message, Role

_TEMPERATURE, _MAX_TOKENS = 1.0, 2000  # where the request names none; the first as in OpenAI's API
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
#: A JSON escape: a pair of halves, which is a character; one that no text can hold; any other.
_ESCAPE = re.compile(r"\\(?:u(?i:d[89ab]..\\ud[c-f]..)|(?P<unfit>u(?i:0000|d[89a-f][0-9a-f]{2}))|.)", re.DOTALL)
#: They change nothing of an answer that comes as one text.
IGNORED = frozenset(
    {
        "user",
        "store",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "request_id",
        "session_id",
        "trace_id",
    }
)
#: Asked for what every answer is, or for nothing: the same as not sent.
_NOTHING: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "stop": ([], ""),
}


@dataclass(frozen=True, slots=True)
class Chat:
    """What a client asked, and how it wants the answer."""

    request: ChatRequest
    stream: bool
    usage_apart: bool
    """Streaming: the usage comes in a piece of its own (`stream_options.include_usage`)."""


def read_chat(body: dict[str, Any], lease: Lease, json_schema: bool) -> Chat:
    """The request with the lease's rewriting and, where the model's endpoint enforces it, the lease's schema.

    Raises:
        Refused: naming the key and the mend.
    """
    fields = {
        name: value
        for name, value in body.items()
        if value is not None and name not in IGNORED and not _is_nothing(name, value)
    }
    model = fields.pop("model")
    messages = _messages(fields.pop("messages", None), lease.rewrite)
    stream = _typed(fields.pop("stream", False), "stream", bool, "true or false")
    options = _typed(fields.pop("stream_options", {}), "stream_options", dict, "an object")
    temperature = _number(fields.pop("temperature", _TEMPERATURE), "temperature", 0, 2)
    limits = [fields.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
    limit = next((value for value in limits if value is not None), _MAX_TOKENS)
    if type(limit) is not int or limit < 1:
        raise Refused("max_tokens must be a whole number from 1.", param="max_tokens")
    further = {name: check(fields.pop(name), name) for name, check in _FURTHER.items() if name in fields}
    if fields:
        name = next(iter(fields))
        raise Refused(f"{name} isn't supported by the workbench's gateway. Leave it out.", param=name)
    if lease.schema is not None and json_schema:
        further["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": lease.schema},
        }
    return Chat(
        ChatRequest(model, messages, temperature, limit, further=_canonical(further)),
        stream,
        bool(options.get("include_usage")),
    )


def _is_nothing(name: str, value: Any) -> bool:
    # To Python, True is 1; to a client it isn't.
    return any(value is each or (value == each and type(value) is not bool) for each in _NOTHING.get(name, ()))


def _messages(given: Any, rewrite: Callable[[str], str] | None) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise Refused("messages must be a list of at least one message.", param="messages")
    messages = []
    for place, each in ((f"messages[{number}]", each) for number, each in enumerate(given)):
        role = _ROLES.get(str(each.get("role"))) if isinstance(each, dict) else None
        if role is None:
            roles = ", ".join(_ROLES)
            raise Refused(f"{place}: its role isn't supported; there are {roles}.", param=f"{place}.role")
        if each.get("tool_calls") or each.get("function_call"):
            raise Refused(f"{place}: tool calls aren't supported. Send text.", param=f"{place}.tool_calls")
        text = storable(_text(each.get("content"), f"{place}.content"))
        messages.append(Message(role, rewrite(text) if rewrite else text))
    return tuple(messages)


def _text(content: Any, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(f"{place} must be a text or a list of text parts.", param=place)
    texts = []
    for number, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            where = f"{place}[{number}]"
            raise Refused(f"{where}: only parts of type text are supported.", param=where)
        texts.append(part["text"])
    return "\n".join(texts)


def _typed(value: Any, name: str, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise Refused(f"{name} must be {what}.", param=name)
    return value


def _number(value: Any, name: str, least: float, most: float) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
        raise Refused(f"{name} must be a number from {least:g} to {most:g}.", param=name)
    return float(value)


def _stop(value: Any, name: str) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise Refused(f"{name} must be a text or a list of texts.", param=name)
    return value


def _response_format(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("type") not in ("json_object", "json_schema"):
        raise Refused(f"{name} must be an object of type text, json_object or json_schema.", param=name)
    return value


#: Fields that go to the model's endpoint as they are, with their checks.
_FURTHER: dict[str, Callable[[Any, str], Any]] = {
    "top_p": lambda value, name: _number(value, name, 0, 1),
    "frequency_penalty": lambda value, name: _number(value, name, -2, 2),
    "presence_penalty": lambda value, name: _number(value, name, -2, 2),
    "seed": lambda value, name: _typed(value, name, int, "a whole number"),
    "stop": _stop,
    "response_format": _response_format,
}


def _canonical(further: dict[str, Any]) -> str:
    if not further:
        return ""
    try:
        text = json.dumps(further, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise Refused("response_format holds a number that isn't finite.", param="response_format") from None
    return storable(text)


def usage_of(row: CallRow) -> dict[str, int] | None:
    """The token counts of an answer; None where the endpoint doesn't tell them."""
    if row.prompt_tokens is None or row.completion_tokens is None:
        return None
    return {
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "total_tokens": row.prompt_tokens + row.completion_tokens,
    }


def readable(text: str) -> str:
    """An answer whose JSON gives no characters that no store can keep: halves of characters and NUL, which models
    write as escapes. A library that trips over one would do so again whenever it is given the same answer."""
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["unfit"] else found[0], text)


def reply(row: CallRow) -> dict[str, Any]:
    """The answer as a chat completion."""
    message = {"role": "assistant", "content": readable(row.response), "refusal": None}
    return _head(row, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": row.finish_reason or "stop"}],
        "usage": usage_of(row),
    }


def pieces(row: CallRow, usage_apart: bool) -> Iterator[str]:
    """The answer as server-sent events: all of it in one piece."""
    head = _head(row, "chat.completion.chunk")
    delta = {"role": "assistant", "content": readable(row.response)}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": row.finish_reason or "stop"}
    chunks = [head | {"choices": [choice], "usage": None if usage_apart else usage_of(row)}]
    if usage_apart:
        chunks.append(head | {"choices": [], "usage": usage_of(row)})
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def _head(row: CallRow, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{row.key[:24]}", "object": kind, "created": int(row.made_at), "model": row.model}
