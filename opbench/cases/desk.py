"""Where live cases are asked: one thread with one event loop in a process."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr

from opbench.cases.session import Session
from opbench.cases.spec import CaseSpec
from opbench.store.database import Store

MOST_AT_WORK = 8
"""Sessions of a process that may be at work at once."""


class Desk:
    """Asks cases in a daemon thread, which starts with the first one. Safe to use from any thread."""

    def open(self, store: Store, spec: CaseSpec, *, keys: Mapping[str, SecretStr] | None = None) -> Session:
        """Ask a case; returns at once. `keys` by environment variable name are used for this case and never kept.

        Raises:
            UsageError: too many cases are at work at once.
        """
        raise NotImplementedError

    def session(self, id: str) -> Session | None:
        """One of the latest sessions by its id, so that a page that is loaded anew finds what it had asked."""
        raise NotImplementedError

    def close(self) -> None:
        """Cancel what is at work and end the thread."""
        raise NotImplementedError


def desk() -> Desk:
    """The process's own desk. The first call begins to load in the background what the first case needs."""
    raise NotImplementedError
