"""What the gateway says no with: OpenAI's error shape, and a status for every kind of failure behind it."""

from __future__ import annotations

from starlette.responses import JSONResponse

from opbench.errors import ModelError, ModelErrorKind

_STATUS: dict[ModelErrorKind, int] = {
    "auth": 401,
    "not_found": 404,
    "quota": 429,
    "rate_limit": 429,
    "timeout": 504,
    "connection": 502,
    "server": 502,
    "bad_request": 400,
    "too_long": 400,
    "content_filter": 400,
    "bad_reply": 502,
    "empty": 502,
}
#: As OpenAI calls them, so that libraries that look at codes know them.
_CODES: dict[ModelErrorKind, str] = {
    "auth": "invalid_api_key",
    "not_found": "model_not_found",
    "quota": "insufficient_quota",
    "rate_limit": "rate_limit_exceeded",
    "too_long": "context_length_exceeded",
}


class Refused(Exception):
    """A request that the gateway doesn't take: the line says what, and what to send instead."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, code: str = "bad_request") -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code

    def response(self) -> JSONResponse:
        return error_response(self.status, str(self), code=self.code, param=self.param)

    def failure(self, model: str) -> ModelError:
        """The same for whoever drives the library, which may have swallowed the answer."""
        kind: ModelErrorKind = "not_found" if self.status == 404 else "bad_request"
        return ModelError(f"gateway: {self}", kind=kind, model=model, attempts=0)


def model_error_response(error: ModelError) -> JSONResponse:
    """The answer to a call that failed for good behind the gateway."""
    return error_response(_STATUS[error.kind], str(error), code=_CODES.get(error.kind, error.kind))


def error_response(status: int, message: str, *, code: str, param: str | None = None) -> JSONResponse:
    """An error in OpenAI's shape. The client behind has tried again already where it could help: the header keeps
    OpenAI's SDK from doing so once more."""
    kind = "invalid_request_error" if status < 429 else "api_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, headers={"x-should-retry": "false"})
