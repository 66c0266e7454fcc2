"""The shape that an answer must have. No MLX and no Qt here."""

import json
from dataclasses import dataclass
from enum import StrEnum

from rdchat.errors import InvalidSettingError
from rdchat.files.plain_data import is_nested_deeper

SHAPE_HINT = "Make it smaller or simpler."
MAX_SOURCE_BYTES = 256 * 2**10

# Levels of a schema's JSON.
MAX_NESTED = 64


class ShapeKind(StrEnum):
    """How a shape is written down.

    Attributes:
        JSON: Any JSON object.
        SCHEMA: A JSON schema.
        REGEX: A regular expression for the whole answer.
        GRAMMAR: A grammar in llguidance's dialect of Lark.
    """

    JSON = "json"
    SCHEMA = "schema"
    REGEX = "regex"
    GRAMMAR = "grammar"


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """The shape of an answer; its text has this shape if the reply ends by itself.

    Attributes:
        source: The schema, expression or grammar; empty for `JSON`.
        unenforced: JSON object: the schemas that a finished answer is checked with, because `source` does not enforce
            them completely. The keys are the names of the tools whose arguments they describe; the answer itself has
            an empty key. Without a check the text is empty.
        left_out: Keywords that `source` does not enforce, by the name of their tool.

    Raises:
        InvalidSettingError: If the source is too large, empty, or no JSON where it must be.
    """

    kind: ShapeKind
    source: str = ""
    unenforced: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        what = self.label
        if len(self.source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
            raise InvalidSettingError(f"The {what} is larger than {MAX_SOURCE_BYTES // 2**10} kB.")
        if self.kind is not ShapeKind.JSON and not self.source.strip():
            raise InvalidSettingError(f"The {what} is empty.")
        if self.kind is ShapeKind.SCHEMA:
            _check_schema(self.source)

    @property
    def label(self) -> str:
        """Its name for people."""
        names = {ShapeKind.SCHEMA: "JSON schema", ShapeKind.REGEX: "regular expression", ShapeKind.GRAMMAR: "grammar"}
        return names.get(self.kind, "shape")


def _check_schema(source: str) -> None:
    try:
        schema = json.loads(source)
    except RecursionError:
        raise InvalidSettingError("The JSON schema is nested too deeply.") from None
    except ValueError as error:
        raise InvalidSettingError("The JSON schema is not JSON yet.", f"{error}.") from error
    if not isinstance(schema, dict):
        raise InvalidSettingError("The JSON schema is not a JSON object.")
    if is_nested_deeper(schema, MAX_NESTED):
        raise InvalidSettingError(f"The JSON schema is nested deeper than {MAX_NESTED} levels.")
