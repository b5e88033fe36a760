"""Addresses (URLs) of endpoints and servers, as users write them into registry files."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def checked(url: str, example: str) -> str:
    """The address as it is.

    Raises:
        ValueError: it is none of http or https; says how to write one.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"is no address: write it like {example}")
    return url


def shown(url: str) -> str:
    """The address without user, password and query: fit for messages, records and hashes."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def local(url: str) -> bool:
    """Whether it is on this machine, so that no proxy lies between."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
