"""Our own JSON: complete, with all alternatives, traces and statistics.

    {"format": "rdchat chats", "version": 1, "rdchat": "0.2.0", "exported_at": 1764000000.0,
     "preferences": {"system_prompt": "", "sampling": {...}},
     "chats": [
    {"title": ..., "created_at": ..., "updated_at": ..., "system_prompt": null, "sampling": null, "messages": [
        {"parent": null, "role": "user", "text": ..., "activated": 0, "status": "complete", ...}]},
    ...
    ]}

What is before the chats is one line, and so is each chat. A file of any size is read a chat at a time (`head_of`),
also where another program has broken its lines in another way. Where the chats are not the last field, or their head is
long, it is read as a whole.

`parent` is the place of a message earlier in the list. The path that is shown ends with the highest `activated`.
`preferences` has what holds for chats that say null; an import does not take it. Fields that are not known are passed
over and missing ones have their usual value, so fields may be added without a new version: `version` goes up when an
older rdchat would misread a file.
"""

import json
import math
import re
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

from rdchat import __version__
from rdchat.chat.attachments.attached_file import (
    MOST_CHARACTERS,
    AttachedFile,
    FileKind,
    ReadFile,
    attached,
    shown_name,
)
from rdchat.chat.conversation import NO_THINKING, MessageStatus
from rdchat.chat.storage.rows import conversation_from, message_from, seed_column
from rdchat.chat.transfer.formats.fields import Json, items, mapping, name, words
from rdchat.chat.transfer.formats.trace_json import packed_trace, plain_trace
from rdchat.chat.transfer.portable import DamagedChatError, PortableChat, PortableMessage
from rdchat.inference.api.requests import Role, SamplingParams

NAME = "rdchat"
FORMAT, VERSION = "rdchat chats", 1
_KINDS = {each.value for each in FileKind}
_ROLES = {each.value for each in (Role.USER, Role.ASSISTANT)}
_SEEDS = 1 << 64
_HEAD = re.compile(rb'[^\S]*\{.*?"chats"\s*:\s*\[', re.DOTALL)
_NESTED = 2  # folders in one another, at most


def is_ours(data: Any) -> bool:
    """Tell whether this is a file of ours, of any version."""
    return isinstance(data, dict) and data.get("format") == FORMAT


def is_newer(data: Json) -> bool:
    """Tell whether a later rdchat wrote it, in a way that this one would misread."""
    version = data.get("version")
    return type(version) is not int or version > VERSION


class ChatsFile:
    """Writes chats into an open file, one after another; `end` makes it whole.

    Args:
        file: Text, open for writing.
        exported_at: Seconds since the epoch.
        system_prompt, sampling: Of the preferences.
    """

    def __init__(self, file: IO[str], exported_at: float, system_prompt: str, sampling: SamplingParams) -> None:
        self._file, self._between = file, "\n"
        preferences = {"system_prompt": system_prompt, "sampling": asdict(sampling)}
        head = {"format": FORMAT, "version": VERSION, "rdchat": __version__, "exported_at": exported_at}
        file.write(_dumped(head | {"preferences": preferences})[:-1] + ', "chats": [')

    def add(self, chat: PortableChat) -> None:
        """Write a chat, a line of its own."""
        self._file.write(self._between + _dumped(_plain_chat(chat)))
        self._between = ",\n"

    def end(self) -> None:
        """Write what closes the list."""
        self._file.write("\n]}\n")


def head_of(beginning: bytes) -> tuple[Json, int] | None:
    """Return what stands before the list of chats, and the place of the byte behind the list's bracket.

    Args:
        beginning: Of a file in UTF-8.

    Returns:
        None where the file is none of ours, or its chats do not come last.
    """
    if found := _HEAD.match(beginning):
        with suppress(ValueError, RecursionError):
            data = json.loads(found[0] + b"]}")
            return (data, found.end()) if is_ours(data) else None
    return None


def chats(data: Json) -> list[Any]:
    """Return the JSON of each chat; `read` makes a chat of it.

    Raises:
        DamagedChatError: If there is no list of them.
    """
    return items(data.get("chats"), "Its list of chats")


def read(data: Any) -> PortableChat:
    """Return one chat.

    Raises:
        DamagedChatError: If something of it is of the wrong kind.
    """
    chat = mapping(data, "The chat")
    prompt, without = chat.get("system_prompt"), dict[str, int]()
    sampling = chat.get("sampling")
    options = conversation_from(
        (
            0,
            words(chat.get("title"), "Its title"),
            _number(chat.get("created_at")),
            _number(chat.get("updated_at")),
            None if prompt is None else words(prompt, "Its system prompt"),
            None if sampling is None else json.dumps(sampling),
            *(None, None, None, None),
            thinking if isinstance(thinking := chat.get("thinking"), str) else None,
        )
    )
    messages = tuple(
        _message(mapping(each, "A message"), place, without)
        for place, each in enumerate(items(chat.get("messages"), "Its list of messages"))
    )
    return PortableChat(
        options.title,
        options.created_at,
        options.updated_at,
        options.system_prompt,
        options.sampling,
        messages,
        without,
        pinned=chat.get("pinned") is True,
        archived=chat.get("archived") is True,
        folder=tuple(words(each, "Its folder") for each in items(chat.get("folder") or [], "Its folder"))[:_NESTED],
        thinking_choice=options.thinking_choice,
    )


def _plain_chat(chat: PortableChat) -> Json:
    return {
        "title": chat.title,
        "created_at": chat.created_at,
        "updated_at": chat.updated_at,
        "system_prompt": chat.system_prompt,
        "sampling": asdict(chat.sampling) if chat.sampling else None,
        **({"thinking": chat.thinking_choice.value} if chat.thinking_choice else {}),
        **({"pinned": True} if chat.pinned else {}),
        **({"archived": True} if chat.archived else {}),
        **({"folder": list(chat.folder)} if chat.folder else {}),
        "messages": [_plain_message(message) for message in chat.messages],
    }


def _plain_message(message: PortableMessage) -> Json:
    """Return a message's fields; those that say nothing are left out."""
    plain: Json = {
        "parent": message.parent,
        "role": message.role,
        "text": message.text,
        "activated": message.activated,
        "status": message.status,
        "created_at": message.created_at,
    }
    more = {
        "model": message.model,
        "seed": message.seed,
        "finish_reason": message.finish_reason,
        "error": message.error or None,
        "statistics": asdict(message.statistics) if message.statistics else None,
        "drafting": asdict(message.drafting) if message.drafting else None,
        "control_offsets": message.control_offsets or None,
        "thinking": asdict(message.thinking) if message.thinking != NO_THINKING else None,
        "context_cut": asdict(message.context_cut) if message.context_cut else None,
        "edited": True if message.edited else None,
        "made_with": asdict(message.made_with) if message.made_with else None,
        "trace": plain_trace(message.trace) if message.trace else None,
        "files": [_plain_file(file, text) for file, text in message.files] or None,
    }
    return plain | {field: value for field, value in more.items() if value is not None}


def _plain_file(file: AttachedFile, text: str) -> Json:
    plain = {"name": file.name, "kind": file.kind.value, "taken": file.taken, "note": file.note}
    return {field: value for field, value in plain.items() if value} | {"text": text}


def _file(data: Any) -> tuple[AttachedFile, str]:
    file = mapping(data, "A file")
    text = words(file.get("text"), "A file's text")
    if len(text) > MOST_CHARACTERS:
        raise DamagedChatError("The text of a file is too long")
    kind = FileKind(file["kind"]) if words(file.get("kind"), "A file's kind") in _KINDS else FileKind.TEXT
    name_, taken, note = (words(file.get(each), "What is said of a file")[:1000] for each in ("name", "taken", "note"))
    return attached(ReadFile(shown_name(name_), kind, (), note), text, taken), text


def _message(data: Json, place: int, without: dict[str, int]) -> PortableMessage:
    parent, text, seed, activated = (data.get(each) for each in ("parent", "text", "seed", "activated"))
    if words(data.get("role"), "A message's role") not in _ROLES:
        raise DamagedChatError("A message has a role that rdchat does not know")
    if parent is not None and (type(parent) is not int or not 0 <= parent < place):
        raise DamagedChatError("A message says wrongly what it follows")
    row = message_from(
        (
            0,
            0,
            parent,
            data["role"],
            words(text, "A message"),
            data.get("status") if isinstance(data.get("status"), str) else "",
            _number(data.get("created_at")),
            name(data.get("model")),
            seed_column(seed if type(seed) is int and 0 <= seed < _SEEDS else None),
            data.get("finish_reason") if isinstance(data.get("finish_reason"), str) else None,
            words(data.get("error"), "What a message failed of"),
            *(json.dumps(data[each]) if data.get(each) is not None else None for each in ("statistics", "drafting")),
            json.dumps(data.get("control_offsets")),
            json.dumps(data["thinking"]) if data.get("thinking") is not None else None,
            None if data.get("context_cut") is None else json.dumps(data["context_cut"]),
            data.get("edited") is True,
            None if data.get("made_with") is None else json.dumps(data["made_with"]),
            0,
            1,
        )
    )
    trace = packed_trace(data.get("trace"))
    for field, value in (("statistics", row.statistics), ("drafting", row.drafting), ("trace", trace)):
        if data.get(field) is not None and value is None:
            without[_FIELDS[field]] = without.get(_FIELDS[field], 0) + 1
    return PortableMessage(
        parent=parent,
        role=row.role,
        text=row.text,
        activated=activated if type(activated) is int else place,
        status=MessageStatus.INTERRUPTED if row.status is MessageStatus.STREAMING else row.status,
        created_at=row.created_at,
        model=row.model,
        seed=row.seed,
        finish_reason=row.finish_reason,
        error=row.error,
        statistics=row.statistics,
        drafting=row.drafting,
        control_offsets=tuple(each for each in row.control_offsets if 0 <= each < len(row.text)),
        thinking=row.thinking,
        context_cut=row.context_cut,
        edited=row.edited,
        made_with=row.made_with,
        trace=trace,
        files=tuple(_file(each) for each in items(data.get("files") or [], "Its list of files")),
    )


_FIELDS = {"statistics": "reply's statistics", "drafting": "reply's drafting", "trace": "trace"}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def _dumped(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
