"""Errors of the APIs: each has a status, and one form for OpenAI's clients and one for Anthropic's."""

from dataclasses import dataclass, field
from typing import Any

_OPENAI = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
CONTEXT_FULL = "context_length_exceeded"
_ANTHROPIC = _OPENAI | {413: "request_too_large", 503: "overloaded_error"}


@dataclass
class ApiError(Exception):
    """A request that is refused, or that failed.

    Attributes:
        status: The HTTP status.
        message: What happened and what to do, for people.
        param: The field of the request that is wrong; empty where none is.
        code: OpenAI's code; empty for none. Some clients recognise `context_length_exceeded` by the message instead.
        headers: Those of the response, such as `retry-after`.
    """

    status: int
    message: str
    param: str = ""
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def openai(self) -> dict[str, Any]:
        """Return the body of the error for OpenAI's clients."""
        kind = _OPENAI.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message = self.message
        if self.code == CONTEXT_FULL:
            message = f"This model's maximum context length is exceeded. {message}"
        named = {"message": message, "type": kind, "param": self.param or None, "code": self.code or None}
        return {"error": named}

    def anthropic(self) -> dict[str, Any]:
        """Return the body of the error for Anthropic's clients."""
        kind = _ANTHROPIC.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        message = f"{self.param}: {self.message}" if self.param else self.message
        if self.code == CONTEXT_FULL:
            message = f"prompt is too long: {message}"
        return {"type": "error", "error": {"type": kind, "message": message}}


def wrong(param: str, what: str) -> ApiError:
    """Return the error for a field with a wrong value; `what` says what it must be, or is."""
    return ApiError(400, f"`{param}` {what}", param)


def unsupported(param: str, why: str) -> ApiError:
    """Return the error for a field that is known but cannot be honoured."""
    return ApiError(400, f"`{param}` is not supported: {why}", param, "unsupported_parameter")
