"""Reads LM Studio's chats, `*.conversation.json` since version 0.3.

LM Studio does not document the format, which was found in files of 0.3 and 0.4. Each entry of `messages` has
`versions`, of which `currentlySelected` is followed by the next entry; a version of a reply has steps.
"""

from collections.abc import Callable
from typing import Any

from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat
from rdchat.chat.transfer.foreign_chats import (
    ForeignChat,
    Json,
    date,
    items,
    joined,
    mapping,
    name,
    role_of,
    string,
    thinking,
)
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


def read(data: Json, find: Callable[[str], bytes | None] = lambda _name: None) -> FullChat:
    """Return a chat of version 0.3 or later; `find` finds its images.

    Raises:
        DamagedChatError: If a value has the wrong type.
    """
    fields = _fields(data.get("perChatPredictionConfig"))
    prompt = fields.get("llm.prediction.systemPrompt") or data.get("systemPrompt")
    chat = ForeignChat(system_prompt=string(prompt, "Its system prompt"), find=find)
    parent: int | None = None
    for entry in items(data.get("messages"), "Its list of messages"):
        with chat.skip_damaged("message"):
            parent = _add(chat, mapping(entry, "A message"), parent)
    created = date(data.get("createdAt"))
    last = [date(data.get(each)) for each in ("userLastMessagedAt", "assistantLastMessagedAt")]
    updated = max((each for each in last if each), default=created)
    sampling = {ours: fields.get(theirs) for theirs, ours in _SAMPLING.items()}
    return chat.finish(data.get("name"), created, updated, sampling | {"stop": sampling["stop"] or None})


def _add(chat: ForeignChat, entry: Json, parent: int | None) -> int | None:
    """Add all versions of a message; return the index of the selected one, or `parent` if it has none."""
    versions, chosen = items(entry.get("versions"), "A message's versions"), entry.get("currentlySelected", 0)
    if versions and (type(chosen) is not int or not 0 <= chosen < len(versions)):
        raise DamagedChatError("A message selects a version that does not exist")
    selected, added = None, parent
    for number, each in enumerate(versions):
        with chat.skip_damaged("message"):
            version = mapping(each, "A version")
            role = role_of(version.get("role"), _ROLES)
            assert role is not None
            if version.get("type") == "multiStep":
                text, facts = _reply(chat, version)
            else:
                text, facts = chat.text_of(version.get("content"), ""), {}
            if role is Role.SYSTEM:
                chat.add_system(text, is_first=not chat.messages)
                continue
            late = _LATE if number == chosen else 0
            added = chat.add(role, text, parent, activated=len(chat.messages) + late, **facts)
            selected = added if number == chosen else selected
    return added if selected is None else selected


def _reply(chat: ForeignChat, version: Json) -> tuple[str, Json]:
    """Return the text of a reply in steps, and further fields of its message."""
    texts, model, reason = [], None, None
    for each in items(version.get("steps"), "A reply's steps"):
        step = mapping(each, "A step of a reply")
        kind = step.get("type")
        if kind != "contentBlock":
            chat.without[_STEPS.get(kind, "step of another kind") if isinstance(kind, str) else "step"] += 1
            continue
        text = chat.text_of(step.get("content"), "")
        style = mapping(step.get("style"), "A step's style").get("type")
        texts.append(thinking(text).rstrip("\n") if style == "thinking" else text)
        made = mapping(step.get("genInfo"), "A step's figures")
        model = name(made.get("identifier")) or model
        stopped = mapping(made.get("stats"), "A step's figures").get("stopReason")
        reason = _FINISH_REASONS.get(stopped, reason) if isinstance(stopped, str) else reason
    sender = name(mapping(version.get("senderInfo"), "A reply's sender").get("senderName"))
    text = joined(text for text in texts if text.strip())
    return text, {"model": sender or model, "finish_reason": reason}


def _fields(config: Any) -> Json:
    """Return settings by their keys; those with a checkbox have `checked` and `value`, and count if checked."""
    settings: Json = {}
    for each in items(mapping(config, "Its settings").get("fields"), "Its settings"):
        field = mapping(each, "A setting")
        key, value = field.get("key"), field.get("value")
        if isinstance(value, dict) and "checked" in value:
            value = value.get("value") if value.get("checked") else None
        if isinstance(key, str):
            settings[key] = value
    return settings
