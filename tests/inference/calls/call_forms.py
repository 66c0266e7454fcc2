"""Writers of calls in each form that models have."""

import json
from collections.abc import Callable
from typing import Any


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tagged(begin: str, argument: str, end: str, around: str = "{}") -> Callable[[str, dict[str, Any]], str]:
    def write(name: str, arguments: dict[str, Any]) -> str:
        values = "".join(argument.format(key=key, value=around.format(_raw(each))) for key, each in arguments.items())
        return begin.format(name=name) + values + end

    return write


def _kimi_k3(name: str, arguments: dict[str, Any]) -> str:
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    values = "".join(
        f'<|open|>argument key="{key}" type="{kinds.get(type(each), "null")}"<|sep|>{_raw(each)}'
        "<|close|>argument<|sep|>"
        for key, each in arguments.items()
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{values}<|close|>call<|sep|>'


def _braced(quote: str) -> Callable[[str, dict[str, Any]], str]:
    def write(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{write(each)}" for key, each in value.items()) + "}"
        return f"[{','.join(map(write, value))}]" if isinstance(value, list) else json.dumps(value)

    return lambda name, arguments: f"call:{name}{write(arguments)}"


def _pythonic(name: str, arguments: dict[str, Any]) -> str:
    return f"[{name}({', '.join(f'{key}={json.dumps(each, ensure_ascii=False)}' for key, each in arguments.items())})]"


def json_text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _minicpm(name: str, arguments: dict[str, Any]) -> str:
    values = "".join(
        f'<param name="{key}">{f"<![CDATA[{_raw(each)}]]>" if set(_raw(each)) & set("<&") else _raw(each)}</param>'
        for key, each in arguments.items()
    )
    return f'"{name}">{values}'


_GLM = _tagged("{name}\n", "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", "")
FORMS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "json_tools": lambda name, arguments: f'\n{{"name": "{name}", "arguments": {json_text(arguments)}}}\n',
    "qwen3_coder": _tagged("\n<function={name}>\n", "<parameter={key}>\n{value}\n</parameter>\n", "</function>\n"),
    "glm47": _GLM,
    "laguna": _GLM,
    "longcat": _tagged(
        "{name}\n", "<longcat_arg_key>{key}</longcat_arg_key>\n<longcat_arg_value>{value}</longcat_arg_value>\n", ""
    ),
    "minimax_m2": _tagged('\n<invoke name="{name}">\n', '<parameter name="{key}">{value}</parameter>\n', "</invoke>\n"),
    "muse_spark": _tagged(
        '\n<atem:invoke name="{name}">\n', '<atem:parameter name="{key}">{value}</atem:parameter>\n', "</atem:invoke>\n"
    ),
    "minicpm5": _minicpm,
    "kimi_k2": lambda name, arguments: (
        f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{json_text(arguments)}<|tool_call_end|>"
    ),
    "kimi_k3": _kimi_k3,
    "mistral": lambda name, arguments: f"{name}[CALL_ID]a1b2c3d4e[ARGS]{json_text(arguments)}",
    "gemma4": _braced('<|"|>'),
    "function_gemma": _braced("<escape>"),
    "pythonic": _pythonic,
}
