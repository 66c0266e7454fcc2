"""Parts a model's reply into what it thought and what it says."""

import re
from dataclasses import dataclass

_TAG = re.compile(r"^[ \t]*(</?think>)[ \t]*\n?|(?<!`)</think>[ \t]*\n?", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_TAGS = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Thoughts:
    """A reply in two parts.

    Attributes:
        thought: What stands between think tags.
        answer: The rest.
        open: The model is still thinking: the last tag is not closed.
    """

    thought: str
    answer: str
    open: bool


def split_thoughts(text: str, final: bool = True) -> Thoughts:
    """Part a reply at its `<think>` tags.

    A tag counts at the start of a line, outside of fenced code; a closing tag with no opening one before it ends a
    thought that the chat template began. While the reply grows (`final` is false) the start of a tag is held back.
    """
    if not final:
        text = text[: len(text) - _unfinished_tag(text)]
    if "think>" not in text:
        return Thoughts("", text, False)
    thought: list[str] = []
    answer: list[str] = []
    inside, end = False, 0
    seen = False
    for match in _TAG.finditer(text):
        closing = "/" in match[0]
        part = text[end : match.start()]
        if not closing and (inside or _in_code("".join(answer) + part)):
            continue
        if closing and not inside and (seen or _in_code(part)):
            continue
        (thought if inside or closing else answer).append(part)
        inside, end, seen = not closing, match.end(), True
    (thought if inside else answer).append(text[end:])
    return Thoughts("\n\n".join(part.strip() for part in thought if part.strip()), "".join(answer).lstrip(), inside)


def _unfinished_tag(text: str) -> int:
    """Length of a tag's beginning at the end of the text."""
    place = text.rfind("<", -len(_TAGS[1]))
    start = text[place:] if place >= 0 else ""
    return len(start) if start and any(tag.startswith(start) and tag != start for tag in _TAGS) else 0


def _in_code(before: str) -> bool:
    """Whether the text ends inside fenced code."""
    fence = ""
    for match in _FENCE.finditer(before):
        if not fence:
            fence = match[1]
        elif match[1].startswith(fence):
            fence = ""
    return bool(fence)
