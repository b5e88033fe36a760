"""How much of something, requests or tokens, goes to an endpoint in a minute."""

from __future__ import annotations

import math

MINUTE_S = 60.0
#: What is used of a limit that was told: requests don't arrive as evenly as they are sent.
_KEPT = 0.99
#: What may be sent in one minute of a limit that was told.
_FILLED = 0.995
#: What may go at once after a pause, of a minute's: as much as the smallest buckets hold.
AT_ONCE = 0.012
_PARTS = 121
_PART_S = 0.5
#: A learnt limit grows by this much every so many seconds in which it held somebody up; the growth doubles each half
#: minute without a refusal.
_GROWTH = 0.002
_MOST_GROWTH = 0.03
_GROWS_EVERY_S = 5.0
_GROWS_FASTER_EVERY_S = 30.0
#: It grows only while fewer than this share of the last requests, about so many, were refused.
_REFUSED = 0.004
_LAST = 512
#: What is left of a learnt limit after a refusal, and after further ones that follow soon.
_CUTS = (0.99, 0.96, 0.92, 0.85, 0.75)
_SOON_S = 10.0
#: What was taken in a whole minute is taken in the next one too, near enough.
_SURE = 0.98
#: When the endpoint refused for something else, what was learnt grows by this; far above what is used, it is forgotten.
_EASED = 1.05
_FORGOTTEN = 4.0


class Minute:
    """What went out in the last minute, in half seconds."""

    __slots__ = ("_newest", "_parts", "_sum", "began")

    def __init__(self, now: float) -> None:
        self.began = now
        """Since when it counts: shortly before the first of what it holds, or longer than a minute ago."""
        self._parts = [0.0] * _PARTS
        self._newest = int(now / _PART_S)
        self._sum = 0.0

    def add(self, amount: float, now: float) -> None:
        """Count an amount, negative to take some back."""
        part = int(now / _PART_S)
        if part != self._newest:
            self._turn(part)
        self._parts[part % _PARTS] += amount
        self._sum += amount

    def sum(self, now: float) -> float:
        """What was counted in the last 60 to 60.5 seconds."""
        part = int(now / _PART_S)
        if part != self._newest:
            self._turn(part)
        return self._sum

    def falls(self, by: float, now: float) -> float:
        """When the sum will have fallen by so much, if nothing comes."""
        part = int(now / _PART_S)
        if part != self._newest:
            self._turn(part)
        for later in range(1, _PARTS + 1):
            by -= self._parts[(part + later) % _PARTS]
            if by <= 0:
                return (part + later) * _PART_S
        return now + MINUTE_S

    def _turn(self, part: int) -> None:
        if part - self._newest >= _PARTS:
            self._parts = [0.0] * _PARTS
            self._sum = 0.0
            self.began = part * _PART_S
        else:
            for gone in range(self._newest + 1, part + 1):
                self._sum -= self._parts[gone % _PARTS]
                self._parts[gone % _PARTS] = 0.0
        self._newest = part


class Pace:
    """Spreads an amount evenly over the minute, up to a ceiling that was told or learnt from refusals.

    Even, because an endpoint may count in sliding minutes, in the clock's minutes or in a bucket that holds a second's
    worth: what is even passes all three. Amounts larger than what may go at once run into debt, which the next ones
    wait for.
    """

    __slots__ = (
        "_at",
        "_at_once",
        "_configured",
        "_cuts",
        "_growth",
        "_held_up",
        "_last_cut",
        "_level",
        "_looked",
        "_minute",
        "_quiet",
        "_rate",
        "_refusals",
        "_room",
        "_since_cut",
        "_told",
        "learnt",
    )

    def __init__(self, configured: float | None, now: float, *, at_once: float = AT_ONCE) -> None:
        """`configured`: most a minute, where that is known. `at_once`: what may go at once, of a minute's, while the
        limit is one that was told; of a learnt one it is less, lest what is learnt be the burst."""
        self._at_once = at_once
        self._configured = configured is not None
        self._told = math.inf if configured is None else configured
        self.learnt = math.inf
        """Most a minute, from refusals; infinite while there were none."""
        self._minute = Minute(now)
        self._cuts = 0
        self._since_cut = 0
        self._refusals = 0.0
        self._last_cut = -math.inf
        self._looked = self._quiet = self._at = now
        self._growth = _GROWTH
        self._held_up = False
        self._rate = self._room = math.inf
        self._level = 0.0
        self._set()

    @property
    def limit(self) -> float:
        """Most a minute at present: the lower of what was told and what was learnt."""
        return min(self._told, self.learnt)

    def tell(self, limit: float) -> None:
        """The endpoint says what its limit is. What is configured goes before that."""
        if limit != self._told and not self._configured:
            self._told = limit
            self._set()

    def opens(self, amount: float, now: float) -> float:
        """When so much may go."""
        if self._rate == math.inf:
            return now
        if now - self._looked >= _GROWS_EVERY_S:
            self._grow(now)
        self._fill(now)
        opens = now
        lacking = min(amount, self._room) - self._level
        if lacking > 1e-9:
            opens += lacking / self._rate
        if self._told <= self.learnt:
            over = self._minute.sum(now) + amount - max(min(self._told, math.ceil(self._told * _FILLED)), amount)
            if over > 1e-9:
                opens = max(opens, self._minute.falls(over, now))
        self._held_up = self._held_up or opens > now
        return opens

    def take(self, amount: float, now: float) -> None:
        """So much goes."""
        self._minute.add(amount, now)
        self._since_cut += 1
        self._refusals -= self._refusals / _LAST
        if self._rate != math.inf:
            self._fill(now)
            self._level -= amount

    def correct(self, amount: float, now: float) -> None:
        """So much more went than was taken (negative: less)."""
        self._minute.add(amount, now)
        if self._rate != math.inf:
            self._level -= amount

    def refused(self, amount: float, now: float) -> None:
        """What was taken was refused."""
        self.correct(-amount, now)
        self._since_cut -= 1

    def cut(self, wait_s: float, now: float) -> None:
        """The endpoint refused, and asks to wait (0 when it doesn't say): learn from what it took until now."""
        past = max(now - self._minute.began, 0.05)
        taken = self._minute.sum(now)
        if taken <= 0:
            # Nothing went through so far: that the endpoint is full says nothing of how much it takes.
            return
        learnt = min(self.limit, taken * MINUTE_S / min(past + wait_s, MINUTE_S))
        if self._since_cut > 0:
            self._cuts = self._cuts + 1 if now - self._last_cut < _SOON_S else 0
            learnt *= _CUTS[min(self._cuts, len(_CUTS) - 1)]
        self._since_cut = 0
        self._refusals += 1 / _LAST
        self._last_cut = self._looked = self._quiet = now
        self._growth = _GROWTH
        self.learnt = max(learnt, taken * _SURE, 1.0)
        self._set()

    def pause(self, until: float) -> None:
        """Nothing goes until then, and it isn't made up for afterwards."""
        if self._rate != math.inf:
            self._level = min(self._level, 0.0)
            self._at = max(self._at, until)

    def double(self) -> None:
        """See whether the endpoint takes twice as much."""
        self.learnt *= 2
        self._set()

    def ease(self, now: float, by: float = _EASED) -> None:
        """It was something else that the endpoint refused for: so many times as much may pass."""
        self.learnt *= by
        if self.learnt > self._minute.sum(now) * _FORGOTTEN:
            self.learnt = math.inf
        self._set()

    def _grow(self, now: float) -> None:
        if self.learnt < self._told and self._held_up and self._refusals < _REFUSED:
            self.learnt *= 1 + self._growth
            self._set()
        if now - self._quiet >= _GROWS_FASTER_EVERY_S:
            self._growth = min(self._growth * 2, _MOST_GROWTH)
            self._quiet = now
        self._looked = now
        self._held_up = False

    def _set(self) -> None:
        limit = self.limit
        if limit == math.inf:
            self._rate = self._room = math.inf
            return
        was_free = self._rate == math.inf
        self._rate = min(self._told * _KEPT, self.learnt) / MINUTE_S
        self._room = max(1.0, limit * (self._at_once if self._told <= self.learnt else AT_ONCE))
        self._level = 0.0 if was_free else min(self._level, self._room)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._room, self._level + (now - self._at) * self._rate)
            self._at = now
