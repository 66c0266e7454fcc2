"""Reads the tools of a request and the format of its answer, in the forms of all clients.

The model gets each tool as a function with a JSON schema of its arguments. A tool of a `namespace` (as Codex sends
those of MCP servers) gets the namespace before its name. A `custom` tool, whose calls are plain text (such as Codex's
`apply_patch`), becomes a function with one argument, `input`.

Where the client insists on a call, the answer must have a format (`AnswerShape`): the JSON of a call, which `call_of`
reads afterwards. A grammar cannot enforce all of JSON Schema; what it leaves out is named to the client, and the
finished answer is checked with the full schema (`AnswerShape.unenforced`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.files import is_nested_deeper
from rdchat.inference.api import MAX_NESTED, MAX_SOURCE_BYTES, AnswerShape, ShapeKind, ToolCall, parsed_json
from rdchat.json_schema import TYPES, JoinedSchemas, SchemaError, template_schema
from rdchat.server.interfaces.fields import ApiError, Fields, object_of, unsupported, wrong

Tools = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's form, `{"type": "function", "function": {...}}`, with `strict` and `namespace` beside the function,
and `custom` for a custom tool.
"""
# The arguments of a function without parameters, and those of a custom tool.
_NO_PARAMETERS = {"type": "object", "properties": {}}
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
# A schema with these keywords alone, and without properties, is that of a tool without parameters.
_WITHOUT_PARAMETERS = {"type", "properties", "required", "title", "description"}


def read_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read OpenAI's `tools`; those that only OpenAI can run, such as its web search, count as ignored.

    In `/v1/responses` the fields of a function stand in the tool itself.
    """
    return _valid_tools(fields, lambda given: _openai_tools(given, fields, ""))


def _valid_tools(
    fields: Fields, read: Callable[[Fields], Iterator[Mapping[str, Any]]]
) -> tuple[Mapping[str, Any], ...]:
    """Read each entry of `tools`. A damaged one counts as ignored, unless none is good."""
    tools = list[Mapping[str, Any]]()
    refusals = list[ApiError]()
    for at, each in enumerate(fields.items("tools")):
        try:
            tools += read(fields.inner(each, f"tools[{at}]"))
        except ApiError as error:
            refusals.append(error)
            match each:
                case {"function": {"name": name}} | {"name": name}:
                    fields.ignored.append(f"tools.{name}")
                case _:
                    fields.ignored.append("tools")
    if refusals and not tools:
        raise refusals[0]
    return tuple(tools)


def _openai_tools(given: Fields, fields: Fields, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield the tool of an entry, or the tools of a namespace; `fields` are the request's."""
    match given.read_text("type", "function"):
        case "function":
            yield _function(given, namespace)
        case "custom":
            yield _custom(given, namespace)
        case "namespace":
            name = given.read_text("name")
            description = given.read_text("description", "")
            inner = _valid_tools(given, lambda each: _openai_tools(each, fields, name))
            if inner:
                # A namespace has a description, and functions have no place for it but the first one's own.
                first = inner[0]["function"]
                first["description"] = "\n".join(filter(None, (description, first["description"])))
            else:
                fields.ignored.append("tools.namespace")
            yield from inner
        case kind:
            fields.ignored.append(f"tools.{kind}")


def _part_or_itself(given: Fields, field: str) -> Fields:
    """Return the object in a field; the object around it where it is absent, as in `/v1/responses`."""
    return given if given.raw_value(field) is None else given.part(field)


def _function(given: Fields, namespace: str) -> Mapping[str, Any]:
    function = _part_or_itself(given, "function")
    if not function.read_text("name"):
        raise wrong(given.field_name("function"), "must name the function.")
    return _tool(function, function.raw_value("parameters", _NO_PARAMETERS), namespace)


def _custom(given: Fields, namespace: str) -> Mapping[str, Any]:
    """Read a custom tool; the form of its input, which may be a grammar, becomes a part of its description."""
    custom = _part_or_itself(given, "custom")
    form = custom.part("format")
    # The value is not used; a field that was read is not reported to the client as ignored (`Fields.unread`).
    form.raw_value("type")
    form = _part_or_itself(form, "grammar")
    rule = form.read_text("definition", "")
    tool = _tool(custom, _INPUT, namespace) | {"custom": True}
    if rule:
        syntax = form.read_text("syntax", "")
        tool["function"]["description"] += f"\nThe input has this form ({syntax}):\n{rule}"
    return tool


def _tool(
    given: Fields, parameters: Any, namespace: str = "", field: str = "parameters", default_description: str = ""
) -> dict[str, Any]:
    function = {
        "name": namespace + given.read_text("name"),
        "description": given.read_text("description", "") or default_description,
        "parameters": object_of(parameters, given.field_name(field)),
    }
    return {"type": "function", "function": function, "strict": given.flag("strict"), "namespace": namespace}


def read_anthropic_tools(fields: Fields) -> tuple[Mapping[str, Any], ...]:
    """Read Anthropic's `tools`.

    Anthropic has published the schemas of some that the client runs, such as its text editor; they are in
    `anthropic_tools.json`. Those that only Anthropic can run, such as its web search, count as ignored.
    """
    known: dict[str, Any] = json.loads(files(__package__).joinpath("anthropic_tools.json").read_text())

    def read(given: Fields) -> Iterator[Mapping[str, Any]]:
        kind = given.read_text("type", "custom")
        # The type of such a tool ends with a date.
        own: Mapping[str, Any] = next((known[each] for each in known if kind.startswith(f"{each}_")), {})
        if not own and kind != "custom":
            fields.ignored.append(f"tools.{given.read_text('name', '')}")
            return
        schema = own["parameters"] if own else given.raw_value("input_schema", {})
        yield _tool(given, schema, field="input_schema", default_description=own.get("description", ""))

    return _valid_tools(fields, read)


def origin_of(call: ToolCall, tools: Tools) -> Mapping[str, Any]:
    """Return the tool that a call names; empty where the request has none of that name."""
    return next((tool for tool in tools if tool["function"]["name"] == call.name), {})


def input_of(call: ToolCall) -> str:
    """Return the text that a call of a `custom` tool passes."""
    given = json.loads(call.arguments).get("input")
    return given if isinstance(given, str) else call.arguments


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
        # Not used either, and not to be reported as ignored.
        for label in ("name", "description"):
            named.raw_value(label)
        return _schema_shape(schema, named.field_name("schema"), strict=named.flag("strict"))
    if kind in {"regex", "grammar"}:
        return _shape(ShapeKind(kind), given.read_text(kind), given.field_name(kind))
    raise unsupported(given.field_name("type"), f"rdchat has no format {kind[:50]!r}.")


def _schema_shape(schema: Any, field: str, *, strict: bool) -> AnswerShape:
    """Return the shape of JSON that fits a schema; unless `strict`, what no grammar enforces is left out of it.

    If something is left out, the finished answer is checked with the full schema. `AnswerShape.unenforced` has such
    schemas by the name of a tool; the empty name stands for an answer that is no call: `{"": {"type": "object", ...}}`.
    """
    if not isinstance(schema, dict) or is_nested_deeper(schema, MAX_NESTED):
        return _shape(ShapeKind.SCHEMA, json.dumps(schema), field)  # Raises the error that says why not
    schemas = JoinedSchemas(MAX_SOURCE_BYTES)
    made, left_out = _added(schemas, schema, field, soften=not strict)
    if "type" in left_out:
        # This is a mistake, not a keyword that is beyond a grammar.
        raise ApiError(400, f"The JSON schema cannot be used: JSON has no other types than {', '.join(TYPES)}.", field)
    shape = _shape(ShapeKind.SCHEMA, json.dumps(schemas.with_definitions(made)), field)
    keywords = tuple(dict.fromkeys(left_out))
    return replace(shape, unenforced=json.dumps({"": schema}), left_out=keywords) if keywords else shape


def _added(
    schemas: JoinedSchemas, schema: Mapping[str, Any], field: str, *, soften: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return `JoinedSchemas.add_schema`; ApiError about the field if the schema is refused."""
    try:
        return schemas.add_schema(schema, soften=soften)
    except SchemaError as error:
        raise ApiError(400, f"The JSON schema cannot be used: {error}.", field) from error


def read_answer(tools: Tools, choice: object, shape: AnswerShape | None) -> dict[str, Any]:
    """Return the tools that the model may or must call and the shape of its answer, as fields of `ReplyRequest`.

    With `none` it gets no tools. With `auto` it may call one, and an answer's format allows calls beside it. Where it
    must call one, the format is that of a call alone.

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
            raise unsupported("tool_choice", "give `auto`, `none`, `any`, `required`, or an object that names a tool.")
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
    """Return the shape of a call of one of some tools, or of another answer: JSON that `call_of` reads.

    What a grammar cannot enforce is left out of it, except for tools that are `strict`. Of several tools, one whose
    parameters are no schema cannot be called.

    Args:
        tools: The tools.
        answer: The format of an answer that is no call, where the model may choose; None where it must call.
    """
    schemas = JoinedSchemas(MAX_SOURCE_BYTES)
    left_out = list[str]()
    # The last error of a tool; it is raised if no tool is left that can be called.
    refusal: ApiError | None = None
    # The schemas of the JSON that the model may write.
    forms = list[dict[str, Any]]()
    # By tool, the schema with which its arguments are checked at the end; True for no check. An answer that is no call
    # has the empty name: `{"search": {"type": "object", ...}, "": {...}}`.
    checked = dict[str, Any]()
    for tool in tools:
        name = tool["function"]["name"]
        try:
            form, keywords = _call_form(tool, schemas)
        except ApiError as error:
            refusal = error
            left_out.append(name)
            continue
        forms.append(form)
        left_out += dict.fromkeys(f"{name}.{keyword}" for keyword in keywords)
        checked[name] = tool["function"]["parameters"] if keywords else True
    if refusal and not forms:
        raise refusal
    if answer is not None:
        if answer.kind not in {ShapeKind.JSON, ShapeKind.SCHEMA}:
            raise unsupported("response_format", "an answer in this format cannot be a tool call.")
        form, _ = _added(schemas, json.loads(answer.source or '{"type": "object"}'), "response_format", soften=False)
        forms.append(form)
        left_out += answer.left_out
        checked |= json.loads(answer.unenforced or "{}")
    shape = _shape(ShapeKind.SCHEMA, json.dumps(schemas.with_definitions({"anyOf": forms})), "tools")
    return replace(shape, unenforced=json.dumps(checked), left_out=tuple(left_out)) if left_out else shape


def _call_form(tool: Mapping[str, Any], schemas: JoinedSchemas) -> tuple[dict[str, Any], list[str]]:
    """Return the schema of a call of a tool, and the keywords of its parameters that no grammar enforces."""
    function = tool["function"]
    made, keywords = _added(schemas, function["parameters"], "tools", soften=not tool.get("strict"))
    # `properties` is there and empty; a schema that leaves it out says nothing of them.
    if not made.get("properties", True) and not made.keys() - _WITHOUT_PARAMETERS:
        # A tool without parameters takes none.
        made["additionalProperties"] = False
    fields = {"name": {"const": function["name"]}, "arguments": {"type": "object"} | made}
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}, keywords


def for_template(tools: Tools) -> str:
    """Return tools as JSON for a chat template, which follows no references: what they name is written out."""
    functions = [{**tool["function"], "parameters": template_schema(tool["function"]["parameters"])} for tool in tools]
    return json.dumps([{"type": "function", "function": each} for each in functions])


def call_of(answer: str, tools: Tools) -> tuple[ToolCall, ...]:
    """Return the call in an answer that has the shape of `call_shape`; empty for another answer, or one cut off."""
    match parsed_json(answer):
        case {"name": str(name), "arguments": dict(arguments), **rest} if not rest:
            call = ToolCall(name, json.dumps(arguments, ensure_ascii=False))
            return (call,) if origin_of(call, tools) else ()
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
    """Return a shape; an error in it names the request's field."""
    try:
        return AnswerShape(kind, source)
    except InvalidSettingError as error:
        raise ApiError(400, str(error), field) from error
