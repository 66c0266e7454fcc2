"""Prepares JSON schemas of answers for llguidance, checks finished answers, and writes schemas for chat templates.

The server makes one schema of those of all tools, whose parameters come from many programs. `JoinedSchemas` does that:
- A reference keeps its meaning: its target becomes a definition of the new root, with a name of its own. llguidance
  resolves `$id`, too, but two tools may have the same one. No reference is ever fetched.
- What changes nothing is removed. llguidance knows what older drafts write in another way.
- What no grammar can enforce is left out, unless a tool is strict. `reject_unfit` then checks the finished answer.

`template_schema` is for chat templates, most of which know no references. A check may take for ever, so only a child
process runs `reject_unfit`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from rdchat.errors import ModelError

if TYPE_CHECKING:
    import llguidance

# Keywords whose value is a schema, a list of schemas, and an object of schemas; `items` has been both.
_SCHEMA_KEYS = frozenset((
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_LIST_KEYS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_MAP_KEYS = frozenset(("dependentSchemas", "patternProperties", "properties"))
# Keywords that say what references mean, and definitions: references are resolved, so a rewritten schema has none.
_REFERENCE_KEYS = frozenset((
    "$anchor", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "definitions", "id",
))  # fmt: skip
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
# The formats that llguidance knows.
_FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# Python's types of the values of some keywords.
_VALUE_TYPES: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), (int, float)),
    **dict.fromkeys(("enum", "required"), list),
    **dict.fromkeys(_MAP_KEYS, dict),
}
# Keywords that llguidance lacks.
_LACKING = (
    "$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
    "maxContains", "minContains", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems",
)  # fmt: skip
# Limit of subschemas, each counted as often as it is written.
_MAX_PARTS = 20_000
# Limits of the schemas with which llguidance is tried, some 2 ms each: their number, their characters, in which
# references are written out, and the branches of one.
_MAX_TRIED = 64
_MAX_TRIED_CHARACTERS = 2**20
_MAX_BRANCHES = 100
# Limits of the characters that references add to one schema, and of references in each other.
_MAX_EXPANDED = 2**16
_DEEPEST_EXPANDED = 12

# Whitespace is one space or none, since a small model may write blank lines for ever.
_JSON: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}

Change = Callable[[Any, Any], Any]
"""Takes a subschema and the resolver of its references, and returns what replaces it."""


class SchemaError(ValueError):
    """A schema cannot be used; the message is one line for people, without a full stop."""


def _resolver_of(schema: Mapping[str, Any]) -> Any:
    """Return the resolver of a complete schema's references. It fetches nothing.

    `crawl` collects names at once: a registry that does not know one looks through the complete schema each time.
    """
    specification = specification_with(str(schema.get("$schema", "")), DRAFT202012)
    root = specification.create_resource(schema)
    name = root.id() or ""
    try:
        return Registry().with_resource(name, root).crawl().resolver(name)
    except (AttributeError, KeyError, TypeError, ValueError):
        # Something in it is no schema: only pointers, such as `#/$defs/N`, are resolved.
        return Registry().resolver_with_root(Specification.OPAQUE.create_resource(schema))


def _target(reference: object, resolver: Any) -> tuple[Any, Any]:
    """Return the schema that a reference names, with the resolver of its own references."""
    try:
        target = resolver.lookup(reference)
    except (Unresolvable, ValueError, TypeError, AttributeError, KeyError) as error:
        raise SchemaError(f"nothing in it is named {str(reference)[:100]!r}, and rdchat fetches no schema") from error
    if not isinstance(target.contents, dict | bool):
        raise SchemaError(f"{str(reference)[:100]!r} is no schema")
    return target.contents, target.resolver


def _with_changed_parts(schema: Mapping[str, Any], resolver: Any, change: Change) -> dict[str, Any]:
    """Return a schema with its direct subschemas changed, definitions excepted."""

    def changed(subschema: Any) -> Any:
        if isinstance(subschema, bool):
            return subschema
        if not isinstance(subschema, dict):
            raise SchemaError(f"{str(subschema)[:100]!r} stands in the place of a schema")
        # References inside a subschema with an `$id` are relative to it.
        base = str(subschema.get("$id", "")).partition("#")[0]
        inner = resolver.in_subresource(DRAFT202012.create_resource({"$id": base})) if base else resolver
        return change(subschema, inner)

    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LIST_KEYS and isinstance(value, list):
            result[key] = [changed(each) for each in value]
        elif key in _MAP_KEYS and isinstance(value, dict):
            result[key] = {name: changed(each) for name, each in value.items()}
        else:
            result[key] = changed(value) if key in _SCHEMA_KEYS else value
    return result


@dataclass
class JoinedSchemas:
    """Schemas that become parts of one schema. The caller keeps each of them, since they are known by their identity.

    Each is rewritten from its root inwards (`_rewritten`). The targets of its references follow, one by one, so that a
    long chain of references is no deep recursion.

    Attributes:
        max_bytes: Limit of the JSON of one schema.
        _definitions: The `$defs` of the new root.
        _names: Names of definitions, by the target's identity and base.
        _waiting: Definitions that are not rewritten yet: name, schema and resolver.
        _tried: Whether llguidance takes a small schema, by its JSON.
        _tried_characters: Length of all of these.
        _parts: Number of subschemas.
        _soften, _left_out: See `add_schema`; of the schema that is being added.
        _uncheckable: A pattern of names in it with which no answer can be checked; empty for none.
    """

    max_bytes: int
    _definitions: dict[str, Any] = field(default_factory=dict)
    _names: dict[tuple[int, str], str] = field(default_factory=dict)
    _waiting: list[tuple[str, Any, Any]] = field(default_factory=list)
    _tried: dict[str, bool] = field(default_factory=dict)
    _tried_characters: int = 0
    _parts: int = 0
    _soften: bool = False
    _left_out: list[str] = field(default_factory=list)
    _uncheckable: str = ""

    def with_definitions(self, root: dict[str, Any]) -> dict[str, Any]:
        """Return the new root with the definitions to which its parts refer."""
        return root | {"$defs": self._definitions} if self._definitions else root

    def add_schema(self, schema: Mapping[str, Any], *, soften: bool) -> tuple[dict[str, Any], list[str]]:
        """Return a schema whose references name definitions of the new root, and the keywords that were left out.

        Args:
            schema: A complete schema.
            soften: Whether to leave out what no grammar can enforce. What remains accepts at least the same values.

        Raises:
            SchemaError: If a reference names nothing, the schema is too large, or answers cannot be checked.
        """
        # An earlier schema may have been refused.
        self._waiting.clear()
        self._soften = soften
        self._left_out = []
        self._uncheckable = ""
        for key in ("$defs", "definitions"):
            if not isinstance(schema.get(key, {}), dict):
                raise SchemaError(f"its `{key}` is no object")
        if len(json.dumps(schema)) > self.max_bytes:
            raise SchemaError("it is too large")
        try:
            result: dict[str, Any] = self._rewritten(schema, _resolver_of(schema))
            while self._waiting:
                name, target, resolver = self._waiting.pop()
                self._definitions[name] = self._rewritten(target, resolver) if isinstance(target, dict) else target
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise SchemaError("it is no JSON schema") from error
        if self._left_out and self._uncheckable:
            # jsonschema would fail at this pattern, and check nothing of the answer.
            raise SchemaError(f"answers cannot be checked for `{self._left_out[0]}`: {self._uncheckable}")
        return result, self._left_out

    def _rewritten(self, schema: Mapping[str, Any], resolver: Any) -> Any:
        """Return a schema or subschema as llguidance takes it."""
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise SchemaError("it is too large")
        changed = {key: value for key, value in schema.items() if key not in _REFERENCE_KEYS}
        _make_plain(changed)
        for key, kind in _VALUE_TYPES.items():
            if key in changed and not isinstance(changed[key], kind):
                raise SchemaError(f"its `{key}` has a wrong type")
        if "oneOf" in changed:
            self._replace_one_of(changed)
        if self._soften:
            self._leave_out(changed)
        result = _with_changed_parts(changed, resolver, self._rewritten)
        if "$ref" in result:
            result["$ref"] = self._new_reference(result["$ref"], resolver)
        return result

    def _new_reference(self, reference: object, resolver: Any) -> str:
        """Return the reference to the definition of a reference's target."""
        target, inner = _target(reference, resolver)
        # The same schema may be read with two bases: then its own references mean different things.
        key = id(target), getattr(inner, "_base_uri", "")
        if key not in self._names:
            self._names[key] = f"s{len(self._names)}"
            self._waiting.append((self._names[key], target, inner))
        return f"#/$defs/{self._names[key]}"

    def _replace_one_of(self, schema: dict[str, Any]) -> None:
        """Make `oneOf` an `anyOf`; it means the same if no value fits two of the schemas.

        llguidance finds out whether that is so, but does not look behind references. Where it does not know, a softened
        schema gets the `anyOf` all the same, and `oneOf` counts as left out; a strict one is left.
        """
        branches = schema["oneOf"]
        are_apart = len(branches) <= _MAX_BRANCHES and self._is_followed({"oneOf": branches})
        if are_apart or self._soften:
            del schema["oneOf"]
            if "anyOf" in schema:
                # Both must hold.
                schema["allOf"] = [*schema.get("allOf", []), {"anyOf": branches}]
            else:
                schema["anyOf"] = branches
            if not are_apart:
                self._left_out.append("oneOf")

    def _leave_out(self, schema: dict[str, Any]) -> None:
        """Leave out what llguidance cannot enforce."""
        wrong = [key for key in _LACKING if key in schema]
        if "pattern" in schema and not self._is_followed({"pattern": schema["pattern"]}):
            wrong.append("pattern")
        patterns = schema.get("patternProperties") or {}
        if patterns and (
            len(patterns) > 1 or not self._is_followed({"patternProperties": {key: {} for key in patterns}})
        ):
            wrong.append("patternProperties")
            # This is about the names that no pattern fits.
            schema.pop("additionalProperties", None)
        for name in patterns:
            try:
                re.compile(name)
            except (re.error, RecursionError, OverflowError):
                self._uncheckable = f"{name[:50]!r} is no pattern that Python knows"
        wrong += [key for key in _COUNTS if key in schema and (type(schema[key]) is not int or schema[key] < 0)]
        step = schema.get("multipleOf", 1)
        if not isinstance(step, int | float) or not 1e-6 <= step <= 1e9:
            wrong.append("multipleOf")
        kinds = schema.get("type", [])
        if any(kind not in TYPES for kind in (kinds if isinstance(kinds, list) else [kinds])):
            wrong.append("type")
        for key in wrong:
            del schema[key]
        self._left_out += wrong

    def _is_followed(self, schema: dict[str, Any]) -> bool:
        """Return whether llguidance takes a small schema; False beyond the limit of those that are tried."""
        key = json.dumps(schema)
        self._tried_characters += len(key)
        if key not in self._tried:
            is_in_limits = len(self._tried) < _MAX_TRIED and self._tried_characters < _MAX_TRIED_CHARACTERS
            self._tried[key] = is_in_limits and is_followed(key)
        return self._tried[key]


def is_followed(schema: str) -> bool:
    """Return whether a grammar can follow a small JSON schema, looked at for some 2 ms."""
    return not by_byte(schema_grammar(schema)).is_error()


def schema_grammar(schema: str) -> str:
    """Return the grammar of a JSON schema, not checked yet."""
    import llguidance  # noqa: PLC0415  seldom needed

    return llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=_JSON)


def by_byte(grammar: str) -> "llguidance.LLMatcher":
    """Return a matcher whose tokens are bytes."""
    import llguidance  # noqa: PLC0415  seldom needed

    return llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0, limits=limits())


def limits() -> "llguidance.LLParserLimits":
    """Return the limits of a grammar and of each step along it.

    The fuel lasts some 20 ms at the beginning and some 15 ms for a step; a state of the lexer takes some 2 kB.
    """
    import llguidance  # noqa: PLC0415  seldom needed

    return llguidance.LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def _make_plain(schema: dict[str, Any]) -> None:
    """Leave out what changes nothing, and write whole numbers as such.

    That is: null, and a format that llguidance does not know, or that stands beside a pattern.
    """
    for key in [key for key, value in schema.items() if value is None and key not in ("const", "default")]:
        del schema[key]
    if schema.get("format") not in _FORMATS or "pattern" in schema:
        schema.pop("format", None)
    for key in _COUNTS:
        if isinstance(schema.get(key), float) and schema[key].is_integer():
            schema[key] = int(schema[key])


def reject_unfit(answer: str, schemas: str) -> None:
    """Check a finished answer with jsonschema; a hostile pattern may take for ever, so this runs in a child process.

    Args:
        answer: JSON text.
        schemas: See `AnswerShape.unenforced`.

    Raises:
        ModelError: If it does not fit.
    """
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415  seldom needed

    value = json.loads(answer)
    by_tool = json.loads(schemas)
    # The name of the tool that the answer calls; empty for an answer that is no call.
    name = ""
    match value:
        case {"name": str(called), "arguments": arguments, **rest} if called in by_tool and not rest:
            name = called
            value = arguments
    schema = by_tool.get(name, True)
    kind = validators.validator_for(schema, default=Draft202012Validator)
    kind = validators.extend(kind, {"pattern": _check_pattern})  # type: ignore[no-untyped-call]
    try:
        problem = next(kind(schema, registry=Registry()).iter_errors(value), None)
    except Exception:
        # The schema itself is wrong: it checks nothing.
        problem = None
    if problem is not None:
        text = " ".join(problem.message.split())[:300]
        path = f"{name or 'the answer'}{problem.json_path[1:]}"[:100]
        raise ModelError(
            f"The model's answer does not fit the JSON schema: {text} (in {path}).",
            "Try again, or make the schema simpler.",
        )


def _check_pattern(_validator: Any, pattern: str, text: Any, _schema: Any) -> Iterator[Any]:
    """Yield an error where a text does not fit a pattern; one that Python does not know was left to the grammar."""
    from jsonschema import ValidationError  # noqa: PLC0415  seldom needed

    with suppress(re.error):
        if isinstance(text, str) and not re.search(pattern, text):
            yield ValidationError(f"{text!r} does not match {pattern!r}")


def template_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments as chat templates read it.

    References are written out, it has `properties`, and a value that may be null has its one other type and `nullable`:
    templates that write types read `type` alone.
    """
    schema = {"type": "object", "properties": {}} | expanded(parameters)
    properties = schema["properties"] if isinstance(schema["properties"], dict) else {}
    return schema | {"properties": {name: _nullable(each) for name, each in properties.items()}}


def _nullable(schema: Any) -> Any:
    """Return a schema of null or one other type as that type with `nullable`; any other schema as it is."""
    if not isinstance(schema, dict):
        return schema
    types = schema.get("type")
    branches = schema.get("anyOf")
    if isinstance(types, list):
        others = [each for each in types if each != "null"]
        if len(others) == 1 < len(types):
            return schema | {"type": others[0], "nullable": True}
    if isinstance(branches, list):
        others = [each for each in branches if each != {"type": "null"}]
        if len(others) == 1 < len(branches) and isinstance(others[0], dict):
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            return others[0] | rest | {"nullable": True}
    return schema


def expanded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its references written out, for a chat template; one without references is left as it is.

    A reference inside its own target, and those beyond a limit, become a note. One that names nothing stays.
    """
    if '"$ref"' not in json.dumps(schema):
        return dict(schema)
    # Characters that references have added.
    spent = 0

    def write_out(part: Mapping[str, Any], resolver: Any, outer: tuple[int, ...]) -> dict[str, Any]:
        """Write out a part; `outer` are the identities of the targets around it."""
        nonlocal spent
        rest = {key: value for key, value in part.items() if key not in _REFERENCE_KEYS}
        reference = rest.pop("$ref", None)
        result = _with_changed_parts(rest, resolver, lambda subschema, inner: write_out(subschema, inner, outer))
        if reference is None:
            return result
        try:
            target, inner = _target(reference, resolver)
        except SchemaError:
            return {"$ref": reference} | result
        if not isinstance(target, dict):
            return result
        if id(target) in outer or len(outer) > _DEEPEST_EXPANDED or spent > _MAX_EXPANDED:
            name = str(reference).rsplit("/", 1)[-1].removeprefix("#")[:100] or "the whole"
            kind = {"type": target["type"]} if "type" in target else {}
            return kind | {"description": f"Has the form of {name}, which is described above."} | result
        spent += len(json.dumps(target))
        return write_out(target, inner, (*outer, id(target))) | result

    try:
        return write_out(schema, _resolver_of(schema), (id(schema),))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return dict(schema)
