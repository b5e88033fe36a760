"""The servers behind one model's name: which of them a request goes to."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence

from opbench.models.failures import Failure

#: Seconds that a server is left out after it failed, doubled with each further failure.
_FIRST_REST_S, _LONGEST_REST_S = 2.0, 60.0


class Server:
    """One address, with what this process has under way there."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.busy = 0
        """Requests under way."""
        self.answered_at = -1.0
        self._failures = 0
        self._rests_until = 0.0

    def took(self, now: float) -> None:
        """It answered."""
        self.answered_at = now
        self._failures = 0

    def rest(self, now: float) -> None:
        """It gets nothing for a while. Requests that fail together count once."""
        if now >= self._rests_until:
            self._rests_until = now + min(_FIRST_REST_S * 2**self._failures, _LONGEST_REST_S)
            self._failures = min(self._failures + 1, 10)

    def ready(self, now: float) -> bool:
        """Whether requests may go there: after a failure and a rest one at first, to see if it is back."""
        return self._failures == 0 or (now >= self._rests_until and self.busy == 0)


class Replicas:
    """Spreads a model's requests over its servers. Belongs to one event loop."""

    def __init__(self, base_urls: Sequence[str], clock: Callable[[], float] = time.perf_counter) -> None:
        self.servers = tuple(Server(url) for url in base_urls)
        self._clock = clock

    def choose(self, beginning: str, tried: Collection[Server] = ()) -> Server:
        """The least busy server that is ready and not in `tried`; of servers as busy, always the same for a prompt's
        `beginning`, so that a server's prefix cache meets it again. When none is ready, one of the others."""
        if len(self.servers) == 1:
            return self.servers[0]
        now = self._clock()
        left = [server for server in self.servers if server not in tried] or self.servers
        ready = [server for server in left if server.ready(now)] or left
        least = min(server.busy for server in ready)
        free = [server for server in ready if server.busy == least]
        # Rendezvous hashing: a server that goes or comes moves its own prompts and no others.
        return free[0] if len(free) == 1 else max(free, key=lambda server: _rank(server, beginning))

    def failed(self, server: Server, failure: Failure, began: float) -> None:
        """Leave the server out for a while, when it is gone, unable, not one of this model, or hangs: a request that
        began at `began` had no answer in time, and no other had one since."""
        if stray(failure) or failure.kind == "server" or (failure.kind == "timeout" and server.answered_at < began):
            server.rest(self._clock())


def stray(failure: Failure) -> bool:
    """Whether the server is none of this model's, or not there: another one may answer the same request at once. One
    that refuses is the least busy of all, and would draw every request."""
    return failure.unreached or failure.kind in ("connection", "not_found", "auth")


def _rank(server: Server, beginning: str) -> bytes:
    # The same in every process: several workers send a prompt's like to the same server.
    return hashlib.blake2b(f"{server.base_url} {beginning}".encode("utf-8", "replace"), digest_size=8).digest()
