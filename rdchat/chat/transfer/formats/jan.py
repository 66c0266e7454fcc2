"""Jan's threads: a folder each with `thread.json`, about the thread, and `messages.jsonl`, a message a line.

As Jan's sources describe them (`core/src/types`). Dates are seconds in older versions and milliseconds in newer ones;
texts are `{"type": "text", "text": {"value": ...}}`, thinking is a part of the kind `reasoning`, or within the text.
"""

import json
from collections import Counter
from typing import Any

from rdchat.chat.conversation import Conversation, Message, MessageStatus
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat
from rdchat.chat.transfer.formats.fields import Json, date, items, joined, mapping, name, sampling, thinking, words
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.requests import Role

NAME = "Jan"
THREAD, MESSAGES = "thread.json", "messages.jsonl"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": None}


def is_ours(data: Any) -> bool:
    """Tell whether this is a `thread.json`."""
    return isinstance(data, dict) and (data.get("object") == "thread" or "assistants" in data)


def lines_of(data: bytes) -> list[Any]:
    """Return the messages of `messages.jsonl`.

    Raises:
        DamagedChatError: If a line is no JSON.
    """
    found = []
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise DamagedChatError(f"Line {number} of {MESSAGES} is damaged") from error
    return found


def read(thread: Json, lines: list[Any]) -> WholeChat:
    """Return a chat of its two files; `thread` is empty where that is not there.

    Raises:
        DamagedChatError: If something of it is of the wrong kind.
    """
    assistants = [mapping(each, "An assistant") for each in items(thread.get("assistants"), "Its assistants")
                  if not isinstance(each, str)]  # fmt: skip
    assistant: Json = next(iter(assistants), {})
    model = mapping(assistant.get("model"), "Its model")
    wrote = name(model.get("id")) or name(thread.get("model_id"))
    own = words(assistant.get("instructions"), "Its instructions")
    without: Counter[str] = Counter()
    messages: list[Message] = []
    for line in lines:
        about = mapping(line, "A message")
        if words(about.get("role"), "A message's role") not in _ROLES:
            raise DamagedChatError("A message has a role that rdchat does not know")
        role, text = _ROLES[about["role"]], _text(about.get("content"), without)
        if role is None:
            without["tool result"] += 1
        elif role is Role.SYSTEM:
            own = own or text
        else:
            messages.append(_message(about, role, text, wrote, len(messages)))
    created = date(thread.get("created")) or next((each.created_at for each in messages), None)
    dates = [each.created_at for each in messages if each.created_at]
    chat = Conversation(
        0,
        name(thread.get("title")) or name(thread.get("summary")) or "",
        created,
        date(thread.get("updated")) or max(dates, default=created),
        own if own.strip() else None,
        _sampling(mapping(model.get("parameters"), "Its parameters")),
    )
    return WholeChat(chat, tuple(messages), without=without)


def _message(about: Json, role: Role, text: str, wrote: str | None, place: int) -> Message:
    stopped, failed = about.get("status") == "stopped", about.get("status") == "error"
    own = name(mapping(about.get("metadata"), "A message's metadata").get("modelId"))
    return Message(
        place,
        0,
        place - 1 if place else None,
        role,
        text,
        activated=place,
        status=MessageStatus.FAILED if failed and role is Role.ASSISTANT else MessageStatus.COMPLETE,
        created_at=date(about.get("created_at")),
        model=(own or wrote) if role is Role.ASSISTANT else None,
        finish_reason=FinishReason.CANCELLED if stopped else None,
        error="It failed in Jan." if failed and role is Role.ASSISTANT else "",
    )


def _text(content: Any, without: Counter[str]) -> str:
    if isinstance(content, str):
        return words(content, "A message")
    texts = []
    for each in items(content, "A message's content"):
        part = mapping(each, "A part of a message")
        kind = part.get("type", part.get("type_"))
        if kind in ("text", "reasoning"):
            text = part.get("text")
            value = words(text if isinstance(text, str) else mapping(text, "A message").get("value"), "A message")
            texts.append(thinking(value).rstrip("\n") if kind == "reasoning" else value)
        elif isinstance(kind, str):
            without[{"image_url": "image", "tool_call": "tool call"}.get(kind, "attachment")] += 1
        else:
            raise DamagedChatError("A part of a message is not what it should be")
    return joined(text for text in texts if text.strip())


def _sampling(parameters: Json) -> Any:
    values = {each: parameters.get(each) for each in ("temperature", "top_p", "top_k", "min_p", "max_tokens")}
    values["repetition_penalty"] = parameters.get("repeat_penalty")
    values["stop"] = parameters.get("stop") or None
    return sampling(values)
