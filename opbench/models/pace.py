"""How much of something, requests or tokens, goes to an endpoint in a minute."""

from __future__ import annotations

import math

MINUTE_S = 60.0
#: What is used of a limit: requests don't arrive as evenly as they are sent.
KEPT = 0.985
#: What may go at once after a pause, of a minute's.
_AT_ONCE = 0.012
_PARTS = 120
_PART_S = MINUTE_S / _PARTS
#: A learnt limit grows by this much every so many seconds in which it held somebody up; the growth doubles each
#: minute without a refusal.
_GROWTH = 0.003
_GROWS_EVERY_S = 5.0
_MOST_GROWTH = 0.1
_CUTS = (0.985, 0.96, 0.92, 0.85, 0.75)
_SOON_S = 10.0


class Minute:
    """What went out in the last minute, in half seconds."""

    __slots__ = ("_newest", "_parts", "_sum")

    def __init__(self) -> None:
        self._parts = [0.0] * _PARTS
        self._newest = 0
        self._sum = 0.0

    def add(self, amount: float, now: float) -> None:
        """Count an amount, negative to take some back."""
        part = int(now / _PART_S)
        if part != self._newest:
            self._turn(part)
        self._parts[part % _PARTS] += amount
        self._sum += amount

    def sum(self, now: float) -> float:
        """What was counted in the last 59.5 to 60 seconds."""
        part = int(now / _PART_S)
        if part != self._newest:
            self._turn(part)
        return self._sum

    def _turn(self, part: int) -> None:
        if part - self._newest >= _PARTS:
            self._parts = [0.0] * _PARTS
            self._sum = 0.0
        else:
            for gone in range(self._newest + 1, part + 1):
                self._sum -= self._parts[gone % _PARTS]
                self._parts[gone % _PARTS] = 0.0
        self._newest = part


class Pace:
    """Spreads an amount evenly over the minute, at a ceiling that was told or learnt from refusals.

    Even, because an endpoint may count in sliding minutes, in the clock's minutes or in a bucket that holds a second's
    worth: what is even passes all three. Amounts larger than the bucket run into debt, which the next ones wait for.
    """

    __slots__ = (
        "_at",
        "_began",
        "_cuts",
        "_growth",
        "_held_up",
        "_last_cut",
        "_level",
        "_looked",
        "_minute",
        "_quiet",
        "_rate",
        "_room",
        "learnt",
        "told",
    )

    def __init__(self, told: float | None, now: float) -> None:
        self.told = math.inf if told is None else told
        """Most a minute, as configured or as the endpoint's headers say; infinite when nobody said."""
        self.learnt = math.inf
        """Most a minute, from refusals; infinite while there were none."""
        self._minute = Minute()
        self._began = now
        self._level = self._at = 0.0
        self._last_cut = -math.inf
        self._cuts = 0
        self._looked = self._quiet = now
        self._growth = _GROWTH
        self._held_up = False
        self._rate = math.inf
        self._room = math.inf
        self._at = now
        self._set()
        self._level = self._room

    @property
    def limit(self) -> float:
        """Most a minute at present."""
        return min(self.told, self.learnt)

    def tell(self, limit: float) -> None:
        """The endpoint says what its limit is."""
        if limit < self.told:
            self.told = limit
            self._set()

    def left(self, amount: float) -> None:
        """The endpoint says how much is left of its limit."""
        self._level = min(self._level, amount)

    def opens(self, amount: float, now: float) -> float:
        """When so much may go."""
        if self._rate == math.inf:
            return now
        if now - self._looked >= _GROWS_EVERY_S:
            self._grow(now)
        self._fill(now)
        lacking = min(amount, self._room) - self._level
        if lacking <= 1e-9:
            return now
        self._held_up = True
        return now + lacking / self._rate

    def take(self, amount: float, now: float) -> None:
        """So much goes."""
        self._minute.add(amount, now)
        if self._rate != math.inf:
            self._fill(now)
            self._level -= amount

    def correct(self, amount: float, now: float) -> None:
        """So much more went than was taken (negative: less)."""
        self._minute.add(amount, now)
        if self._rate != math.inf:
            self._level -= amount

    def fullness(self, now: float) -> float:
        """What went in the last minute, as a share of the limit."""
        return self._minute.sum(now) / self.limit

    def cut(self, wait_s: float, now: float) -> None:
        """The endpoint refused, and asks to wait: learn from what it took until now."""
        past = max(min(now - self._began, MINUTE_S), 0.05)
        took = self._minute.sum(now) * MINUTE_S / min(past + wait_s, MINUTE_S)
        self._cuts = self._cuts + 1 if now - self._last_cut < _SOON_S else 0
        self._last_cut = self._looked = self._quiet = now
        self._growth = _GROWTH
        self.learnt = max(min(self.limit, took) * _CUTS[min(self._cuts, len(_CUTS) - 1)], 1.0)
        self._set()
        self._level = min(self._level, 0.0)

    def _grow(self, now: float) -> None:
        if self.learnt < self.told and self._held_up:
            self.learnt *= 1 + self._growth
            self._set()
        if now - self._quiet >= MINUTE_S:
            self._growth = min(self._growth * 2, _MOST_GROWTH)
            self._quiet = now
        self._looked = now
        self._held_up = False

    def _set(self) -> None:
        if self.limit == math.inf:
            return
        if self._rate == math.inf:
            self._level = 0.0
        self._rate = self.limit * KEPT / MINUTE_S
        self._room = max(1.0, self.limit * _AT_ONCE)
        self._level = min(self._level, self._room)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._room, self._level + (now - self._at) * self._rate)
            self._at = now
