"""Reads LibreChat's export of a chat: a list of messages, or of messages with those below in them (`recursive`).

The format is that of LibreChat's sources (`useExportConversation`, and the schema of messages).
"""

from typing import Any

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat
from rdchat.chat.transfer.foreign_chats import (
    ChatFormat,
    ForeignChat,
    Json,
    date,
    items,
    joined,
    name,
    take_sampling,
    with_copy,
)
from rdchat.chat.transfer.message_trees import Content, MessageTree
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role

_OWN = "messageId"
_PARENT = "parentMessageId"


def _is_ours(chat: Json) -> bool:
    return "conversationId" in chat and ("messages" in chat or "messagesTree" in chat)


def _convert(chat: ForeignChat, fields: Json) -> FullChat:
    tree = fields.pop("messagesTree", None) or fields.pop("messages", None)
    MessageTree(chat, _parse, _PARENT, own=_OWN).add_messages(_flat(items(tree, "Its list of messages")))
    options = chat.inner(fields, "options")
    for each in ("promptPrefix", "system", "instructions"):
        chat.add_system(chat.take_text(options, each), is_first=True)
    # A copy of the title, and a time in words.
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


def _parse(chat: ForeignChat, message: Json) -> Content:
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


FORMAT = ChatFormat("LibreChat", _is_ours, _convert)
