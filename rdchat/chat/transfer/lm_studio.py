"""Reads LM Studio's chats, `*.conversation.json` since version 0.3.

LM Studio does not document the format, which was found in files of 0.3 and 0.4. Each entry of `messages` has
`versions`, of which `currentlySelected` is followed by the next entry; a version of a reply has steps.
"""

from rdchat.chat.storage.whole_chat import FullChat
from rdchat.chat.transfer.foreign_chats import (
    ROLES,
    ChatFormat,
    ForeignChat,
    Json,
    date,
    items,
    joined,
    mapping,
    name,
    role_of,
    take_sampling,
    thinking,
)
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role

_FINISH_REASONS = {
    "eosFound": FinishReason.EOS,
    "stopStringFound": FinishReason.STOP_STRING,
    "maxPredictedTokensReached": FinishReason.LENGTH,
    "contextLengthReached": FinishReason.CONTEXT_FULL,
    "userStopped": FinishReason.CANCELLED,
}
# This is above the indices of all messages: the selected version is shown, others only when chosen.
_LATE = 1 << 40
# Steps with nothing that is said.
_SILENT_STEPS = ("status", "debugInfoBlock")
_LEFT_OUT = {"notes": "note", "clientInput": "unsent text", "clientInputFiles": "unsent file"}


def _is_ours(chat: Json) -> bool:
    match chat:
        case {"messages": [{"versions": _}, *_]} | {"messages": [], "lastUsedModel": _}:
            return True
        case {"messages": list(), "perChatPredictionConfig": _}:
            return True
    return False


def _convert(chat: ForeignChat, chat_fields: Json) -> FullChat:
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
    sampling = take_sampling(settings)
    chat.count_rest(settings)
    chat.leave_out(chat_fields, _LEFT_OUT)
    return chat.finished_chat(chat_fields, ("name", "createdAt", "updated"), sampling)


def _add(chat: ForeignChat, entry: Json, parent: int | None) -> int | None:
    """Add all versions of a message; return the index of the selected one, or `parent` if it has none."""
    versions = items(entry.get("versions"), "A message's versions")
    chosen = entry.get("currentlySelected", 0)
    if versions and chosen not in range(len(versions)):
        chat.without["damaged part"] += 1
        chosen = 0
    selected: int | None = None
    added = parent
    for number, each in enumerate(versions):
        with chat.skip_damaged("message"):
            version = mapping(each, "A version")
            role = role_of(version.pop("role", None), ROLES)
            if "steps" in version:
                text, facts = _reply(chat, version)
            else:
                text = chat.text_of(version.pop("content", None), "")
                facts = {}
            if role is Role.SYSTEM:
                chat.add_system(text, is_first=not chat.messages)
                continue
            assert role is not None
            if role is Role.ASSISTANT and not text.strip() and not chat.files:
                continue
            late = _LATE if number == chosen else 0
            added = chat.add_message(role, text, parent, activated=len(chat.messages) + late, **facts)
            selected = added if number == chosen else selected
    return added if selected is None else selected


def _reply(chat: ForeignChat, version: Json) -> tuple[str, Json]:
    """Return the text of a reply in steps, and further fields of its message."""
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
        made = chat.inner(step, "genInfo")
        model = name(made.pop("identifier", None)) or model
        # Copies of the chat's prompt, and what the model needs to run.
        chat.leave_out(made, {"predictionConfig": "", "loadModelConfig": ""})
        reason = _FINISH_REASONS.get(str(chat.inner(made, "stats").get("stopReason")), reason)
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


FORMAT = ChatFormat("LM Studio", _is_ours, _convert)
