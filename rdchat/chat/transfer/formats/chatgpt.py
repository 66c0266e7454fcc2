"""ChatGPT's `conversations.json`, as its data export has it since 2023: a list of chats, each a tree of nodes.

A node has a `message` or null, and a `parent`. What a person saw as one reply may be a chain of nodes: thoughts, calls
of tools, their results, text. Nodes that the app hides, custom instructions and tools' messages are left out; the nodes
below follow the last one that was kept.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat, parents_first
from rdchat.chat.transfer.formats.fields import Json, date, items, joined, mapping, name, thinking, words
from rdchat.chat.transfer.reports import counted_parts
from rdchat.inference.api.requests import Role

NAME = "ChatGPT"
_LEFT_OUT = {
    "code": "tool call",
    "execution_output": "tool result",
    "tether_browsing_display": "tool result",
    "tether_quote": "quoted file",
    "system_error": "tool result",
    "user_editable_context": "custom instruction",
    "model_editable_context": "",  # what the app remembers of other chats
    "reasoning_recap": "",  # "Thought for 8 seconds"
}  # by content type: what it is for people; empty is not worth telling
_PARTS = {"image_asset_pointer": "image", "audio_asset_pointer": "recording", "video_container_asset_pointer": "video",
          "real_time_user_audio_video_asset_pointer": "recording"}  # fmt: skip

_MEDIA = {"image": "image", "audio": "recording", "video": "video"}
_MARKS = re.compile(r" ?\ue200[^\ue200\ue201]*\ue201")  # where a web search was quoted: the app draws links there


@dataclass(slots=True)
class _Turn:
    """A message in the making: texts of the nodes that were one reply to the person."""

    parent: str | None
    role: Role
    created_at: float | None
    model: str | None = None
    texts: list[str] = field(default_factory=list)


def is_ours(data: Any) -> bool:
    """Tell whether this is one of ChatGPT's chats."""
    return isinstance(data, dict) and isinstance(data.get("mapping"), dict)


def may_be_ours(beginning: bytes | bytearray) -> bool:
    """Tell whether a chat may be ChatGPT's, by the beginning of its JSON."""
    return b'"mapping"' in beginning


def read(data: Any) -> WholeChat:
    """Return one chat.

    Raises:
        DamagedChatError: If something of it is of the wrong kind, or its messages go in a circle.
    """
    chat = mapping(data, "The chat")
    nodes = {each: mapping(node, "A message") for each, node in mapping(chat.get("mapping"), "Its list").items()}
    order = parents_first({each: _parent_of(node) for each, node in nodes.items()})
    without: Counter[str] = Counter()
    turns: dict[str, _Turn] = {}
    turn_of: dict[str, str | None] = {}  # by node: the last turn up to it
    prompts = []
    children = Counter(_parent_of(node) for node in nodes.values())
    for each in order:
        node = nodes[each]
        above = _parent_of(node)
        last = turn_of.get(above) if above else None
        turn_of[each] = last
        role, text = _content(mapping(node.get("message"), "A message"), without)
        if role is Role.SYSTEM:
            prompts.append(text)
        elif role is not None and (text.strip() or (role is Role.USER and last)):  # a turn even where it is empty
            message = node["message"]
            # a chain of nodes was one reply; where it branches, alternatives begin
            if last is None or turns[last].role is not role or role is Role.USER or children[above] > 1:
                turns[each] = _Turn(last, role, date(message.get("create_time")))
                turn_of[each] = last = each
            model = name(mapping(message.get("metadata"), "A message's metadata").get("model_slug"))
            turns[last].model = model or turns[last].model
            turns[last].texts.append(text)
    return _chat(chat, turns, turn_of, next(iter(prompts), None), without)


def _chat(
    chat: Json, turns: dict[str, _Turn], turn_of: dict[str, str | None], prompt: str | None, without: Counter[str]
) -> WholeChat:
    places = {each: place for place, each in enumerate(turns)}
    current = chat.get("current_node")
    shown = turn_of.get(current) if isinstance(current, str) else None
    messages = tuple(
        Message(
            places[each],
            0,
            places[turn.parent] if turn.parent else None,
            turn.role,
            joined(text.strip("\n") for text in turn.texts),
            activated=len(turns) if each == shown else places[each],
            created_at=turn.created_at,
            model=turn.model if turn.role is Role.ASSISTANT else None,
        )
        for each, turn in turns.items()
    )
    about = Conversation(
        0, name(chat.get("title")) or "", date(chat.get("create_time")), date(chat.get("update_time")), prompt
    )
    return WholeChat(about, messages, without=without)


def _parent_of(node: Json) -> str | None:
    parent = node.get("parent")
    if parent is not None and not isinstance(parent, str):
        raise DamagedChatError("A message says wrongly what it follows")
    return parent


def _content(message: Json, without: Counter[str]) -> tuple[Role | None, str]:
    """Return whose message it is and its text; None for one that is not taken."""
    metadata = mapping(message.get("metadata"), "A message's metadata")
    content = mapping(message.get("content"), "A message's content")
    kind = words(content.get("content_type"), "The kind of a message")
    author = words(mapping(message.get("author"), "An author").get("role"), "A message's role")
    if kind in _LEFT_OUT:
        without[_LEFT_OUT[kind]] += 1
        return None, ""
    if not message or metadata.get("is_visually_hidden_from_conversation") or author not in _ROLES:
        return None, ""
    if author == "tool" or message.get("recipient") not in (None, "all"):
        without["tool result" if author == "tool" else "tool call"] += 1
        return None, ""
    if kind == "thoughts":
        return _ROLES[author], _thoughts(content)
    lost: Counter[str] = Counter()
    parts = [_part(part, lost) for part in items(content.get("parts"), "A message's content")]
    lost |= _attachments(metadata)  # the more of both: an image may be among the parts as well
    without.update(lost)
    text = _MARKS.sub("", joined(part for part in parts if part) or words(content.get("text"), "A message"))
    if author == "user" and lost and not text.strip():
        text = f"[{counted_parts(lost)}]"  # what the reply is to
    return (None, "") if author == "system" and not text.strip() else (_ROLES[author], text)


_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.ASSISTANT}


def _attachments(metadata: Json) -> Counter[str]:
    """Count what was attached to a message, by what it is for people."""
    found: Counter[str] = Counter()
    for each in items(metadata.get("attachments"), "A message's attachments"):
        about = mapping(each, "An attachment")
        kind = words(about.get("mimeType") or about.get("mime_type"), "The kind of an attachment").partition("/")[0]
        found[_MEDIA.get(kind, "attachment")] += 1
    return found


def _part(part: Any, without: Counter[str]) -> str:
    if isinstance(part, str):
        return words(part, "A message")
    about = mapping(part, "A part of a message")
    kind = about.get("content_type")
    if isinstance(about.get("text"), str):  # what was said aloud, and how it was understood
        return words(about["text"], "A message")
    without[_PARTS.get(kind, "attachment") if isinstance(kind, str) else "attachment"] += 1
    return ""


def _thoughts(content: Json) -> str:
    thoughts = [mapping(each, "A thought") for each in items(content.get("thoughts"), "Its thoughts")]
    parts = [words(each.get(field), "A thought") for each in thoughts for field in ("summary", "content")]
    return thinking(joined(part for part in parts if part.strip()))
