"""Who may do what in the dashboard: whether one signs in at all, and the role of who did.

An *editor* launches, asks models, imports, deletes and writes scores; a *viewer* reads and downloads; *nobody* sees a
sentence. Bound to a loopback address the dashboard is one person's own and open. Anywhere else people sign in with
OpenID Connect, or the one who starts it has said in so many words that whoever reaches it may come in.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from opbench.errors import UsageError
from opbench.settings import Settings

Role = Literal["editor", "viewer", "nobody"]

HOW = "docs/access.md"
#: Claims that tell one sign-in from every other.
_OF_A_SIGN_IN = ("iss", "sub", "iat", "nonce", "at_hash")
_ADDRESS = re.compile(r"[^\s@]+@[^\s@]+")
_DOMAIN = re.compile(r"@[^\s@]+")
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.-]*[0-9A-Za-z])?")
_CALLBACK = "/oauth2callback"
_SHORTEST_SECRET = 32
#: A secret made by a generator has more different signs than any word that is repeated to make up the length.
_FEWEST_SIGNS = 10


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may come in. `everyone` is the role of all where nobody signs in; `hours` is how long a sign-in lasts."""

    sign_in: bool
    everyone: Role = "nobody"
    editors: frozenset[str] = frozenset()
    viewers: frozenset[str] = frozenset()
    hours: int = 12
    providers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page. `reason` says why it is nobody; it is empty for those who haven't signed in yet."""

    name: str
    role: Role
    signed_in: bool = False
    reason: str = ""


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach `host`: 127.0.0.0/8, ::1, localhost. Empty means all addresses."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def make_policy(address: str, auth: Mapping[str, Any], settings: Settings) -> Policy:
    """Who may come in to a dashboard bound to `address`, with `auth` as the `[auth]` section of the secrets.

    Raises:
        UsageError: it would be open to others without anybody having said so, or sign-in isn't set up right.
    """
    if settings.open and settings.sign_in:
        raise UsageError("OPBENCH_OPEN and OPBENCH_SIGN_IN contradict each other: unset one of them")
    if settings.open:
        return Policy(sign_in=False, everyone=settings.open)
    outside = [host for host in (address, *hosts(settings)) if not is_loopback(host)]
    if not outside and not auth and not settings.sign_in:
        return Policy(sign_in=False, everyone="editor")
    if not auth:
        why = f"at {outside[0] or 'every address of this machine'}" if outside else "with OPBENCH_SIGN_IN=required"
        raise UsageError(
            f"the dashboard won't be served {why} without sign-in: add [auth] to .streamlit/secrets.toml ({HOW}), "
            "or say who everybody is with OPBENCH_OPEN=viewer or OPBENCH_OPEN=editor"
        )
    providers = check_auth(auth, outside=bool(outside))
    editors, viewers = _people("OPBENCH_EDITORS", settings.editors), _people("OPBENCH_VIEWERS", settings.viewers)
    if not editors | viewers:
        raise UsageError(
            "sign-in is on and nobody is listed: set OPBENCH_EDITORS and OPBENCH_VIEWERS to e-mail addresses or "
            f"@domains, or OPBENCH_OPEN=editor to go without sign-in ({HOW})"
        )
    return Policy(True, "nobody", editors, viewers, settings.session_hours, providers)


def check_auth(auth: Mapping[str, Any], *, outside: bool = True) -> tuple[str, ...]:
    """The names of the providers in `auth`, empty when there is one without a name. `outside`: visitors come from
    other machines.

    Raises:
        UsageError: a value is missing, is an example's, or would let others in; the value itself is never shown.
    """
    redirect = _checked_url(auth, "redirect_uri", "[auth]")
    if not redirect.endswith(_CALLBACK):
        raise _wrong("[auth]", "redirect_uri", f"must end in {_CALLBACK}, e.g. https://bench.example.org{_CALLBACK}")
    if outside and is_loopback(urlsplit(redirect).hostname or ""):
        raise _wrong("[auth]", "redirect_uri", "leads to the visitor's own machine: give the public address")
    secret = str(auth.get("cookie_secret") or "")
    if len(secret) < _SHORTEST_SECRET or len(set(secret)) < _FEWEST_SIGNS:
        make = "python -c 'import secrets; print(secrets.token_urlsafe(48))'"
        raise _wrong("[auth]", "cookie_secret", f"must be at least {_SHORTEST_SECRET} random signs: {make}")
    named = tuple(name for name, value in auth.items() if isinstance(value, Mapping) and name != "client_kwargs")
    for name in named or ("",):
        provider, where = (auth[name], f"[auth.{name}]") if name else (auth, "[auth]")
        for key in ("client_id", "client_secret"):
            if not str(provider.get(key) or "").strip(" x"):
                raise _wrong(where, key, "is missing: the provider gives it when the dashboard is registered there")
        _checked_url(provider, "server_metadata_url", where)
    return named


def hosts(settings: Settings) -> tuple[str, ...]:
    """The names by which people reach the dashboard, from OPBENCH_HOST.

    Raises:
        UsageError: what it holds are no names.
    """
    names = _words(settings.host)
    for name in names:
        if not _HOST.fullmatch(name):
            raise UsageError(f"OPBENCH_HOST: {name[:60]!r} is no host name: give it without https:// and port")
    return names


def allowed_hosts(address: str, auth: Mapping[str, Any], settings: Settings, policy: Policy) -> tuple[str, ...]:
    """The names under which the dashboard answers, besides those of loopback.

    Raises:
        UsageError: it is bound to all addresses, and nothing says by which name people come.
    """
    known = list(hosts(settings))
    if policy.sign_in and (name := urlsplit(str(auth["redirect_uri"])).hostname):
        known.append(name)
    try:
        given = ipaddress.ip_address(address.strip("[]")) if address else None
        everywhere = given is None or given.is_unspecified
    except ValueError:
        everywhere = False
    if not everywhere:
        known.append(address.strip("[]"))
    elif not known:
        raise UsageError(
            "the dashboard is bound to every address, and answers only under names that it knows: set OPBENCH_HOST to "
            "the one by which people reach it, e.g. OPBENCH_HOST=bench.example.org"
        )
    return tuple(dict.fromkeys(name for name in known if not is_loopback(name)))


def visitor(policy: Policy, claims: Mapping[str, Any], now: float | None = None) -> Visitor:
    """Who comes with these claims of an identity token (none: not signed in). `now` is in seconds since 1970."""
    if not policy.sign_in:
        return Visitor("local", policy.everyone)
    if claims.get("is_logged_in") is not True:
        return Visitor("", "nobody")
    made, moment = claims.get("iat"), time.time() if now is None else now
    if isinstance(made, bool) or not isinstance(made, int | float) or moment - made > 3600 * policy.hours:
        return Visitor("", "nobody", reason=f"Your sign-in has run out: it lasts {policy.hours} hours.")
    address = claims.get("email")
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        return Visitor("", "nobody", True, "Your sign-in tells no e-mail address, so there is no telling your role.")
    # Absent is accepted, since some providers never say it; said to be unverified is not.
    if str(claims.get("email_verified", True)).lower() != "true":
        return Visitor("", "nobody", True, "Your e-mail address isn't verified with the one whom you signed in with.")
    name = folded(address)
    known = {name, f"@{name.rpartition('@')[2]}"}
    if known & policy.editors:
        return Visitor(name, "editor", True)
    if known & policy.viewers:
        return Visitor(name, "viewer", True)
    return Visitor(name, "nobody", True, f"{name} isn't listed here. Ask the one who runs this dashboard.")


class SignOuts:
    """The sign-ins that were ended, so that other tabs and copies of the cookie end with them. Lives as long as the
    server's process."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._lock = threading.Lock()

    def end(self, claims: Mapping[str, Any], hours: int) -> None:
        """End the sign-in of these claims; those that ended over `hours` ago have run out and are forgotten."""
        now = time.time()
        with self._lock:
            self._ended = {key: ended for key, ended in self._ended.items() if now - ended < 3600 * hours}
            self._ended[_sign_in(claims)] = now

    def has(self, claims: Mapping[str, Any]) -> bool:
        return _sign_in(claims) in self._ended


def _sign_in(claims: Mapping[str, Any]) -> str:
    told = json.dumps([str(claims.get(name)) for name in _OF_A_SIGN_IN])
    return hashlib.sha256(told.encode()).hexdigest()


def _people(variable: str, listed: str) -> frozenset[str]:
    people = [folded(word) for word in _words(listed)]
    for person in people:
        if not (_ADDRESS.fullmatch(person) or _DOMAIN.fullmatch(person)):
            raise UsageError(f"{variable}: {person[:60]!r} is neither an e-mail address nor @domain")
    return frozenset(people)


def folded(address: str) -> str:
    """An e-mail address as `Visitor.name` has it: in small letters; other alphabets are left alone, since some of their
    capitals turn into Latin letters."""
    return address.lower() if address.isascii() else address


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in listed.split(",")) if word)


def _checked_url(section: Mapping[str, Any], key: str, where: str) -> str:
    given = str(section.get(key) or "")
    try:
        parts = urlsplit(given.replace("{port}", "1"))
        host = parts.hostname or ""
    except ValueError:
        raise _wrong(where, key, "is no URL") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise _wrong(where, key, "must be a URL that begins with https:// (http:// for loopback alone)")
    if not host:
        raise _wrong(where, key, "names no host")
    return given


def _wrong(where: str, key: str, what: str) -> UsageError:
    return UsageError(f".streamlit/secrets.toml, {where}: {key} {what} ({HOW})")
