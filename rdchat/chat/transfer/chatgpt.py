"""Reads ChatGPT's `conversations.json`, as exported since 2023: a list of chats, each a tree of nodes.

A node has a `message` or null, and a `parent`. One visible reply may be a chain of nodes: thoughts, tool calls, their
results, text. Hidden nodes, custom instructions and tool messages are left out; nodes below them are attached to the
last node that was kept.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat, parents_first
from rdchat.chat.transfer.foreign_chats import ForeignChat, Json, date, items, joined, mapping, name, string, thinking
from rdchat.chat.transfer.reports import counted_parts
from rdchat.files.plain_data import json_or_none
from rdchat.inference.api.messages import Role

NAME = "ChatGPT"
MARK = '"mapping"'
"""The beginning of a chat's JSON holds it."""
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.ASSISTANT}
# Names for people of what is left out, by content type; empty ones are not mentioned.
_LEFT_OUT = {
    "code": "tool call",
    "execution_output": "tool result",
    "tether_browsing_display": "tool result",
    "tether_quote": "quoted file",
    "system_error": "tool result",
    "user_editable_context": "custom instruction",
    "model_editable_context": "",
    "reasoning_recap": "",
}
_MEDIA = {"image": "image", "audio": "recording", "video": "video"}
_MARK = re.compile(r"( ?)\ue200([^\ue200\ue201]*)(?:\ue201|$)")
_MARK_FIELDS = "\ue202"
_STRAY_MARKS = re.compile("[\ue200-\ue20f]")
_SOURCE_ID = re.compile(r"turn\d[\w, ]*|L\d+(?:-L?\d+)?")
_NAMED_BY = ("name", "title", "text", "label", "query", "ticker")


def is_ours(data: Any) -> bool:
    """Return whether this is a chat of ChatGPT."""
    return isinstance(data, dict) and isinstance(data.get("mapping"), dict)


def read(data: Any, find: Callable[[str], bytes | None] = lambda _name: None) -> FullChat:
    """Return one chat; `find` finds its images.

    Raises:
        DamagedChatError: If a value has the wrong type, or its messages form a cycle.
    """
    fields, chat = mapping(data, "The chat"), ForeignChat(find=find)
    nodes: dict[str, Json] = {}
    for each, node in mapping(fields.get("mapping"), "Its list").items():
        nodes[each] = {}
        with chat.skip_damaged("message"):
            nodes[each] = mapping(node, "A message")
    texts: list[list[str]] = []
    last_message: dict[str, int | None] = {}
    children = Counter(_parent_of(node) for node in nodes.values())
    for each in parents_first({each: _parent_of(node) for each, node in nodes.items()}):
        node, above = nodes[each], _parent_of(nodes[each])
        last = last_message[each] = last_message.get(above) if above else None
        role, text = None, ""
        with chat.skip_damaged("message"):
            role, text = _content(mapping(node.get("message"), "A message"), chat)
        if role is Role.SYSTEM:
            chat.add_system(text, is_first=last is None)
        # An empty turn of the person counts.
        elif role is not None and (text.strip() or chat.files or (role is Role.USER and last is not None)):
            message = node["message"]
            # A chain of nodes is one reply; alternatives begin where it branches.
            if last is None or chat.messages[last].role is not role or role is Role.USER or children[above] > 1:
                last = last_message[each] = chat.add(role, "", last, created_at=date(message.get("create_time")))
                texts.append([])
            model = name(mapping(message.get("metadata"), "A message's metadata").get("model_slug"))
            if model and role is Role.ASSISTANT:
                chat.messages[last] = replace(chat.messages[last], model=model)
            texts[last].append(text.strip("\n"))
            chat.take_files(last)
        # Of nodes that are left out.
        chat.without.update(["image"] * len(chat.files))
        chat.files.clear()
    current = fields.get("current_node")
    visible = last_message.get(current) if isinstance(current, str) else None
    chat.messages = [
        replace(message, text=joined(texts[index]), activated=len(texts) if index == visible else index)
        for index, message in enumerate(chat.messages)
    ]
    return chat.finish(fields.get("title"), date(fields.get("create_time")), date(fields.get("update_time")), {})


def _parent_of(node: Json) -> str | None:
    parent = node.get("parent")
    if parent is not None and not isinstance(parent, str):
        raise DamagedChatError("A message has a wrong parent")
    return parent


def _content(message: Json, chat: ForeignChat) -> tuple[Role | None, str]:
    """Return a node's role and text; None for one that is left out."""
    without = chat.without
    metadata = mapping(message.get("metadata"), "A message's metadata")
    content = mapping(message.get("content"), "A message's content")
    kind = string(content.get("content_type"), "The kind of a message")
    author = string(mapping(message.get("author"), "An author").get("role"), "A message's role")
    is_hidden = metadata.get("is_visually_hidden_from_conversation")
    if author == "assistant" and str(message.get("recipient")).startswith("canmore.") and not is_hidden:
        return _canvas(content, chat)
    if kind in _LEFT_OUT:
        without[_LEFT_OUT[kind]] += 1
        return None, ""
    if not message or is_hidden or author not in _ROLES:
        return None, ""
    if author == "tool" or message.get("recipient") not in (None, "all"):
        report = _research_report(metadata) if author == "tool" else ""
        if not report:
            without["tool result" if author == "tool" else "tool call"] += 1
        return (Role.ASSISTANT, _without_marks(report, without)) if report else (None, "")
    if kind == "thoughts":
        return _ROLES[author], _thoughts(content)
    taken = ForeignChat(find=chat.find, files=chat.files, texts=chat.texts)
    text = taken.text_of(items(content.get("parts"), "A message's content"))
    # An image may be among the parts and the attachments, so the larger count of both is taken.
    lost = taken.without | _attachments(metadata) - Counter(image=taken.found_images)
    chat.damage = chat.damage or taken.damage
    without.update(lost)
    text = text or string(content.get("text"), "A message")
    if author == "user" and lost and not text.strip():
        # The reply needs something to refer to.
        text = f"[{counted_parts(lost)}]"
    if kind not in ("", "text", "multimodal_text") and not lost and not text.strip():
        without["message of another kind"] += 1
    text = text if author == "user" else _without_marks(text, without)
    return (None, "") if author == "system" and not text.strip() else (_ROLES[author], text)


def _without_marks(text: str, without: Counter[str]) -> str:
    """Replace the marks where the app draws a link, a name or a picture by the words in them; count the others."""

    def content_text(match: re.Match[str]) -> str:
        kind, *fields = match[2].split(_MARK_FIELDS)
        visible = [each for each in map(_visible_text, fields) if each and not _SOURCE_ID.fullmatch(each)]
        if not visible:
            without["image" if kind in ("i", "image_group") else "source reference"] += 1
            return ""
        link = visible[1] if kind == "url" and len(visible) > 1 and visible[1].startswith("http") else ""
        return match[1] + (f"[{visible[0]}]({link})" if link else ", ".join(visible))

    return _STRAY_MARKS.sub("", _MARK.sub(content_text, text))


def _visible_text(field: str) -> str:
    """Return the words that the app shows for a field of a mark: plain text, or JSON such as `["city", "London"]`."""
    if (value := json_or_none(field)) is None:
        return field.strip()
    if isinstance(value, dict):
        value = next((value[each] for each in _NAMED_BY if isinstance(value.get(each), str)), "")
    elif isinstance(value, list):
        texts = [each for each in value if isinstance(each, str)]
        value = next(iter(texts[1:2] or texts), "")
    return str(value)


def _canvas(content: Json, chat: ForeignChat) -> tuple[Role | None, str]:
    """Return the document that a call writes into a canvas; None for changes of a part, and for comments."""
    parts = [each for each in items(content.get("parts"), "A canvas") if isinstance(each, str)]
    call = _object(string(content.get("text"), "A canvas") or "".join(parts))
    updates = call.get("updates")
    if isinstance(updates, list) and len(updates) == 1 and isinstance(updates[0], dict):
        call |= {"content": updates[0].get("replacement")} if updates[0].get("pattern") == ".*" else {}
    text = call.get("content")
    if not isinstance(text, str):
        chat.without["change of a canvas document" if "updates" in call else "canvas part"] += 1
        return None, ""
    language = str(call.get("type")).partition("/")[2]
    title = f"**{name(call.get('name')) or 'Canvas'}**\n\n"
    return Role.ASSISTANT, title + (
        f"````{language}\n{string(text, 'A canvas')}\n````" if language else string(text, "A canvas")
    )


def _research_report(metadata: Json) -> str:
    """Return the report that a research tool keeps in the state of its widget; empty if there is none."""
    sdk = metadata.get("chatgpt_sdk")
    state = sdk.get("widget_state") if isinstance(sdk, dict) else None
    report = _object(state).get("report_message") if isinstance(state, str) else None
    content = report.get("content") if isinstance(report, dict) else None
    return ForeignChat().text_of(content.get("parts")) if isinstance(content, dict) else ""


def _object(text: str) -> Json:
    """Return a JSON object; an empty one for anything else."""
    value = json_or_none(text)
    return value if isinstance(value, dict) else {}


def _attachments(metadata: Json) -> Counter[str]:
    """Count the attachments of a message, by their names for people."""
    counts: Counter[str] = Counter()
    for each in items(metadata.get("attachments"), "A message's attachments"):
        fields = mapping(each, "An attachment")
        kind = string(fields.get("mimeType") or fields.get("mime_type"), "The kind of an attachment")
        counts[_MEDIA.get(kind.partition("/")[0], "attachment")] += 1
    return counts


def _thoughts(content: Json) -> str:
    thoughts = [mapping(each, "A thought") for each in items(content.get("thoughts"), "Its thoughts")]
    parts = [string(each.get(field), "A thought") for each in thoughts for field in ("summary", "content")]
    return thinking(joined(part for part in parts if part.strip()))
