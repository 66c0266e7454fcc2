"""Arguments, results and events of `Engine` as JSON, by their types. No MLX and no Qt."""

from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from rdchat.inference.api.bench_plan import BenchEvent
from rdchat.inference.api.events import GenerationEvent
from rdchat.inference.api.protocol import Engine

EVENTS: dict[str, Any] = {"generate": GenerationEvent, "benchmark": BenchEvent}
"""Types of the events, by the method of `Engine` that begins them."""
# A token's bytes need not be text. Earlier replies are an object of one process, so they are not sent.
_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", arbitrary_types_allowed=True)


def plain(kind: Any, value: Any) -> Any:
    """Return a value of a type, or None, as JSON."""
    return _adapter(kind).dump_python(value, mode="json")


def read(kind: Any, data: Any) -> Any:
    """Return the value that `plain` made into JSON; raise ValueError if it has another type."""
    return _adapter(kind).validate_python(data)


@cache
def kinds_of(method: str) -> dict[str, Any]:
    """Return the types of the arguments of a method of `Engine`, and of its result as `return`."""
    return get_type_hints(getattr(Engine, method))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # The configuration applies to the fields of dataclasses only if these are a part of the type.
    return TypeAdapter(kind | None, config=_CONFIG)
