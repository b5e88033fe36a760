"""How many requests an endpoint gets at a time: more while that brings more answers a second, fewer in trouble."""

from __future__ import annotations

#: The lowest level with this share of the best throughput is kept.
_AS_GOOD = 0.92
#: A level that brings less than this over its half is compared with its half again.
_DOUBTFUL = 1.25
#: While the first climb lasts, latency may rise by this much with twice the requests.
_CLIMBS = 1.5
_START = 4
#: Answers of which one level's throughput is computed: at least so many, and so many for each request at a time.
_COHORT = 32
_ROUNDS = 3
#: Cohorts until a level above or below is tried again; doubled each time that it didn't help.
_PATIENCE = 8
_MOST_PATIENCE = 256
#: Requests count for a level when at least this share of it was under way as they were sent.
_FULL = 0.75
_SHRINK = 0.75
#: Answers between two steps up near the number at which there was trouble; twice as fast after each 150 answers.
_STEP_ANSWERS = 100.0
_FASTER_AFTER = 150


class Levels:
    """Finds, among the ceiling, its half, its quarter and so on, the lowest with the best throughput.

    Throughput of a level is requests under way over their mean latency (Little's law), measured over a cohort: the
    next so many requests sent while the level is full, every one waited for, so that quick ones count no more than
    slow ones. Where latency is steady, twice the level is twice the throughput, and the ceiling is reached in as many
    round trips as there are levels.
    """

    __slots__ = (
        "_climbing",
        "_cohort",
        "_down_after",
        "_down_patience",
        "_found",
        "_levels",
        "_number",
        "_outstanding",
        "_seconds",
        "_seen",
        "_sent",
        "_tried",
        "_under_way",
        "_up_after",
        "_up_patience",
        "at",
        "wanted",
    )

    def __init__(self, most: int) -> None:
        self._levels = [most]
        while self._levels[0] > 1:
            self._levels.insert(0, (self._levels[0] + 1) // 2)
        below = [level for level in self._levels if level <= _START]
        self._seen = len(below) - 1 if below else 0
        self.at = self._levels[self._seen]
        """Requests at a time."""
        self._found: dict[int, float] = {}
        """Throughput by level as last measured, in answers a second."""
        self._climbing = True
        self._tried = 0
        self._number = 0
        self._up_patience = self._down_patience = _PATIENCE
        self._up_after = self._down_after = 0
        self._begin()

    def sent(self, under_way: int) -> int:
        """A request is sent, so many are under way with it: the number of its cohort, 0 for none."""
        if self._sent >= self.wanted or under_way < self.at * _FULL:
            return 0
        self._sent += 1
        self._outstanding += 1
        self._under_way += under_way
        return self._number

    def over(self, cohort: int, seconds: float | None) -> None:
        """A request of the cohort is over, after so many seconds; None when it wasn't answered."""
        if cohort != self._number:
            return
        self._outstanding -= 1
        if seconds is None:
            # What failed says nothing of the throughput. Another takes its place.
            self._under_way -= self._under_way // max(self._sent, 1)
            self._sent -= 1
            return
        self._seconds += seconds
        if self._sent >= self.wanted and self._outstanding == 0:
            self._decide(self._under_way / max(self._seconds, 1e-9))

    def _begin(self) -> None:
        self._number += 1
        self._sent = self._outstanding = self._under_way = 0
        self._seconds = 0.0
        self.wanted = max(2, self.at // 2) if self._climbing else max(_COHORT, _ROUNDS * self.at)

    def _decide(self, throughput: float) -> None:
        here = self._seen
        before = self._found.get(here - 1)
        if self._climbing:
            self._found[here] = throughput
            grown = self.at / self._levels[here - 1] if here else 2.0
            if before is not None and throughput < before * grown / _CLIMBS:
                # Perhaps it doesn't help: from now on with more patience.
                self._climbing = False
            elif here + 1 < len(self._levels):
                self._move(here + 1)
            else:
                self._climbing = False
            self._begin()
            return
        known = self._found.get(here)
        self._found[here] = throughput if known is None else (known + throughput) / 2
        self._move(self._next(here))
        self._begin()

    def _next(self, here: int) -> int:
        best = max(self._found.values())
        enough = min(level for level, found in self._found.items() if found >= best * _AS_GOOD)
        tried, self._tried = self._tried, 0
        if enough > here:
            if tried < 0:
                self._down_patience = min(self._down_patience * 2, _MOST_PATIENCE)
                self._down_after = self._number + self._down_patience
            return here + 1
        if enough < here:
            if tried > 0:
                self._up_patience = min(self._up_patience * 2, _MOST_PATIENCE)
            elif self._number < self._down_after:
                return here
            else:
                # What was found with fewer may be long past.
                self._found.pop(here - 1, None)
                self._tried = -1
            self._up_after = self._number + self._up_patience
            return here - 1
        if tried > 0:
            self._up_patience = _PATIENCE
        elif tried < 0:
            self._down_patience = _PATIENCE
        if here > 0 and self._number >= self._down_after and self._doubtful(here):
            self._found.pop(here - 1, None)
            self._tried = -1
            return here - 1
        if here + 1 < len(self._levels) and self._number >= self._up_after:
            self._found.pop(here + 1, None)
            self._tried = 1
            return here + 1
        return here

    def _doubtful(self, here: int) -> bool:
        """Whether half of it might do as well."""
        below = self._found.get(here - 1)
        return here + 1 in self._found if below is None else self._found[here] < below * _DOUBTFUL

    def _move(self, to: int) -> None:
        self._seen = to
        self.at = self._levels[to]


class Cap:
    """The most at a time after trouble: falls at once, rises answer by answer, slowly near where the trouble was."""

    __slots__ = ("_clean", "_most", "_trouble", "at")

    def __init__(self, most: int) -> None:
        self._most = most
        self.at = float(most)
        """Requests at a time."""
        self._trouble = float(most)
        self._clean = 0

    def trouble(self, under_way: int) -> None:
        """With so many under way the endpoint was in trouble."""
        self._trouble = max(min(float(under_way), self.at), 1.0)
        self.at = max(self._trouble * _SHRINK, 1.0)
        self._clean = 0

    def answered(self) -> None:
        """A request was answered while as many as the cap allows were under way."""
        if self.at >= self._most:
            return
        self._clean += 1
        step = 1.0
        if self.at >= self._trouble * _SHRINK:
            step = min(2.0 ** (self._clean // _FASTER_AFTER) / _STEP_ANSWERS, 1.0)
        self.at = min(self.at + step, float(self._most))
