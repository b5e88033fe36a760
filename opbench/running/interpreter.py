"""Python as a run needs it: a fast event loop, and a garbage collector that doesn't look at everything all the time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
#: New objects between two looks for cycles; Python's 700 are a few calls' worth.
_NEW_OBJECTS = 10_000


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on uvloop's event loop where that is installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        # Loaded here: commands that ask no model need no loop.
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """While the block lasts, the collector leaves alone what was there before it (libraries, data, the plan), and
    looks at what is new less often: it would go through hundreds of thousands of objects many times a second."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
