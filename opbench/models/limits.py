"""How many requests an endpoint gets at a time and a minute, found out as it goes."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from opbench.models.concurrency import Cap, Levels
from opbench.models.limit_headers import requests_told, tokens_told
from opbench.models.pace import Pace
from opbench.models.sporadic import Sporadic

Outcome = Literal["answered", "rate_limit", "timeout", "server", "connection", "other"]

#: Seconds that an endpoint is left alone after a refusal that names no time; doubled with each further one.
_FIRST_HOLD_S = 1.0
_LONGEST_HOLD_S = 8.0
#: After a pause one request goes alone, for so many seconds: if it is refused too, it was the only one.
_LEAST_ALONE_S = 0.1
_MOST_ALONE_S = 2.0
#: Of a minute's tokens: requests differ in size, and must not wait for both the requests' pace and the tokens'.
_TOKENS_AT_ONCE = 0.04
#: An endpoint that says a request took more tokens than so many times the estimate is not believed.
_CREDIBLE = 16
_LEAST_BULK = 0.01
_LEARNING_RATE = 1 / 32
#: Under way when as many are as may be, near enough.
_NEARLY = 0.8
#: One in twenty of the last requests, about so many, without an answer in time: fewer at a time may help.
_SICK = 0.05
_LAST = 128
#: Whose headers are read: those of the first answers, and of one in so many later on.
_LISTENS_FIRST = 32
_LISTENS_EVERY = 16
#: How much earlier evidence weighs, and how much of it blames the number of requests at a time.
_FADES = 0.9
_CROWDED = 1.0
_PERHAPS_CROWDED = 0.3
#: The pace grows so many times in each step in which refusals stay as rare as they were.
_DOUBLED = 2.0


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
        "_alone",
        "_alone_number",
        "_alone_s",
        "_alone_until",
        "_bulk",
        "_cap",
        "_crowding",
        "_cut_at",
        "_evidence",
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
        "_sporadic",
        "_timer",
        "_tokens",
        "_under_way",
        "_usual",
        "_usually_under_way",
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
        self._tokens = Pace(tokens_per_minute and tokens_per_minute / share, now, at_once=_TOKENS_AT_ONCE)
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
        self._alone = False
        self._alone_s = self._alone_until = 0.0
        self._alone_number = 0
        self._usual = 0.0
        """Tokens of a request, on the average."""
        self._evidence = 0.0
        """Whether refusals are for tokens: the sum of log(refused request's tokens / usual tokens), fading. Were they
        for tokens, large requests would be refused in proportion to their size; else, whoever comes."""
        self._usually_under_way = 1.0
        self._crowding = 0.0
        """Whether refusals are for too many at a time, in the same way."""
        self._sick = 0.0
        self._sporadic = Sporadic(share)
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
                with suppress(ValueError):
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
        if self._alone:
            # The endpoint said when, or it is time to find out.
            return self._held_until
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
        self._usually_under_way += (self._under_way - self._usually_under_way) * _LEARNING_RATE
        self._usual += (permit._taken - self._usual) * (_LEARNING_RATE if self._sent > 1 else 1.0)
        self._requests.take(1.0, now)
        self._tokens.take(permit._taken, now)
        if self._alone:
            self._alone = False
            self._alone_number = self._sent
            self._held_until = self._alone_until = now + self._alone_s

    def _give_back(self, permit: Permit) -> None:
        now = self._loop.time()
        self._requests.refused(1.0, now)
        self._tokens.refused(permit._taken, now)
        if permit._cohort:
            self._levels.over(permit._cohort, None)
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
        if permit._number <= _LISTENS_FIRST or permit._number % _LISTENS_EVERY == 0:
            self._listen(headers)
        if answered:
            if self._sporadic.trying and self._sporadic.answered(permit._number, self._sent):
                self._requests.ease(now, _DOUBLED)
                self._tokens.ease(now, _DOUBLED)
            if permit._number == self._alone_number and self._held_until == self._alone_until:
                self._held_until = now
            self._hold_s = _FIRST_HOLD_S
            if tokens is not None:
                tokens = min(max(tokens, 1), max(permit._estimate, 1) * _CREDIBLE)
                self._tokens.correct(tokens - permit._taken, now)
                if permit._estimate:
                    self._bulk += (tokens / permit._estimate - self._bulk) * _LEARNING_RATE
                    self._bulk = max(self._bulk, _LEAST_BULK)
            if permit._under_way >= self._cap.at - 1:
                self._cap.answered()
        elif outcome == "rate_limit" or (wait_s is not None and wait_s > 0):
            self._refused(permit, outcome, seconds, headers, wait_s, now)
        self._sick += ((outcome == "timeout") - self._sick) / _LAST
        if outcome == "timeout" and self._sick > _SICK:
            self._shrink(permit)
        self._leave(permit)

    def _listen(self, headers: Mapping[str, str]) -> None:
        for pace, told in ((self._requests, requests_told(headers)), (self._tokens, tokens_told(headers))):
            if told.limit is not None:
                pace.tell(told.limit / self._share)

    def _refused(
        self,
        permit: Permit,
        outcome: Outcome,
        seconds: float,
        headers: Mapping[str, str],
        wait_s: float | None,
        now: float,
    ) -> None:
        limited = outcome == "rate_limit"
        if limited:
            self._requests.refused(1.0, now)
            self._tokens.refused(permit._taken, now)
        if wait_s is not None and wait_s <= 0:
            # It doesn't know.
            wait_s = None
        if permit._number <= self._cut_at:
            # Sent before an earlier refusal was heard.
            if not self._sporadic.trying:
                if limited and self._sporadic.followed(permit._number):
                    self._learn(permit, headers, wait_s, now)
                if wait_s is not None:
                    self._hold(wait_s, now)
            return
        tried = self._sporadic.trying
        alone = permit._number == self._alone_number
        cause = self._sporadic.refused(permit._number, self._sent, now, wait_s, alone=alone)
        if cause == "chance":
            # Only the one that was refused waits.
            if not tried:
                self._cut_at = self._sent
                self._requests.double()
                self._tokens.double()
            return
        self._cut_at = self._sent
        self._alone_s = min(max(3 * seconds, _LEAST_ALONE_S), _MOST_ALONE_S)
        self._alone = True
        # A first refusal or two may be chance; once there is a learnt limit, it is more likely that.
        if limited and (cause == "limit" or min(self._requests.learnt, self._tokens.learnt) < math.inf):
            self._learn(permit, headers, wait_s, now)
        if wait_s is None:
            self._hold(self._hold_s, now)
            self._hold_s = min(self._hold_s * 2, _LONGEST_HOLD_S)
        else:
            self._hold(wait_s, now)

    def _learn(self, permit: Permit, headers: Mapping[str, str], wait_s: float | None, now: float) -> None:
        self._crowding = _FADES * self._crowding + math.log(permit._under_way / self._usually_under_way)
        # An endpoint that names a time counts minutes, not requests under way.
        crowded = wait_s is None and self._crowding > _CROWDED
        full = permit._under_way >= self.at_a_time * _NEARLY
        if crowded or (full and wait_s is None and self._crowding > _PERHAPS_CROWDED):
            self._shrink(permit)
        if crowded:
            self._requests.ease(now)
            self._tokens.ease(now)
        else:
            blamed, other = self._blamed(permit, headers)
            blamed.cut(wait_s or 0.0, now)
            other.ease(now)

    def _blamed(self, permit: Permit, headers: Mapping[str, str]) -> tuple[Pace, Pace]:
        """(what the endpoint most likely refused for, the other): requests or tokens."""
        requests, tokens = requests_told(headers).left, tokens_told(headers).left
        if permit._estimate:
            self._evidence = _FADES * self._evidence + math.log(permit._taken / self._usual)
        by_tokens = self._evidence > 0
        if requests is not None and tokens is not None:
            by_tokens = tokens < permit._taken and requests >= 1
        return (self._tokens, self._requests) if by_tokens else (self._requests, self._tokens)

    def _shrink(self, permit: Permit) -> None:
        if permit._number > self._shrunk_at:
            self._shrunk_at = self._sent
            self._cap.trouble(permit._under_way)

    def _hold(self, seconds: float, now: float) -> None:
        until = now + min(max(seconds, 0.0), self._longest_wait_s)
        self._held_until = max(self._held_until, until)
        self._requests.pause(until)
        self._tokens.pause(until)
