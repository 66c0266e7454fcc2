"""Reads chats of Jan, LibreChat and LM Studio, in the transfer process.

For each program there is a test whether JSON is one of its chats, and a function that converts the chat. The functions
take out of the JSON what they read; `ForeignChat` counts the texts that are left. `message` and `fields` are parsed
JSON objects, and `facts` are fields of our `Message`.

- Jan has a folder for each thread, with its facts in `thread.json` and its messages in `messages.jsonl`. The format is
  that of Jan's sources (`core/src/types`). Dates are seconds in older versions and milliseconds in newer ones; texts
  are `{"type": "text", "text": {"value": ...}}`; thoughts are a part of type `reasoning`, or within the text.
- LibreChat exports a chat as a list of messages, or of messages with those below in them (`recursive`). The format is
  that of LibreChat's sources (`useExportConversation`, and the schema of messages).
- LM Studio has `*.conversation.json` since version 0.3. It does not document the format, which was found in files of
  0.3 and 0.4. Each entry of `messages` has `versions`, of which `currentlySelected` is followed by the next entry; a
  version of a reply has steps.
"""

from typing import Any

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage import DamagedChatError, FullChat
from rdchat.chat.transfer.foreign_chats import (
    ROLES,
    ChatFormat,
    ForeignChat,
    Json,
    attached_text,
    date,
    items,
    joined,
    mapping,
    name,
    role_of,
    take_sampling,
    thinking,
    with_copy,
)
from rdchat.chat.transfer.message_trees import Content, MessageTree
from rdchat.files import json_or_none
from rdchat.inference.api import FinishReason, Role

# Jan

JAN = "Jan"
THREAD = "thread.json"
MESSAGES = "messages.jsonl"
# Fields about an assistant that belong to no chat; see `ForeignChat.leave_out`.
_OF_ASSISTANT = {"name": "", "description": "", "tools": ""}
# A message of a tool is counted and left out.
_JAN_ROLES = ROLES | {"tool": None}


def is_jan(data: Any) -> bool:
    """Return whether this is a `thread.json`."""
    return isinstance(data, dict) and (data.get("object") == "thread" or "assistants" in data)


def jan_lines(data: bytes) -> list[Any]:
    """Return the messages of `messages.jsonl`; None for a line that is not JSON, such as the last one after a crash.

    Raises:
        DamagedChatError: If no line is JSON.
    """
    messages = [json_or_none(line) for line in data.splitlines() if line.strip()]
    if messages and not any(messages):
        raise DamagedChatError(f"All lines of {MESSAGES} are damaged")
    return messages


def jan_chat(thread_json: Any, lines: list[Any]) -> FullChat:
    """Return the chat in its two files.

    Args:
        thread_json: The content of `thread.json`; None if the file is missing.
        lines: The messages (`jan_lines`).

    Raises:
        DamagedChatError: If all messages are damaged.
    """
    chat = ForeignChat()
    # Anything but an object counts as a damaged part.
    thread = chat.inner({"thread": thread_json}, "thread")
    assistant = next(iter(chat.listed(thread, "assistants")), {})
    chat.system_prompt = chat.take_text(assistant, "instructions")
    model = chat.inner(assistant, "model")
    model_name = name(model.pop("id", None)) or name(thread.pop("model_id", None))
    chat.leave_out(assistant, _OF_ASSISTANT)
    for line in lines:
        with chat.skip_damaged("message"):
            message = mapping(line, "A message")
            _add_jan_message(chat, message, model_name)
            chat.count_rest(message)
    thread["title"] = name(thread.get("title")) or thread.pop("summary", None)
    return chat.finished_chat(thread, ("title", "created", "updated"), take_sampling(chat.inner(model, "parameters")))


def _add_jan_message(chat: ForeignChat, message: Json, model_name: str | None) -> None:
    """Add a message, and count its tool calls; a system message becomes the system prompt.

    Args:
        chat: The message is added to it.
        message: The message.
        model_name: The model of the chat, for replies that do not name theirs.
    """
    role = role_of(message.pop("role", None), _JAN_ROLES)
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
        facts["model"] = name(metadata.pop("modelId", None)) or model_name
        if status == "error":
            facts |= {"status": MessageStatus.FAILED, "error": "It failed in Jan."}
    chat.add_message(role, text, len(chat.messages) - 1 if chat.messages else None, **facts)
    for call in chat.listed(metadata, "tool_calls"):
        chat.without["tool call"] += 1
        chat.without["tool result"] += bool(call.get("response"))
        call.clear()


# LibreChat

# The fields with a message's own id and that of the message above it.
_OWN = "messageId"
_PARENT = "parentMessageId"


def _librechat_chat(chat: ForeignChat, fields: Json) -> FullChat:
    tree = fields.pop("messagesTree", None) or fields.pop("messages", None)
    MessageTree(chat, _librechat_message, _PARENT, own=_OWN).add_messages(_flat(items(tree, "Its list of messages")))
    options = chat.inner(fields, "options")
    for each in ("promptPrefix", "system", "instructions"):
        chat.add_system(chat.take_text(options, each), is_first=True)
    # These two hold nothing new: a copy of the title, and a time in words.
    options.pop("title", None)
    fields.pop("exportAt", None)
    return chat.finished_chat(fields, ("title", "createdAt", "updatedAt"), take_sampling(options))


def _flat(messages: list[Any]) -> list[Any]:
    """Return messages as one list, in which those that were in another one name it as their parent."""
    flat = []
    waiting = messages[::-1]
    while waiting:
        message = waiting.pop()
        flat.append(message)
        children = message.pop("children", None) if isinstance(message, dict) else None
        if isinstance(children, list) and children:
            own = f"message {len(flat)}"
            message[_OWN] = own
            waiting += [each | {_PARENT: own} if isinstance(each, dict) else each for each in reversed(children)]
    return flat


def _librechat_message(chat: ForeignChat, message: Json) -> Content:
    sender = name(message.pop("sender", None))
    is_user = message.pop("isCreatedByUser", None)
    if not isinstance(is_user, bool):
        if sender is None:
            raise DamagedChatError("A message has an unknown role")
        is_user = sender.casefold() == "user"
    parts = chat.take_text(message, "content")
    text = joined([with_copy(parts, chat.take_text(message, "text")), chat.take_text(message, "files")])
    facts: Json = {"created_at": date(message.pop("createdAt", None))}
    chat.leave_out(message, {"attachments": "attachment"})
    if is_user:
        return Role.USER, text, facts
    facts["model"] = name(message.pop("model", None)) or sender
    if message.pop("error", None) is True:
        facts |= {"status": MessageStatus.FAILED, "error": text or "It failed in LibreChat."}
        text = ""
    elif message.pop("unfinished", None) is True:
        facts["finish_reason"] = FinishReason.CANCELLED
    return Role.ASSISTANT, text, facts


LIBRECHAT = ChatFormat(
    "LibreChat",
    lambda chat: "conversationId" in chat and not {"messages", "messagesTree"}.isdisjoint(chat),
    _librechat_chat,
)


# LM Studio

_FINISH_REASONS = {
    "eosFound": FinishReason.EOS,
    "stopStringFound": FinishReason.STOP_STRING,
    "maxPredictedTokensReached": FinishReason.LENGTH,
    "contextLengthReached": FinishReason.CONTEXT_FULL,
    "userStopped": FinishReason.CANCELLED,
}
# Added to `activated` of a selected version. It is above the index of every message, so the selected version is shown.
_LATE = 1 << 40
# Kinds of steps without text of the reply.
_SILENT_STEPS = ("status", "debugInfoBlock")
_LEFT_OUT = {"notes": "note", "clientInput": "unsent text", "clientInputFiles": "unsent file"}


def _is_lm_studio(chat: Json) -> bool:
    match chat:
        case {"messages": [{"versions": _}, *_]} | {"messages": [], "lastUsedModel": _}:
            return True
        case {"messages": list(), "perChatPredictionConfig": _}:
            return True
    return False


def _lm_studio_chat(chat: ForeignChat, chat_fields: Json) -> FullChat:
    settings = _settings(chat, chat_fields)
    chat.add_system(chat.take_text(settings, "llm.prediction.systemPrompt"), is_first=True)
    chat.add_system(chat.take_text(chat_fields, "systemPrompt"), is_first=True)
    parent: int | None = None
    for entry in items(chat_fields.pop("messages", None), "Its list of messages"):
        with chat.skip_damaged("message"):
            message = mapping(entry, "A message")
            parent = _add_versions(chat, message, parent)
            chat.count_rest(message)
    created = date(chat_fields.get("createdAt"))
    last = [date(chat_fields.pop(each, None)) for each in ("userLastMessagedAt", "assistantLastMessagedAt")]
    chat_fields["updated"] = max(filter(None, last), default=created)
    sampling = take_sampling(settings)
    chat.count_rest(settings)
    chat.leave_out(chat_fields, _LEFT_OUT)
    return chat.finished_chat(chat_fields, ("name", "createdAt", "updated"), sampling)


def _add_versions(chat: ForeignChat, entry: Json, parent: int | None) -> int | None:
    """Add all versions of a message; return the index of the selected one; else of the last one added, or `parent`."""
    versions = items(entry.get("versions"), "A message's versions")
    selected_version = entry.get("currentlySelected", 0)
    if versions and selected_version not in range(len(versions)):
        chat.without["damaged part"] += 1
        selected_version = 0
    selected: int | None = None
    last_added = parent
    for number, each in enumerate(versions):
        with chat.skip_damaged("message"):
            version = mapping(each, "A version")
            role = role_of(version.pop("role", None), ROLES)
            if "steps" in version:
                text, facts = _reply(chat, version)
            else:
                text = chat.text_of(version.pop("content", None), "")
                facts = {}
            assert role is not None
            content = text.strip() or chat.files
            if role is Role.SYSTEM:
                chat.add_system(text, is_first=not chat.messages)
            elif role is Role.USER or content:
                is_selected = number == selected_version
                activated = len(chat.messages) + (_LATE if is_selected else 0)
                last_added = chat.add_message(role, text, parent, activated=activated, **facts)
                selected = last_added if is_selected else selected
    return last_added if selected is None else selected


def _reply(chat: ForeignChat, version: Json) -> tuple[str, Json]:
    """Return the text of a reply in steps, and further fields of its message.

    A step with `content` has a part of the reply, or of a thought if its style says so. Any other step is itself a part
    of a message (`ForeignChat.text_of`), such as a call.
    """
    texts: list[str] = []
    model: str | None = None
    reason: FinishReason | None = None
    for step in chat.listed(version, "steps"):
        kind = step.get("type")
        if kind in _SILENT_STEPS:
            step.clear()
            continue
        if kind != "contentBlock" and "content" not in step:
            texts.append(chat.text_of([step]))
            continue
        text = chat.text_of(step.pop("content", None), "")
        is_thought = chat.inner(step, "style").get("type") == "thinking"
        texts.append(thinking(text) if is_thought else text)
        step.pop("style", None)
        generation = chat.inner(step, "genInfo")
        model = name(generation.pop("identifier", None)) or model
        # Copies of the chat's prompt, and options for loading the model.
        chat.leave_out(generation, {"predictionConfig": "", "loadModelConfig": ""})
        reason = _FINISH_REASONS.get(str(chat.inner(generation, "stats").get("stopReason")), reason)
    sender = name(chat.inner(version, "senderInfo").pop("senderName", None))
    return joined(texts), {"model": sender or model, "finish_reason": reason}


def _settings(chat: ForeignChat, chat_fields: Json) -> Json:
    """Return settings by their keys; those with a checkbox have `checked` and `value`, and count if checked."""
    settings: Json = {}
    for field in chat.listed(chat.inner(chat_fields, "perChatPredictionConfig"), "fields"):
        key = field.get("key")
        if not isinstance(key, str):
            continue
        value = field.pop("value", None)
        if isinstance(value, dict) and "checked" in value:
            value = value.get("value") if value.get("checked") else None
        settings[key] = value
    return settings


LM_STUDIO = ChatFormat("LM Studio", _is_lm_studio, _lm_studio_chat)
