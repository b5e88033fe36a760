"""What the server's garbage collector needn't look at again."""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle(page: str) -> None:
    """Take what is there after a page's first run out of the collector's way; once a page for the server's life.

    Streamlit collects all garbage after every run of a script, before it says that the script is over. Over the
    modules, which a page loads when it first runs and which never go, that takes 0.15 s each time, and all sessions
    wait for it.
    """
    gc.collect()
    gc.freeze()
