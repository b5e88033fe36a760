"""What clients without any engine make of the scripted server: plain aiohttp is the floor, SDKs are the anchors.

A sample is one generation and one judge call about it, with prompts like the engine's. Rates are requests per second.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import aiohttp
import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from mitigations.base import Memory
from opbench.judges.packs import load_pack
from opbench.running.response_prompts import response_messages
from tests.speed.made_up_data import text

CONNECTIONS = 64
THREADS = 16
MAX_TOKENS = 512
Messages = list[ChatCompletionMessageParam]
Ask = Callable[[Messages], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Sample:
    """What is asked of one instance. The judge is asked with `judging`, in which `{response}` stands for the answer."""

    generation: Messages
    judging: str

    def judge(self, response: str) -> Messages:
        return [{"role": "user", "content": self.judging.replace("{response}", response)}]


def samples(count: int) -> list[Sample]:
    """Made-up ones, with five memories each."""
    words = random.Random(count)
    template = load_pack("own").texts["irrelevance"]
    made = []
    for _ in range(count):
        question = text(words, 15, "?")
        memories = [Memory(text(words, 22), "1 May 2023") for _ in range(5)]
        system, user = response_messages("op", question, memories)
        generation: Messages = [
            {"role": "system", "content": system.content},
            {"role": "user", "content": user.content},
        ]
        made.append(Sample(generation, template.replace("{question}", question)))
    return made


async def _rate(made: list[Sample], ask: Ask, connections: int) -> float:
    left = iter(made)

    async def one_after_the_other() -> None:
        for sample in left:
            await ask(sample.judge(await ask(sample.generation)))

    start = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(connections)))
    return 2 * len(made) / (time.perf_counter() - start)


async def plain_aiohttp(url: str, made: list[Sample], connections: int = CONNECTIONS) -> float:
    """The floor: requests sent and replies taken apart as anybody does it."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:

        async def ask(messages: Messages) -> str:
            body = {"model": "scripted", "messages": messages, "temperature": 0.0, "max_tokens": MAX_TOKENS}
            async with session.post(f"{url}/chat/completions", json=body) as reply:
                return str((await reply.json())["choices"][0]["message"]["content"])

        return await _rate(made, ask, connections)


async def sdk(url: str, made: list[Sample]) -> float:
    """`AsyncOpenAI` as it comes."""
    async with openai.AsyncOpenAI(api_key="none", base_url=url) as client:

        async def ask(messages: Messages) -> str:
            reply = await client.chat.completions.create(
                model="scripted", messages=messages, temperature=0.0, max_tokens=MAX_TOKENS
            )
            return _said(reply)

        return await _rate(made, ask, CONNECTIONS)


async def sdk_raw_aiohttp(url: str, made: list[Sample]) -> float:
    """The SDK over aiohttp with raw responses."""
    http = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(api_key="none", base_url=url, http_client=http) as client:
        create = client.chat.completions.with_raw_response.create

        async def ask(messages: Messages) -> str:
            reply = await create(model="scripted", messages=messages, temperature=0.0, max_tokens=MAX_TOKENS)
            return str(reply.http_response.json()["choices"][0]["message"]["content"])

        return await _rate(made, ask, CONNECTIONS)


def sdk_threads(url: str, made: list[Sample]) -> float:
    """The synchronous SDK in 16 threads."""
    with openai.OpenAI(api_key="none", base_url=url) as client, ThreadPoolExecutor(THREADS) as threads:

        def ask(messages: Messages) -> str:
            reply = client.chat.completions.create(
                model="scripted", messages=messages, temperature=0.0, max_tokens=MAX_TOKENS
            )
            return _said(reply)

        def do(sample: Sample) -> None:
            ask(sample.judge(ask(sample.generation)))

        start = time.perf_counter()
        for _ in threads.map(do, made):
            pass
        return 2 * len(made) / (time.perf_counter() - start)


def _said(reply: ChatCompletion) -> str:
    return reply.choices[0].message.content or ""
