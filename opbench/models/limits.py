"""How many requests an endpoint gets at a time and a minute, found out as it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

Outcome = Literal["answered", "rate_limit", "timeout", "server", "connection", "other"]


class Permit(Protocol):
    """Leave to send one request, held until it is over."""

    def over(
        self, outcome: Outcome, *, seconds: float, tokens: int | None, headers: Mapping[str, str], wait_s: float | None
    ) -> None:
        """Tell how it went: seconds of the request, tokens it took as the endpoint counted them (prompt and
        completion), the answer's headers, and the seconds that the endpoint asks to wait."""
        ...


class Limits(Protocol):
    """The limits of one endpoint, for all who ask it through one client. Belongs to one event loop."""

    @property
    def at_a_time(self) -> int:
        """Requests that are let through at a time at present."""
        ...

    def permit(self, tokens: int) -> AbstractAsyncContextManager[Permit]:
        """Wait for leave to send a request that will take about so many tokens (prompt and the most it may answer)."""
        ...


MakeLimits = Callable[[int, float | None, float | None], Limits]
"""Of (most requests at a time, requests a minute, tokens a minute)."""
