"""How many requests an endpoint gets at a time and a minute, found out as it goes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from opbench.models.concurrency import Cap, Levels
from opbench.models.limit_headers import requests_told, tokens_told
from opbench.models.pace import Pace

Outcome = Literal["answered", "rate_limit", "timeout", "server", "connection", "other"]

#: Seconds that an endpoint is left alone after a refusal that names no time; doubled with each further one.
_FIRST_HOLD_S = 0.5
_LEARNING_RATE = 1 / 32
#: One request in twenty without an answer in time is more than chance: fewer at a time may help.
_SICK = 0.05


class Permit:
    """Leave to send one request: an async context manager that waits for it, and holds it until it is over."""

    __slots__ = ("_cohort", "_estimate", "_limits", "_number", "_state", "_taken", "_under_way", "_waiting")

    def __init__(self, limits: Limits, estimate: int) -> None:
        self._limits = limits
        self._estimate = estimate
        self._taken = 0.0
        self._number = self._cohort = self._under_way = 0
        self._state: Literal["waiting", "held", "over"] = "waiting"
        self._waiting: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        limits = self._limits
        if not limits._enter(self):
            await limits._wait(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state == "held":
            # Nobody said how it went: cancelled. The endpoint may have counted it.
            self._limits._over(self, "other", 0.0, None, {}, None)

    def over(
        self, outcome: Outcome, *, seconds: float, tokens: int | None, headers: Mapping[str, str], wait_s: float | None
    ) -> None:
        """Tell how it went: seconds of the request, tokens it took as the endpoint counted them (prompt and
        completion), the answer's headers (names in lower case), and the seconds that the endpoint asks to wait."""
        if self._state == "held":
            self._limits._over(self, outcome, seconds, tokens, headers, wait_s)


class Limits:
    """The limits of one endpoint, for all who ask it through one client. Belongs to one event loop.

    Who asks first is let through first. At most `at_most` requests are under way, and fewer where more don't bring
    more answers a second, or after refusals and timeouts. Requests and tokens are spread evenly over the minute up to
    a ceiling: the lowest of the given one, the one in the answers' headers, and the one learnt from refusals. A
    refusal holds everybody up for as long as the endpoint asks, at most `longest_wait_s`.

    `share`: this process is one of so many that ask the endpoint, and keeps to its part of each ceiling.
    """

    __slots__ = (
        "_bulk",
        "_cap",
        "_cut_at",
        "_held_until",
        "_hold_s",
        "_levels",
        "_longest_wait_s",
        "_loop",
        "_requests",
        "_sent",
        "_share",
        "_shrunk_at",
        "_sick",
        "_timer",
        "_tokens",
        "_under_way",
        "_waiting",
    )

    def __init__(
        self,
        at_most: int,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        share: int = 1,
        longest_wait_s: float = 60.0,
    ) -> None:
        most = max(1, at_most // share)
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._levels = Levels(most)
        self._cap = Cap(most)
        self._requests = Pace(requests_per_minute and requests_per_minute / share, now)
        self._tokens = Pace(tokens_per_minute and tokens_per_minute / share, now)
        self._share = share
        self._longest_wait_s = longest_wait_s
        self._bulk = 1.0
        """Tokens that a request takes, as a part of what was estimated."""
        self._waiting: deque[Permit] = deque()
        self._under_way = 0
        self._sent = 0
        self._cut_at = self._shrunk_at = 0
        self._held_until = 0.0
        self._hold_s = _FIRST_HOLD_S
        self._sick = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def at_a_time(self) -> int:
        """Requests that are let through at a time at present."""
        return min(self._levels.at, int(self._cap.at))

    @property
    def per_minute(self) -> tuple[float, float]:
        """The ceilings of requests and of tokens a minute at present, infinite where none is known."""
        return self._requests.limit, self._tokens.limit

    def permit(self, tokens: int) -> Permit:
        """Leave to send a request that will take about so many tokens (prompt and the most it may answer)."""
        return Permit(self, tokens)

    def _enter(self, permit: Permit) -> bool:
        """Whether it is let through at once."""
        if self._waiting or self._under_way >= self.at_a_time:
            return False
        now = self._loop.time()
        if self._opens(permit, now) > now:
            return False
        self._grant(permit, now)
        return True

    async def _wait(self, permit: Permit) -> None:
        permit._waiting = self._loop.create_future()
        self._waiting.append(permit)
        if len(self._waiting) == 1:
            self._admit()
        try:
            await permit._waiting
        except asyncio.CancelledError:
            if permit._state == "held":
                # Let through and cancelled in the same moment: nothing was sent.
                self._give_back(permit)
            else:
                self._waiting.remove(permit)
                self._admit()
            raise
        finally:
            permit._waiting = None

    def _admit(self) -> None:
        """Let through whoever may go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._under_way < self.at_a_time:
            permit = self._waiting[0]
            now = self._loop.time()
            opens = self._opens(permit, now)
            if opens > now:
                self._timer = self._loop.call_at(opens, self._admit)
                return
            self._waiting.popleft()
            assert permit._waiting is not None
            if not permit._waiting.done():
                self._grant(permit, now)
                permit._waiting.set_result(None)

    def _opens(self, permit: Permit, now: float) -> float:
        return max(
            self._held_until,
            self._requests.opens(1.0, now),
            self._tokens.opens(permit._estimate * self._bulk, now),
        )

    def _grant(self, permit: Permit, now: float) -> None:
        self._under_way += 1
        self._sent += 1
        permit._state = "held"
        permit._number = self._sent
        permit._under_way = self._under_way
        permit._taken = permit._estimate * self._bulk
        permit._cohort = self._levels.sent(self._under_way)
        self._requests.take(1.0, now)
        self._tokens.take(permit._taken, now)

    def _give_back(self, permit: Permit) -> None:
        now = self._loop.time()
        self._requests.correct(-1.0, now)
        self._tokens.correct(-permit._taken, now)
        self._leave(permit)

    def _leave(self, permit: Permit) -> None:
        permit._state = "over"
        self._under_way -= 1
        if self._waiting:
            self._admit()

    def _over(
        self,
        permit: Permit,
        outcome: Outcome,
        seconds: float,
        tokens: int | None,
        headers: Mapping[str, str],
        wait_s: float | None,
    ) -> None:
        answered = outcome == "answered"
        if permit._cohort:
            self._levels.over(permit._cohort, seconds if answered else None)
        now = self._loop.time()
        if headers:
            self._listen(permit, headers)
        if answered:
            self._hold_s = _FIRST_HOLD_S
            if tokens is not None:
                self._tokens.correct(tokens - permit._taken, now)
                if permit._estimate:
                    self._bulk += (tokens / permit._estimate - self._bulk) * _LEARNING_RATE
            if permit._under_way >= self._cap.at - 1:
                self._cap.answered()
        elif outcome == "rate_limit":
            self._refused(permit, headers, wait_s, now)
        elif wait_s is not None:
            self._hold(wait_s, now)
        self._sick += ((outcome == "timeout") - self._sick) * _LEARNING_RATE
        if outcome == "timeout" and self._sick > _SICK:
            self._shrink(permit)
        self._leave(permit)

    def _listen(self, permit: Permit, headers: Mapping[str, str]) -> None:
        for pace, told, amount in (
            (self._requests, requests_told(headers), 1.0),
            (self._tokens, tokens_told(headers), permit._taken),
        ):
            if told.limit is not None:
                pace.tell(told.limit / self._share)
            if told.left is not None:
                pace.left((told.left - (self._sent - permit._number) * amount) / self._share)

    def _refused(self, permit: Permit, headers: Mapping[str, str], wait_s: float | None, now: float) -> None:
        self._requests.correct(-1.0, now)
        self._tokens.correct(-permit._taken, now)
        if permit._number <= self._cut_at:
            # Sent before an earlier refusal was heard.
            if wait_s is not None:
                self._hold(wait_s, now)
            return
        self._cut_at = self._sent
        asked = self._hold_s if wait_s is None else wait_s
        self._hold_s = min(self._hold_s * 2, self._longest_wait_s)
        for pace in self._blamed(permit, headers, now):
            pace.cut(wait_s or 0.0, now)
        if wait_s is None and permit._under_way >= self._cap.at * 0.8:
            self._shrink(permit)
        self._hold(asked, now)

    def _blamed(self, permit: Permit, headers: Mapping[str, str], now: float) -> list[Pace]:
        """What the endpoint refused for, requests or tokens, as far as that can be known."""
        told = []
        requests, tokens = requests_told(headers), tokens_told(headers)
        if requests.left is not None and requests.left < 1:
            told.append(self._requests)
        if tokens.left is not None and tokens.left < permit._estimate:
            told.append(self._tokens)
        if told:
            return told
        fullest = max(self._requests, self._tokens, key=lambda pace: pace.fullness(now))
        if fullest.fullness(now) > 0.9:
            return [fullest]
        return [pace for pace in (self._requests, self._tokens) if pace.limit == float("inf")] or [fullest]

    def _shrink(self, permit: Permit) -> None:
        if permit._number > self._shrunk_at:
            self._shrunk_at = self._sent
            self._cap.trouble(permit._under_way)

    def _hold(self, seconds: float, now: float) -> None:
        self._held_until = max(self._held_until, now + min(max(seconds, 0.0), self._longest_wait_s))
