"""Reads chats of programs that keep a tree of messages: Claude's, DeepSeek's and Open WebUI's exports.

Each is a list of chats. None of the formats is documented; they are those of exports of 2025 and 2026.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rdchat.chat.storage.whole_chat import FullChat, parents_first
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
from rdchat.inference.api.messages import Role

_CLAUDE_ROLES = {"human": Role.USER, "assistant": Role.ASSISTANT}
_OPEN_WEBUI_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}


@dataclass(frozen=True, slots=True)
class Node:
    """A message in a tree; without a role it is left out, and those below it move up.

    Attributes:
        parent: Name of the node above; empty at the top.
        facts: Further fields of the message.
    """

    parent: str
    role: Role | None
    text: str
    facts: Json


@dataclass(frozen=True, slots=True)
class TreeFormat:
    """The export of one program.

    Attributes:
        name: The program.
        is_ours: Returns whether a value of the list is one of its chats.
        read: Reads one; raises DamagedChatError if a value has the wrong type, or its messages form a cycle.
    """

    name: str
    is_ours: Callable[[Any], bool]
    read: Callable[[Any], FullChat]


def _add(chat: ForeignChat, nodes: dict[str, Node], current: object = None) -> None:
    """Add the messages of a tree; the path to `current` is shown, or else to the last message."""
    places: dict[str, int | None] = {}
    for each in parents_first({each: node.parent or None for each, node in nodes.items()}):
        node = nodes[each]
        above = places[each] = places.get(node.parent)
        if node.role is Role.SYSTEM:
            chat.add_system(node.text, is_first=above is None)
        elif node.role is not None and node.text.strip():
            places[each] = chat.add(node.role, node.text, above, **node.facts)
    if isinstance(current, str) and (shown := places.get(current)) is not None:
        chat.activate(shown)


# Claude


def _read_claude(data: Any) -> FullChat:
    fields, chat = mapping(data, "The chat"), ForeignChat()
    nodes: dict[str, Node] = {}
    for number, each in enumerate(items(fields.get("chat_messages"), "Its list of messages")):
        with chat.skip_damaged("message"):
            message = mapping(each, "A message")
            parent = string(message.get("parent_message_uuid"), "A message's parent")
            own = string(message.get("uuid"), "A message's id") or str(number)
            role = role_of(message.get("sender"), _CLAUDE_ROLES)
            facts: Json = {"created_at": date(message.get("created_at"))}
            nodes[own] = Node(parent, role, _claude_text(chat, message), facts)
    _add(chat, nodes, next(reversed(nodes), None))
    title, created, updated = (fields.get(each) for each in ("name", "created_at", "updated_at"))
    return chat.finish(title, date(created), date(updated), {})


def _claude_text(chat: ForeignChat, message: Json) -> str:
    """Return a message's text with its thoughts, the texts of its attachments and the names of its files."""
    blocks = [mapping(each, "A part of a message") for each in items(message.get("content"), "A message's content")]
    texts = [_claude_block(chat, each) for each in blocks] if blocks else [string(message.get("text"), "A message")]
    for each in items(message.get("attachments"), "A message's attachments"):
        attached = mapping(each, "An attachment")
        label, text = name(attached.get("file_name")), string(attached.get("extracted_content"), "An attachment")
        texts.append(f"[{label or 'attachment'}]\n\n{text}".rstrip())
    files = [mapping(each, "A file") for each in items(message.get("files"), "A message's files")]
    chat.without["file"] += len(files)
    texts += [f"[{name(each.get('file_name')) or 'file'}]" for each in files]
    return joined(text for text in texts if text.strip())


def _claude_block(chat: ForeignChat, block: Json) -> str:
    kind = block.get("type")
    if kind == "thinking":
        return thinking(string(block.get("thinking"), "A thought")).rstrip("\n")
    return chat.text_of([block])


# DeepSeek


def _is_deepseek(data: Any) -> bool:
    nodes = data.get("mapping") if isinstance(data, dict) else None
    messages = (
        (each.get("message") for each in nodes.values() if isinstance(each, dict)) if isinstance(nodes, dict) else ()
    )
    return any(isinstance(each, dict) and "fragments" in each for each in messages)


def _read_deepseek(data: Any) -> FullChat:
    fields, chat = mapping(data, "The chat"), ForeignChat()
    nodes: dict[str, Node] = {}
    for own, each in mapping(fields.get("mapping"), "Its list").items():
        with chat.skip_damaged("message"):
            node = mapping(each, "A message")
            message = mapping(node.get("message"), "A message")
            role, text = _deepseek_text(chat, message)
            facts: Json = {"created_at": date(message.get("inserted_at"))}
            facts |= {"model": name(message.get("model"))} if role is Role.ASSISTANT else {}
            nodes[own] = Node(string(node.get("parent"), "A message's parent"), role, text, facts)
    _add(chat, nodes)
    return chat.finish(fields.get("title"), date(fields.get("inserted_at")), date(fields.get("updated_at")), {})


def _deepseek_text(chat: ForeignChat, message: Json) -> tuple[Role | None, str]:
    texts, role = list[str](), None
    for each in items(message.get("fragments"), "A message's content"):
        fragment = mapping(each, "A part of a message")
        kind, text = string(fragment.get("type"), "The kind of a part"), fragment.get("content")
        if kind not in {"REQUEST", "THINK", "RESPONSE"}:
            chat.without["tool result" if kind in {"SEARCH", "READ_LINK"} else "part of another kind"] += 1
            continue
        role = Role.USER if kind == "REQUEST" else Role.ASSISTANT
        texts.append(thinking(string(text, "A thought")).rstrip("\n") if kind == "THINK" else string(text, "A message"))
    chat.without["file"] += len(items(message.get("files"), "A message's files"))
    return role, joined(text for text in texts if text.strip())


# Open WebUI


def _is_open_webui(data: Any) -> bool:
    inner = data.get("chat") if isinstance(data, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("history"), dict)


def _read_open_webui(data: Any) -> FullChat:
    fields = mapping(data, "The chat")
    inner = mapping(fields.get("chat"), "The chat")
    history = mapping(inner.get("history"), "Its messages")
    chat = ForeignChat(system_prompt=string(inner.get("system"), "Its system prompt"))
    nodes: dict[str, Node] = {}
    for own, each in mapping(history.get("messages"), "Its messages").items():
        with chat.skip_damaged("message"):
            message = mapping(each, "A message")
            role = role_of(message.get("role"), _OPEN_WEBUI_ROLES)
            facts: Json = {"created_at": date(message.get("timestamp"))}
            facts |= {"model": name(message.get("model"))} if role is Role.ASSISTANT else {}
            chat.without["file"] += len(items(message.get("files"), "A message's files"))
            text = chat.text_of(message.get("content"))
            nodes[own] = Node(string(message.get("parentId"), "A message's parent"), role, text, facts)
    _add(chat, nodes, history.get("currentId"))
    title = inner.get("title") or fields.get("title")
    return chat.finish(title, date(fields.get("created_at")), date(fields.get("updated_at")), {})


FORMATS = (
    TreeFormat("Claude", lambda data: isinstance(data, dict) and "chat_messages" in data, _read_claude),
    TreeFormat("DeepSeek", _is_deepseek, _read_deepseek),
    TreeFormat("Open WebUI", _is_open_webui, _read_open_webui),
)
