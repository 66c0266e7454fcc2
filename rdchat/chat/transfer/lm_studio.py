"""Reads LM Studio's chats, `*.conversation.json` since version 0.3.

LM Studio does not document the format, which was found in files of 0.3 and 0.4. Each entry of `messages` has
`versions`, of which `currentlySelected` is followed by the next entry; a version of a reply has steps.
"""

from typing import Any

from rdchat.chat.storage.whole_chat import FullChat
from rdchat.chat.transfer.foreign_chats import (
    FindImage,
    ForeignChat,
    Json,
    date,
    items,
    joined,
    mapping,
    name,
    no_image,
    role_of,
    thinking,
)
from rdchat.chat.transfer.message_trees import ChatFormat
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role

NAME = "LM Studio"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_FINISH_REASONS = {
    "eosFound": FinishReason.EOS,
    "stopStringFound": FinishReason.STOP_STRING,
    "maxPredictedTokensReached": FinishReason.LENGTH,
    "contextLengthReached": FinishReason.CONTEXT_FULL,
    "userStopped": FinishReason.CANCELLED,
}
_SAMPLING = {
    "llm.prediction.temperature": "temperature",
    "llm.prediction.topPSampling": "top_p",
    "llm.prediction.topKSampling": "top_k",
    "llm.prediction.minPSampling": "min_p",
    "llm.prediction.repeatPenalty": "repetition_penalty",
    "llm.prediction.maxPredictedTokens": "max_tokens",
    "llm.prediction.stopStrings": "stop",
}
# This is above the indices of all messages: the selected version is shown, others only when chosen.
_LATE = 1 << 40
_LEFT_OUT = {"notes": "note", "clientInput": "unsent text", "clientInputFiles": "unsent file"}
_STEPS = {"toolStatus": "tool call", "toolCallRequest": "tool call", "toolCallResult": "tool result",
          "status": "", "debugInfoBlock": ""}  # fmt: skip


def is_ours(data: Any) -> bool:
    """Return whether this is a chat of version 0.3 or later."""
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list):
        return False
    first = next(iter(messages), None)
    has_versions = isinstance(first, dict) and "versions" in first
    return has_versions or "perChatPredictionConfig" in data or (not messages and "lastUsedModel" in data)


def read(data: Any, find: FindImage = no_image) -> FullChat:
    """Return a chat of version 0.3 or later; `find` finds its images.

    Raises:
        DamagedChatError: If it has no list of messages, or all of them are damaged.
    """
    chat_fields = mapping(data, "The chat")
    chat = ForeignChat(find=find)
    settings = _settings(chat, chat_fields)
    chat.add_system(chat.take_text(settings, "llm.prediction.systemPrompt"), is_first=True)
    chat.add_system(chat.take_text(chat_fields, "systemPrompt"), is_first=True)
    parent: int | None = None
    for entry in items(chat_fields.pop("messages", None), "Its list of messages"):
        with chat.skip_damaged("message"):
            message = mapping(entry, "A message")
            parent = _add(chat, message, parent)
            chat.count_rest(message)
    created = date(chat_fields.get("createdAt"))
    last = [date(chat_fields.pop(each, None)) for each in ("userLastMessagedAt", "assistantLastMessagedAt")]
    chat_fields["updated"] = max((each for each in last if each), default=created)
    sampling = {ours: settings.pop(theirs, None) for theirs, ours in _SAMPLING.items()}
    chat.count_rest(settings)
    chat.leave_out(chat_fields, _LEFT_OUT)
    return chat.finish(chat_fields, ("name", "createdAt", "updated"), sampling)


def _add(chat: ForeignChat, entry: Json, parent: int | None) -> int | None:
    """Add all versions of a message; return the index of the selected one, or `parent` if it has none."""
    versions = items(entry.get("versions"), "A message's versions")
    chosen = entry.get("currentlySelected", 0)
    if versions and (type(chosen) is not int or not 0 <= chosen < len(versions)):
        chat.without["damaged part"] += 1
        chosen = 0
    selected: int | None = None
    added = parent
    for number, each in enumerate(versions):
        with chat.skip_damaged("message"):
            version = mapping(each, "A version")
            role = role_of(version.pop("role", None), _ROLES)
            if "steps" in version:
                text, facts = _reply(chat, version)
            else:
                text, facts = chat.text_of(version.pop("content", None), ""), {}
            if role is Role.SYSTEM:
                chat.add_system(text, is_first=not chat.messages)
                continue
            assert role is not None
            if role is Role.ASSISTANT and not text.strip() and not chat.files:
                continue
            late = _LATE if number == chosen else 0
            added = chat.add(role, text, parent, activated=len(chat.messages) + late, **facts)
            selected = added if number == chosen else selected
    return added if selected is None else selected


def _reply(chat: ForeignChat, version: Json) -> tuple[str, Json]:
    """Return the text of a reply in steps, and further fields of its message."""
    texts: list[str] = []
    model: str | None = None
    reason: FinishReason | None = None
    for step in chat.listed(version, "steps"):
        kind = step.pop("type", None)
        if kind != "contentBlock" and "content" not in step:
            chat.without[_STEPS.get(kind, "other step") if isinstance(kind, str) else "other step"] += 1
            step.clear()
            continue
        text = chat.text_of(step.pop("content", None), "")
        is_thought = chat.inner(step, "style").get("type") == "thinking"
        texts.append(thinking(text).rstrip("\n") if is_thought else text)
        step.pop("style", None)
        made = chat.inner(step, "genInfo")
        model = name(made.pop("identifier", None)) or model
        # Copies of the chat's prompt, and what the model needs to run.
        chat.leave_out(made, {"predictionConfig": "", "loadModelConfig": ""})
        stopped = chat.inner(made, "stats").get("stopReason")
        reason = _FINISH_REASONS.get(stopped, reason) if isinstance(stopped, str) else reason
    sender = name(chat.inner(version, "senderInfo").pop("senderName", None))
    text = joined(texts)
    return text, {"model": sender or model, "finish_reason": reason}


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


FORMAT = ChatFormat(NAME, is_ours, read)
