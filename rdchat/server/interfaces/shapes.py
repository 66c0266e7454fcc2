"""Reads the answer format that a client requests, and makes the format of a tool call that it requires."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.files.plain_data import is_nested_deeper
from rdchat.inference.api import MAX_NESTED, AnswerShape, ShapeKind, ToolCall, parsed_json
from rdchat.inference.prompts.json_schema import TYPES, Embedding, SchemaError, template_schema
from rdchat.server.interfaces.chat_messages import Tools
from rdchat.server.interfaces.fields import ApiError, Fields, unsupported, wrong

_WITHOUT_PARAMETERS = {"type", "properties", "required", "title", "description"}


def read_shape(given: Fields) -> AnswerShape | None:
    """Read `response_format`; `regex` and `grammar` are our own kinds. None where any text will do."""
    if not given.values or (kind := given.read_text("type")) == "text":
        return None
    if kind == "json_object" and given.raw_value("schema") is None:
        return AnswerShape(ShapeKind.JSON)
    if kind in {"json_object", "json_schema"}:
        named = given if given.raw_value("schema") is not None else given.part("json_schema")
        schema = named.raw_value("schema")
        if schema is None:
            raise wrong(given.field_name("json_schema"), "must have a schema.")
        for label in ("name", "description"):
            named.raw_value(label)
        return _schema_shape(schema, named.field_name("schema"), strict=named.flag("strict"))
    if kind in {"regex", "grammar"}:
        return _shape(ShapeKind(kind), given.read_text(kind), given.field_name(kind))
    raise unsupported(given.field_name("type"), f"rdchat has no format {kind[:50]!r}.")


def _schema_shape(schema: Any, field: str, *, strict: bool) -> AnswerShape:
    if not isinstance(schema, dict) or is_nested_deeper(schema, MAX_NESTED):
        return _shape(ShapeKind.SCHEMA, json.dumps(schema), field)  # Raises the error that says why not
    embedding = Embedding(soften=not strict)
    made = _embedded(schema, embedding, field)
    if "type" in embedding.left_out:
        # This is a mistake, not a keyword that is beyond a grammar.
        raise ApiError(400, f"The JSON schema cannot be used: JSON has no other types than {', '.join(TYPES)}.", field)
    if embedding.definitions:
        made["$defs"] = embedding.definitions
    shape = _shape(ShapeKind.SCHEMA, json.dumps(made), field)
    left_out = tuple(dict.fromkeys(embedding.left_out))
    return replace(shape, unenforced=json.dumps({"": schema}), left_out=left_out) if left_out else shape


def _embedded(schema: Mapping[str, Any], embedding: Embedding, field: str) -> dict[str, Any]:
    try:
        return embedding.embed_schema(schema)
    except SchemaError as error:
        raise ApiError(400, f"The JSON schema cannot be used: {error}.", field) from error


def read_answer(tools: Tools, choice: object, shape: AnswerShape | None) -> dict[str, Any]:
    """Return the tools that the model may or must call and the shape of its answer, as fields of `ReplyOrder`.

    Args:
        tools: Those of the request.
        choice: `tool_choice`, as OpenAI's or Anthropic's clients write it.
        shape: Of an answer that is no call; None for any text.
    """
    match choice:
        case "none" | {"type": "none"}:
            return {"shape": shape}
        case "auto" | {"type": "auto"}:
            return {"shape": call_shape(tools, shape) if tools and shape else shape, "tools": tools}
        case dict() if choice.get("type") == "allowed_tools":
            return _read_allowed(tools, choice, shape)
        case "required" | "any" | {"type": "required" | "any"}:
            chosen = _chosen_tools(tools, None)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function" | "tool", "name": str(name)}:
            chosen = _chosen_tools(tools, name)
        case _:
            raise unsupported("tool_choice", "give `auto`, `none`, `any`, `required` or the name of a tool.")
    return {"shape": call_shape(chosen), "tools": tools}


def _read_allowed(tools: Tools, choice: Mapping[str, Any], shape: AnswerShape | None) -> dict[str, Any]:
    """Read a choice that limits the tools of one request, as either of OpenAI's interfaces writes it."""
    inner = choice.get("allowed_tools")
    given = inner if isinstance(inner, dict) else choice
    listed = given.get("tools")
    mode = given.get("mode", "auto")
    if not isinstance(listed, list) or mode not in ("auto", "required"):
        raise wrong("tool_choice", "needs a list `tools`, and `auto` or `required` as its `mode`.")
    named = [each.get("function", each) for each in listed if isinstance(each, dict)]
    names = {f"{each.get('namespace', '')}{each.get('name', '')}" for each in named if isinstance(each, dict)}
    return read_answer([tool for tool in tools if tool["function"]["name"] in names], mode, shape)


def call_shape(tools: Tools, answer: AnswerShape | None = None) -> AnswerShape:
    """Return the shape of a call of one of some tools, as `call_of` reads it, or of another answer.

    What a grammar cannot enforce is left out of it, except for tools that are `strict`. Of several tools, one whose
    parameters are no schema cannot be called.
    """
    embedding = Embedding(soften=True)
    left_out = list[str]()
    refusal: ApiError | None = None
    forms = list[dict[str, Any]]()
    checked = dict[str, Any]()
    for tool in tools:
        name = tool["function"]["name"]
        parameters = tool["function"]["parameters"]
        embedding.soften = not tool.get("strict")
        embedding.left_out = []
        try:
            made = _embedded(parameters, embedding, "tools")
        except ApiError as error:
            refusal = error
            left_out.append(name)
            continue
        if not made.get("properties", True) and not made.keys() - _WITHOUT_PARAMETERS:
            # A tool without parameters takes none.
            made["additionalProperties"] = False
        left_out += dict.fromkeys(f"{name}.{keyword}" for keyword in embedding.left_out)
        checked[name] = parameters if embedding.left_out else True
        fields = {"name": {"const": name}, "arguments": {"type": "object"} | made}
        forms.append({"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False})
    if refusal and not forms:
        raise refusal
    if answer is not None:
        if answer.kind not in {ShapeKind.JSON, ShapeKind.SCHEMA}:
            raise unsupported("response_format", "an answer in this format cannot be a tool call.")
        embedding.soften = False
        forms.append(_embedded(json.loads(answer.source or '{"type": "object"}'), embedding, "response_format"))
        left_out += answer.left_out
        checked |= json.loads(answer.unenforced or "{}")
    definitions = {"$defs": embedding.definitions} if embedding.definitions else {}
    shape = _shape(ShapeKind.SCHEMA, json.dumps(definitions | {"anyOf": forms}), "tools")
    return replace(shape, unenforced=json.dumps(checked), left_out=tuple(left_out)) if left_out else shape


def for_template(tools: Tools) -> str:
    """Return tools as a chat template gets them, as JSON: references are written out."""
    functions = [{**tool["function"], "parameters": template_schema(tool["function"]["parameters"])} for tool in tools]
    return json.dumps([{"type": "function", "function": each} for each in functions])


def call_of(answer: str, tools: Tools) -> tuple[ToolCall, ...]:
    """Return the call in an answer of `call_shape`; empty where it is another answer, or was cut off."""
    match parsed_json(answer):
        case {"name": str(name), "arguments": dict(arguments), **rest} if not rest:
            if any(name == tool["function"]["name"] for tool in tools):
                return (ToolCall(name, json.dumps(arguments, ensure_ascii=False)),)
    return ()


def _chosen_tools(tools: Tools, name: str | None) -> Tools:
    """Return the tools that a client insists on: the named one, or all."""
    if not tools:
        raise wrong("tool_choice", "needs `tools`.")
    named = [tool for tool in tools if name in (None, tool["function"]["name"])]
    if not named:
        raise wrong("tool_choice", f"names a tool that is not among `tools`: {str(name)[:50]!r}.")
    return named


def _shape(kind: ShapeKind, source: str, field: str) -> AnswerShape:
    try:
        return AnswerShape(kind, source)
    except InvalidSettingError as error:
        raise ApiError(400, str(error), field) from error
