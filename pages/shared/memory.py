"""What the server's garbage collector needn't look at again.

Streamlit collects all garbage after every run of a script or a fragment, before it says that the script is over. Over
the modules, which a page loads when it first runs and which never go, that takes 0.15 s each time, and all sessions
wait for it; with the libraries of an embedder (torch) it is 0.3 s.
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle(page: str) -> None:
    """Take what is there after a page's first run out of the collector's way; once a page for the server's life."""
    gc.collect()
    gc.freeze()


def hold() -> None:
    """Take what is there out of the collector's way, without looking at it: for what is drawn several times a second.
    `release` is to follow."""
    gc.freeze()


def release() -> None:
    """Collect what has become garbage since `hold`, and take the rest out of the way."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
