"""Finds what a chat template does with thoughts, and its switch for them, by rendering it in the child."""

import re
from collections.abc import Callable
from typing import Any

from rdchat.inference.prompts.encoding import TemplateError
from rdchat.thoughts import PAIRS

Render = Callable[[list[dict[str, str]], dict[str, Any]], str]

_THOUGHT, _ANSWER = "qzthoughtqz", "qzanswerqz"  # in no template
_QUESTION = {"role": "user", "content": "Hi"}
_CHANNELS = (
    f"<|channel|>analysis<|message|>{_THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{_ANSWER}"  # gpt-oss
)
_FIELDS = ("reasoning_content", "reasoning", "thinking")
_FIELD = re.compile(rf"""(?:\.|\[['"]|['"])({"|".join(_FIELDS)})\b""")
_SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", True, False),  # Qwen3, GLM, SmolLM3, Gemma 4 and most others
    ("thinking", True, False),  # DeepSeek V3.1, Granite
    ("thinking_mode", "enabled", "disabled"),  # MiniMax M3
)
_EFFORTS = ("reasoning_effort", "thinking_effort")  # gpt-oss, Solar Open; Kimi K3
_LEVELS = ("low", "high", "medium")  # what equals an earlier one is left out


def drops_thoughts(render: Render, source: str, variables: dict[str, Any]) -> bool:
    """Tell whether a template leaves the thoughts of earlier replies out, or refuses them in the text.

    Args:
        render: Applies the template to turns, with variables.
        source: The template.
        variables: Those that are set anyway.
    """
    written = _CHANNELS if "<|channel|>" in source else None
    for opening, closing in PAIRS:
        if written is None and closing in source:
            written = f"{opening}\n{_THOUGHT}\n{closing}\n\n{_ANSWER}"
    fields = dict.fromkeys(_FIELD.findall(source), _THOUGHT)
    if written is None and not fields:
        return False

    def leaves_out(**reply: str) -> bool | None:
        text = _rendered(render, [_QUESTION, {"role": "assistant", **reply}, _QUESTION], variables)
        return None if text is None or _ANSWER not in text else _THOUGHT not in text

    as_written = leaves_out(content=written) if written else False
    if as_written is None:  # it refuses them
        return leaves_out(content=_ANSWER) is not None
    return as_written or (bool(fields) and leaves_out(content=_ANSWER, **fields) is True)


def choices(render: Render, source: str, variables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the variables that make a template ask for thoughts, by `Thinking`'s values; none where it has no switch.

    A variable counts where the template renders its values differently.
    """

    def opened(name: str, value: Any) -> str | None:
        return _rendered(render, [_QUESTION], variables | {name: value})

    found: dict[str, dict[str, Any]] = {}
    for name, on, off in _SWITCHES:
        if not found and _mentions(source, name):
            texts = opened(name, on), opened(name, off)
            if None not in texts and texts[0] != texts[1]:
                found |= {"on": {name: on}, "off": {name: off}}
    for name in _EFFORTS:
        if _mentions(source, name):
            levels: dict[str, str] = {}
            for level in _LEVELS:
                text = opened(name, level)
                if text is not None and text not in levels:
                    levels[text] = level
            if len(levels) > 1:
                found |= {level: {name: level} for level in levels.values()}
                break
    return found


def _mentions(source: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", source) is not None


def _rendered(render: Render, turns: list[dict[str, str]], variables: dict[str, Any]) -> str | None:
    try:
        return render(turns, variables)
    except TemplateError:
        return None
