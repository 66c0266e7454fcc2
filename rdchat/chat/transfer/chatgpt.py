"""Reads ChatGPT's `conversations.json`, as exported since 2023: a list of chats, each a tree of nodes.

It runs in the transfer process. A node has a `message` or null, and a `parent`. One visible reply may be a chain of
nodes: thoughts, tool calls, their results, text. Hidden nodes, custom instructions and tool messages are left out;
nodes below them are attached to the last node that was kept.

Every function takes out of the parsed JSON what it reads, with `pop`, `take_text` or `clear`. `MessageTree` and
`finished_chat` then count each text that is still there as left out. So a field that is only looked at, with `get`, is
still counted; one that is taken out must be in the chat, be counted by its reader in `chat.without`, or hold no words.
"""

import re
from collections import Counter
from typing import Any

from rdchat.chat.storage import DamagedChatError, FullChat
from rdchat.chat.transfer.foreign_chats import (
    ROLES,
    TOO_LARGE,
    ChatFormat,
    ForeignChat,
    Json,
    date,
    document,
    items,
    joined,
    mapping,
    name,
    string,
    texts_in,
    thinking,
)
from rdchat.chat.transfer.message_trees import Content, MessageTree
from rdchat.files import json_or_none
from rdchat.inference.api import Role

_ROLES = ROLES | {"tool": Role.ASSISTANT}
# Names, in reports for people, of the messages that are left out, by content type; empty ones are not mentioned.
_LEFT_OUT = {
    "code": "tool call",
    "execution_output": "tool result",
    "tether_browsing_display": "tool result",
    "tether_quote": "quoted file",
    "system_error": "tool result",
    "user_editable_context": "custom instruction",
    "model_editable_context": "remembered text",
    "reasoning_recap": "",
}
# Such names for fields of the metadata.
_METADATA_LEFT_OUT = {
    "content_references": "source",
    "citations": "source",
    "search_result_groups": "source",
    "_cite_metadata": "source",
}
# Such names for attachments, by the first half of their media type.
_MEDIA = {"image": "image", "audio": "recording", "video": "video"}
# A mark is text between two private characters, where the app draws something else: its kind and its fields, with a
# third one between them. Some exports have lost the end of a mark, or keep single characters.
_MARK = re.compile(r"( ?)\ue200([^\ue200\ue201]*)(?:\ue201|$)")
_MARK_FIELDS = "\ue202"
_STRAY_MARKS = re.compile("[\ue200-\ue20f]")
# A field of a mark that only names its source, such as `turn0search3` or `L12-L20`.
_SOURCE_ID = re.compile(r"turn\d[\w, ]*|L\d+(?:-L?\d+)?")
# A field of a mark may be a JSON object. These are the keys of the words in it that the app shows, best first.
_NAMED_BY = ("name", "title", "text", "label", "query", "ticker")


def _convert(chat: ForeignChat, fields: Json) -> FullChat:
    tree = MessageTree(chat, _parse, "parent", joins=True)
    tree.add_messages(fields.pop("mapping", None), fields.pop("current_node", None))
    return chat.finished_chat(fields, ("title", "create_time", "update_time"), {})


def _parse(chat: ForeignChat, node: Json) -> Content:
    message = chat.inner(node, "message")
    metadata = chat.inner(message, "metadata")
    role, text = _content(chat, message, metadata)
    if role is not None:
        chat.leave_out(metadata, _METADATA_LEFT_OUT)
    facts = {"created_at": date(message.pop("create_time", None)), "model": name(metadata.pop("model_slug", None))}
    return role, text.strip("\n"), facts


def _content(chat: ForeignChat, message: Json, metadata: Json) -> tuple[Role | None, str]:
    """Return a node's role and text; None for one that is left out.

    A node is the first of these that fits:
    - a message of a tool that holds a research report, in whatever form: the report is taken;
    - a document that a call writes into a canvas: its text is taken;
    - a message that the app hides: left out;
    - a call of a tool, or its result: the app shows its images, so they are taken. Its text counts as one call or
      result left out, and so does one of which nothing was taken or counted. The late result of a task is a reply;
    - a message that the app shows: its text is taken, unless its kind is unknown and nothing of it can be read.
    """
    content = chat.inner(message, "content")
    kind = chat.take_text(content, "content_type")
    author = string(mapping(message.get("author"), "An author").pop("role", None), "A message's role")
    recipient = message.get("recipient")
    is_call = isinstance(recipient, str) and recipient != "all"
    is_hidden = metadata.get("is_visually_hidden_from_conversation")
    if author == "tool" and (report := _research_report(chat, message)):
        return Role.ASSISTANT, _without_marks(chat, report)
    if author == "assistant" and str(recipient).startswith("canmore.") and not is_hidden:
        return _canvas(chat, content)
    if kind in _LEFT_OUT or is_hidden or not message:
        called = _LEFT_OUT.get(kind, "hidden message")
        if called in ("hidden message", "remembered text") and not any(texts_in(content)):
            called = ""  # Most chats have empty ones of these.
        return _left_out(chat, message, called)
    if author not in _ROLES:
        raise DamagedChatError("A message has an unknown role")
    left_out_before = chat.without.total()
    text = _thoughts(chat, content) if kind == "thoughts" else _text_of(chat, content, metadata)
    has_counted_parts = chat.without.total() > left_out_before
    if (author == "tool" and not metadata.get("is_async_task_result_message")) or is_call:
        if text.strip() or not (chat.files or has_counted_parts):
            chat.without["tool result" if author == "tool" else "tool call"] += 1
        return (Role.ASSISTANT, "") if chat.files else _left_out(chat, message, "")
    if kind not in ("", "text", "multimodal_text") and not has_counted_parts and not text.strip():
        return _left_out(chat, message, "other message")
    return _ROLES[author], text if author == "user" else _without_marks(chat, text)


def _left_out(chat: ForeignChat, message: Json, called: str) -> tuple[None, str]:
    """Leave a message out: count it once under a name for people, and none of the texts in it."""
    chat.without[called] += 1
    message.clear()
    return None, ""


def _text_of(chat: ForeignChat, content: Json, metadata: Json) -> str:
    """Return a message's text; its images go to `chat.files`, and what cannot be taken is counted."""
    before = chat.without.copy()
    text = chat.text_of(items(content.pop("parts", None), "A message's content"))
    lost_parts = chat.without - before
    # An image may be among both the parts and the attachments. It is counted once: a difference of counters has no
    # numbers below zero, so only attachments beyond the parts remain.
    images_of_parts = len(chat.files) + lost_parts[TOO_LARGE]
    chat.without.update(_attachments(chat, metadata) - Counter(image=images_of_parts) - lost_parts)
    return text or chat.take_text(content, "text")


def _without_marks(chat: ForeignChat, text: str) -> str:
    """Replace each mark (`_MARK`) by the words that the app shows for it; count the marks without words.

    A mark without words goes with the blank before it.
    """

    def words_of_mark(match: re.Match[str]) -> str:
        kind, *fields = match[2].split(_MARK_FIELDS)
        visible = [each for each in map(_visible_text, fields) if each and not _SOURCE_ID.fullmatch(each)]
        if not visible:
            chat.without["image" if kind in ("i", "image_group") else "source reference"] += 1
            return ""
        link = visible[1] if kind == "url" and len(visible) > 1 and visible[1].startswith("http") else ""
        return match[1] + (f"[{visible[0]}]({link})" if link else ", ".join(visible))

    return _STRAY_MARKS.sub("", _MARK.sub(words_of_mark, text))


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


def _canvas(chat: ForeignChat, content: Json) -> tuple[Role | None, str]:
    """Return the document that a call writes into a canvas; None for changes of a part, and for comments."""
    parts = [each for each in items(content.get("parts"), "A canvas") if isinstance(each, str)]
    call = json_or_none(string(content.get("text"), "A canvas") or "".join(parts))
    content.clear()
    match call:
        case {"updates": [{"pattern": ".*", "replacement": str(text)}]} | {"content": str(text)}:
            language = str(call.get("type")).partition("/")[2]
            return Role.ASSISTANT, document(call.get("name") or "Canvas", string(text, "A canvas"), language)
        case {"updates": _}:
            chat.without["change of a canvas document"] += 1
        case _:
            chat.without["canvas part"] += 1
    return None, ""


def _research_report(chat: ForeignChat, message: Json) -> str:
    """Take the reports of a research tool out of its message; return an empty text if there is none.

    A report is the `report_message` of a state of the app's widget, which may be JSON in a text of any field. The state
    takes the place of that text; words around it count as a result left out.
    """
    reports: list[str] = []
    values: list[Any] = [message]
    # It grows by the objects and lists in each of them.
    for value in values:
        match value:
            case {"report_message": {"content": {"parts": parts} as content}}:
                reports.append(chat.text_of(parts))
                del content["parts"]
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(each, str) and "report_message" in each:
                state = each[each.find("{") : each.rfind("}") + 1]
                value[key] = json_or_none(state) or each
                chat.without["tool result"] += state not in ("", each)
            if isinstance(value[key], dict | list):
                values.append(value[key])
    # Several states have the same one.
    return joined(dict.fromkeys(reports))


def _attachments(chat: ForeignChat, metadata: Json) -> Counter[str]:
    """Count the attachments of a message, by their names for people."""
    counts: Counter[str] = Counter()
    for each in chat.listed(metadata, "attachments"):
        kind = each.get("mimeType") or each.get("mime_type")
        counts[_MEDIA.get(str(kind).partition("/")[0], "attachment")] += 1
    metadata.pop("attachments", None)
    return counts


def _thoughts(chat: ForeignChat, content: Json) -> str:
    """Return the thoughts of a message, each with its summary, as one thought."""
    thoughts = chat.listed(content, "thoughts")
    for each in thoughts:
        # They are a copy of the thought, in pieces.
        each.pop("chunks", None)
    parts = [chat.take_text(each, field) for each in thoughts for field in ("summary", "content")]
    return thinking(joined(parts))


FORMAT = ChatFormat("ChatGPT", lambda chat: "mapping" in chat, _convert)
