"""Makes a JSON schema self-contained, leaves out what a grammar cannot enforce, and checks finished values.

A reference keeps its meaning when its schema becomes part of another one. No reference is ever fetched.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from rdchat.errors import ModelError
from rdchat.inference.api import MAX_SOURCE_BYTES

_SCHEMA_KEYS = frozenset((
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_LIST_KEYS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_MAP_KEYS = frozenset(("dependentSchemas", "patternProperties", "properties"))
_MOVED_KEYS = frozenset((
    "$anchor", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "definitions", "id",
))  # fmt: skip
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
# These are llguidance's.
_FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), (int, float)),
    **dict.fromkeys(("enum", "required"), list),
    **dict.fromkeys(_MAP_KEYS, dict),
}
# Keywords that llguidance lacks, each with the values that change nothing.
_LACKING: Mapping[str, tuple[Any, ...]] = {
    "$dynamicRef": (),
    "$recursiveRef": (),
    "contains": (),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "else": (True, {}),
    "if": (),
    "maxContains": (),
    "minContains": (0,),
    "not": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "then": (True, {}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "uniqueItems": (False,),
}
# Limit of subschemas, each counted as often as it is written.
_MAX_PARTS = 20_000
# Limits of small schemas, which take some 2 ms each, and of the branches of one.
_MAX_TRIED = 64
_MAX_BRANCHES = 100
# Limit of their characters, in which references are written out.
_MAX_COMPARED = 2**20
# Limits of the characters that references add to one schema, and of references in each other.
_MAX_EXPANDED = 2**16
_DEEPEST_EXPANDED = 12

Subschema = Callable[[Any, Any], Any]
"""Takes a subschema and the resolver of its references, and returns what replaces it."""


class SchemaError(ValueError):
    """A schema cannot be used; the message is one line for people, without a full stop."""


def _resolver_of(schema: Mapping[str, Any]) -> Any:
    """Return the resolver of a whole schema's references. It fetches nothing.

    Names are collected once: a registry that does not know one looks through the whole schema each time.
    """
    specification = specification_with(str(schema.get("$schema", "")), DRAFT202012)
    root = specification.create_resource(schema)
    name = root.id() or ""
    try:
        return Registry().with_resource(name, root).crawl().resolver(name)
    except (AttributeError, KeyError, TypeError, ValueError):
        # A part is no schema, so only paths lead anywhere.
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


def _mapped(schema: Mapping[str, Any], resolver: Any, change: Subschema) -> dict[str, Any]:
    """Return a schema with its direct subschemas changed, definitions excepted."""

    def one(sub: Any) -> Any:
        if isinstance(sub, bool):
            return sub
        if not isinstance(sub, dict):
            raise SchemaError(f"{str(sub)[:100]!r} stands in the place of a schema")
        base = str(sub.get("$id", "")).partition("#")[0]
        inner = resolver.in_subresource(DRAFT202012.create_resource({"$id": base})) if base else resolver
        return change(sub, inner)

    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LIST_KEYS and isinstance(value, list):
            made[key] = [one(each) for each in value]
        elif key in _MAP_KEYS and isinstance(value, dict):
            made[key] = {name: one(each) for name, each in value.items()}
        else:
            made[key] = one(value) if key in _SCHEMA_KEYS else value
    return made


@dataclass
class Embedding:
    """Schemas that become parts of one schema, whose `$defs` are `definitions`.

    Args:
        soften: Whether what no grammar can enforce is left out. What remains then accepts at least the same values.

    Attributes:
        left_out: Keywords that were left out, in the order of the schema.
        _names: Names of definitions, by the target's identity and base.
        _waiting: Definitions whose references are not read yet.
        _followed: Whether llguidance follows a small schema, for those that were tried.
        _uncheckable: A pattern of names with which no answer can be checked.
        _compared: Characters of the small schemas.
    """

    soften: bool
    definitions: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    _names: dict[tuple[int, str], str] = field(default_factory=dict)
    _waiting: list[tuple[str, Any, Any]] = field(default_factory=list)
    _followed: dict[str, bool] = field(default_factory=dict)
    _uncheckable: str = ""
    _parts: int = 0
    _compared: int = 0

    def embed_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema whose references name definitions of the new root.

        Raises:
            SchemaError: If a reference names nothing, the schema is too large, or answers cannot be checked.
        """
        # An earlier schema may have been refused.
        self._waiting.clear()
        self._uncheckable = ""
        for key in ("$defs", "definitions"):
            if not isinstance(schema.get(key, {}), dict):
                raise SchemaError(f"its `{key}` is no object")
        if len(json.dumps(schema)) > MAX_SOURCE_BYTES:
            raise SchemaError("it is too large")
        try:
            made: dict[str, Any] = self._part(schema, _resolver_of(schema))
            while self._waiting:
                name, contents, resolver = self._waiting.pop()
                self.definitions[name] = self._part(contents, resolver) if isinstance(contents, dict) else contents
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise SchemaError("it is no JSON schema") from error
        if self.left_out and self._uncheckable:
            # The check of a whole answer would fail.
            raise SchemaError(f"answers cannot be checked for `{self.left_out[0]}`: {self._uncheckable}")
        return made

    def _part(self, schema: Mapping[str, Any], resolver: Any) -> Any:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise SchemaError("it is too large")
        rest = {key: value for key, value in schema.items() if key not in _MOVED_KEYS}
        _make_modern(rest)
        self._make_plain(rest)
        for key, kind in _KINDS.items():
            if key in rest and not isinstance(rest[key], kind):
                raise SchemaError(f"its `{key}` has a wrong type")
        if "oneOf" in rest:
            self._loosen_one_of(rest, resolver)
        if self.soften:
            self._loosen(rest)
        made = _mapped(rest, resolver, self._part)
        if "$ref" in made:
            made["$ref"] = self._reference(made["$ref"], resolver)
        return made

    def _reference(self, reference: object, resolver: Any) -> str:
        contents, inner = _target(reference, resolver)
        key = id(contents), getattr(inner, "_base_uri", "")
        if key not in self._names:
            self._names[key] = f"s{len(self._names)}"
            self._waiting.append((self._names[key], contents, inner))
        return f"#/$defs/{self._names[key]}"

    def _make_plain(self, schema: dict[str, Any]) -> None:
        """Leave out what changes nothing, and write whole numbers as such."""
        for key in [key for key, value in schema.items() if value is None and key not in ("const", "default")]:
            del schema[key]
        for key, values in _LACKING.items():
            if key in schema and any(type(schema[key]) is type(each) and schema[key] == each for each in values):
                del schema[key]
        if "if" not in schema or not schema.keys() & {"then", "else"}:
            for key in ("if", "then", "else"):
                schema.pop(key, None)
        if schema.get("format") not in _FORMATS or "pattern" in schema:
            schema.pop("format", None)
        for key in _COUNTS:
            if isinstance(schema.get(key), float) and schema[key].is_integer():
                schema[key] = int(schema[key])

    def _loosen_one_of(self, schema: dict[str, Any], resolver: Any) -> None:
        """Make `oneOf` an `anyOf`; it means the same if no value fits two of the schemas."""
        given = schema["oneOf"]
        apart = False
        if len(given) <= _MAX_BRANCHES and self._compared < _MAX_COMPARED:
            branches = [_skeleton(_inlined(each, resolver)) for each in given]
            apart = self._is_followed({"oneOf": branches})
        if apart or self.soften:
            del schema["oneOf"]
            if "anyOf" in schema:
                schema["allOf"] = [*schema.get("allOf", []), {"anyOf": given}]
            else:
                schema["anyOf"] = given
            self.left_out += [] if apart else ["oneOf"]

    def _loosen(self, schema: dict[str, Any]) -> None:
        """Leave out what llguidance cannot enforce."""
        wrong = [key for key in _LACKING if key in schema]
        if "pattern" in schema and not self._is_followed({"pattern": schema["pattern"]}):
            wrong.append("pattern")
        patterns = schema.get("patternProperties")
        if patterns and not (
            len(patterns) == 1 and self._is_followed({"patternProperties": {key: {} for key in patterns}})
        ):
            wrong.append("patternProperties")
            # It is about names that no pattern fits.
            schema.pop("additionalProperties", None)
        for name in patterns or ():
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
        self.left_out += wrong

    def _is_followed(self, schema: dict[str, Any]) -> bool:
        """Return whether llguidance knows all parts of a small schema."""
        from rdchat.inference.prompts.shape_grammar import is_followed  # noqa: PLC0415  llguidance: seldom needed

        key = json.dumps(schema)
        self._compared += len(key)
        if key not in self._followed:
            self._followed[key] = len(self._followed) < _MAX_TRIED and is_followed(key)
        return self._followed[key]


def _make_modern(schema: dict[str, Any]) -> None:
    """Write what draft 2020-12 writes in another way."""
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        schema |= {"items": schema.pop("additionalItems")} if "additionalItems" in schema else {}
    for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(key), bool):
            # Draft 4 has it.
            schema |= {key: schema.pop(bound)} if schema.pop(key) and bound in schema else {}


def _inlined(schema: Any, resolver: Any) -> Any:
    """Return a schema, or the one that it refers to."""
    refers = isinstance(schema, dict) and "$ref" in schema
    return _target(schema["$ref"], resolver)[0] if refers else schema


def _skeleton(schema: Any) -> Any:
    """Return what may distinguish the values of a schema from those of another: types, values and tags."""
    if not isinstance(schema, dict):
        return schema
    tags = {
        name: {key: tag[key] for key in ("const", "enum") if key in tag}
        for name, tag in schema.get("properties", {}).items()
        if isinstance(tag, dict)
    }
    return {key: schema[key] for key in ("type", "const", "enum", "required") if key in schema} | {"properties": tags}


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
    known = json.loads(schemas)
    name = ""
    match value:
        case {"name": str(called), "arguments": arguments, **rest} if called in known and not rest:
            name = called
            value = arguments
    schema = known.get(name, True)
    kind = validators.validator_for(schema, default=Draft202012Validator)
    kind = validators.extend(kind, {"pattern": _check_pattern})  # type: ignore[no-untyped-call]
    try:
        problem = next(kind(schema, registry=Registry()).iter_errors(value), None)
    except Exception:
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
    made = {"type": "object", "properties": {}} | expanded(parameters)
    given = made["properties"] if isinstance(made["properties"], dict) else {}
    return made | {"properties": {name: _nullable(each) for name, each in given.items()}}


def _nullable(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    named = schema.get("type")
    several = schema.get("anyOf")
    if isinstance(named, list) and len(others := [each for each in named if each != "null"]) == 1 < len(named):
        return schema | {"type": others[0], "nullable": True}
    if isinstance(several, list) and len(others := [each for each in several if each != {"type": "null"}]) == 1:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return (others[0] | rest | {"nullable": True}) if isinstance(others[0], dict) and len(several) > 1 else schema
    return schema


def expanded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its references written out, for a chat template; one without references is left as it is.

    A reference inside its own target, and those beyond a limit, become a note. One that names nothing stays.
    """
    if '"$ref"' not in json.dumps(schema):
        return dict(schema)
    spent = 0

    def write(part: Mapping[str, Any], resolver: Any, outer: tuple[int, ...]) -> dict[str, Any]:
        nonlocal spent
        rest = {key: value for key, value in part.items() if key not in _MOVED_KEYS}
        reference = rest.pop("$ref", None)
        made = _mapped(rest, resolver, lambda sub, inner: write(sub, inner, outer))
        if reference is None:
            return made
        try:
            target, inner = _target(reference, resolver)
        except SchemaError:
            return {"$ref": reference} | made
        if not isinstance(target, dict):
            return made
        if id(target) in outer or len(outer) > _DEEPEST_EXPANDED or spent > _MAX_EXPANDED:
            name = str(reference).rsplit("/", 1)[-1].removeprefix("#")[:100] or "the whole"
            kind = {"type": target["type"]} if "type" in target else {}
            return kind | {"description": f"Has the form of {name}, which is described above."} | made
        spent += len(json.dumps(target))
        return write(target, inner, (*outer, id(target))) | made

    try:
        return write(schema, _resolver_of(schema), (id(schema),))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return dict(schema)
