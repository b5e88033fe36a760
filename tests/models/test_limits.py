"""Waiting for leave to send: order, cancelling, pauses, headers. The clock jumps from timer to timer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise

import pytest

from opbench.models.limit_headers import requests_told, tokens_told
from opbench.models.limits import Limits, Outcome, Permit
from tests.speed.simulated_provider import virtual_time


def _now() -> float:
    return asyncio.get_running_loop().time()


def _over(
    permit: Permit,
    outcome: Outcome = "answered",
    *,
    headers: Mapping[str, str] | None = None,
    wait_s: float | None = None,
    tokens: int | None = None,
) -> None:
    permit.over(outcome, seconds=1.0, tokens=tokens, headers=headers or {}, wait_s=wait_s)


async def _refuse(limits: Limits, *, wait_s: float | None = None, headers: Mapping[str, str] | None = None) -> None:
    async with limits.permit(10) as permit:
        _over(permit, "rate_limit", wait_s=wait_s, headers=headers)


async def _sent_at(limits: Limits, count: int, *, seconds: float = 1.0, tokens: int = 10) -> list[float]:
    """When each of so many requests that are asked for now is sent, in the order of asking."""

    async def one() -> float:
        async with limits.permit(tokens) as permit:
            sent = _now()
            await asyncio.sleep(seconds)
            _over(permit, tokens=tokens)
            return sent

    return await asyncio.gather(*(one() for _ in range(count)))


def test_one_after_the_other_in_the_order_of_asking() -> None:
    async def main() -> list[float]:
        return await _sent_at(Limits(1), 5)

    assert virtual_time(main()) == [0, 1, 2, 3, 4]


def test_a_large_request_is_not_overtaken_by_small_ones() -> None:
    async def main() -> list[int]:
        limits = Limits(8, tokens_per_minute=6000)
        order: list[int] = []

        async def one(tokens: int) -> None:
            async with limits.permit(tokens) as permit:
                order.append(tokens)
                _over(permit, tokens=tokens)

        await asyncio.gather(*(one(tokens) for tokens in (100, 900, 1, 2, 3)))
        return order

    assert virtual_time(main()) == [100, 900, 1, 2, 3]


def test_whoever_gives_up_waiting_loses_nobody_a_place() -> None:
    async def main() -> tuple[list[str], int]:
        limits = Limits(1)
        order: list[str] = []

        async def one(name: str) -> None:
            async with limits.permit(10) as permit:
                order.append(name)
                await asyncio.sleep(1)
                _over(permit)

        tasks = {name: asyncio.create_task(one(name)) for name in "abcde"}
        await asyncio.sleep(0.5)
        tasks["b"].cancel()  # waits at the head
        tasks["d"].cancel()  # waits behind
        await asyncio.sleep(1)
        tasks["c"].cancel()  # is under way
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        # The place is free again: another goes at once.
        began = _now()
        async with limits.permit(10) as permit:
            _over(permit)
        return order, int(_now() - began)

    assert virtual_time(main()) == (["a", "c", "e"], 0)


def test_cancelled_in_the_moment_of_being_let_through() -> None:
    async def main() -> list[str]:
        limits = Limits(1, requests_per_minute=60)
        order: list[str] = []

        async def one(name: str) -> None:
            async with limits.permit(10) as permit:
                order.append(name)
                _over(permit)

        first = limits.permit(10)
        await first.__aenter__()
        waiting = [asyncio.create_task(one(name)) for name in "ab"]
        await asyncio.sleep(10)
        _over(first)  # lets `a` through, which is cancelled before it hears of it
        waiting[0].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await one("c")
        return order

    assert virtual_time(main()) == ["b", "c"]


def test_a_task_and_the_head_of_the_queue_cancelled_together() -> None:
    async def main() -> int:
        limits = Limits(1)

        async def one() -> None:
            async with limits.permit(10):
                await asyncio.sleep(1)

        tasks = [asyncio.create_task(one()) for _ in range(20)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        async with limits.permit(10):
            return sum(isinstance(end, asyncio.CancelledError) for end in ended)

    assert virtual_time(main()) == 20


def test_it_is_told_once_how_a_request_went() -> None:
    async def main() -> list[float]:
        limits = Limits(1)
        async with limits.permit(10) as permit:
            _over(permit)
            _over(permit, "rate_limit", wait_s=50)
        return await _sent_at(limits, 2)

    # Neither is the place given back twice, nor does the second word count.
    assert virtual_time(main()) == [0, 1]


def test_a_refusal_holds_everybody_and_one_goes_first() -> None:
    async def main() -> list[float]:
        limits = Limits(8)
        await _sent_at(limits, 200, seconds=0.1)
        began = _now()
        await _refuse(limits, wait_s=20)
        return [sent - began for sent in await _sent_at(limits, 21, seconds=0.1)]

    sent = virtual_time(main())
    assert sent[0] == pytest.approx(20)
    # It is answered after a tenth of a second.
    assert sent[1] >= 20.1
    # Then at the pace that was learnt: 200 in the 2.5 seconds and the 20 of the pause are 533 a minute, of which six
    # may go at once.
    assert sent == sorted(sent)
    assert sent[-1] >= 20.1 + 13 / (535 / 60)


def test_nobody_else_goes_while_one_waits_whether_it_is_refused_again() -> None:
    async def main() -> list[float]:
        limits = Limits(8)
        await _refuse(limits, wait_s=20)
        return await _sent_at(limits, 3, seconds=9)

    # Its refusal would come within three times the second that the last one took; two seconds are the most.
    assert virtual_time(main()) == pytest.approx([20, 22, 22])


def test_a_request_that_was_under_way_can_make_the_pause_longer() -> None:
    async def main() -> float:
        limits = Limits(8)
        async with limits.permit(10) as early, limits.permit(10) as late:
            _over(early, "rate_limit", wait_s=5)
            _over(late, "rate_limit", wait_s=30)
        return (await _sent_at(limits, 1))[0]

    assert virtual_time(main()) == pytest.approx(30)


def test_an_overloaded_server_that_names_a_time_is_left_alone_too() -> None:
    async def main() -> float:
        limits = Limits(8)
        async with limits.permit(10) as permit:
            _over(permit, "server", wait_s=7)
        return (await _sent_at(limits, 1))[0]

    assert virtual_time(main()) == pytest.approx(7)


@pytest.mark.parametrize(("asked", "waited"), [(1e9, 60), (-5, 0), (0, 0)])
def test_no_pause_is_longer_than_the_registry_allows_nor_shorter_than_none(asked: float, waited: float) -> None:
    async def main() -> float:
        limits = Limits(8, longest_wait_s=60)
        async with limits.permit(10) as permit:
            _over(permit, "server", wait_s=asked)
        return (await _sent_at(limits, 1))[0]

    assert virtual_time(main()) == pytest.approx(waited)


def test_refusals_without_a_time_are_waited_for_longer_and_longer() -> None:
    async def main() -> list[float]:
        limits = Limits(8)
        refused = []
        for _ in range(6):
            await _refuse(limits)
            refused.append(_now())
        return [later - earlier for earlier, later in pairwise(refused)]

    assert virtual_time(main()) == pytest.approx([1, 2, 4, 8, 8])


def test_a_ceiling_of_requests_spaces_them() -> None:
    async def main() -> list[float]:
        return await _sent_at(Limits(64, requests_per_minute=60), 121, seconds=0.1)

    sent = virtual_time(main())
    # 99 % of 60 a minute: one in 1.01 seconds, and never more than 60 in a minute.
    assert sent[120] == pytest.approx(121 * 60 / 59.4, rel=0.02)
    assert max(sum(start <= other < start + 60 for other in sent) for start in sent) <= 60


def test_a_process_of_several_keeps_to_its_share() -> None:
    async def main() -> tuple[int, tuple[float, float], list[float]]:
        limits = Limits(64, requests_per_minute=240, tokens_per_minute=8000, share=4)
        sent = await _sent_at(limits, 61, seconds=0.1)
        return limits.at_a_time, limits.per_minute, sent

    at_a_time, per_minute, sent = virtual_time(main())
    assert at_a_time <= 16
    assert per_minute == (60, 2000)
    assert sent[60] == pytest.approx(61 * 60 / 59.4, rel=0.02)


def test_at_least_one_at_a_time() -> None:
    async def main() -> int:
        return Limits(2, share=8).at_a_time

    assert virtual_time(main()) == 1


def test_what_was_estimated_too_high_is_given_back() -> None:
    async def main() -> list[float]:
        limits = Limits(4, tokens_per_minute=60_000)

        async def one() -> float:
            async with limits.permit(1000) as permit:
                sent = _now()
                _over(permit, tokens=100)
                return sent

        return [await one() for _ in range(400)]

    # 40,000 tokens in all at 59,400 a minute, whatever was feared.
    assert virtual_time(main())[-1] == pytest.approx(40_000 / 59_400 * 60, rel=0.05)


@pytest.mark.parametrize("counted", [10**15, 0, -(10**15)])
def test_a_count_of_tokens_that_cannot_be_true_stops_nobody(counted: int) -> None:
    async def main() -> float:
        limits = Limits(4, tokens_per_minute=60_000)
        async with limits.permit(100) as permit:
            _over(permit, tokens=counted)
        sent = await _sent_at(limits, 599, seconds=0.1, tokens=100)
        await _refuse(limits)
        return sent[-1]

    # 600 requests of 100 tokens at 59,400 a minute; the one that lied counts as 1,600 at most, 1 at least.
    assert virtual_time(main()) == pytest.approx(60.6, rel=0.06)


OPENAI = {
    "x-ratelimit-limit-requests": "120",
    "x-ratelimit-remaining-requests": "119",
    "x-ratelimit-limit-tokens": "4000",
    "x-ratelimit-remaining-tokens": "3990",
}


async def _after(headers: Mapping[str, str], **given: float) -> tuple[float, float]:
    limits = Limits(8, **given)  # type: ignore[arg-type]
    async with limits.permit(10) as permit:
        _over(permit, headers=headers)
    return limits.per_minute


def test_limits_are_learnt_from_headers_and_divided() -> None:
    assert virtual_time(_after(OPENAI)) == (120, 4000)
    assert virtual_time(_after(OPENAI, share=2)) == (60, 2000)


def test_what_is_configured_goes_before_what_headers_say() -> None:
    assert virtual_time(_after(OPENAI, requests_per_minute=1000)) == (1000, 4000)


def test_a_later_word_replaces_an_earlier_one() -> None:
    async def main() -> tuple[float, float]:
        limits = Limits(8)
        for told in ("1", "300"):
            async with limits.permit(10) as permit:
                _over(permit, headers={"x-ratelimit-limit-requests": told})
        return limits.per_minute

    assert virtual_time(main()) == (300, float("inf"))


@pytest.mark.parametrize(
    "value",
    ["", "-1", "0", "nan", "inf", "1e400", "many", "5,000", "99999999999999999999", "１２", "\0", "1 2", "500;w=60"],
)
def test_garbage_in_headers_says_nothing(value: str) -> None:
    headers = {name: value for name in OPENAI if "limit-" in name}
    assert virtual_time(_after(headers)) == (float("inf"), float("inf"))


def test_more_left_than_the_limit_is_no_limit() -> None:
    headers = OPENAI | {"x-ratelimit-limit-requests": "5"}
    assert virtual_time(_after(headers)) == (float("inf"), 4000)


@pytest.mark.parametrize(
    ("headers", "requests", "tokens"),
    [
        (OPENAI, (120, 119), (4000, 3990)),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-tokens-limit": "30000",
                "anthropic-ratelimit-tokens-remaining": "29000",
            },
            (50, 49),
            (30000, 29000),
        ),
        (
            {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-limit-tokens-minute": "9000"},
            (60, None),
            (9000, None),
        ),
        # A second's, a day's, and one whose time nobody knows.
        ({"x-ratelimit-limit": "10", "x-ratelimit-limit-requests-day": "14400"}, (None, None), (None, None)),
    ],
)
def test_the_dialects_of_providers(
    headers: Mapping[str, str], requests: tuple[float | None, ...], tokens: tuple[float | None, ...]
) -> None:
    assert requests_told(headers) == requests
    assert tokens_told(headers) == tokens
