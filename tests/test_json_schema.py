"""Schemas as other programs write them are followed by a grammar; hostile shapes end in the watched child process."""

import json
import random
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import pytest

from rdchat.errors import ModelError, ShapeRefusedError
from rdchat.inference.api import MAX_SOURCE_BYTES, AnswerShape, ShapeKind
from rdchat.inference.prompts.shape_grammar import check_grammar
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.json_schema import JoinedSchemas, SchemaError, expanded, reject_unfit
from rdchat.server.interfaces.client_tools import call_shape
from rdchat.server.interfaces.fields import ApiError
from tests.grids import share
from tests.inference.shape_models import takes

ROOT = {"$id": "https://example.com/s.json", "$defs": {"N": {"type": "integer"}}}
DRAFT7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
OTHER = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"]}
"""A second tool in each request, which refers to its own root."""


def tool(parameters: Any, name: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}, **more}


def a(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "required": ["v", "kids"],
    "additionalProperties": False,
}
NESTED = {"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}]}
REFERENCES = {
    "a tree in $defs": (a({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": TREE}}), NESTED, {"v": 1, "kids": [{"v": 2}]}),
    "a pointer to a property": (
        a({"$ref": "#/$defs/N/properties/b"}, **{"$defs": {"N": {"properties": {"b": {"type": "integer"}}}}}), 1, "1"
    ),
    "an escaped pointer": (
        a({"$ref": "#/$defs/x~1y%20z"}, **{"$defs": {"x/y z": {"type": "integer"}}}),
        1,
        "1",
    ),
    "draft 7": (
        a({"$ref": "#/definitions/N"}, definitions={"N": {"type": "integer"}}, **DRAFT7),
        1,
        "1",
    ),
    "an unknown dialect": (a({"type": "integer"}, **{"$schema": "https://example.com/mine"}), 1, "1"),
    "an anchor": (a({"$ref": "#n"}, **{"$defs": {"N": {"$anchor": "n", "type": "integer"}}}), 1, "1"),
    "a root with $id": (
        a({"$ref": "https://example.com/s.json#/$defs/N"}, **ROOT),
        1,
        "1",
    ),
    "a part with a base of its own": (
        a(
            {"$ref": "other.json"},
            **{
                "$id": "https://example.com/s.json",
                "$defs": {
                    "O": {"$id": "other.json", "$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}},
                    "N": {"type": "string"},
                },
            },
        ),
        1,
        "1",
    ),
    "a property that is named $ref": (
        a({"type": "object", "properties": {"$ref": {"type": "integer"}}, "required": ["$ref"]}),
        {"$ref": 1},
        {"$ref": "#"},
    ),
    "data that looks like a reference": (a({"enum": [{"$ref": "#/nowhere"}]}), {"$ref": "#/nowhere"}, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", share(REFERENCES, 3))
def test_references_mean_the_same_inside_a_call_and_in_a_format(name: str) -> None:
    """A reference to the root once meant the call around the arguments."""
    schema, good, bad = REFERENCES[name]
    good = {"a": good}
    bad = {"a": bad}
    call = call_shape([tool(schema), tool(OTHER, "other")])
    assert takes(call, {"name": "t", "arguments": good})
    assert not takes(call, {"name": "t", "arguments": bad})
    assert takes(call, {"name": "other", "arguments": {"kids": [{"kids": []}]}})
    given = AnswerShape(ShapeKind.SCHEMA, json.dumps(schema))
    assert (takes(given, good), takes(given, bad)) == (True, False)
    assert call.left_out == ()


def test_definitions_of_two_tools_with_one_name_stay_apart() -> None:
    """Such a request was once refused."""
    tools = [
        tool(a({"$ref": "#/$defs/N"}, **{"$defs": {"N": {"type": kind}}}), kind) for kind in ("integer", "boolean")
    ]
    shape = call_shape(tools)
    assert takes(shape, {"name": "integer", "arguments": {"a": 1}})
    assert takes(shape, {"name": "boolean", "arguments": {"a": True}})
    assert not takes(shape, {"name": "integer", "arguments": {"a": True}})


@pytest.mark.parametrize(
    "reference", ["https://example.com/s.json", "#/$defs/Gone", "other.json", "#gone", "#/type/x", 7]
)
def test_a_reference_that_is_not_here_is_refused_in_plain_words(reference: object) -> None:
    with pytest.raises(ApiError, match="rdchat fetches no schema") as refused:
        call_shape([tool(a({"$ref": reference}))])
    assert (refused.value.status, refused.value.param) == (400, "tools")


NEUTRAL: dict[str, Any] = {
    "a format of OpenAPI": {"type": "array", "items": {"type": "string", "format": "binary"}},
    "a format of a number": {"type": "array", "items": {"type": "number", "format": "double"}},
    "counts as decimals": {"type": "array", "minItems": 0.0, "maxItems": 3.0},
    "open properties": {"type": "array", "additionalProperties": {}},
    "types apart": {"oneOf": [{"type": "array"}, {"type": "null"}]},
    "an optional one of pydantic": {"anyOf": [{"type": "array"}, {"type": "null"}], "default": None, "title": "A"},
    "unknown words": {"type": "array", "x-order": 1, "deprecated": True, "discriminator": {"propertyName": "t"}},
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_changes_nothing_is_taken_everywhere(name: str) -> None:
    schema = a(NEUTRAL[name])
    call = call_shape([tool(schema, strict=True)])
    assert takes(call, {"name": "t", "arguments": {"a": []}})
    assert takes(AnswerShape(ShapeKind.SCHEMA, json.dumps(schema)), {"a": []})
    assert (call.left_out, call.unenforced) == ((), "")


@pytest.mark.parametrize(
    ("inner", "good", "bad"),
    [
        ({"type": "array", "items": [{"type": "integer"}], "additionalItems": False}, [1], [1, 2]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": False}, 1, 0),
        ({"type": "integer", "description": None, "enum": None, "required": None, "format": None}, 1, "1"),
        ({"type": "string", "format": "email", "pattern": "^[a-z]+$"}, "ab", "A"),
    ],
)
def test_older_and_careless_schemas_mean_what_their_writers_meant(inner: Any, good: Any, bad: Any) -> None:
    shape = call_shape([tool(a(inner))])
    assert [takes(shape, {"name": "t", "arguments": {"a": value}}) for value in (good, bad)] == [True, False]


UNION = [
    {"type": "object", "properties": {"t": {"const": tag, "default": tag}, "n": {"type": "integer"}}, "required": ["t"]}
    for tag in "xy"
]
# name: schema, a value that fits, one that does not, the keyword that no grammar enforces
LEFT_OUT: dict[str, tuple[Any, Any, Any, str]] = {
    "names": ({"type": "object", "propertyNames": {"pattern": "^x"}}, {"x": 1}, {"y": 1}, "propertyNames"),
    "zod's sets": ({"type": "array", "uniqueItems": True}, [1, 2], [1, 1], "uniqueItems"),
    "not": ({"type": "string", "not": {"enum": ["no"]}}, "yes", "no", "not"),
    "contains": ({"type": "array", "contains": {"type": "integer"}}, [1], ["1"], "contains"),
    "conditions": (
        {"type": "object", "if": {"required": ["b"]}, "then": {"required": ["c"]}},
        {"b": 1, "c": 1},
        {"b": 1},
        "if",
    ),
    "dependencies": ({"type": "object", "dependentRequired": {"b": ["c"]}}, {"c": 1}, {"b": 1}, "dependentRequired"),
    "unions without tags": ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1.5, 1, "oneOf"),
    "lookahead": ({"type": "string", "pattern": "^(?!no)"}, "yes", "no", "pattern"),
    "back reference": ({"type": "string", "pattern": r"^(a|b)\1$"}, "aa", "ab", "pattern"),
    "two patterns of names": (
        {
            "type": "object",
            "patternProperties": {"^a": {"type": "string"}, "z$": {"maxLength": 1}},
            "additionalProperties": False,
        },
        {"az": "1"},
        {"b": 1},
        "patternProperties",
    ),
    "a recursive dialect": (
        {"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": "string"}}},
        "x",
        1,
        "$dynamicRef",
    ),
    "large steps": ({"type": "number", "multipleOf": 1e12}, 10**12, 1, "multipleOf"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_no_grammar_enforces_is_named_and_checked(name: str) -> None:
    """One such tool once made every call of the request fail."""
    inner, good, bad, keyword = LEFT_OUT[name]
    definitions = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
    schema = a(inner, **definitions)
    shape = call_shape([tool(schema), tool(OTHER, "other")])
    assert f"t.{keyword}" in shape.left_out
    assert takes(shape, {"name": "t", "arguments": {"a": good}})
    assert takes(shape, {"name": "other", "arguments": {"kids": []}})
    reject_unfit(json.dumps({"name": "t", "arguments": {"a": good}}), shape.unenforced)
    reject_unfit(json.dumps({"name": "other", "arguments": {"kids": 7}}), shape.unenforced)  # the grammar's part
    with pytest.raises(ModelError, match="does not fit the JSON schema"):
        reject_unfit(json.dumps({"name": "t", "arguments": {"a": bad}}), shape.unenforced)
    if name != "large steps":  # which llguidance takes
        with pytest.raises(ShapeRefusedError, match="cannot be used"):
            check_grammar(call_shape([tool(schema, strict=True)]))


def test_unions_with_tags_are_enforced_whole() -> None:
    """Tags behind references were once refused."""
    union = {"oneOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}], "discriminator": {"propertyName": "t"}}
    schema = a(union, **{"$defs": dict(zip("xy", UNION, strict=True))})
    shape = call_shape([tool(schema, strict=True)])
    assert (shape.left_out, shape.unenforced) == ((), "")
    assert takes(shape, {"name": "t", "arguments": {"a": {"t": "y", "n": 1}}})
    assert not takes(shape, {"name": "t", "arguments": {"a": {"t": "z"}}})


def test_a_one_of_beside_an_any_of_keeps_both() -> None:
    schema = a({"oneOf": [{"type": "string"}, {"type": "integer"}], "anyOf": [{"type": "string"}, {"type": "null"}]})
    shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(schema))
    assert [takes(shape, {"a": value}) for value in ("x", 1, None)] == [True, False, False]


@pytest.mark.parametrize(
    ("parameters", "takes_any"),
    [
        ({"type": "object", "properties": {}}, False),
        ({"type": "object", "properties": {}, "required": [], **DRAFT7}, False),
        ({"type": "object"}, True),
        ({"type": "object", "properties": {}, "additionalProperties": True}, True),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}, True),
    ],
)  # fmt: skip
def test_a_tool_without_parameters_takes_none(parameters: Any, takes_any: bool) -> None:
    shape = call_shape([tool(parameters)])
    assert takes(shape, {"name": "t", "arguments": {}})
    assert takes(shape, {"name": "t", "arguments": {"x": 1}}) is takes_any


def test_a_call_or_an_answer() -> None:
    answer = AnswerShape(
        ShapeKind.SCHEMA, json.dumps(a({"$ref": "#/$defs/n"}, **{"$defs": {"n": {"type": "integer"}}}))
    )
    shape = call_shape([tool(OTHER)], answer)
    assert takes(shape, {"name": "t", "arguments": {"kids": []}})
    assert takes(shape, {"a": 1})
    assert not takes(shape, {"a": "1"})
    assert takes(call_shape([tool(OTHER)], AnswerShape(ShapeKind.JSON)), {"anything": [1]})


def test_templates_get_references_written_out() -> None:
    schema = a({"$ref": "#/$defs/F", "description": "Which."}, **{"$defs": {"F": a({"type": "string"})}})
    assert expanded(schema) == a({**a({"type": "string"}), "description": "Which."})
    plain = a({"enum": ["x"]}, **{"$schema": "s", "$defs": {"unused": {}}})
    assert expanded(plain) == plain, "a schema without references is what it was: so are the ids of its prompt"


def test_a_template_gets_a_note_where_a_schema_holds_itself() -> None:
    made = expanded(a({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": TREE}}))
    kid = made["properties"]["a"]["properties"]["kids"]["items"]
    assert kid == {"type": "object", "description": "Has the form of Node, which is described above."}
    root = expanded({"type": "object", "properties": {"kid": {"$ref": "#"}}})
    assert root["properties"]["kid"]["description"] == "Has the form of the whole, which is described above."


def test_a_template_gets_a_reference_that_is_not_here_as_it_is() -> None:
    schema = a({"$ref": "https://example.com/s.json", "title": "S"})
    assert expanded(schema) == schema


def test_references_that_double_stay_small() -> None:
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = a({"$ref": "#/$defs/d0"}, **{"$defs": {**doubling, "d40": {"type": "string"}}})
    assert len(json.dumps(expanded(schema))) < 200_000
    assert len(json.dumps(call_shape([tool(schema)]).source)) < 20_000
    wide = {"anyOf": [{"$ref": f"#/anyOf/{n}/anyOf"} for n in range(9)]}
    with pytest.raises(SchemaError):
        JoinedSchemas(MAX_SOURCE_BYTES).add_schema(wide, soften=True)
    with pytest.raises(SchemaError, match="too large"):
        JoinedSchemas(MAX_SOURCE_BYTES).add_schema({"enum": ["x" * 300_000]}, soften=True)
    with pytest.raises(SchemaError, match="too large"):
        JoinedSchemas(MAX_SOURCE_BYTES).add_schema({"anyOf": [{}] * 21_000}, soften=True)


def test_a_pattern_that_python_does_not_know_is_the_grammars_part() -> None:
    schema = a({"type": "string", "pattern": r"^\p{L}+$", "not": {"const": "no"}})
    reject_unfit('{"a": "yes"}', json.dumps({"": schema}))
    with pytest.raises(ModelError):
        reject_unfit('{"a": "no"}', json.dumps({"": schema}))


def test_names_that_only_a_check_could_tell_apart_are_refused_where_it_does_not_know_their_pattern() -> None:
    """The check failed, and the answer passed unchecked."""
    patterns = {"patternProperties": {r"^\p{L}": {"type": "integer"}}}
    check_grammar(call_shape([tool(a(patterns))]))
    for checked in ({"not": {"const": 1}}, {"patternProperties": {**patterns["patternProperties"], "^x": {}}}):
        with pytest.raises(ApiError, match=r"answers cannot be checked for `(not|patternProperties)`"):
            call_shape([tool(a({**patterns, **checked}))])


@pytest.mark.parametrize("schema", [{"$ref": "https://example.com/x.json"}, {"type": "any"}, {"required": 7}])
def test_a_schema_that_cannot_be_checked_checks_nothing(schema: Any) -> None:
    reject_unfit('{"a": 1}', json.dumps({"": schema}))


def test_an_answer_that_only_looks_like_a_call_is_checked() -> None:
    """A name that is no text once ended the check."""
    answer = json.dumps({"name": {"first": "Ann"}, "arguments": 7})
    reject_unfit(answer, json.dumps({"": {"required": ["name"]}}))
    with pytest.raises(ModelError):
        reject_unfit(answer, json.dumps({"": {"required": ["age"]}}))


_LONGEST_S = 60  # far above the limit of a check, since other programs may hold the machine up
_DOUBLING = {f"d{n}": {"allOf": [{"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}] * 2} for n in range(30)}
_CHAIN = {f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(2000)}
REFUSED = {
    "a loop of references": (
        ShapeKind.SCHEMA,
        json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ),
    "references that double": (
        ShapeKind.SCHEMA,
        json.dumps({"$ref": "#/$defs/d0", "$defs": {**_DOUBLING, "d30": {"type": "string"}}}),
    ),
    "a chain of references": (  # deeper than the child's stack
        ShapeKind.SCHEMA,
        json.dumps({"$ref": "#/$defs/d0", "$defs": {**_CHAIN, "d2000": {"type": "string"}}}),
    ),
    "digits without end": (ShapeKind.SCHEMA, json.dumps({"type": "number", "multipleOf": 1e-300})),
    "deep brackets": (ShapeKind.REGEX, "(" * 100_000 + "a" + ")" * 100_000),
    "an unclosed bracket": (ShapeKind.REGEX, "("),
    "a deep grammar": (ShapeKind.GRAMMAR, "start: " + "(" * 50_000 + '"a"' + ")" * 50_000),
    "a grammar without text": (ShapeKind.GRAMMAR, "start: x\nx: x"),
}
BOUNDED = {
    "a huge list": (ShapeKind.SCHEMA, json.dumps({"enum": [f"xxx{n}" for n in range(15_000)]})),
    "many items": (ShapeKind.SCHEMA, json.dumps({"type": "array", "items": {}, "minItems": 10**9})),
    "a late letter": (ShapeKind.REGEX, "(a|b)*a(a|b){60}"),
    "nested counts": (ShapeKind.REGEX, "((a{1,100}){1,100}){1,100}"),
    "all signs": (ShapeKind.REGEX, "".join(random.Random(0).choices("()[]{}|*+?ab.\\", k=5000))),
}


@pytest.fixture(scope="module")
def own_process() -> Iterator[TokenizerProcess]:
    process = TokenizerProcess()
    yield process
    process.child.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED | BOUNDED)
def test_a_hostile_shape_is_checked_in_bounded_time_and_refused_in_a_line(
    own_process: TokenizerProcess, name: str
) -> None:
    began = perf_counter()
    refusal = None
    try:
        own_process.check_shape(AnswerShape(*(REFUSED | BOUNDED)[name]))
    except ModelError as error:
        refusal = error
    assert refusal or name in BOUNDED
    if refusal:
        assert "\n" not in refusal.message
        assert len(refusal.message) < 400
        assert refusal.hint not in ("", "Try again.")
    assert perf_counter() - began < _LONGEST_S
    own_process.check_shape(AnswerShape(ShapeKind.REGEX, "yes|no"))  # the child goes on


@pytest.mark.slow
def test_a_pattern_without_end_is_stopped(own_process: TokenizerProcess) -> None:
    shape = AnswerShape(ShapeKind.SCHEMA, "{}", json.dumps({"": {"pattern": "^(a+)+$"}}))
    with pytest.raises(ShapeRefusedError, match="The JSON schema"):
        own_process.check_answer(shape, json.dumps("a" * 60 + "b"))
    own_process.check_answer(shape, json.dumps("aaa"))  # the child goes on
    with pytest.raises(ModelError, match="does not fit the JSON schema"):
        own_process.check_answer(shape, json.dumps("b"))
