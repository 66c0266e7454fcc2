"""Reads the deltas of a remote server's reply: words, thoughts and calls, in the forms of all servers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from rdchat.files.plain_data import as_text
from rdchat.inference.api.messages import MAX_ARGUMENTS, MAX_CALL_NAME, MAX_CALLS, ToolCall, parsed_json

# Some servers put a signature into an id.
_MAX_ID = 2**15
# Fields with words in a part of a text, and those with a thought in a delta.
_WORDS = ("text", "value", "content", "refusal", "summary", "thinking", "reasoning")
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "thinking")


def delta_texts(delta: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a delta in order, each with whether it is a thought.

    A part of the content without words is its type, such as `[image_url]`.
    """
    # One thought under several names is one.
    yield next(filter(None, (_words(delta.get(name)) for name in _THOUGHTS)), ""), True
    content = delta.get("content")
    for part in content if isinstance(content, list) else [content]:
        fields = part if isinstance(part, dict) else {"text": part}
        kind = str(fields.get("type"))
        is_thought = "think" in kind or "reason" in kind
        has_words = is_thought or not fields.keys().isdisjoint(_WORDS)
        yield _words(fields) if has_words else f"[{kind}]", is_thought
    yield _words(delta.get("refusal")), False


def _words(value: object) -> str:
    """Return the words in a text, in a part of one, or in a list of parts."""
    match value:
        case str():
            return value
        case list():
            return "".join(map(_words, value))
        case dict():
            # One text under several names is one.
            return "".join(dict.fromkeys(_words(value.get(name)) for name in _WORDS))
        case None | bool():
            return ""
    return str(value)


@dataclass(slots=True)
class _Call:
    """A call in the making.

    Attributes:
        is_whole: Whether all of it came at once.
    """

    call_id: str = ""
    name: str = ""
    arguments: StringIO = field(default_factory=StringIO)
    is_whole: bool = False

    def is_other(self, call_id: str, name: str, arguments: str) -> bool:
        """Return whether a piece with the same index, or without one, begins another call."""
        if not name:
            return False
        if call_id and self.call_id:
            # Some servers give each piece an id of its own, but then it has no name.
            return call_id != self.call_id
        is_named_otherwise = self.name not in ("", name)
        return self.arguments.tell() > 0 and (is_named_otherwise or (self.is_whole and bool(arguments)))

    def is_in(self, other: "_Call") -> bool:
        """Return whether another call is this one, or more of it."""
        is_same = (self.call_id, self.name) == (other.call_id, other.name)
        return is_same and other.arguments.getvalue().startswith(self.arguments.getvalue())


class StreamedCalls:
    """The calls in the deltas of one reply.

    Attributes:
        is_too_long: Whether they are more than a reply may have.
    """

    def __init__(self) -> None:
        self.is_too_long = False
        self._calls: list[_Call] = []
        # By index; the last one is that of a piece without an index, too.
        self._open: dict[str, _Call] = {}
        self._length = 0

    def add_piece(self, piece: object) -> None:
        """Add a piece: the beginning of a call, more of one, or a whole one. Nothing where they are too long."""
        if self.is_too_long:
            return
        fields: dict[str, Any] = piece if isinstance(piece, dict) else {}
        function = fields.get("function") or {}
        index = str(fields.get("index"))
        call_id = str(fields.get("id") or "")
        name = str(function.get("name") or "")
        arguments = as_text(function.get("arguments") or "")
        last = self._open.get(str(None))
        call = self._open.get(index)
        if call is None and last and not (name or last.is_whole) and call_id in ("", last.call_id):
            # Some servers count the pieces of a call, not the calls.
            call = last
        if call is None or call.is_other(call_id, name, arguments):
            call = _Call(is_whole=isinstance(parsed_json(arguments), dict))
            self._calls.append(call)
            self._open |= {index: call, str(None): call}
        call.call_id = call.call_id or call_id
        # A name may come in pieces, again with each piece of the arguments, or after them.
        if name != call.name and not (call.name and call.arguments.tell()):
            call.name += name
        self._length += call.arguments.write(arguments)
        is_long = len(call.name) > MAX_CALL_NAME or len(call.call_id) > _MAX_ID or self._length > MAX_ARGUMENTS
        self.is_too_long |= is_long or len(self._calls) > MAX_CALLS

    def finished(self) -> tuple[list[ToolCall], list[str]]:
        """Return the calls, and those without a name or whose arguments are no JSON object as texts."""
        calls = list[ToolCall]()
        damaged = list[str]()
        for at, call in enumerate(self._calls):
            # Some servers send one again with another index, and more of it.
            if call.call_id and any(map(call.is_in, self._calls[at + 1 :])):
                continue
            name = whole(call.name)
            arguments = whole(call.arguments.getvalue()) or "{}"
            if name and isinstance(parsed_json(arguments), dict):
                calls.append(ToolCall(name, arguments, whole(call.call_id)))
            else:
                damaged.append(f"[a call of a tool that is not valid: {name}({arguments})]")
        return calls, damaged


def whole(text: str) -> str:
    """Return a text in which both halves of a character (surrogates) are one, and half a character is U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
