"""Reads chats whose messages are a tree, in which each message names the one above it.

`MessageTree` adds the messages to a `ForeignChat`; readers in other modules use it too. Each program has a function
that parses one message and returns its `Content`. A message that is left out or damaged hides no other one: those below
it move up to the nearest message that was kept. Where none is known, because a name is missing or wrong, a message
follows the one before it in the file.

The programs here are Claude, DeepSeek and Open WebUI. None of their formats is documented; they are those of exports of
2024 to 2026.
- Claude's older exports do not name the message above.
- DeepSeek's chats have a `mapping` of messages, as ChatGPT's. A message has fragments instead of a role.
- Since version 0.10 of Open WebUI, a reply has its thoughts, calls and results in `output`. Before, they were folded
  into its text.
"""

import html
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage import FullChat
from rdchat.chat.transfer.chat_import import counted_parts
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
    string,
    take_sampling,
    thinking,
    with_copy,
)
from rdchat.inference.api import Role

type Key = str | int
"""A message's own name, which others have as their parent; its index in the file where it has none."""
type Content = tuple[Role | None, str, Json]
"""A message's role, text and further fields; without a role it is left out."""
_CLAUDE_ROLES = {"human": Role.USER, "assistant": Role.ASSISTANT}
# Fields of messages that are left out, with their names for people; see `ForeignChat.leave_out`.
_LEFT_OUT = {
    "sources": "source",
    "citations": "source",
    "statusHistory": "step",
    "followUps": "suggested question",
    "annotation": "rating",
    "code_executions": "tool call",
    "lastSentence": "",
    "modelName": "",
}
# Such fields of a chat.
_OF_CHAT = {"files": "file of the chat", "messages": "", "tags": "tag"}
# Older versions of Open WebUI fold thoughts and calls into the text, as HTML of these types.
_FOLD = '<details type="'
_FOLD_END = "</details>"
_FOLDED = {"reasoning", "tool_calls", "code_interpreter"}


@dataclass(slots=True)
class _Node:
    """A message of the file.

    Attributes:
        parent: The name of the message above; None if none is named.
        role: None for one that is left out.
        text: Its text with its thoughts.
        files: Its images.
        facts: Further fields of our `Message`, such as its date.
    """

    parent: str | None = None
    role: Role | None = None
    text: str = ""
    files: tuple[AttachedFile, ...] = ()
    facts: Json = field(default_factory=dict)


@dataclass(slots=True)
class MessageTree:
    """Reads the messages of one chat.

    Attributes:
        chat: The messages are added to it.
        parse: Returns the content of a message, of which it takes out what it reads.
        parent: The field that names the message above.
        own: The field with a message's own name, in formats that have a list of messages.
        joins: Whether replies in a row are one reply, unless they are alternatives.
    """

    chat: ForeignChat
    parse: Callable[[ForeignChat, Json], Content]
    parent: str
    own: str = ""
    joins: bool = False
    _nodes: dict[Key, _Node] = field(default_factory=dict)
    # For each node, the index of the message that it became, or else of the one above it.
    _indices: dict[Key, int | None] = field(default_factory=dict)
    # For each parent that is not in the file, the index of the message below which its children were added.
    _missing: dict[str | None, int | None] = field(default_factory=dict)
    # The texts and files of each message by its index; several nodes may become one message (`joins`).
    _texts: list[list[str]] = field(default_factory=list)
    _files: list[list[AttachedFile]] = field(default_factory=list)
    # The number of nodes with each parent.
    _siblings: Counter[str | None] = field(default_factory=Counter)

    def add_messages(self, entries: Any, current: object = None) -> None:
        """Add the messages of a list, or of an object by their names; the path to `current` is shown, or to the last.

        Raises:
            DamagedChatError: If there is neither a list nor an object.
        """
        if isinstance(entries, dict):
            named = list(entries.items())
        else:
            listed = items(entries, "Its list of messages")
            named = [(each.get(self.own) if isinstance(each, dict) else None, each) for each in listed]
        for key, each in named:
            has_own_name = isinstance(key, str) and key and key not in self._nodes
            self._nodes[key if has_own_name else len(self._nodes)] = self._read(each)
        self._add_all()
        current_index = self._indices.get(current) if isinstance(current, str) else None
        messages = self.chat.messages
        for index, message in enumerate(messages):
            activated = len(messages) if index == current_index else message.activated
            text = joined(self._texts[index])
            messages[index] = replace(message, text=text, files=tuple(self._files[index]), activated=activated)

    def _read(self, entry: Any) -> _Node:
        """Return the node of an entry; one without a role if the entry is damaged."""
        node = _Node()
        chat = self.chat
        before = chat.without.copy()
        with chat.skip_damaged("message"):
            fields = mapping(entry, "A message")
            fields.pop(self.own, None)
            # A damaged name is that of a missing message, which no other node has as its parent.
            is_damaged = not isinstance(fields.get(self.parent), str | None)
            invented = f"message {len(self._nodes)}" if is_damaged else None
            node.parent = chat.take_text(fields, self.parent) or invented
            node.role, node.text, node.facts = self.parse(chat, fields)
            chat.count_rest(fields)
        node.files = chat.take_files()
        if node.role is None:
            chat.without.update(["image"] * len(node.files))
        lost = counted_parts(chat.without - before)
        if node.role is Role.USER and lost and not node.text.strip() and not node.files:
            # The reply needs something to refer to.
            node.text = f"[{lost}]"
        return node

    def _add_all(self) -> None:
        """Add the messages in the order of the file, each after those above it."""
        nodes = self._nodes
        self._siblings.update(node.parent for node in nodes.values())
        roles = {node.role for node in nodes.values()}
        # No message names another one of the file, and both sides speak, so the file is a plain list.
        is_list = not any(parent in nodes for parent in self._siblings) and {Role.USER, Role.ASSISTANT} <= roles
        for key in nodes:
            path, parent = self._path_from(key)
            if not path:
                continue
            above = self._indices[parent] if parent in nodes else self._above(nodes[path[-1]], is_list)
            for each in reversed(path):
                above = self._add(nodes[each], above)
                self._indices[each] = above

    def _path_from(self, key: Key) -> tuple[list[Key], Key | None]:
        """Return a message and those above it that were not added yet, upwards, and the parent of the last of them."""
        path: list[Key] = []
        step: Key | None = key
        while step in self._nodes and step not in self._indices:
            # It has no index until it is added; who meets it before that has gone round a circle.
            self._indices[step] = None
            path.append(step)
            step = self._nodes[step].parent
        if step not in path:
            return path, step
        # A circle is cut above the message that comes first.
        end = path.index(step) + 1
        for each in path[end:]:
            del self._indices[each]
        return path[:end], None

    def _above(self, node: _Node, is_list: bool) -> int | None:
        """Return the index of the message above one whose parent is not in the file.

        The messages here are questions Q and replies A, in the order of the file, with their parents:
        - Q1 of none, A1 of none, Q2 of none: the reply A1 follows Q1, and Q2 is an alternative of Q1.
        - Q1 of a missing X, Q2 of X, A1 of none: Q2 is an alternative of Q1, as their parent is the same. A1 follows
          the last message. So would a question of none, as the chat did not begin with a message of none.

        Args:
            node: The message. One that is left out stands below the last message.
            is_list: Whether no message names a parent in the file, so that each follows the one before it.
        """
        last = len(self.chat.messages) - 1 if self.chat.messages else None
        if is_list or node.role is None:
            return last
        began_without_parent = None in self._missing
        goes_on = node.role is Role.ASSISTANT or not began_without_parent
        if node.parent is None and last is not None and goes_on:
            return last
        # The first message with this parent follows the last message; its alternatives get the same place.
        return self._missing.setdefault(node.parent, last)

    def _add(self, node: _Node, above: int | None) -> int | None:
        """Add a message below another one; return its index, or `above` if it has nothing to show."""
        chat = self.chat
        if node.role is Role.SYSTEM:
            chat.add_system(node.text, is_first=above is None)
            return above
        has_content = node.text.strip() or node.files or "error" in node.facts
        # An empty message of the person is kept between replies, so that turns alternate.
        separates_replies = node.role is Role.USER and above is not None
        if node.role is None or not (has_content or separates_replies):
            return above
        is_only_one = self._siblings[node.parent] < 2
        if self.joins and above is not None and is_only_one:
            reply = chat.messages[above]
            if reply.role is node.role is Role.ASSISTANT:
                chat.messages[above] = replace(reply, model=node.facts.get("model") or reply.model)
                self._texts[above].append(node.text)
                self._files[above] += node.files
                return above
        self._texts.append([node.text])
        self._files.append([*node.files])
        return chat.add_message(node.role, "", above, **node.facts)


# Claude


def _claude_chat(chat: ForeignChat, fields: Json) -> FullChat:
    current = fields.pop("current_leaf_message_uuid", None)
    tree = MessageTree(chat, _claude_message, "parent_message_uuid", own="uuid")
    tree.add_messages(fields.pop("chat_messages", None), current)
    return chat.finished_chat(fields, ("name", "created_at", "updated_at"), {})


def _claude_message(chat: ForeignChat, message: Json) -> Content:
    """Return a message's content: its blocks with the texts of its attachments and the names of its files."""
    role = role_of(message.pop("sender", None), _CLAUDE_ROLES)
    counted = chat.without.total()
    full_text = chat.take_text(message, "text")
    text = chat.take_text(message, "content")
    # Where there are blocks, this is a copy of what can be shown of them.
    texts = [text if text.strip() or chat.without.total() > counted else full_text]
    for each in chat.listed(message, "attachments"):
        texts.append(attached_text(each.pop("file_name", None), chat.take_text(each, "extracted_content")))
    files = chat.listed(message, "files") + chat.listed(message, "files_v2")
    # Newer exports name a file in both lists.
    unique = {str(each.pop("file_uuid", number)): each for number, each in enumerate(files)}
    chat.without["file"] += len(unique)
    texts += [f"[{name(each.pop('file_name', None)) or 'file'}]" for each in unique.values()]
    return role, joined(texts), {"created_at": date(message.pop("created_at", None))}


CLAUDE = ChatFormat("Claude", lambda chat: "chat_messages" in chat, _claude_chat)


# DeepSeek


def _is_deepseek(chat: Json) -> bool:
    nodes = chat.get("mapping")
    listed = nodes.values() if isinstance(nodes, dict) else ()
    messages = (each.get("message") for each in listed if isinstance(each, dict))
    return any(isinstance(each, dict) and "fragments" in each for each in messages)


def _deepseek_chat(chat: ForeignChat, fields: Json) -> FullChat:
    MessageTree(chat, _deepseek_message, "parent").add_messages(fields.pop("mapping", None))
    return chat.finished_chat(fields, ("title", "inserted_at", "updated_at"), {})


def _deepseek_message(chat: ForeignChat, node: Json) -> Content:
    message = chat.inner(node, "message")
    # Only the person attaches files.
    role = Role.USER if message.get("files") else None
    chat.leave_out(message, {"files": "file"})
    texts: list[str] = []
    for fragment in chat.listed(message, "fragments"):
        kind = fragment.get("type")
        if kind not in ("REQUEST", "THINK", "RESPONSE"):
            texts.append(chat.text_of([fragment]))
            continue
        role = Role.USER if kind == "REQUEST" else Role.ASSISTANT
        text = chat.take_text(fragment, "content")
        texts.append(thinking(text) if kind == "THINK" else text)
    facts = {"created_at": date(message.pop("inserted_at", None)), "model": name(message.pop("model", None))}
    return role, joined(texts), facts


DEEPSEEK = ChatFormat("DeepSeek", _is_deepseek, _deepseek_chat)


# Open WebUI


def _is_open_webui(chat: Json) -> bool:
    inner = chat.get("chat")
    return isinstance(inner, dict) and ("history" in inner or "messages" in inner)


def _open_webui_chat(chat: ForeignChat, fields: Json) -> FullChat:
    inner = mapping(fields.get("chat"), "The chat")
    history = chat.inner(inner, "history")
    # Older versions have the path that is shown only, and newer ones a copy of it.
    entries = history.pop("messages", None) or inner.get("messages")
    params = chat.inner(inner, "params")
    chat.system_prompt = chat.take_text(params, "system") or chat.take_text(inner, "system")
    tree = MessageTree(chat, _open_webui_message, "parentId", own="id")
    tree.add_messages(entries, history.pop("currentId", None))
    sampling = take_sampling(params)
    chat.leave_out(inner, _OF_CHAT)
    fields["title"] = inner.pop("title", None) or fields.get("title")
    return chat.finished_chat(fields, ("title", "created_at", "updated_at"), sampling)


def _open_webui_message(chat: ForeignChat, message: Json) -> Content:
    role = role_of(message.pop("role", None), ROLES)
    facts: Json = {"created_at": date(message.pop("timestamp", None)), "model": name(message.pop("model", None))}
    error = message.pop("error", None)
    content = message.pop("content", None)
    output = chat.listed(message, "output")
    is_folded = isinstance(content, str) and role is Role.ASSISTANT
    text = _unfolded(chat, content, is_copy=bool(output)) if is_folded else chat.text_of(content)
    texts = [with_copy(_output(chat, output), text)]
    texts += _texts_of_files(chat, message)
    texts.append(chat.take_text(message, "files"))
    if role is Role.ASSISTANT and error:
        message_text = error.get("content") if isinstance(error, dict) else error
        facts["status"] = MessageStatus.FAILED
        facts["error"] = message_text if isinstance(message_text, str) else "It failed in Open WebUI."
    chat.leave_out(message, _LEFT_OUT)
    return role, joined(texts), facts


def _texts_of_files(chat: ForeignChat, message: Json) -> list[str]:
    """Take the documents whose text the export has out of `files`; return their texts."""
    texts = []
    others = []
    for each in chat.listed(message, "files"):
        file = chat.inner(each, "file")
        text = chat.take_text(chat.inner(file, "data"), "content")
        if text.strip():
            label = file.pop("filename", None) or each.pop("name", None)
            texts.append(attached_text(label, text))
            chat.count_rest(each)
        else:
            others.append(each)
    message["files"] = others
    return texts


def _output(chat: ForeignChat, output: list[Json]) -> str:
    """Return the thoughts and the text of a reply; calls and their results are counted."""
    texts = []
    for each in output:
        kind = each.get("type")
        if kind == "message":
            texts.append(chat.take_text(each, "content"))
        elif kind == "reasoning":
            parts = [chat.take_text(each, field) for field in ("summary", "content")]
            texts.append(thinking(joined(parts)))
        else:
            texts.append(chat.text_of([each]))
    return joined(texts)


def _unfolded(chat: ForeignChat, content: str, *, is_copy: bool) -> str:
    """Return a text with the thoughts that are folded in it as HTML; calls and their results are counted.

    A fold of another type stays in the text as it is.

    Args:
        chat: Counts them.
        content: The text.
        is_copy: Whether what is folded is in `output` as well, so that it is neither taken nor counted here.
    """
    texts = []
    at = 0
    while (start := content.find(_FOLD, at)) >= 0:
        end = content.find(_FOLD_END, start)
        # In a reply that broke off, the last fold has no end.
        end = len(content) if end < 0 else end
        kind, _, folded = content[start + len(_FOLD) : end].partition('"')
        after = end + len(_FOLD_END)
        texts.append(content[at : start if kind in _FOLDED else after])
        at = after
        if is_copy:
            continue
        if kind == "reasoning":
            body = folded.partition(">")[2]
            lines = html.unescape(body.partition("</summary>")[2] or body).splitlines()
            thought = thinking("\n".join(line.removeprefix(">").removeprefix(" ") for line in lines))
            texts.append(f"{thought}\n\n")
        elif kind in _FOLDED:
            chat.without["tool call"] += 1
            chat.without["tool result"] += ' result="' in folded or ' output="' in folded
    texts.append(content[at:])
    return string("".join(texts), "A message")


OPEN_WEBUI = ChatFormat("Open WebUI", _is_open_webui, _open_webui_chat)
