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
import re
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass, replace
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
from rdchat.chat.conversation import Conversation, Message, MessageStatus
from rdchat.chat.plain_data import from_plain
from rdchat.chat.reply_trace import packed_trace, plain_trace
from rdchat.chat.storage.rows import JSON_FIELDS, MESSAGE_FIELDS, message_from
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat
from rdchat.chat.transfer.formats.fields import Json, date, items, mapping, name, words
from rdchat.inference.api.requests import Role, SamplingParams, ThinkingChoice

NAME = "rdchat"
FORMAT, VERSION = "rdchat chats", 1
_KINDS = {each.value for each in FileKind}
_ROLES = {each.value for each in (Role.USER, Role.ASSISTANT)}
_CHOICES = {each.value for each in ThinkingChoice}
_SEEDS = 1 << 64
_HEAD = re.compile(rb'[^\S]*\{.*?"chats"\s*:\s*\[', re.DOTALL)
_NESTED = 2  # folders in one another, at most
_OPTIONAL = set(MESSAGE_FIELDS[MESSAGE_FIELDS.index("model") :]) - {"activated"}
_LOST = {"statistics": "reply's statistics", "drafting": "reply's drafting", "trace": "trace"}


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

    def add(self, chat: WholeChat) -> None:
        """Write a chat, a line of its own."""
        self._file.write(self._between + _dumped(plain_chat(chat)))
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


def read(data: Any) -> WholeChat:
    """Return one chat.

    Raises:
        DamagedChatError: If something of it is of the wrong kind.
    """
    chat = mapping(data, "The chat")
    prompt, sampling, thinking = (chat.get(each) for each in ("system_prompt", "sampling", "thinking"))
    about = Conversation(
        0,
        words(chat.get("title"), "Its title"),
        date(chat.get("created_at")),
        date(chat.get("updated_at")),
        None if prompt is None else words(prompt, "Its system prompt"),
        from_plain(SamplingParams(), sampling)[0] if isinstance(sampling, dict) else None,
        pinned_at=0.0 if chat.get("pinned") is True else None,
        archived=chat.get("archived") is True,
        thinking_choice=ThinkingChoice(thinking) if isinstance(thinking, str) and thinking in _CHOICES else None,
    )
    read = _MessageReader()
    folder = items(chat.get("folder") or [], "Its folder")
    return WholeChat(
        about,
        tuple(read.message(mapping(each, "A message")) for each in items(chat.get("messages"), "Its list of messages")),
        traces=read.traces,
        texts=read.texts,
        folder=tuple(words(each, "Its folder") for each in folder)[:_NESTED],
        without=read.without,
    )


class _MessageReader:
    """Reads the messages of a chat, one after another.

    Attributes:
        traces, texts, without: As of `WholeChat`.
    """

    def __init__(self) -> None:
        self._place = -1
        self.traces: dict[int, bytes] = {}
        self.texts: dict[str, str] = {}
        self.without: Counter[str] = Counter()

    def message(self, data: Json) -> Message:
        """Return the next message."""
        self._place += 1
        parent, seed, activated = (data.get(each) for each in ("parent", "seed", "activated"))
        if words(data.get("role"), "A message's role") not in _ROLES:
            raise DamagedChatError("A message has a role that rdchat does not know")
        if parent is not None and (type(parent) is not int or not 0 <= parent < self._place):
            raise DamagedChatError("A message says wrongly what it follows")
        columns = {each: data.get(each) for each in MESSAGE_FIELDS}
        columns |= {each: json.dumps(data[each]) for each in JSON_FIELDS if data.get(each) is not None}
        columns |= {
            "id": self._place,
            "conversation_id": 0,
            "parent_id": parent,
            "text": words(data.get("text"), "A message"),
            "created_at": date(data.get("created_at")),
            "model": name(data.get("model")),
            "seed": seed if type(seed) is int and 0 <= seed < _SEEDS else None,
            "error": words(data.get("error"), "What a message failed of"),
            "edited": data.get("edited") is True,
            "activated": activated if type(activated) is int else self._place,
        }
        read = message_from([columns[each] for each in MESSAGE_FIELDS])
        self._take_trace(data)
        self._count_lost(data, read)
        return replace(
            read,
            status=MessageStatus.INTERRUPTED if read.status is MessageStatus.STREAMING else read.status,
            control_offsets=tuple(each for each in read.control_offsets if 0 <= each < len(read.text)),
            files=tuple(self._file(each) for each in items(data.get("files") or [], "Its list of files")),
        )

    def _take_trace(self, data: Json) -> None:
        if (trace := packed_trace(data.get("trace"))) is not None:
            self.traces[self._place] = trace

    def _count_lost(self, data: Json, read: Message) -> None:
        kept = {"statistics": read.statistics, "drafting": read.drafting, "trace": self.traces.get(self._place)}
        self.without.update(_LOST[each] for each, value in kept.items() if data.get(each) is not None and value is None)

    def _file(self, data: Any) -> AttachedFile:
        file = mapping(data, "A file")
        text = words(file.get("text"), "A file's text")
        if len(text) > MOST_CHARACTERS:
            raise DamagedChatError("The text of a file is too long")
        kind = FileKind(file["kind"]) if words(file.get("kind"), "A file's kind") in _KINDS else FileKind.TEXT
        said = (words(file.get(each), "What is said of a file")[:1000] for each in ("name", "taken", "note"))
        called, taken, note = said
        read = attached(ReadFile(shown_name(called), kind, (), note), text, taken)
        self.texts[read.digest] = text
        return read


def plain_chat(chat: WholeChat) -> Json:
    """Return a chat as `read` takes it."""
    about = chat.about
    return {
        "title": about.title,
        "created_at": about.created_at,
        "updated_at": about.updated_at,
        "system_prompt": about.system_prompt,
        "sampling": asdict(about.sampling) if about.sampling else None,
        **({"thinking": about.thinking_choice.value} if about.thinking_choice else {}),
        **({"pinned": True} if about.pinned_at is not None else {}),
        **({"archived": True} if about.archived else {}),
        **({"folder": list(chat.folder)} if chat.folder else {}),
        "messages": [_plain_message(message, chat) for message in chat.messages],
    }


def _plain_message(message: Message, chat: WholeChat) -> Json:
    """Return a message's fields; from its model on, those with their default are left out."""
    plain: Json = {
        "parent": message.parent_id,
        "role": message.role,
        "text": message.text,
        "activated": message.activated,
        "status": message.status,
        "created_at": message.created_at,
    }
    for each in fields(Message):
        value = getattr(message, each.name)
        if each.name in _OPTIONAL and value != each.default:
            plain[each.name] = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    if (trace := chat.traces.get(message.id)) and (streams := plain_trace(trace)) is not None:
        plain["trace"] = streams
    if message.files:
        plain["files"] = [_plain_file(file, chat.texts[file.digest]) for file in message.files]
    return plain


def _plain_file(file: AttachedFile, text: str) -> Json:
    plain = {"name": file.name, "kind": file.kind.value, "taken": file.taken, "note": file.note}
    return {field: value for field, value in plain.items() if value} | {"text": text}


def _dumped(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
