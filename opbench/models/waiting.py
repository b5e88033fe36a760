"""The time of something that asks endpoints on its way, without what its requests waited to be sent.

A search of memories asks an embedder for the query's vector: how long that stood behind other requests, held up by a
limit or by refusals before it, tells of the load and nothing of the search.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stopwatch:
    """Runs from its making on, and leaves the waiting out that it is told of."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._waits: list[tuple[float, float]] = []

    def waited(self, since: float, until: float) -> None:
        """A request of what is timed waited, by `time.perf_counter`."""
        self._waits.append((since, until))

    def elapsed_ms(self) -> float:
        """Milliseconds so far; those in which several requests waited are left out once."""
        now = time.perf_counter()
        left_out, told = 0.0, self._began
        for since, until in sorted(self._waits):
            left_out += max(0.0, until - max(since, told))
            told = max(told, until)
        return (now - self._began - left_out) * 1000


_running: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """A stopwatch that hears of the waiting of all requests that are made in the block."""
    watch = Stopwatch()
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)


def waited(since: float, until: float) -> None:
    """Tell whoever times this that a request waited, by `time.perf_counter`."""
    watch = _running.get()
    if watch is not None:
        watch.waited(since, until)
