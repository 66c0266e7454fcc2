"""Finds the texts of a conversation in the prompt that a chat template made of it."""

import json
from collections.abc import Sequence
from typing import Any


def lacking(prompt: str, turns: Sequence[dict[str, Any]], texts: Sequence[str], mark: str) -> str:
    """Return the role of the first message of which a prompt lacks the text or a call; empty if it has all.

    They stand one behind the other, but a system message may stand elsewhere, and the values of a call in any order.

    Args:
        prompt: The rendered text.
        turns: The messages that the chat template got.
        texts: The text of each message that the prompt must have, with two marks for each image.
        mark: What stands before a control token in a text.
    """
    ends = {True: 0, False: 0}
    for turn, text in zip(turns, texts, strict=True):
        is_system = turn["role"] == "system"
        pieces = ([piece] for piece in text.split(mark * 2))
        for values in (*pieces, *(_leaves(call["function"]) for call in turn.get("tool_calls", ()))):
            found = [_end_of(value, prompt, ends[is_system], mark) for value in values]
            if -1 in found:
                return str(turn["role"])
            ends[is_system] = max(found)
    return ""


def _leaves(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inside is None else [leaf for each in inside for leaf in _leaves(each)]


def _end_of(value: Any, prompt: str, start: int, mark: str) -> int:
    """Return where a value that begins behind `start` ends; -1 if there is none as it is, in JSON or in Python."""
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    if (at := prompt.find(text, start)) >= 0:
        return at + len(text)
    spelled = [json.dumps(text, ensure_ascii=False)[1:-1]]
    # These spell the marks around a control token in other characters, so that it would be one.
    spelled += [json.dumps(text)[1:-1], repr(text)[1:-1], str(value)] if mark not in text else []
    return next((at + len(each) for each in spelled if (at := prompt.find(each, start)) >= 0), -1)
