"""Changes a conversation so that a chat template takes it."""

import hashlib
import json
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rdchat.inference.api.messages import ChatMessage, Role, ToolCall, join_neighbours

Messages = tuple[ChatMessage, ...]

_ID_CHARACTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9


def fitted(messages: Sequence[ChatMessage]) -> Iterator[Messages]:
    """Yield a conversation as it is, then with one more change at a time, for a template that refuses the one before.

    Templates want call ids of nine letters (Mistral), no thought beside a call (gpt-oss), a system message only at the
    beginning (Qwen 3.5), the user and the assistant in turns, no tool roles, or no system message at all (Gemma).
    """
    changed = tuple(messages)
    yield changed
    for step in (_with_short_ids, _without_thoughts, _system_first, in_turns, _calls_as_turns, _without_system):
        before, changed = changed, step(changed)
        if changed != before:
            yield changed


def short_id(text: str) -> str:
    """Return nine letters and digits that depend on a text alone, as Mistral's templates want the ids of calls."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    characters = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ID_CHARACTERS))
        characters.append(_ID_CHARACTERS[digit])
    return "".join(characters)


def call_as_text(call: ToolCall) -> str:
    """Return a call as JSON, as models without calls in their template are told to write it."""
    return json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}, ensure_ascii=False)


def calls_as_text(messages: Sequence[ChatMessage]) -> Messages:
    """Return a conversation whose calls are text of the assistant, and whose results are text of the user."""
    return tuple(map(_as_text, messages))


def _as_text(message: ChatMessage) -> ChatMessage:
    if message.role is Role.TOOL:
        return ChatMessage(Role.USER, message.content)
    texts = [message.content, *map(call_as_text, message.tool_calls)]
    return replace(message, content="\n\n".join(filter(str.strip, texts)), tool_calls=()) if texts[1:] else message


def in_turns(messages: Sequence[ChatMessage]) -> Messages:
    """Return a conversation in which the user begins, and no two neighbours have the same role.

    An assistant's greeting before the first question becomes the beginning of that question. Results of tools stay
    apart.
    """
    begin = _end_of_system(messages)
    first = messages[begin : begin + 1]
    if first and first[0].role is Role.ASSISTANT and not first[0].tool_calls:
        first = (ChatMessage(Role.USER, first[0].content),)
    return tuple(join_neighbours((*messages[:begin], *first, *messages[begin + 1 :])))


def _end_of_system(messages: Sequence[ChatMessage]) -> int:
    """Return how many system messages stand at the beginning."""
    return next((at for at, message in enumerate(messages) if message.role is not Role.SYSTEM), len(messages))


def _without_role(messages: Sequence[ChatMessage]) -> Messages:
    """Make system messages the user's."""
    return tuple(replace(each, role=Role.USER) if each.role is Role.SYSTEM else each for each in messages)


def _with_short_ids(messages: Messages) -> Messages:
    """Give calls and their results ids of nine letters; a result without an id gets that of the next open call."""
    changed, waiting = [], list[str]()
    for at, message in enumerate(messages):
        if message.tool_calls:
            ids = [_short(call.call_id or f"{at}/{number}") for number, call in enumerate(message.tool_calls)]
            calls = tuple(replace(call, call_id=one) for call, one in zip(message.tool_calls, ids, strict=True))
            changed.append(replace(message, tool_calls=calls))
            waiting = ids
        elif message.role is Role.TOOL:
            answered = _short(message.tool_call_id) if message.tool_call_id else next(iter(waiting), _short(str(at)))
            changed.append(replace(message, tool_call_id=answered))
            waiting = [each for each in waiting if each != answered]
        else:
            changed.append(message)
    return tuple(changed)


def _short(call_id: str) -> str:
    fits = len(call_id) == _ID_LENGTH and call_id.isascii() and call_id.isalnum()
    return call_id if fits else short_id(call_id)


def _without_thoughts(messages: Messages) -> Messages:
    return tuple(replace(message, thought="") for message in messages)


def _system_first(messages: Messages) -> Messages:
    """Join the system messages at the beginning; make later ones the user's."""
    begin = _end_of_system(messages)
    return (*join_neighbours(messages[:begin]), *_without_role(messages[begin:]))


def _calls_as_turns(messages: Messages) -> Messages:
    return in_turns(calls_as_text(messages))


def _without_system(messages: Messages) -> Messages:
    return in_turns(_without_role(messages))
