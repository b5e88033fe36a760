"""How near to a provider's limits its endpoint is kept, and how much it refuses: a simulated hour in seconds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

from opbench.models.limits import Limits
from tests.speed.simulated_provider import Counting, Dialect, Provider, virtual_time

REQUESTS, TOKENS = 500, 100_000
#: Simulated seconds: the first are for learning, the rest is counted.
LEARNING_S, COUNTED_S = 300.0, 1_800.0
CONNECTIONS = 64
#: On average more than a request's part of the tokens, or less: tokens bind, or requests do.
LONG, SHORT = (150, 350), (60, 240)
_REFUSED_S = 0.05


@dataclass(frozen=True, slots=True)
class Kept:
    """A provider, and how it was kept busy."""

    name: str
    share: float
    """Let through, of the limit that binds."""
    refused: float
    """Refused, of all requests."""


def measure() -> Iterator[Kept]:
    """Providers that count and tell in their own ways, told their limits beforehand or not."""
    for told in (True, False):
        counting: Counting
        dialect: Dialect
        for counting, dialect in (("sliding", "openai"), ("bucket", "openai"), ("minute", "retry-after")):
            for name, sizes in (("tokens", LONG), ("requests", SHORT)):
                provider = Provider(REQUESTS, TOKENS, counting, dialect)
                virtual_time(_drive(provider, sizes, told))
                known = "told" if told else "not told"
                yield Kept(
                    f"{counting}, {dialect}, {name} bind, limits {known}",
                    provider.share(COUNTED_S),
                    provider.refused_share,
                )


async def _drive(provider: Provider, sizes: tuple[int, int], told: bool) -> None:
    limits = Limits(CONNECTIONS, REQUESTS, TOKENS) if told else Limits(CONNECTIONS, None, None)
    chance = random.Random(4)
    loop = asyncio.get_running_loop()

    async def one_after_the_other() -> None:
        while True:
            tokens = chance.randint(*sizes)
            while not await ask(tokens):
                pass

    async def ask(tokens: int) -> bool:
        async with limits.permit(tokens) as permit:
            wait = provider.ask(tokens, loop.time())
            headers = provider.headers(wait, loop.time())
            seconds = _REFUSED_S if wait else chance.uniform(0.5, 3.0)
            await asyncio.sleep(seconds)
            asked = float(headers["retry-after"]) if "retry-after" in headers else None
            if "retry-after-ms" in headers:
                asked = float(headers["retry-after-ms"]) / 1000
            if wait:
                permit.over("rate_limit", seconds=seconds, tokens=None, headers=headers, wait_s=asked)
            else:
                permit.over("answered", seconds=seconds, tokens=tokens, headers=headers, wait_s=None)
            return not wait

    tasks = [asyncio.create_task(one_after_the_other()) for _ in range(CONNECTIONS)]
    await asyncio.sleep(LEARNING_S)
    provider.let_through, provider.tokens, provider.refused = 0, 0.0, 0
    await asyncio.sleep(COUNTED_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
