"""What is there after a page's first run is out of the garbage collector's way."""

from __future__ import annotations

import gc
import weakref

from pages.shared import memory


def test_what_a_page_has_loaded_is_settled_once() -> None:
    memory.settle.cache_clear()
    gc.unfreeze()
    try:
        memory.settle("trade-off")
        settled = gc.get_freeze_count()
        kept: list[list[int]] = [[] for _ in range(1000)]
        memory.settle("trade-off")
        assert gc.get_freeze_count() <= settled  # nothing of a later run
        memory.settle("latency")
        assert gc.get_freeze_count() >= settled + len(kept)
    finally:
        gc.unfreeze()
        memory.settle.cache_clear()


def test_what_became_garbage_while_it_was_held_is_collected_at_the_release() -> None:
    class Node:
        me: object = None

    node = Node()
    node.me = node
    gone = weakref.ref(node)
    try:
        memory.hold()
        del node
        gc.collect()
        assert gone() is not None  # out of the collector's way
        memory.release()
        assert gone() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
