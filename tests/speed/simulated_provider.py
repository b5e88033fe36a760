"""A provider with limits: so many requests and tokens a minute, counted as real ones count them.

`Provider` decides, at times that it is told, so that an hour passes in a second under `virtual_time`. As a program it
is the same behind HTTP: `python -m tests.speed.simulated_provider`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import selectors
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from aiohttp import web

MINUTE_S = 60.0
Counting = Literal["sliding", "minute", "bucket"]
Dialect = Literal["openai", "anthropic", "retry-after", "silent"]


class Account(Protocol):
    """One limit of so much a minute."""

    limit: float

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much would be let through; 0 when it is now."""
        ...

    def count(self, amount: float, now: float) -> None:
        """So much was let through."""
        ...

    def left(self, now: float) -> float:
        """What could be let through now."""
        ...


class Sliding:
    """At most `limit` in any 60 seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._past: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def _forget(self, now: float) -> None:
        while self._past and self._past[0][0] <= now - MINUTE_S:
            self._sum -= self._past.popleft()[1]

    def wait(self, amount: float, now: float) -> float:
        self._forget(now)
        over = self._sum + amount - self.limit
        if over <= 1e-6 or not self._past:
            return 0.0
        for when, past in self._past:
            over -= past
            if over <= 1e-6:
                return when + MINUTE_S - now
        return MINUTE_S

    def count(self, amount: float, now: float) -> None:
        self._past.append((now, amount))
        self._sum += amount

    def left(self, now: float) -> float:
        self._forget(now)
        return max(0.0, self.limit - self._sum)


class ClockMinute:
    """At most `limit` in each minute of the provider's clock, which began `offset_s` before ours."""

    def __init__(self, limit: float, offset_s: float = 17.0) -> None:
        self.limit = limit
        self._offset_s = offset_s
        self._minute = -1
        self._sum = 0.0

    def _turn(self, now: float) -> None:
        minute = int((now + self._offset_s) // MINUTE_S)
        if minute != self._minute:
            self._minute, self._sum = minute, 0.0

    def wait(self, amount: float, now: float) -> float:
        self._turn(now)
        if self._sum + amount <= self.limit or not self._sum:
            return 0.0
        return (self._minute + 1) * MINUTE_S - self._offset_s - now

    def count(self, amount: float, now: float) -> None:
        self._turn(now)
        self._sum += amount

    def left(self, now: float) -> float:
        self._turn(now)
        return max(0.0, self.limit - self._sum)


class Bucket:
    """Fills with `limit` a minute and holds `holds_s` seconds' worth, as OpenAI does with a small one."""

    def __init__(self, limit: float, holds_s: float) -> None:
        self.limit = limit
        self._room = max(1.0, limit * holds_s / MINUTE_S)
        self._level = self._room
        self._at = 0.0

    def _fill(self, now: float) -> None:
        self._level = min(self._room, self._level + (now - self._at) * self.limit / MINUTE_S)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        self._fill(now)
        # More than it holds passes when it is full.
        lacking = min(amount, self._room) - self._level
        return 0.0 if lacking <= 1e-6 else lacking * MINUTE_S / self.limit

    def count(self, amount: float, now: float) -> None:
        self._fill(now)
        self._level -= amount

    def left(self, now: float) -> float:
        self._fill(now)
        return max(0.0, self._level)


def account(counting: Counting, limit: float, holds_s: float) -> Account:
    """A limit counted that way."""
    match counting:
        case "sliding":
            return Sliding(limit)
        case "minute":
            return ClockMinute(limit)
        case "bucket":
            return Bucket(limit, holds_s)


@dataclass
class Provider:
    """Lets requests through or refuses them, and says of its limits what its dialect says."""

    requests_per_minute: float = 500
    tokens_per_minute: float = 100_000
    counting: Counting = "sliding"
    dialect: Dialect = "openai"
    holds_s: float = 1.0
    """Seconds' worth that a bucket of requests holds."""
    token_holds_s: float = 4.0
    """Seconds' worth that a bucket of tokens holds: it must take the largest request."""
    counts_refused: bool = False
    """Whether a refused request counts as a request too."""
    let_through: int = 0
    tokens: float = 0.0
    refused: int = 0
    _accounts: tuple[Account, Account] = field(init=False)

    def __post_init__(self) -> None:
        self._accounts = (
            account(self.counting, self.requests_per_minute, self.holds_s),
            account(self.counting, self.tokens_per_minute, self.token_holds_s),
        )

    def ask(self, tokens: float, now: float, *, ours: bool = True) -> float:
        """Seconds to wait for a refused request; 0 for one that is let through. `ours`: is counted in the ledger."""
        amounts = (1.0, tokens)
        wait = max(one.wait(amount, now) for one, amount in zip(self._accounts, amounts, strict=True))
        if wait > 0:
            self.refused += ours
            if self.counts_refused:
                self._accounts[0].count(1.0, now)
            return wait
        for one, amount in zip(self._accounts, amounts, strict=True):
            one.count(amount, now)
        if ours:
            self.let_through += 1
            self.tokens += tokens
        return 0.0

    def headers(self, wait: float, now: float) -> dict[str, str]:
        """The headers of an answer (wait 0) or of a refusal."""
        told: dict[str, str] = {}
        if self.dialect in ("openai", "anthropic"):
            for what, one in zip(("requests", "tokens"), self._accounts, strict=True):
                left = f"{one.left(now):.0f}"
                if self.dialect == "openai":
                    told |= {f"x-ratelimit-limit-{what}": f"{one.limit:.0f}", f"x-ratelimit-remaining-{what}": left}
                else:
                    told |= {
                        f"anthropic-ratelimit-{what}-limit": f"{one.limit:.0f}",
                        f"anthropic-ratelimit-{what}-remaining": left,
                    }
        if wait > 0 and self.dialect == "openai":
            told["retry-after-ms"] = f"{math.ceil(wait * 1000)}"
        if wait > 0 and self.dialect in ("openai", "anthropic", "retry-after"):
            told["retry-after"] = f"{math.ceil(wait)}"
        return told

    def share(self, seconds: float) -> float:
        """What was let through, of the limit that binds."""
        minutes = seconds / MINUTE_S
        return max(
            self.let_through / self.requests_per_minute / minutes, self.tokens / self.tokens_per_minute / minutes
        )

    @property
    def refused_share(self) -> float:
        """Refused of all requests."""
        return self.refused / max(1, self.refused + self.let_through)


class _Skipping(selectors.DefaultSelector):
    """Instead of waiting it moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and for nothing")
        self.now += timeout
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


T = TypeVar("T")


def virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run it in an event loop whose clock jumps to the next timer. No input or output, no threads."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


def server(provider: Provider, latency_s: tuple[float, float]) -> web.Application:
    """The provider behind the chat API. A request's tokens are a quarter of its body and what it may answer."""
    chance = random.Random(3)

    async def chat(request: web.Request) -> web.Response:
        body: Mapping[str, Any] = await request.json()
        answer = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        prompt = sum(len(str(message["content"])) for message in body["messages"]) // 4
        wait = provider.ask(prompt + answer, time.monotonic())
        headers = provider.headers(wait, time.monotonic())
        if wait > 0:
            error = {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
            return web.json_response({"error": error}, status=429, headers=headers)
        await asyncio.sleep(chance.uniform(*latency_s))
        return web.json_response(
            {
                "model": body.get("model"),
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "1"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer},
            },
            headers=headers,
        )

    async def ledger(_: web.Request) -> web.Response:
        return web.json_response(
            {"let_through": provider.let_through, "refused": provider.refused, "tokens": provider.tokens}
        )

    application = web.Application()
    application.router.add_post("/v1/chat/completions", chat)
    application.router.add_get("/ledger", ledger)
    return application


def main() -> None:
    """Serve it on this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--requests", type=float, default=500)
    parser.add_argument("--tokens", type=float, default=100_000)
    parser.add_argument("--counting", choices=("sliding", "minute", "bucket"), default="sliding")
    parser.add_argument("--dialect", choices=("openai", "anthropic", "retry-after", "silent"), default="openai")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.2, 0.8), metavar="S")
    given = parser.parse_args()
    provider = Provider(given.requests, given.tokens, given.counting, given.dialect)
    web.run_app(server(provider, tuple(given.latency)), host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
