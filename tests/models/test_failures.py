"""Every error of the HTTP client, the SDK and the endpoints becomes one of ours."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, get_args

import httpx2
import openai
import pytest

from opbench.errors import ModelErrorKind
from opbench.models import load_registry
from opbench.models.failures import Failure, explain, from_exception, from_status, retry_after, scrub

REQUEST = httpx2.Request("POST", "http://h/v1/chat/completions")
KEY = "sk-proj-Abc123456789xyzW"


def openai_error(message: str = "", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": None, "param": None, "code": None} | fields}


@pytest.mark.parametrize(
    ("status", "body", "kind", "retried"),
    [
        (400, openai_error("bad temperature"), "bad_request", False),
        (400, openai_error(code="context_length_exceeded"), "too_long", False),
        (400, {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}}, "too_long", False),
        (400, openai_error("too many", type="BadRequestError", param="input_tokens", code=400), "too_long", False),
        (400, openai_error("This model's maximum context length is 8192 tokens"), "too_long", False),
        (400, openai_error(code="content_filter"), "content_filter", False),
        (400, [openai_error("API key not valid. Please pass a valid API key.", code=400)], "auth", False),
        (401, openai_error(code="invalid_api_key"), "auth", False),
        (402, openai_error("Insufficient Balance"), "quota", False),
        (403, openai_error("country"), "auth", False),
        (404, openai_error(code="model_not_found"), "not_found", False),
        (404, {"detail": "Not Found"}, "not_found", False),
        (405, None, "bad_request", False),
        (408, None, "timeout", True),
        (409, None, "server", True),
        (413, None, "too_long", False),
        (422, {"detail": [{"msg": "field required"}]}, "bad_request", False),
        (429, openai_error(code="rate_limit_exceeded"), "rate_limit", True),
        (429, openai_error("You exceeded your current quota", code="insufficient_quota"), "quota", False),
        # Gemini's words for a limit by the minute
        (429, [openai_error("You exceeded your current quota", code=429)], "rate_limit", True),
        (500, "<html>oops</html>", "server", True),
        (502, None, "server", True),
        (503, openai_error("overloaded"), "server", True),
        (529, None, "server", True),
    ],
)
def test_statuses(status: int, body: object, kind: str, retried: bool) -> None:
    failure = from_status(status, body, {})
    assert (failure.kind, failure.retried) == (kind, retried)
    assert failure.detail.startswith(str(status))
    assert "<html>" not in failure.detail


def sdk_error(status: int) -> openai.APIStatusError:
    response = httpx2.Response(status, request=REQUEST, json=openai_error("m"))
    return openai.APIStatusError("m", response=response, body=None)


def connection_error(cause: Exception) -> openai.APIConnectionError:
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (TimeoutError(), "timeout", "no answer in time"),
        (openai.APITimeoutError(REQUEST), "timeout", "no answer in time"),
        (connection_error(httpx2.ConnectError("refused")), "connection", "can't connect: refused"),
        (connection_error(httpx2.RemoteProtocolError("peer closed")), "connection", "the answer broke off"),
        (connection_error(httpx2.ReadError("")), "connection", "the answer broke off: ReadError"),
        (openai.APIResponseValidationError(httpx2.Response(200, request=REQUEST), None), "bad_reply", ""),
        (sdk_error(503), "server", "503: m"),
        (sdk_error(401), "auth", "401: m"),
    ],
)
def test_errors_of_the_sdk(error: Exception, kind: str, said: str) -> None:
    failure = from_exception(error)
    assert failure.kind == kind
    assert said in failure.detail


def test_every_error_of_the_http_client_is_timeout_or_connection() -> None:
    errors = [c for _, c in inspect.getmembers(httpx2, inspect.isclass) if issubclass(c, httpx2.TransportError)]
    assert len(errors) > 10
    for error in errors:
        expected = "timeout" if issubclass(error, httpx2.TimeoutException) else "connection"
        assert from_exception(error("x")).kind == expected, error


def test_every_kind_has_a_line_with_a_mend() -> None:
    spec = load_registry().model("gpt-4o-mini")
    for kind in get_args(ModelErrorKind):
        line = explain(spec, Failure(kind, "what it said"), 3)
        assert line.startswith("gpt-4o-mini: ")
        assert re.search(r"\. [A-Z].*[a-z.]$", line), line
    said = explain(load_registry().model("qwen3-8b"), Failure("connection", "x"), 2)
    assert said.endswith("Start it: opbench serve qwen3-8b")


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"retry-after": "7"}) == 7.0
    assert retry_after({"retry-after": "0.5"}) == 0.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": soon}) == pytest.approx(30, abs=2)
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after({}, [{"error": {"details": [{"retryDelay": "34.5s"}]}}]) == 34.5
    for nonsense in ("soon", "-5", "nan", "inf", ""):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


@pytest.mark.parametrize(
    "quoted",
    [
        KEY,
        KEY[:8] + "****" + KEY[-4:],
        f"Bearer {KEY}",
        f"({KEY[:12]})",
        f"key={KEY}.",
        KEY[-8:],
        "AIzaSyD0123456789abc",
    ],
)
def test_no_part_of_a_key_stays(quoted: str) -> None:
    text = scrub(f"m: refused {quoted} today", KEY)
    assert not any(KEY[i : i + 4] in text for i in range(3, len(KEY) - 3))
    assert "AIzaSy" not in text
    assert text.startswith("m: refused ")
    assert text.endswith(" today")


@pytest.mark.parametrize("key", [KEY, None])
def test_what_stands_around_a_key_stays(key: str | None) -> None:
    quoted = f"m: refused (401: wrong key {KEY} ({KEY[:8]}****{KEY[-4:]}; Bearer {KEY})). Check it."
    assert scrub(quoted, key) == "m: refused (401: wrong key [key] ([key]; [key])). Check it."


def test_passwords_in_addresses_go_and_other_words_stay() -> None:
    assert scrub("at https://me:secret@host/v1", None) == "at https://host/v1"
    assert scrub("qwen3-8b: http://h/v1 knows no 'sk'", KEY) == "qwen3-8b: http://h/v1 knows no 'sk'"
    assert scrub("a short one: EMPTY", "EMPTY") == "a short one: [key]"


@pytest.mark.parametrize(
    ("content", "text"), [("cut \ud83d", "cut ?"), ("nul \0 inside", "nul \ufffd inside"), ("whole 🐝", "whole 🐝")]
)
def test_what_no_store_can_keep_is_taken_out_of_an_answer(content: str, text: str) -> None:
    from opbench.models.replies import chat_result

    data = {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    assert chat_result(data, 1.0).text == text
