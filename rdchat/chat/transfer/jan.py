"""Reads Jan's threads: each is a folder with `thread.json`, the thread's facts, and `messages.jsonl`, its messages.

The format is that of Jan's sources (`core/src/types`). Dates are seconds in older versions and milliseconds in newer
ones; texts are `{"type": "text", "text": {"value": ...}}`; thoughts are a part of type `reasoning`, or within the text.
"""

from typing import Any

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat
from rdchat.chat.transfer.foreign_chats import (
    ROLES,
    ForeignChat,
    Json,
    attached_text,
    date,
    joined,
    mapping,
    name,
    role_of,
    take_sampling,
)
from rdchat.files.plain_data import json_or_none
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role

NAME = "Jan"
THREAD = "thread.json"
MESSAGES = "messages.jsonl"
# What Jan says of an assistant, in no chat.
_OF_ASSISTANT = {"name": "", "description": "", "tools": ""}
_ROLES = ROLES | {"tool": None}


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


def read(facts: Any, lines: list[Any]) -> FullChat:
    """Return the chat in its two files; `facts` is None if that of the thread is missing.

    Raises:
        DamagedChatError: If all messages are damaged.
    """
    chat = ForeignChat()
    thread = chat.inner({"thread": facts}, "thread")
    assistant = next(iter(chat.listed(thread, "assistants")), {})
    chat.system_prompt = chat.take_text(assistant, "instructions")
    model = chat.inner(assistant, "model")
    wrote = name(model.pop("id", None)) or name(thread.pop("model_id", None))
    chat.leave_out(assistant, _OF_ASSISTANT)
    for line in lines:
        with chat.skip_damaged("message"):
            message = mapping(line, "A message")
            _add(chat, message, wrote)
            chat.count_rest(message)
    thread["title"] = name(thread.get("title")) or thread.pop("summary", None)
    return chat.finished_chat(thread, ("title", "created", "updated"), take_sampling(chat.inner(model, "parameters")))


def _add(chat: ForeignChat, message: Json, wrote: str | None) -> None:
    """Add a message, count its tool calls, and take the text of a system message."""
    role = role_of(message.pop("role", None), _ROLES)
    if role is None:
        chat.without["tool result"] += 1
        message.clear()
        return
    metadata = chat.inner(message, "metadata")
    chat.leave_out(metadata, {"assistant": ""})
    texts = [chat.take_text(message, "content")]
    for each in chat.listed(metadata, "inline_file_contents"):
        texts.append(attached_text(each.pop("name", None), chat.take_text(each, "content")))
    text = joined(texts)
    if role is Role.SYSTEM:
        chat.add_system(text, is_first=not chat.messages)
        return
    facts: Json = {"created_at": date(message.pop("created_at", None))}
    status = message.get("status")
    if status == "stopped":
        facts["finish_reason"] = FinishReason.CANCELLED
    if role is Role.ASSISTANT:
        facts["model"] = name(metadata.pop("modelId", None)) or wrote
        if status == "error":
            facts |= {"status": MessageStatus.FAILED, "error": "It failed in Jan."}
    chat.add_message(role, text, len(chat.messages) - 1 if chat.messages else None, **facts)
    for call in chat.listed(metadata, "tool_calls"):
        chat.without["tool call"] += 1
        chat.without["tool result"] += bool(call.get("response"))
        call.clear()
