"""Reads the fields of a request's JSON, checks their types, and knows which of them nobody has read.

`ApiError` is the error for a client: an HTTP status and a body in the form of OpenAI's or Anthropic's API.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rdchat.inference.api import JSON_LIMITS, parsed_json

# `ApiError.code` of a prompt that is too long.
CONTEXT_FULL = "context_length_exceeded"
# Types of errors by HTTP status, as each API names them.
_OPENAI = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC = _OPENAI | {413: "request_too_large", 503: "overloaded_error"}
# The index of an entry, as in `messages[0]`.
_NUMBER = re.compile(r"\[\d+\]")
# Largest number of entries of a list; that of Anthropic's API for messages. More would keep the server busy for long.
MAX_ENTRIES = 100_000
# Largest number of texts that end a reply.
MAX_STOPS = 64
# Most characters of one such text: after each token the end of the reply is compared with all its beginnings.
MAX_STOP_CHARACTERS = 1000


@dataclass
class ApiError(Exception):
    """A request that is refused, or that failed.

    Attributes:
        status: The HTTP status.
        message: What happened and what to do, for people.
        param: The field of the request that is wrong; empty where none is.
        code: OpenAI's code; empty for none. Some clients recognise `context_length_exceeded` by the message instead.
        headers: Headers of the response, such as `retry-after`.
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


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(400, "The body is not UTF-8.") from error
    parsed = parsed_json(text)
    if not isinstance(parsed, dict):
        raise ApiError(400, f"The body is not a JSON object. {JSON_LIMITS}")
    return parsed


def object_of(value: Any, name: str) -> Mapping[str, Any]:
    """Return a JSON object as it is; anything else is refused."""
    if not isinstance(value, dict):
        raise wrong(name, "must be an object.")
    return value


def without_numbers(name: str) -> str:
    """Return the name of a field without indices: `messages.content` for `messages[0].content[1]`."""
    return _NUMBER.sub("", name)


def check_length(listed: list[Any], name: str) -> None:
    """Raise ApiError if a list has too many entries."""
    if len(listed) > MAX_ENTRIES:
        raise wrong(name, f"has more than {MAX_ENTRIES:,} entries.")


class Fields:
    """The fields of a JSON object. A field with the value null counts as absent.

    Each method that returns a field also marks it as read. `unread` returns the names of the others, of which the
    client is told in a header.

    Args:
        values: The object.
        name: The object's name in errors, such as `messages[0]`; empty for the body.

    Attributes:
        values: The object's values but null.
        ignored: Names of fields that were read but have no effect here, as paths from this object; callers add them.
    """

    def __init__(self, values: Mapping[str, Any], name: str = "") -> None:
        self.values = {name: value for name, value in values.items() if value is not None}
        self._name = name
        self._read: set[str] = set()
        self.ignored: list[str] = []
        # Objects inside this one.
        self._parts: list[Fields] = []

    def field_name(self, field: str) -> str:
        """Return a field's name for errors."""
        return ".".join(filter(None, (self._name, field)))

    def raw_value(self, field: str, default: Any = None) -> Any:
        """Return a value of any type."""
        self._read.add(field)
        return self.values.get(field, default)

    def read_text(self, field: str, default: str | None = None) -> str:
        """Return a text; without a default it must be there."""
        return self._of_kind(field, str, default, "a text")

    def flag(self, field: str, default: bool = False) -> bool:
        return self._of_kind(field, bool, default, "true or false")

    def items(self, field: str) -> list[Any]:
        """Return a list; empty where it is absent."""
        listed = self._of_kind(field, list, [], "a list")
        check_length(listed, self.field_name(field))
        return listed

    def part(self, field: str) -> "Fields":
        """Return an object; an empty one where it is absent."""
        return self.inner(self._of_kind(field, dict, {}, "an object"), field)

    def inner(self, value: Any, path: str) -> "Fields":
        """Return the fields of an object inside this one, by its path from here; `unread` names theirs too."""
        fields = Fields(object_of(value, self.field_name(path)), self.field_name(path))
        self._parts.append(fields)
        return fields

    def inners(self, field: str) -> "list[Fields]":
        """Return a list of objects; empty where it is absent."""
        return [self.inner(value, f"{field}[{index}]") for index, value in enumerate(self.items(field))]

    def read_integer(self, field: str, low: int, high: int) -> int | None:
        """Return a whole number; None where it is absent."""
        value = self.raw_value(field)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise wrong(self.field_name(field), f"must be a whole number from {low} to {high}.")
        return value

    def stops(self, field: str) -> tuple[str, ...]:
        """Return the texts before which a reply ends; empty ones are left out."""
        given = self.raw_value(field, [])
        listed = [given] if isinstance(given, str) else given
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise wrong(self.field_name(field), "must be a text, or a list of texts.")
        if len(listed) > MAX_STOPS:
            raise wrong(self.field_name(field), f"may have at most {MAX_STOPS} texts.")
        if any(len(each) > MAX_STOP_CHARACTERS for each in listed):
            raise wrong(self.field_name(field), f"has a text of more than {MAX_STOP_CHARACTERS:,} characters.")
        return tuple(each for each in listed if each)

    def number(self, field: str) -> float | None:
        """Return a number; None where it is absent."""
        value = self.raw_value(field)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong(self.field_name(field), "must be a number.")
        try:
            return float(value)
        except OverflowError as error:
            raise wrong(self.field_name(field), "is too large.") from error

    def refuse(self, why: str, *fields: str, neutral: tuple[Any, ...] = ()) -> None:
        """Refuse known fields that cannot be honoured, unless they have a value that changes nothing."""
        for name in fields:
            value = self.raw_value(name)
            if value is not None and value not in (*neutral, [], {}, False, ""):
                raise unsupported(self.field_name(name), why)

    def unread(self) -> tuple[str, ...]:
        """Return the names of the fields that had no effect, also inside objects, without indices; sorted.

        They are full paths from the body. It is asked once all is read: what is read later would be among them.
        """
        fields = {*self.ignored, *(self.values.keys() - self._read)}
        names = {without_numbers(self.field_name(field)) for field in fields}
        return tuple(sorted(names.union(*(part.unread() for part in self._parts))))

    def _of_kind[T](self, field: str, kind: type[T], default: T | None, label: str) -> T:
        """Return a field's value if it has a type; `label` names the type in the error."""
        value = self.raw_value(field, default)
        if not isinstance(value, kind):
            raise wrong(self.field_name(field), f"must be {label}.")
        return value
