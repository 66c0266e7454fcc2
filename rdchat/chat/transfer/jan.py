"""Reads Jan's threads: each is a folder with `thread.json`, the thread's facts, and `messages.jsonl`, its messages.

The format is that of Jan's sources (`core/src/types`). Dates are seconds in older versions and milliseconds in newer
ones; texts are `{"type": "text", "text": {"value": ...}}`; thoughts are a part of type `reasoning`, or within the text.
"""

from typing import Any

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat
from rdchat.chat.transfer.foreign_chats import ForeignChat, Json, date, items, mapping, name, role_of, string
from rdchat.files.plain_data import json_or_none
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role

NAME = "Jan"
THREAD, MESSAGES = "thread.json", "messages.jsonl"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": None}
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "max_tokens")


def is_ours(data: Any) -> bool:
    """Return whether this is a `thread.json`."""
    return isinstance(data, dict) and (data.get("object") == "thread" or "assistants" in data)


def lines_of(data: bytes) -> list[Any]:
    """Return the messages of `messages.jsonl`; None for a line that is not JSON, such as the last one after a crash.

    Raises:
        DamagedChatError: If no line is JSON.
    """
    messages = [json_or_none(line) for line in data.splitlines() if line.strip()]
    if messages and not any(messages):
        raise DamagedChatError(f"All lines of {MESSAGES} are damaged")
    return messages


def read(thread: Json, lines: list[Any]) -> FullChat:
    """Return the chat in its two files; `thread` is empty if that file is missing.

    Raises:
        DamagedChatError: If a value of the thread has the wrong type, or all messages are damaged.
    """
    assistants = [each for each in items(thread.get("assistants"), "Its assistants") if not isinstance(each, str)]
    assistant = mapping(next(iter(assistants), None), "An assistant")
    model = mapping(assistant.get("model"), "Its model")
    wrote = name(model.get("id")) or name(thread.get("model_id"))
    chat = ForeignChat(system_prompt=string(assistant.get("instructions"), "Its instructions"), find=lambda _name: None)
    for line in lines:
        with chat.skip_damaged("message"):
            _add(chat, line, wrote)
    dates = [each.created_at for each in chat.messages if each.created_at]
    created = date(thread.get("created")) or next((each.created_at for each in chat.messages), None)
    updated = date(thread.get("updated")) or max(dates, default=created)
    used = mapping(model.get("parameters"), "Its parameters")
    sampling = {each: used.get(each) for each in _SAMPLING}
    sampling |= {"repetition_penalty": used.get("repeat_penalty"), "stop": used.get("stop") or None}
    return chat.finish(name(thread.get("title")) or thread.get("summary"), created, updated, sampling)


def _add(chat: ForeignChat, line: Any, wrote: str | None) -> None:
    """Add a message, count its tool calls, and take the text of a system message."""
    message = mapping(line, "A message")
    role = role_of(message.get("role"), _ROLES)
    if role is None:
        chat.without["tool result"] += 1
        return
    text, facts = chat.text_of(message.get("content")), _facts(message, role, wrote)
    if role is Role.SYSTEM:
        chat.add_system(text, is_first=not chat.messages)
        return
    chat.add(role, text, len(chat.messages) - 1 if chat.messages else None, **facts)
    for call in items(mapping(message.get("metadata"), "A message's metadata").get("tool_calls"), "Its tool calls"):
        chat.without["tool call"] += 1
        chat.without["tool result"] += isinstance(call, dict) and bool(call.get("response"))


def _facts(message: Json, role: Role, wrote: str | None) -> Json:
    """Return fields of a message."""
    facts: Json = {"created_at": date(message.get("created_at"))}
    own = name(mapping(message.get("metadata"), "A message's metadata").get("modelId"))
    if message.get("status") == "stopped":
        facts["finish_reason"] = FinishReason.CANCELLED
    if role is Role.ASSISTANT:
        facts["model"] = own or wrote
        if message.get("status") == "error":
            facts |= {"status": MessageStatus.FAILED, "error": "It failed in Jan."}
    return facts
