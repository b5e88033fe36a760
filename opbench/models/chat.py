"""A chat request on the wire: its body, and the reply in one piece or streamed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from opbench.models.failures import Failure
from opbench.models.registry import ModelSpec
from opbench.models.replies import decode
from opbench.models.streaming import DONE, Assembly, Hearing, events, lines
from opbench.models.transport import Transport, encoded
from opbench.types import ChatRequest

_PATH = "/chat/completions"
_STREAM_TYPE = "text/event-stream"
_GRACE_S = 0.2
_BEGINNING = 2_000
Told = tuple[dict[str, Any], float, Mapping[str, str]]
"""(the reply's JSON object, ms until it was whole, headers)"""


def chat_body(spec: ModelSpec, request: ChatRequest) -> dict[str, Any]:
    """The request's body as a JSON object."""
    body: dict[str, Any] = {
        "model": spec.served if spec.kind == "endpoint" else spec.name,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "temperature": request.temperature,
        spec.limit_parameter: request.max_tokens,
    }
    if request.temperature > 0:
        body["seed"] = request.repeat
    # Over the fields above; what the registry says of the model comes last.
    if request.further:
        body |= json.loads(request.further)
    body |= spec.extra_body
    return body


def estimated_tokens(request: ChatRequest) -> int:
    """About how many tokens a request takes at most: a quarter of its signs, and all that it may answer.

    So providers count it against tokens a minute before they know the answer's length (OpenAI: the greater of
    max_tokens and an estimate by signs). The counts of the answer correct it afterwards.
    """
    return sum(len(message.content) for message in request.messages) // 4 + request.max_tokens


def beginning(request: ChatRequest) -> str:
    """The part of a prompt that a server's prefix cache may know from the calls before."""
    return "\n".join(message.content for message in request.messages)[:_BEGINNING]


async def in_one_piece(transport: Transport, body: dict[str, Any], secret: str | None) -> Told:
    """Ask for the answer as a whole; `secret` is taken out of it. Raises Failure."""
    data = encoded(body)
    began = time.perf_counter()
    reply, headers = await transport.post(_PATH, data)
    ended = time.perf_counter()
    return decode(reply, headers, secret), (ended - began) * 1000, headers


async def streamed(transport: Transport, body: dict[str, Any], secret: str | None, hearing: Hearing) -> Told:
    """Ask for the answer piece by piece, which `hearing` is told. Raises Failure."""
    data = encoded(body | {"stream": True, "stream_options": {"include_usage": True}})
    began = time.perf_counter()
    async with transport.open(_PATH, data) as reply:
        if _STREAM_TYPE in reply.headers.get("content-type", ""):
            ended, told = await _assembled(lines(reply.chunks()), reply.headers, secret, hearing)
        else:
            # It doesn't stream, and says nothing of it.
            whole = await reply.read()
            ended = time.perf_counter()
            told = decode(whole, reply.headers, secret)
        return told, (ended - began) * 1000, reply.headers


async def _assembled(
    lines: AsyncIterator[str], headers: Mapping[str, str], secret: str | None, hearing: Hearing
) -> tuple[float, dict[str, Any]]:
    """(when the answer was whole, the reply in one piece)."""
    assembly = Assembly(hearing)
    ended = None
    try:
        async with asyncio.timeout(None) as limit:
            async for event in events(lines):
                if ended is not None:
                    continue
                if event.strip() == DONE:
                    assembly.done, ended = True, time.perf_counter()
                    # Read to its end, the connection serves the next request; nobody waits long for that.
                    limit.reschedule(asyncio.get_running_loop().time() + _GRACE_S)
                else:
                    assembly.add(decode(event, headers, secret))
    except (TimeoutError, Failure):
        if ended is None:
            raise
    return ended or time.perf_counter(), assembly.reply()
