"""An `Ask` for people who have an OpenAI-compatible client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mitigations.base import Ask, Reply


def ask_with(client: Any, model: str, **options: Any) -> Ask:
    """An `Ask` on an `openai.AsyncOpenAI` (or a client with the same methods); `options` go into every request.

    The client's errors go through. Thinking should be off: thoughts eat the token limit. How depends on the server,
    e.g. `extra_body={"chat_template_kwargs": {"enable_thinking": False}}` for Qwen3 behind vLLM.
    """

    async def ask(messages: Sequence[tuple[str, str]], *, max_tokens: int = 512, temperature: float = 0.0) -> Reply:
        started = time.perf_counter()
        sent = [{"role": role, "content": content} for role, content in messages]
        answer = await client.chat.completions.create(
            model=model, messages=sent, max_tokens=max_tokens, temperature=temperature, **options
        )
        duration_ms = (time.perf_counter() - started) * 1000
        choice, usage = answer.choices[0], answer.usage
        return Reply(
            choice.message.content or "",
            choice.finish_reason,
            usage.prompt_tokens if usage else None,
            usage.completion_tokens if usage else None,
            duration_ms,
        )

    return ask
