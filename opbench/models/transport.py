"""HTTP to one server of a model: bodies as bytes, every error of the HTTP library as a failure of ours."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import orjson
from yarl import URL

from opbench import __version__
from opbench.errors import UsageError
from opbench.models.failures import Failure, from_status
from opbench.models.replies import error_body

#: Seconds that an idle connection is kept: less than the five after which common servers (uvicorn) close it.
_KEPT_S = 4.0
_PROXY_SCHEMES = ("http", "https")
_LONGEST_SAID = 200


def encoded(body: dict[str, Any]) -> bytes:
    """A body's bytes."""
    try:
        return orjson.dumps(body)
    except TypeError:
        # Halves of characters and integers beyond 64 bits, which JSON can hold.
        return json.dumps(body).encode()


class Transport:
    """Kept-alive connections to the API at `base_url`. Belongs to one event loop; close it with `aclose`.

    It keeps no limit but that for connecting: the caller's `asyncio.timeout` is for the request as a whole, and a
    request that is cancelled closes its connection, so that the server stops.
    """

    def __init__(self, base_url: str, key: str | None, *, connect_timeout_s: float, local: bool) -> None:
        """A user and password in the address stand in the place of `key`.

        Raises UsageError when the environment names a proxy that can't be used.
        """
        parts = urlsplit(base_url)
        host = parts.netloc.rpartition("@")[2]
        self._start = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._end = f"?{parts.query}" if parts.query else ""
        self._urls: dict[str, URL] = {}
        authorization = f"Bearer {key or 'none'}"
        if parts.username or parts.password:
            authorization = aiohttp.encode_basic_auth(unquote(parts.username or ""), unquote(parts.password or ""))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=_KEPT_S,
                ssl=_trust(not local) if parts.scheme == "https" else True,
            ),
            headers={
                "Authorization": authorization,
                "Content-Type": "application/json",
                "Accept": "application/json",
                "User-Agent": f"opbench-workbench/{__version__}",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_s),
            # A proxy from the environment never stands between us and this machine.
            proxy=None if local else _proxy(parts.scheme, parts.hostname or ""),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def post(self, path: str, body: bytes) -> tuple[bytes, Mapping[str, str]]:
        """(body, headers) of the successful reply; `path` follows the base URL. Raises Failure."""
        response = await self._begin(path, body)
        return await _read(response), response.headers

    @asynccontextmanager
    async def open(self, path: str, body: bytes) -> AsyncIterator[Reply]:
        """The successful reply as soon as it begins. Raises Failure."""
        response = await self._begin(path, body)
        try:
            yield Reply(response)
        finally:
            # Closes the connection when the body isn't at its end.
            response.release()

    async def _begin(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(f"{self._start}{path}{self._end}")
        try:
            response = await self._session.post(url, data=body)
        # ValueError: a redirect to an address with a password in it.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failure(error) from error
        if not 200 <= response.status < 300:
            said = error_body(await _read(response), response.headers)
            raise from_status(response.status, said, response.headers)
        return response


class Reply:
    """A successful reply whose body is still on its way."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, whatever the case."""
        return self._response.headers

    async def read(self) -> bytes:
        """The body. Raises Failure when it breaks off."""
        return await _read(self._response)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Failure when it breaks off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            _broke_off(error, self._response)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as error:
        _broke_off(error, response)


def _broke_off(error: Exception, response: aiohttp.ClientResponse) -> NoReturn:
    if not isinstance(error, aiohttp.ClientPayloadError):
        raise _failure(error) from error
    got, promised = response.content.total_bytes, response.headers.get("content-length")
    how = f"received {got} bytes, expected {promised}" if promised else "incomplete chunked read"
    said = f"the answer broke off: peer closed connection without sending complete message body ({how})"
    raise Failure("connection", said) from error


def _failure(error: Exception) -> Failure:
    """The failure behind an error of the HTTP library."""
    match error:
        case TimeoutError():
            return Failure("timeout", "no answer in time", unreached=isinstance(error, aiohttp.ConnectionTimeoutError))
        case aiohttp.ClientConnectorCertificateError():
            return _unreached(str(error.certificate_error))
        case aiohttp.ClientConnectorSSLError() | aiohttp.ClientConnectorDNSError():
            return _unreached(str(error.os_error))
        case aiohttp.ClientProxyConnectionError():
            return _unreached(f"the proxy {error.host}:{error.port} doesn't answer")
        case aiohttp.ClientHttpProxyError():
            return _unreached(f"the proxy answers {error.status} {error.message}")
        case aiohttp.ClientConnectorError():
            return _unreached("All connection attempts failed")
        case aiohttp.ServerDisconnectedError():
            return Failure("connection", "the answer broke off: Server disconnected without sending a response")
        case aiohttp.TooManyRedirects():
            return Failure("connection", "Exceeded maximum allowed redirects")
        case aiohttp.ClientResponseError():
            return Failure("connection", f"the answer broke off: {error.message[:_LONGEST_SAID]}")
        case ValueError() | aiohttp.RedirectClientError():
            # Not in its own words: they hold the address, and that may hold a password.
            return Failure("connection", "redirected to an address that can't be asked")
        case _:
            return Failure("connection", f"the answer broke off: {error or type(error).__name__}")


def _unreached(why: str) -> Failure:
    return Failure("connection", f"can't connect: {why}", unreached=True)


@lru_cache(maxsize=2)
def _trust(trust_env: bool) -> ssl.SSLContext:
    """The certificates that the SDK trusts too."""
    return httpx2.create_ssl_context(trust_env=trust_env)


def _proxy(scheme: str, host: str) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    kind = urlsplit(proxy).scheme
    if kind not in _PROXY_SCHEMES:
        name = f"{scheme.upper()}_PROXY" if proxies.get(scheme) else "ALL_PROXY"
        raise UsageError(f"{name} names a proxy of kind {kind}; only HTTP proxies can be used. Name one, or unset it.")
    return proxy
