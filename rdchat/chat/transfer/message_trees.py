"""Builds the messages of chats of programs that keep a tree: each message names the one above it.

A message that is left out or damaged hides no other one: those below it move up to the nearest message that was kept.
Where none is known, because a name is missing or wrong, a message follows the one before it in the file.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.transfer.foreign_chats import ForeignChat, Json, items, joined, mapping
from rdchat.chat.transfer.reports import counted_parts
from rdchat.inference.api.messages import Role

type Key = str | int
"""A message's own name, or its place in the file where it has none of its own."""
type Content = tuple[Role | None, str, Json]
"""A message's role, text and further fields; without a role it is left out."""


@dataclass(slots=True)
class _Node:
    """A message of the file.

    Attributes:
        parent: The name of the message above; None if none is named.
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
    # For each node, the message that it became, or else the one above it.
    _places: dict[Key, int | None] = field(default_factory=dict)
    # For names of messages that are not in the file, the message above those that have it as their parent.
    _missing: dict[str | None, int | None] = field(default_factory=dict)
    _texts: list[list[str]] = field(default_factory=list)
    _files: list[list[AttachedFile]] = field(default_factory=list)
    _siblings: Counter[str | None] = field(default_factory=Counter)

    def add(self, entries: Any, current: object = None) -> None:
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
            is_own = isinstance(key, str) and key and key not in self._nodes
            self._nodes[key if is_own else len(self._nodes)] = self._read(each)
        self._place_all()
        shown = self._places.get(current) if isinstance(current, str) else None
        messages = self.chat.messages
        for index, message in enumerate(messages):
            activated = len(messages) if index == shown else message.activated
            text = joined(self._texts[index])
            messages[index] = replace(message, text=text, files=tuple(self._files[index]), activated=activated)

    def _read(self, entry: Any) -> _Node:
        node = _Node()
        chat = self.chat
        before = chat.without.copy()
        with chat.skip_damaged("message"):
            fields = mapping(entry, "A message")
            fields.pop(self.own, None)
            is_damaged = not isinstance(fields.get(self.parent), str | None)
            named = f"message {len(self._nodes)}" if is_damaged else None
            node.parent = chat.take_text(fields, self.parent) or named
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

    def _place_all(self) -> None:
        """Add the messages in the order of the file, each after those above it."""
        nodes = self._nodes
        self._siblings.update(node.parent for node in nodes.values())
        roles = {node.role for node in nodes.values()}
        is_list = not any(parent in nodes for parent in self._siblings) and {Role.USER, Role.ASSISTANT} <= roles
        for key in nodes:
            path, step = self._path_from(key)
            if not path:
                continue
            above = self._places[step] if step in nodes else self._above(nodes[path[-1]], is_list)
            for each in reversed(path):
                above = self._place(nodes[each], above)
                self._places[each] = above

    def _path_from(self, key: Key) -> tuple[list[Key], Key | None]:
        """Return a message and those above it that have no place yet, and what the last of them has as its parent."""
        path: list[Key] = []
        step: Key | None = key
        while step in self._nodes and step not in self._places:
            self._places[step] = None
            path.append(step)
            step = self._nodes[step].parent
        if step not in path:
            return path, step
        # A circle is cut above the message that comes first.
        end = path.index(step) + 1
        for each in path[end:]:
            del self._places[each]
        return path[:end], None

    def _above(self, node: _Node, is_list: bool) -> int | None:
        """Return the message above one whose parent is not in the file.

        The first messages of a chat, and those whose common parent is missing, are alternatives.
        """
        last = len(self.chat.messages) - 1 if self.chat.messages else None
        if is_list or node.role is None:
            return last
        if node.parent is None and last is not None and (None not in self._missing or node.role is Role.ASSISTANT):
            return last
        return self._missing.setdefault(node.parent, last)

    def _place(self, node: _Node, above: int | None) -> int | None:
        """Add a message below another one; return its index, or `above` if it has nothing to show."""
        chat = self.chat
        if node.role is Role.SYSTEM:
            chat.add_system(node.text, is_first=above is None)
            return above
        # An empty turn of the person counts.
        has_content = node.text.strip() or node.files or "error" in node.facts
        if node.role is None or not (has_content or (node.role is Role.USER and above is not None)):
            return above
        if self.joins and above is not None and node.role is Role.ASSISTANT and self._siblings[node.parent] < 2:
            reply = chat.messages[above]
            if reply.role is node.role:
                model = node.facts.get("model") or reply.model
                chat.messages[above] = replace(reply, model=model)
                self._texts[above].append(node.text)
                self._files[above] += node.files
                return above
        self._texts.append([node.text])
        self._files.append([*node.files])
        return chat.add(node.role, "", above, **node.facts)
