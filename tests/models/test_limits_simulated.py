"""Providers with limits, and endpoints that slow down, over simulated minutes and hours."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest

from opbench.models.failures import retry_after
from opbench.models.limits import Limits, Outcome
from tests.speed.simulated_provider import Counting, Dialect, Provider, virtual_time

UNKNOWN = (None, None)
LIMITS = (500.0, 100_000.0)
REQUESTS_BIND, BOTH_BIND, TOKENS_BIND = 150, 200, 400
"""Mean tokens of a request; at 200 the 500 requests are the 100,000 tokens."""

HeadersOf = Callable[[Provider, float, float], Mapping[str, str]]


@dataclass
class Study:
    """What is asked: closed loops of workers, each with one request after the other."""

    mean: int = REQUESTS_BIND
    even: bool = False
    """Whether all requests have the same size; else lognormal, with a deviation as large as the mean."""
    minutes: float = 10
    at_most: int = 64
    told: tuple[float | None, float | None] = UNKNOWN
    processes: int = 1
    other_per_minute: float = 0
    """Requests that somebody else sends to the same provider."""
    headers: HeadersOf = Provider.headers

    def ask(self, provider: Provider) -> tuple[float, float]:
        """(share of the binding limit that was used, share of the requests that were refused)."""
        virtual_time(self._run(provider))
        return provider.share(self.minutes * 60), provider.refused_share

    async def _run(self, provider: Provider) -> None:
        loop = asyncio.get_running_loop()
        end = self.minutes * 60
        chance = random.Random(1)

        def size() -> int:
            if self.even:
                return self.mean
            return max(
                20, min(4000, int(chance.lognormvariate(math.log(self.mean) - math.log(2) / 2, math.log(2) ** 0.5)))
            )

        async def request(limits: Limits, tokens: int) -> bool:
            async with limits.permit(tokens) as permit:
                began = loop.time()
                if began >= end:
                    return True
                await asyncio.sleep(chance.uniform(0.005, 0.06))
                wait = provider.ask(tokens, loop.time())
                headers = self.headers(provider, wait, loop.time())
                outcome: Outcome = "rate_limit" if wait else "answered"
                await asyncio.sleep(chance.uniform(0.005, 0.06) if wait else chance.uniform(0.6, 1.4))
                permit.over(
                    outcome,
                    seconds=loop.time() - began,
                    tokens=None if wait else tokens,
                    headers=headers,
                    wait_s=retry_after(headers) if wait else None,
                )
                return not wait

        async def worker(limits: Limits) -> None:
            while loop.time() < end:
                tokens = size()
                while not await request(limits, tokens):
                    pass

        async def somebody_else() -> None:
            while self.other_per_minute:
                await asyncio.sleep(60 / self.other_per_minute)
                provider.ask(size(), loop.time(), ours=False)

        other = asyncio.create_task(somebody_else())
        processes = [Limits(self.at_most, *self.told, share=self.processes) for _ in range(self.processes)]
        await asyncio.gather(*(worker(limits) for limits in processes for _ in range(self.at_most // self.processes)))
        other.cancel()


@pytest.mark.parametrize("counting", ["sliding", "minute", "bucket"])
@pytest.mark.parametrize("mean", [REQUESTS_BIND, BOTH_BIND, TOKENS_BIND])
@pytest.mark.parametrize(("dialect", "told"), [("silent", LIMITS), ("openai", UNKNOWN)], ids=["told", "headers"])
def test_told_its_limits_it_keeps_to_them(
    counting: Counting, mean: int, dialect: Dialect, told: tuple[float | None, float | None]
) -> None:
    share, refused = Study(mean, minutes=5, told=told).ask(Provider(counting=counting, dialect=dialect))
    assert share >= 0.95
    assert refused <= 0.002


@pytest.mark.parametrize("counting", ["sliding", "minute", "bucket"])
@pytest.mark.parametrize("mean", [REQUESTS_BIND, TOKENS_BIND])
def test_untold_it_learns_its_limits_from_refusals(counting: Counting, mean: int) -> None:
    share, refused = Study(mean).ask(Provider(counting=counting, dialect="retry-after"))
    assert share >= 0.95
    assert refused <= 0.01


@pytest.mark.parametrize("counting", ["sliding", "minute", "bucket"])
def test_refused_without_a_word_it_learns_within_the_hour(counting: Counting) -> None:
    share, refused = Study(TOKENS_BIND, minutes=60).ask(Provider(counting=counting, dialect="silent"))
    assert share >= 0.95
    assert refused <= 0.01


def test_of_a_low_limit_too_it_uses_all() -> None:
    share, refused = Study(minutes=30, told=(10, None)).ask(Provider(requests_per_minute=10, dialect="silent"))
    assert share >= 0.95
    assert refused == 0


def test_several_processes_together_keep_to_the_limit() -> None:
    share, refused = Study(told=LIMITS, processes=4, minutes=5).ask(Provider())
    assert share >= 0.95
    assert refused <= 0.005


def test_several_processes_that_are_told_nothing() -> None:
    share, refused = Study(processes=4).ask(Provider(dialect="retry-after"))
    assert share >= 0.93
    assert refused <= 0.01


@pytest.mark.parametrize("dialect", ["openai", "retry-after"])
def test_somebody_else_uses_half_of_the_limit(dialect: Dialect) -> None:
    share, refused = Study(even=True, other_per_minute=250, minutes=20).ask(Provider(dialect=dialect))
    # What is left is half.
    assert share >= 0.95 / 2
    assert refused <= 0.01


def test_a_pause_given_as_a_date() -> None:
    def dated(provider: Provider, wait: float, now: float) -> Mapping[str, str]:
        if not wait:
            return {}
        # Dates have whole seconds.
        return {"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=math.ceil(wait) + 1), usegmt=True)}

    share, refused = Study(headers=dated).ask(Provider())
    assert share >= 0.95
    assert refused <= 0.01


@pytest.mark.parametrize(
    "lies",
    [
        {"x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14000"},  # a day's
        {"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1", "x-ratelimit-limit-tokens": "0"},
        {
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-remaining-tokens": "0",
        },
        {"x-ratelimit-limit-requests": "nan", "x-ratelimit-limit-tokens": "many", "retry-after": "soon"},
        {"retry-after": "99999999999"},
        {"retry-after": "0"},
    ],
)
def test_headers_that_lie(lies: Mapping[str, str]) -> None:
    def told(provider: Provider, wait: float, now: float) -> Mapping[str, str]:
        return {**provider.headers(wait, now), **lies}

    share, refused = Study(minutes=10, headers=told).ask(Provider(dialect="silent"))
    assert share >= 0.93
    assert refused <= 0.02


@pytest.mark.parametrize(
    ("refused_share", "wait_s", "outcome"),
    [
        *((share, wait, "rate_limit") for share in (0.002, 0.01, 0.03, 0.1) for wait in (None, 1.0)),
        (0.01, 0.05, "rate_limit"),
        (0.03, 5.0, "rate_limit"),
        (0.03, 1.0, "server"),
    ],
)
def test_refusals_that_come_by_chance_hold_up_only_who_is_refused(
    refused_share: float, wait_s: float | None, outcome: Outcome
) -> None:
    chance = random.Random(1)
    answered = 0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        limits = Limits(32)

        async def worker() -> None:
            nonlocal answered
            while loop.time() < 180:
                async with limits.permit(100) as permit:
                    began = loop.time()
                    refused = chance.random() < refused_share
                    await asyncio.sleep(0.04 if refused else chance.uniform(0.3, 0.6))
                    permit.over(
                        outcome if refused else "answered",
                        seconds=loop.time() - began,
                        tokens=None if refused else 100,
                        headers={},
                        wait_s=wait_s if refused else None,
                    )
                answered += not refused and 30 <= loop.time() < 180
                if refused:
                    await asyncio.sleep(wait_s or 1)

        await asyncio.gather(*(worker() for _ in range(32)))

    virtual_time(main())
    # 0.45 s for an answer, and 0.04 s and the pause for each refusal before it.
    best = 32 * 150 / (0.45 + refused_share / (1 - refused_share) * (0.04 + (wait_s or 1)))
    assert answered >= (0.6 if wait_s and wait_s >= 1 else 0.8) * best


@dataclass
class Endpoint:
    """Answers after a time that depends on how many ask at once."""

    latency_s: Callable[[int, float], float]
    fails: Callable[[int, float], Outcome | None] = lambda at_once, now: None
    varies: float = 0.3
    """Standard deviation of the latency, as a part of it."""

    def ask(self, at_most: int, seconds: float, workers: int = 100) -> tuple[float, list[int], float]:
        """(answers a second in the second half, requests at a time each second, share of requests that failed)."""
        return virtual_time(self._run(at_most, seconds, workers))

    async def _run(self, at_most: int, seconds: float, workers: int) -> tuple[float, list[int], float]:
        loop = asyncio.get_running_loop()
        limits = Limits(at_most)
        chance = random.Random(1)
        under_way = answered = failed = late = 0
        allowed: list[int] = []

        async def worker() -> None:
            nonlocal under_way, answered, failed, late
            while loop.time() < seconds:
                async with limits.permit(100) as permit:
                    under_way += 1
                    began = loop.time()
                    outcome = self.fails(under_way, began)
                    takes = self.latency_s(under_way, began) * (
                        chance.lognormvariate(0, self.varies) if self.varies else 1
                    )
                    await asyncio.sleep(0.02 if outcome == "rate_limit" else takes)
                    under_way -= 1
                    failed += outcome is not None
                    answered += outcome is None
                    late += outcome is None and seconds / 2 < loop.time() <= seconds
                    permit.over(outcome or "answered", seconds=loop.time() - began, tokens=100, headers={}, wait_s=None)

        async def watch() -> None:
            while True:
                await asyncio.sleep(1)
                allowed.append(limits.at_a_time)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(worker() for _ in range(workers)))
        watching.cancel()
        return late / (seconds / 2), allowed, failed / max(1, answered + failed)


def _changes(allowed: list[int]) -> int:
    return sum(one != other for one, other in pairwise(allowed))


@pytest.mark.parametrize(("latency_s", "varies"), [(0.05, 0.0), (0.1, 0.3)])
def test_an_endpoint_without_trouble_is_at_its_ceiling_within_a_second(latency_s: float, varies: float) -> None:
    _, allowed, _ = Endpoint(lambda at_once, now: latency_s, varies=varies).ask(64, 8)
    assert set(allowed[1:]) == {64}


@pytest.mark.parametrize("at_most", [1, 2, 8, 40])
def test_latencies_that_differ_much_are_no_trouble(at_most: int) -> None:
    _, allowed, _ = Endpoint(lambda at_once, now: 1.0, varies=0.8).ask(at_most, 600)
    # What the first few answers told of half as many may be checked once.
    assert sum(one == at_most for one in allowed[30:]) >= 0.97 * len(allowed[30:])


def test_an_endpoint_that_doubles_its_latency_with_each_further_request() -> None:
    # One or two at a time bring 5 answers a second; 8 would bring 0.3.
    throughput, allowed, _ = Endpoint(lambda at_once, now: 0.2 * 2 ** (at_once - 1), varies=0).ask(8, 2000)
    assert throughput >= 0.93 * 5
    late = allowed[1000:]
    assert sum(one <= 2 for one in late) >= 0.95 * len(late)
    assert _changes(late) <= 30


def test_an_endpoint_with_four_places() -> None:
    throughput, allowed, _ = Endpoint(lambda at_once, now: 0.5 * max(1.0, at_once / 4)).ask(64, 1200)
    # 4 at a time bring all there is, 8 a second (less what the lognormal mean is above its median).
    assert throughput >= 0.95 * 8 / math.exp(0.045)
    late = allowed[600:]
    assert min(late) >= 4
    assert sum(one <= 8 for one in late) >= 0.9 * len(late)
    assert _changes(late) <= 30


def test_a_batching_server_gets_more_while_more_helps() -> None:
    # Latency rises sixfold, throughput tenfold.
    throughput, allowed, _ = Endpoint(lambda at_once, now: 1 + at_once / 12).ask(64, 1200)
    assert throughput >= 0.93 * 64 / (1 + 64 / 12) / math.exp(0.045)
    assert sum(one == 64 for one in allowed[60:]) >= 0.95 * len(allowed[60:])


def test_a_server_that_slows_down_gets_fewer() -> None:
    # From 60 s to 360 s somebody else leaves it eight places of 32.
    _, allowed, _ = Endpoint(lambda at_once, now: 0.5 * max(1.0, at_once / (8 if 60 < now < 360 else 32))).ask(32, 700)
    assert set(allowed[5:60]) == {32}
    assert min(allowed[60:360]) <= 8
    assert allowed[-1] == 32


def test_refused_for_too_many_at_a_time() -> None:
    throughput, allowed, refused = Endpoint(
        lambda at_once, now: 0.5, fails=lambda at_once, now: "rate_limit" if at_once > 8 else None
    ).ask(64, 600)
    # Eight at a time would bring 16 a second.
    assert throughput >= 0.8 * 16 / math.exp(0.045)
    assert refused <= 0.01
    assert max(allowed[60:]) <= 10


def test_timeouts_shrink_it_and_a_rare_one_does_not() -> None:
    _, allowed, _ = Endpoint(
        lambda at_once, now: 0.5, fails=lambda at_once, now: "timeout" if at_once > 10 else None
    ).ask(64, 300)
    assert max(allowed[60:]) <= 12
    chance = random.Random(2)
    _, allowed, _ = Endpoint(
        lambda at_once, now: 0.5, fails=lambda at_once, now: "timeout" if chance.random() < 0.01 else None
    ).ask(64, 100)
    assert set(allowed[10:]) == {64}


def test_an_endpoint_that_was_gone_for_a_minute_is_at_its_ceiling_again() -> None:
    _, allowed, _ = Endpoint(
        lambda at_once, now: 0.5, fails=lambda at_once, now: "connection" if 50 < now < 110 else None
    ).ask(64, 150)
    assert set(allowed[111:]) == {64}
