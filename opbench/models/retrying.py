"""Asking again where that can help: attempts, waits, and what is told of them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from opbench.models.failures import Failure
from opbench.models.registry import Spec

T = TypeVar("T")
OnWait = Callable[[Failure, float], Awaitable[None]]
"""Called before each wait with what went wrong and the seconds of waiting."""


async def persist(spec: Spec, attempt: Callable[[], Awaitable[T]], on_wait: OnWait) -> T:
    """`attempt`'s value, tried up to `spec.attempts` times.

    Raises Failure: the last one, or the first that asking again can't mend.
    """
    try:
        # The rule, and the machinery for the exceptions costs as much as a whole request.
        return await attempt()
    except Failure as failure:
        first: Failure | None = failure

    async def again() -> T:
        nonlocal first
        if first is not None:
            failure, first = first, None
            raise failure
        return await attempt()

    async def before_sleep(state: RetryCallState) -> None:
        failure = _failure(state)
        assert failure is not None
        await on_wait(failure, state.upcoming_sleep)

    return await AsyncRetrying(
        stop=stop_after_attempt(spec.attempts),
        wait=_Wait(spec),
        retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.retried),
        before_sleep=before_sleep,
        reraise=True,
    )(again)


class _Wait:
    """Exponential with jitter; at least what the endpoint asks for, never more than the model's `max_wait_s`."""

    def __init__(self, spec: Spec) -> None:
        self._most = spec.max_wait_s
        self._backoff = wait_exponential_jitter(
            multiplier=spec.first_wait_s, max=spec.max_wait_s, jitter=spec.first_wait_s
        )

    def __call__(self, state: RetryCallState) -> float:
        failure = _failure(state)
        if failure is None or failure.wait_s is None:
            return self._backoff(state)
        # A little more than asked for: those who were refused together shouldn't come back together.
        return min(failure.wait_s + random.uniform(0, min(1.0, failure.wait_s / 4)), self._most)


def _failure(state: RetryCallState) -> Failure | None:
    failure = state.outcome.exception() if state.outcome else None
    return failure if isinstance(failure, Failure) else None
