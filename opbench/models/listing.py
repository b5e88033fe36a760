"""What an endpoint lists as its models."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from opbench.models.failures import Failure, from_exception
from opbench.models.replies import decode


async def served_models(base_url: str, key: str | None, *, timeout_s: float, local: bool) -> list[dict[str, Any]]:
    """The list of the API at `base_url`, asked once. Raises Failure."""
    # Loading it takes a third of a second, and nothing else here needs it.
    import openai

    connection = openai.AsyncOpenAI(
        api_key=key or "none",
        base_url=base_url,
        max_retries=0,
        # A proxy from the environment never stands between us and this machine.
        http_client=openai.DefaultAsyncHttpxClient(timeout=timeout_s, trust_env=not local),
    )
    try:
        async with asyncio.timeout(timeout_s), connection:
            reply = await connection.models.with_raw_response.list()
            listed = decode(reply.text, reply.headers).get("data")
    except (openai.OpenAIError, httpx2.HTTPError, TimeoutError) as error:
        raise from_exception(error) from error
    if not isinstance(listed, list):
        raise Failure("bad_reply", "a list of models without data")
    return [entry for entry in listed if isinstance(entry, dict)]
