"""POST JSON to a memory server and get JSON back: key, retries, limits, and a true one-line reason when it fails."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import httpx2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from opbench import addresses
from opbench.errors import MemoryFault
from opbench.models.failures import Failure, from_exception, from_status, scrub

#: Most bytes of a reply. Three hundred memories of the greatest length.
LARGEST_REPLY = 32_000_000
_ATTEMPTS = 4
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
#: Signs of a key that is taken out of answers too: what local servers are given as a key may be any word.
_SHORTEST_SECRET = 16


class Poster:
    """Asks one memory server. A request that timed out, broke off, met 429 or 5xx is sent again, the very same.

    No redirect is followed: it would carry a user's history, or the key, to another address than the one that was
    written down.
    """

    def __init__(self, name: str, *, key_env: str | None, timeout_s: float, mend: str, local: bool) -> None:
        """`mend` is where the server's entry stands, for errors: `memories.local.toml: [memories.mine]`.

        `timeout_s` is for one attempt in all. With `local` no proxy of the environment is used.
        """
        self._name = name
        self._key_env = key_env
        self._timeout_s = timeout_s
        self._mend = mend
        self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False, trust_env=not local)

    async def post(self, key: str, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """The reply's JSON object. `key` is the entry's key that holds `url` (`ingest_url`), for errors.

        Raises:
            MemoryFault: the server failed for good, or answers with something else.
        """
        secret = self._secret()
        sent = 0

        async def attempt() -> dict[str, Any]:
            nonlocal sent
            sent += 1
            try:
                # The client's own limits are for each piece of an answer; a slow drip would pass them.
                async with asyncio.timeout(self._timeout_s):
                    return await self._ask(key, url, body, secret)
            except (httpx2.HTTPError, TimeoutError) as error:
                raise from_exception(error) from error

        retrying = AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_wait,
            retry=retry_if_exception(lambda error: isinstance(error, Failure) and _heals(error)),
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except Failure as failure:
            raise MemoryFault(scrub(self._explain(key, url, failure, sent), secret)) from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _ask(self, key: str, url: str, body: dict[str, Any], secret: str | None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        async with self._client.stream("POST", url, json=body, headers=headers) as reply:
            if reply.is_redirect:
                target = addresses.shown(str(reply.headers.get("location", "")))
                raise Failure("bad_reply", f"redirects to {target}. Write the address that answers as {key}")
            data = bytearray()
            async for piece in reply.aiter_bytes():
                data += piece
                if len(data) > LARGEST_REPLY:
                    raise Failure("bad_reply", f"answers with more than {LARGEST_REPLY:,} bytes")
        text = data.decode("utf-8", "replace")
        if secret is not None and len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "[key]")
        try:
            decoded = json.loads(text)
        except (ValueError, RecursionError):
            decoded = None
        if not reply.is_success:
            raise from_status(reply.status_code, decoded, reply.headers)
        if not isinstance(decoded, dict):
            kind = reply.headers.get("content-type", "no content type")
            raise Failure("bad_reply", f"answers with no JSON object but {len(text):,} characters of {kind}")
        return decoded

    def _secret(self) -> str | None:
        if self._key_env is None:
            return None
        secret = os.environ.get(self._key_env, "").strip()
        if not secret:
            raise MemoryFault(f"{self._name}: no key. Set {self._key_env} (environment) and try again.")
        if not (secret.isascii() and secret.isprintable()):
            raise MemoryFault(f"{self._name}: the key in {self._key_env} holds characters that no key has.")
        return secret

    def _explain(self, key: str, url: str, failure: Failure, attempts: int) -> str:
        tries = "" if attempts == 1 else f" after {attempts} attempts"
        address, said = addresses.shown(url), failure.detail
        match failure.kind:
            case "auth" if self._key_env:
                text = f"the server refused the key in {self._key_env} ({said}). Set it again."
            case "auth":
                text = f"the server wants a key ({said}). Set key_env in {self._mend}, and that variable."
            case "not_found":
                text = f"{address} isn't there ({said}). Check {key} in {self._mend}."
            case "timeout":
                limit = f"{self._timeout_s:g} s"
                text = f"no answer within {limit}{tries}. Raise timeout_s in {self._mend}, or go on later."
            case "connection":
                text = f"{address} can't be reached{tries} ({said}). Start the server, or check {key} in {self._mend}."
            case "server":
                text = f"{address} failed{tries} ({said}). Its own log says why; then go on."
            case "rate_limit" | "quota":
                text = f"{address} wants no more now{tries} ({said}). Go on later."
            case "too_long":
                text = f"{address} takes nothing of that length ({said}). Raise its limit."
            case "bad_reply":
                text = f"{address} {said}. See {self._mend} and docs/memory-systems.md."
            case _:
                text = f"{address} refused the request ({said}). docs/memory-systems.md says what it is sent."
        return f"{self._name}: {text}"


def _heals(failure: Failure) -> bool:
    """Whether the same request may succeed later; what isn't JSON now won't be."""
    return failure.retried and failure.kind != "bad_reply"


_backoff = wait_exponential_jitter(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S, jitter=_FIRST_WAIT_S)


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait_s if isinstance(failure, Failure) else None
    return _backoff(state) if asked is None else min(asked, _LONGEST_WAIT_S)
