"""What went wrong with a request: every error of the HTTP client, the SDK and the endpoint as one of ours.

┌ status ─────────────────────────────┬ kind ───────────┬ tried again ┐
│ 401, 403; 400 about the key         │ auth            │ no          │
│ 402; 429 that says the quota is used up │ quota       │ no          │
│ 404                                 │ not_found       │ no          │
│ 408                                 │ timeout         │ yes         │
│ 413; 400 about the context window   │ too_long        │ no          │
│ 400 about the content               │ content_filter  │ no          │
│ other 4xx                           │ bad_request     │ no          │
│ 409, 425, 5xx                       │ server          │ yes         │
│ other 429                           │ rate_limit      │ yes         │
│ no answer in time                   │ timeout         │ yes         │
│ refused, reset, cut off             │ connection      │ yes         │
│ 200 that is no answer               │ bad_reply       │ yes         │
└─────────────────────────────────────┴─────────────────┴─────────────┘
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpx2

from opbench.errors import ModelErrorKind
from opbench.models.registry import ModelSpec, Spec
from opbench.models.secrets import END, KEY_LIKE

if TYPE_CHECKING:
    from openai import APIStatusError

_RETRIED: frozenset[ModelErrorKind] = frozenset({"timeout", "connection", "server", "rate_limit", "bad_reply"})
# Codes and types, not messages: Gemini words a per-minute limit as "exceeded your current quota" too.
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
_TOO_LONG = re.compile(
    r"context (length|window|size)|maximum (model|input|context) length|prompt is too long|input token count", re.I
)
_FILTER_CODES = {"content_filter", "content_policy_violation", "data_inspection_failed"}
_BAD_KEY = re.compile(r"api[ _-]?key (is )?(not valid|invalid|expired)|(invalid|incorrect) api[ _-]?key", re.I)


def storable(text: str) -> str:
    """The text without what no store can keep: halves of characters (cut-off JSON escapes) and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


class Failure(Exception):
    """One attempt that failed. `detail` may quote the endpoint; it is free of keys only after `scrub`."""

    def __init__(
        self,
        kind: ModelErrorKind,
        detail: str,
        *,
        status: int | None = None,
        wait_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        unreached: bool = False,
    ):
        super().__init__(detail)
        self.kind: ModelErrorKind = kind
        self.detail = " ".join(storable(detail).split())
        self.status = status
        self.wait_s = wait_s
        """Seconds that the endpoint asks to wait, when it does."""
        self.headers: Mapping[str, str] = headers or {}
        """Those of the reply, when there was one."""
        self.unreached = unreached
        """Whether the request never came to the server."""
        self.server: str | None = None
        """The address that was asked, fit for messages, where a model has several."""
        self.limit_s: float | None = None
        """Seconds that the request had, where they weren't the model's `timeout_s`."""

    @property
    def retried(self) -> bool:
        """Whether asking again can help."""
        return self.kind in _RETRIED


def from_exception(error: Exception) -> Failure:
    """The failure behind an error of the SDK or the HTTP client."""
    # An SDK's error has it loaded; who makes none shouldn't wait for that.
    import openai

    match error:
        case TimeoutError() | openai.APITimeoutError() | httpx2.TimeoutException():
            return Failure("timeout", "no answer in time")
        case openai.APIStatusError():
            return from_status(error.status_code, _body(error), error.response.headers)
        case openai.APIConnectionError():
            return Failure("connection", _cause(error.__cause__ or error))
        case httpx2.HTTPError():
            return Failure("connection", _cause(error))
        case _:
            return Failure("bad_reply", f"{type(error).__name__}: {error}")


def from_status(status: int, body: object, headers: Mapping[str, str]) -> Failure:
    """The failure that an HTTP status with its (decoded) body means."""
    code, kind, param, message = _error_fields(body)
    return Failure(
        _kind(status, {code, kind}, param, message),
        f"{status}: {message}" if message else f"{status}",
        status=status,
        wait_s=retry_after(headers, body),
        headers=headers,
    )


def _kind(status: int, codes: set[str], param: str, message: str) -> ModelErrorKind:
    match status:
        case 401 | 403:
            return "auth"
        case 402:
            return "quota"
        case 404:
            return "not_found"
        case 408:
            return "timeout"
        case 413:
            return "too_long"
        case 429:
            return "quota" if codes & _QUOTA_CODES else "rate_limit"
        case 409 | 425:
            return "server"
        case _ if status >= 500:
            return "server"
    if codes & _TOO_LONG_CODES or param == "input_tokens" or _TOO_LONG.search(message):
        return "too_long"
    if codes & _FILTER_CODES:
        return "content_filter"
    if codes & {"invalid_api_key"} or _BAD_KEY.search(message):
        return "auth"
    return "bad_request"


def _body(error: APIStatusError) -> object:
    try:
        return error.response.json()
    except (ValueError, RecursionError, httpx2.HTTPError):
        return error.body


def _error_fields(body: object) -> tuple[str, str, str, str]:
    """(code, type, param, message) of an error body in the shapes of OpenAI, vLLM, llama.cpp, Gemini and FastAPI."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return "", "", "", str(body)[:300] if isinstance(body, str) and "<" not in body else ""
    error = body.get("error", body)
    if not isinstance(error, dict):
        return "", "", "", str(error)[:300]
    message = error.get("message") or error.get("detail") or ""
    code, kind, param = (str(error.get(key) or "") for key in ("code", "type", "param"))
    return code, kind, param, str(message)[:300]


def _cause(error: BaseException) -> str:
    text = str(error).rstrip(".") or type(error).__name__
    match error:
        case httpx2.ConnectError():
            return f"can't connect: {text}"
        case httpx2.RemoteProtocolError() | httpx2.ReadError() | httpx2.WriteError() | httpx2.DecodingError():
            return f"the answer broke off: {text}"
        case _:
            return text


def retry_after(headers: Mapping[str, str], body: object = None) -> float | None:
    """Seconds that the endpoint asks to wait: `Retry-After` (seconds or a date), its form in milliseconds, or
    Gemini's `retryDelay` in the body. None when it doesn't say."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if value:
        try:
            date = parsedate_to_datetime(value).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    found = re.search(r"""['"]retryDelay['"]: *['"]([\d.]+)s['"]""", str(body))
    return _number(found[1]) if found else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r" *\d{1,9}(\.\d+)? *", text) else None


def scrub(text: str, key: str | None) -> str:
    """`text` without the key, whole, in part or masked: endpoints like to quote what they refuse."""
    text = re.sub(r"://[^/\s@]+@", "://", text)
    if key and len(key) >= 8:
        text = text.replace(key, "[key]")
        pieces = {key[i : i + 6] for i in range(len(key) - 5)}
        words = re.split(rf"(\s+|(?<!\S)\(+|[).,;:]+{END})", text)
        text = "".join("[key]" if any(piece in word for piece in pieces) else word for word in words)
    elif key:
        text = text.replace(key, "[key]")
    return KEY_LIKE.sub("[key]", text)


def explain(spec: Spec, failure: Failure, attempts: int) -> str:
    """The line for people: which model, what happened, what mends it."""
    url = failure.server or spec.shown_url
    start = spec.start if isinstance(spec, ModelSpec) else None
    tries = "" if attempts == 1 else f" after {attempts} attempts"
    said = failure.detail
    match failure.kind:
        case "auth" if spec.key_env:
            text = f"the endpoint refused the key in {spec.key_env} ({said}). Check the key and what it may use."
        case "auth":
            text = f"the endpoint wants a key ({said}). Set key_env in its registry entry and that variable."
        case "not_found":
            mend = "Check base_url and served in its registry entry" + (f", or start it: {start}" if start else "")
            text = f"{url} knows no {spec.served!r} ({said}). {mend}."
        case "quota":
            text = f"the account's quota is used up ({said}). Top it up, or use another model; waiting doesn't help."
        case "rate_limit":
            text = f"rate limited{tries} ({said}). Lower its concurrency in the registry, or go on later."
        case "timeout":
            most = failure.limit_s or spec.timeout_s
            text = f"no answer within {most:g} s{tries}. Raise timeout_s in its registry entry, or go on later."
        case "connection" if spec.replicas and attempts >= len(spec.servers):
            text = (
                f"none of its {len(spec.servers)} servers can be reached{tries} (the last, {url}: {said}). "
                "Start one, or check base_url and replicas in its registry entry."
            )
        case "connection" if start:
            text = f"{url} can't be reached{tries} ({said}). Start it: {start}"
        case "connection" if spec.kind == "embedded":
            text = f"the embedded model can't be reached{tries} ({said}). Its log is in the logs folder; try again."
        case "connection":
            text = f"{url} can't be reached{tries} ({said}). Check base_url and the network."
        case "server":
            text = f"the endpoint failed{tries} ({said}). Go on later."
        case "too_long":
            text = f"the prompt is longer than the model's context ({said}). Use fewer memories or a longer context."
        case "content_filter":
            text = f"the provider's filter refused ({said}). Another provider may answer."
        case "bad_reply":
            text = f"{url} doesn't answer like a chat API{tries} ({said}). Check base_url and any proxy."
        case "empty" | "bad_request":
            text = f"the endpoint refused the request ({said}). Check extra_body and served in its registry entry."
    return f"{spec.name}: {text}"
