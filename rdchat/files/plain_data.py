"""Reads dataclasses from JSON: strictly, or from any version, where a field that cannot be read has its default."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_RANGE = 2**64

type Reader = Callable[[Any], Any]


def json_or_none(text: str | bytes) -> Any:
    """Parse JSON; return None where it is damaged or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_text(value: object) -> str:
    """Return a text as it is, and any other JSON value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_nested_deeper(value: object, levels: int) -> bool:
    """Return whether a JSON value has more levels of objects and lists than `levels`."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(inner, dict | list)]  # fmt: skip
    return bool(level)


def from_plain[T: "DataclassInstance"](default: T, data: Mapping[str, Any]) -> tuple[T, list[str]]:
    """Return `default` with the values in `data`.

    Args:
        default: Has the value of every field that is missing or wrong in `data`.
        data: Parsed JSON. Unknown names are ignored.

    Returns:
        The dataclass, and the names of wrong fields, such as `sampling.top_p`.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, read in _readers(type(default)).items():
        if name not in data:
            continue
        try:
            current = getattr(default, name)
            if is_dataclass(current) and not isinstance(current, type) and isinstance(data[name], Mapping):
                values[name], inner = from_plain(current, data[name])
                wrong += [f"{name}.{field}" for field in inner]
            else:
                values[name] = read(data[name])
        except (TypeError, ValueError, OverflowError):
            wrong.append(name)
    try:
        return replace(default, **values), wrong
    # A value is out of range: find which.
    except ValueError:
        for name, value in values.items():
            try:
                default = replace(default, **{name: value})
            except ValueError:
                wrong.append(name)
        return default, wrong


def plain[T: "DataclassInstance"](kind: type[T], data: Any) -> T:
    """Return a dataclass from the parsed JSON of its `asdict`; unknown names are ignored.

    Args:
        kind: The dataclass.
        data: The JSON.

    Raises:
        TypeError: If a field is missing or has another type.
        ValueError: If a value is out of range.
    """
    made: T = _builder(kind)(data)
    if not _readers(kind).keys() <= data.keys():
        raise TypeError(f"{data!r} is not a {kind}")
    return made


@cache
def _readers(kind: type["DataclassInstance"]) -> dict[str, Reader]:
    hints = get_type_hints(kind)
    return {field.name: reader_of(hints[field.name]) for field in fields(kind)}


def reader_of(hint: Any) -> Reader:
    """Return the function that converts parsed JSON to type `hint`; it raises TypeError or ValueError."""
    if get_origin(hint) is UnionType:
        (inner,) = (reader_of(option) for option in get_args(hint) if option is not NoneType)
        return lambda value: None if value is None else inner(value)
    if (kind := get_origin(hint)) in {tuple, list, frozenset}:
        inner = reader_of(get_args(hint)[0])
        items = _exactly(list)
        return lambda value: kind([inner(item) for item in items(value)])
    if kind is dict:
        inner = reader_of(get_args(hint)[1])
        return lambda value: {name: inner(item) for name, item in _exactly(dict)(value).items()}
    if is_dataclass(hint):
        return _builder(hint)
    if issubclass(hint, Enum):
        return cast("Reader", hint)
    return {float: _finite, int: _integer, bytes: _latin_1}.get(hint) or _exactly(hint)


def _builder(kind: Any) -> Reader:
    """Return the function that makes a dataclass from JSON, which must have right values and no missing fields."""
    readers = _readers(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    mapping = _exactly(dict)

    def build(value: Any) -> Any:
        data = mapping(value)
        if not needed <= data.keys():
            raise TypeError(f"{value!r} is not a {kind}")
        return kind(**{name: read(data[name]) for name, read in readers.items() if name in data})

    return build


def _finite(value: Any) -> float:
    number = value if type(value) is float else float(_integer(value))
    if not math.isfinite(number):  # Python's JSON allows infinity and NaN, with which no figure can be computed
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _integer(value: Any) -> int:
    number: int = _exactly(int)(value)
    # Larger numbers may overflow in a division.
    if abs(number) >= _RANGE:
        raise ValueError("a number is too large")
    return number


def _latin_1(value: Any) -> bytes:
    text: str = _exactly(str)(value)
    return text.encode("latin-1")


def _exactly(kind: Any) -> Reader:
    def read(value: Any) -> Any:
        # `isinstance` would accept True for 1.
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not a {kind}")
        return value

    return read
