"""LM Studio's chats: one `*.conversation.json` each since version 0.3, a `*.chat.json` with files beside it before.

LM Studio documents neither. What is read here was seen in files of 0.3 and 0.4, and in converters from 0.2. Each entry
of `messages` has `versions`, of which `currentlySelected` is followed by the next entry; a version of a reply has
steps. In 0.2 a chat is a list of roles and texts; `*.config.chat.json` and `*.metadata.chat.json` have the rest.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat
from rdchat.chat.transfer.formats.fields import Json, date, items, joined, mapping, name, sampling, thinking, words
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.requests import Role

NAME = "LM Studio"
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}
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
_OLD_SAMPLING = {"temp": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
                 "repeat_penalty": "repetition_penalty", "n_predict": "max_tokens"}  # fmt: skip
_LATE = 1 << 40  # above the places of all messages: what was chosen is shown, other versions only when chosen again
_STEPS = {"toolStatus": "tool call", "toolCallRequest": "tool call", "toolCallResult": "tool result",
          "status": "", "debugInfoBlock": ""}  # fmt: skip


def is_ours(data: Any) -> bool:
    """Tell whether this is a chat of version 0.3 or later."""
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        return False
    first = next(iter(data["messages"]), None)
    has_versions = isinstance(first, dict) and "versions" in first
    return has_versions or (first is None and "lastUsedModel" in data) or "perChatPredictionConfig" in data


def is_old(data: Any) -> bool:
    """Tell whether this is a chat of version 0.2, by what each message has."""
    if not isinstance(data, dict) or not isinstance(data.get("messages"), list):
        return False
    first = next(iter(data["messages"]), None)
    return isinstance(first, dict) and isinstance(first.get("role"), str) and "content" in first


def read(data: Json) -> WholeChat:
    """Return a chat of version 0.3 or later.

    Raises:
        DamagedChatError: If something of it is of the wrong kind.
    """
    without: Counter[str] = Counter()
    messages: list[Message] = []
    follows: int | None = None
    for entry in items(data.get("messages"), "Its list of messages"):
        about = mapping(entry, "A message")
        versions = [mapping(each, "A version") for each in items(about.get("versions"), "A message's versions")]
        chosen = about.get("currentlySelected", 0)
        if not versions:
            continue
        if type(chosen) is not int or not 0 <= chosen < len(versions):
            raise DamagedChatError("A message says wrongly which of its versions is shown")
        places = []
        for number, version in enumerate(versions):
            places.append(len(messages))
            message = _message(len(messages), version, follows, without)
            late = _LATE if number == chosen else 0
            messages.append(replace(message, activated=len(messages) + late))
        follows = places[chosen]
    fields = _fields(data.get("perChatPredictionConfig"))
    own = words(fields.get("llm.prediction.systemPrompt") or data.get("systemPrompt"), "Its system prompt")
    created = date(data.get("createdAt"))
    last = [date(data.get(each)) for each in ("userLastMessagedAt", "assistantLastMessagedAt")]
    chat = Conversation(
        0,
        name(data.get("name")) or "",
        created,
        max((each for each in last if each), default=created),
        own if own.strip() else None,
        sampling(_values(fields)),
    )
    return WholeChat(chat, tuple(messages), without=without)


def _message(place: int, version: Json, follows: int | None, without: Counter[str]) -> Message:
    role = _ROLES.get(str(version.get("role")))
    if role is None:
        raise DamagedChatError("A message has a role that rdchat does not know")
    if version.get("type") != "multiStep":
        return Message(place, 0, follows, role, _text(version.get("content"), without))
    texts, model, reason = [], None, None
    for each in items(version.get("steps"), "A reply's steps"):
        step = mapping(each, "A step of a reply")
        kind = step.get("type")
        if kind != "contentBlock":
            without[_STEPS.get(kind, "step of another kind") if isinstance(kind, str) else "step"] += 1
            continue
        text = _text(step.get("content"), without)
        style = mapping(step.get("style"), "A step's style").get("type")
        texts.append(thinking(text).rstrip("\n") if style == "thinking" else text)
        made = mapping(step.get("genInfo"), "A step's figures")
        model = name(made.get("identifier")) or model
        stopped = mapping(made.get("stats"), "A step's figures").get("stopReason")
        reason = _FINISH_REASONS.get(stopped, reason) if isinstance(stopped, str) else reason
    sender = name(mapping(version.get("senderInfo"), "A reply's sender").get("senderName"))
    text = joined(text for text in texts if text.strip())
    return Message(place, 0, follows, role, text, model=sender or model, finish_reason=reason)


def _text(content: Any, without: Counter[str]) -> str:
    if isinstance(content, str):
        return words(content, "A message")
    texts = []
    for each in items(content, "A message's content"):
        part = mapping(each, "A part of a message")
        kind = part.get("type")
        if kind == "text":
            texts.append(words(part.get("text"), "A message"))
        elif kind == "file":
            without["image" if part.get("fileType") == "image" else "file"] += 1
        elif isinstance(kind, str):
            without["tool call" if "tool" in kind.lower() else "attachment"] += 1
        else:
            raise DamagedChatError("A part of a message is not what it should be")
    return joined(texts, "")


def _fields(config: Any) -> Json:
    """Return settings by their keys; those with a box to tick have `checked` and `value`, and count where ticked."""
    found: Json = {}
    for each in items(mapping(config, "Its settings").get("fields"), "Its settings"):
        field = mapping(each, "A setting")
        key, value = field.get("key"), field.get("value")
        if isinstance(value, dict) and "checked" in value:
            value = value.get("value") if value.get("checked") else None
        if isinstance(key, str):
            found[key] = value
    return found


def _values(fields: Json) -> Json:
    values = {ours: fields[theirs] for theirs, ours in _SAMPLING.items() if fields.get(theirs) is not None}
    if not values.get("stop", True):
        del values["stop"]
    return values


def read_old(data: Json, config: Json, metadata: Json) -> WholeChat:
    """Return a chat of version 0.2, of its three files; those that are not there are empty.

    Raises:
        DamagedChatError: If something of it is of the wrong kind.
    """
    model = _stem(mapping(metadata.get("lastUsedModel"), "Its model").get("filePath"))
    used = mapping(config.get("inference_params"), "Its settings")
    own = words(used.get("pre_prompt"), "Its system prompt")
    messages: list[Message] = []
    without: Counter[str] = Counter()
    for each in items(data.get("messages"), "Its list of messages"):
        entry = mapping(each, "A message")
        role, text = str(entry.get("role")), _text(entry.get("content"), without)
        if role == "system":
            own = own or text
            continue
        if role not in _ROLES:
            raise DamagedChatError("A message has a role that rdchat does not know")
        place = len(messages)
        wrote = model if role == "assistant" else None
        messages.append(
            Message(place, 0, place - 1 if place else None, _ROLES[role], text, model=wrote, activated=place)
        )
    identifier = metadata.get("identifier")
    digits = identifier if isinstance(identifier, str) and len(identifier) <= 16 else ""
    created = date(int(digits)) if digits.isdecimal() else None
    values = {ours: used.get(theirs) for theirs, ours in _OLD_SAMPLING.items()}
    if isinstance(values["max_tokens"], int) and values["max_tokens"] < 1:
        values["max_tokens"] = None  # -1 is without end
    title = name(metadata.get("name")) or name(data.get("title")) or ""
    about = Conversation(0, title, created, created, own if own.strip() else None, sampling(values))
    return WholeChat(about, tuple(messages), without=without)


def _stem(path: Any) -> str | None:
    file = name(path.replace("\\", "/").rpartition("/")[2]) if isinstance(path, str) else None
    return file.rpartition(".")[0] or file if file else None
