"""Reads and writes rdchat's own JSON: complete, with all alternatives, traces and statistics.

Exports write it, imports read it, and the transfer process sends chats in it. A file looks like this:

    {"format": "rdchat chats", "version": 2, "rdchat": "0.2.0", "exported_at": 1764000000.0,
     "preferences": {"system_prompt": "", "sampling": {...}},
     "chats": [
    {"title": ..., "created_at": ..., "updated_at": ..., "system_prompt": null, "sampling": null, "messages": [
        {"parent": null, "role": "user", "text": ..., "activated": 0, "status": "complete", ...}]},
    {"image": "iVBORw0KGgo..."},
    ...
    ]}

The part before the chats is one line, and so is each chat. A file of any size is read a chat at a time (`head_of`),
even if another program changed its line breaks. If the chats are not the last field, or the part before them is long,
the file is read as a whole.

`parent` is the index of an earlier message in the list. The visible path ends with the highest `activated`.
Calls of tools are the `tool_calls` of a reply: `{"name": ..., "arguments": "{...}", "call_id": ...}`, and `refusal`
if rdchat does not run it; `mended` is true where slips in it were mended. A result is a message below it with the role
`tool`, a `tool_call_id` and a `tool_name`; its status is `failed` where the tool reports an error.
The `files` of a message have a `name`, a `kind` and a `text`. One of the kind `image` has the `digest` of its data
instead; the data, in base64, are an entry of their own behind the chat. So the images of a chat may be more than fit
into memory. In files of version 1, which have no such entries, the text of an image is its data.
An entry with `"project": true` is what the chats of its `folder` share: its `system_prompt`, and the files of its only
message. For an older rdchat it is a chat. Where an export has some chats alone, the files may have only names. Each of
the project's `notes` has a `text`, and the `key` of another entry as its `project`, or nothing. Only what is read from
other programs has keys, and notes in an entry without a folder.
`preferences` apply to chats with null; an import ignores them. Unknown fields are passed over, with a count of their
texts, and missing ones have their defaults, so fields may be added without a new version: `version` goes up when an
older rdchat would misread a file.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import IO, Any

from rdchat import __version__
from rdchat.chat.attachments.attached_file import (
    MAX_CHARACTERS,
    MAX_IMAGE_BYTES,
    MAX_MESSAGE_CHARACTERS,
    AttachedFile,
    FileKind,
    ReadFile,
    attached,
    image_data,
    image_file,
    printable_name,
)
from rdchat.chat.attachments.kinds import begins_as_image
from rdchat.chat.conversation import Conversation, Message, MessageStatus, Origin, OwnOptions
from rdchat.chat.reply_trace import packed_trace, plain_trace
from rdchat.chat.storage import JSON_FIELDS, MESSAGE_FIELDS, DamagedChatError, FullChat, message_from, shape_from
from rdchat.chat.transfer.foreign_chats import ForeignChat, Json, date, items, mapping, name, string
from rdchat.files import from_plain, json_or_none
from rdchat.inference.api import MAX_CALLS, Role, SamplingParams, ThinkingChoice

NAME = "rdchat"
NAMED = "file content"
"""What a file with a name alone lacks, in a report."""
FORMAT = "rdchat chats"
VERSION = 2
"""The version of files that may have images; others are written as version 1, which older rdchats read too."""
_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL)
# Seeds of replies are below this number.
_SEEDS = 1 << 64
# The beginning of a file, up to the bracket of the list of chats.
_HEAD = re.compile(r'[^\S]*\{.*?"chats"\s*:\s*\[', re.DOTALL)
# Folders are nested once, so a chat has at most two names of folders.
_NESTED = 2
# The digest of an image that is an entry of its own.
_DIGEST = re.compile("image [0-9a-f]{64}", re.ASCII)
type Image = tuple[AttachedFile, str]
"""An image with its data in base64."""
# Fields of a message that are written only if they differ from their defaults.
_OPTIONAL = set(MESSAGE_FIELDS[MESSAGE_FIELDS.index("model") :]) - {"activated", "origin"}
# Fields with texts that `read` knows; the texts in others are counted as left out.
_OF_MESSAGE = {*MESSAGE_FIELDS, "parent", "trace", "files"}
_OF_CHAT = {
    "title",
    "system_prompt",
    "sampling",
    "answer_shape",
    "own",
    "folder",
    "project",
    "key",
    "notes",
    "messages",
}
# Fields of a message without texts of the chat.
_OPTIONS = set(JSON_FIELDS) - {"tool_calls", "context_cut"}
# Names for people of fields that cannot be read; others are called damaged parts.
_LOST = {"statistics": "reply's statistics", "drafting": "reply's drafting", "trace": "trace"}


def is_ours(data: Any) -> bool:
    """Return whether this is a file of ours, of any version."""
    return isinstance(data, dict) and data.get("format") == FORMAT


def write_chats(
    file: IO[str], chats: Iterable[FullChat], system_prompt: str, sampling: SamplingParams, *, has_images: bool = True
) -> None:
    """Write a complete file of chats.

    Args:
        file: Text, open for writing.
        chats: Each is read when it is needed.
        system_prompt: That of the settings.
        sampling: That of the settings.
        has_images: Whether some chat may have an image.
    """
    preferences = {"system_prompt": system_prompt, "sampling": asdict(sampling)}
    version = VERSION if has_images else 1
    head = {"format": FORMAT, "version": version, "rdchat": __version__, "exported_at": time.time()}
    file.write(_dumped(head | {"preferences": preferences})[:-1] + ', "chats": [')
    for index, chat in enumerate(chats):
        file.write((",\n" if index else "\n") + _dumped(plain_chat(chat)))
        for digest in image_digests(chat):
            file.write(",\n" + _dumped({"image": chat.texts[digest]}))
    file.write("\n]}\n")


def head_of(beginning: str) -> tuple[Json, int] | None:
    """Return the fields before the list of chats, and the offset after the list's bracket, in characters.

    Args:
        beginning: The beginning of a file.

    Returns:
        None if the file is not ours, or its chats do not come last.
    """
    match = _HEAD.match(beginning)
    data: Any = json_or_none(match[0] + "]}") if match else None
    return (data, match.end()) if match and is_ours(data) else None


def image_digests(chat: FullChat) -> list[str]:
    """Return the digests of the images that `plain_chat` has without their data."""
    files = (file for message in chat.messages for file in message.files)
    return list(dict.fromkeys(file.digest for file in files if _is_entry(file)))


def _is_entry(file: AttachedFile) -> bool:
    """Return whether a file is an image whose data are an entry of their own."""
    # An earlier version gave an image the digest of a text, and its data are written as the text of the file.
    return file.kind is FileKind.IMAGE and _DIGEST.fullmatch(file.digest) is not None


def read_entry(data: Any) -> FullChat | Image:
    """Return an entry of the list: a chat, as `read` does, or an image; raises as `read` does."""
    is_image = isinstance(data, dict) and "image" in data and "messages" not in data
    return read_image(data) if is_image else read(data)


def read_image(data: Json) -> Image:
    """Return the image of an entry; raises DamagedChatError."""
    return _image(string(data["image"], "An image"), "image")


def read(data: Any, foreign: ForeignChat | None = None) -> FullChat:
    """Return one chat; a message that is damaged is left out, and those below it move up.

    Args:
        data: The entry of a file.
        foreign: Has counted what another program's reader left out of it.

    Raises:
        DamagedChatError: If it has no list of messages, or all of them are damaged.
    """
    fields = dict(mapping(data, "The chat"))
    chat = foreign or ForeignChat()
    conversation = _conversation(chat, fields)
    names: list[str] = []
    with chat.skip_damaged("folder"):
        names += [string(each, "Its folder") for each in items(fields.get("folder"), "Its folder")]
    notes = tuple(
        (chat.take_text(each, "project"), chat.take_text(each, "text")) for each in chat.listed(fields, "notes")
    )
    traces: dict[int, bytes] = {}
    # For each message of the file, the index of the message that it became, or of what stands for it.
    ids: list[int | None] = []
    for each in items(fields.get("messages"), "Its list of messages"):
        last = len(chat.messages) - 1 if chat.messages else None
        # If reading stops, the last message stands for this one, or the message above it once that is known.
        index = last
        with chat.skip_damaged("message"):
            plain = dict(mapping(each, "A message"))
            index = _above(chat, plain, ids, last)
            message = _message(chat, plain, len(chat.messages), index)
            chat.messages.append(message)
            index = message.id
            if (trace := packed_trace(plain.get("trace"))) is not None:
                traces[message.id] = trace
            chat.without.update(_lost(plain, message, trace))
            chat.count_rest({field: value for field, value in plain.items() if field not in _OF_MESSAGE})
        ids.append(index)
    chat.count_rest({field: value for field, value in fields.items() if field not in _OF_CHAT})
    if chat.damage and not chat.messages:
        raise chat.damage
    has_text = len(chat.messages) > 1 or any(each.text.strip() for each in chat.messages)
    is_project = fields.get("project") is True and (bool(names) or not chat.messages) and not has_text
    if not is_project:
        chat.without["note"] += len(notes)
    folder = tuple(names[:_NESTED])
    key = chat.take_text(fields, "key")
    shared = folder, is_project, key, notes
    return FullChat(conversation, chat.take_messages(), traces, chat.texts, *shared, chat.without)


def _conversation(chat: ForeignChat, fields: Json) -> Conversation:
    """Return a chat's title, dates and options."""
    prompt, thinking = (fields.get(each) for each in ("system_prompt", "thinking"))
    sampling = chat.option(fields, "sampling")
    fields["own"] = chat.option(fields, "own")
    return Conversation(
        0,
        chat.take_text(fields, "title"),
        date(fields.get("created_at")),
        date(fields.get("updated_at")),
        None if prompt is None else chat.take_text(fields, "system_prompt"),
        from_plain(SamplingParams(), sampling)[0] if isinstance(sampling, dict) else None,
        pinned_at=0.0 if fields.get("pinned") is True else None,
        archived=fields.get("archived") is True,
        answer_shape=shape_from(chat.option(fields, "answer_shape", MAX_MESSAGE_CHARACTERS)),
        thinking_choice=ThinkingChoice(thinking) if isinstance(thinking, str) and thinking in ThinkingChoice else None,
        own=from_plain(OwnOptions(), chat.inner(fields, "own"))[0].portable,
    )


def _above(chat: ForeignChat, data: Json, ids: list[int | None], last: int | None) -> int | None:
    """Return the index of the message above one: that of its parent, or of the last message if that is damaged."""
    parent = data.get("parent", "")
    if type(parent) is int and 0 <= parent < len(ids):
        return ids[parent]
    may_be_first = last is None or data.get("role") == Role.USER
    if parent is None and may_be_first:
        return None
    chat.without["damaged part"] += 1
    return last


def _lost(plain: Json, message: Message, trace: bytes | None) -> Iterator[str]:
    """Yield the names of fields that cannot be read."""
    read: Json = {each: getattr(message, each) for each in JSON_FIELDS} | {"trace": trace}
    for field, value in read.items():
        if plain.get(field) and not value:
            yield _LOST.get(field, "damaged part")


def _message(chat: ForeignChat, data: Json, index: int, parent: int | None) -> Message:
    """Return the message at an index; the texts of its files are added to the chat's."""
    seed, activated = (data.get(each) for each in ("seed", "activated"))
    if string(data.get("role"), "A message's role") not in _ROLES:
        raise DamagedChatError("A message has an unknown role")
    if isinstance(calls := data.get("tool_calls"), list):
        chat.without["tool call"] += len(calls[MAX_CALLS:])
        data["tool_calls"] = calls[:MAX_CALLS]
    for field in _OPTIONS:
        data[field] = chat.option(data, field)
    # `message_from` reads a row of the database, where these fields are texts of JSON.
    columns = {each: data.get(each) for each in MESSAGE_FIELDS}
    dumped = {field: json.dumps(data[field]) for field in JSON_FIELDS if data.get(field) is not None}
    columns |= {field: text if len(text) <= MAX_MESSAGE_CHARACTERS else None for field, text in dumped.items()}
    columns |= {
        "id": index,
        "conversation_id": 0,
        "parent_id": parent,
        "text": chat.take_text(data, "text"),
        "created_at": date(data.get("created_at")),
        "model": name(data.get("model")),
        "seed": seed if type(seed) is int and 0 <= seed < _SEEDS else None,
        "error": chat.take_text(data, "error"),
        "edited": data.get("edited") is True,
        "tool_call_id": chat.take_text(data, "tool_call_id"),
        "tool_name": name(data.get("tool_name")) or "",
        "origin": Origin.IMPORT,
        "activated": activated if type(activated) is int else index,
    }
    read = message_from([columns[each] for each in MESSAGE_FIELDS])
    files: list[AttachedFile] = []
    for each in chat.listed(data, "files"):
        if not each.keys() & {"text", "digest"}:
            chat.without[NAMED] += 1
            continue
        with chat.skip_damaged("file"):
            files.append(_file(each, chat.texts))
    cut = read.context_cut
    if cut:
        # A digest alone could be that of a file of one's own.
        there = tuple(file for file in cut.files if chat.texts.get(file.digest))
        chat.without[NAMED] += len(cut.files) - len(there)
        cut = replace(cut, files=there)
    return replace(
        read,
        context_cut=cut,
        status=MessageStatus.INTERRUPTED if read.status is MessageStatus.STREAMING else read.status,
        control_offsets=tuple(each for each in read.control_offsets if 0 <= each < len(read.text)),
        files=tuple(files),
    )


def _file(file: Json, texts: dict[str, str]) -> AttachedFile:
    """Return a file of a message, and put its text into `texts`: an empty one if it is an entry that follows."""
    text = string(file.get("text", ""), "A file's text")
    kind = FileKind(file["kind"]) if string(file.get("kind"), "A file's kind") in FileKind else FileKind.TEXT
    if len(text) > (MAX_IMAGE_BYTES * 4 // 3 + 4 if kind is FileKind.IMAGE else MAX_CHARACTERS):
        raise DamagedChatError("The text of a file is too long")
    called, taken, note = (
        string(file.get(each), "The description of a file")[:1000] for each in ("name", "taken", "note")
    )
    digest = file.get("digest")
    if kind is FileKind.IMAGE and isinstance(digest, str) and _DIGEST.fullmatch(digest):
        count = file.get("characters")
        read = AttachedFile(printable_name(called), kind, digest, count if type(count) is int else 0, "", note)
        # Another message of the chat may have the same image, with its data.
        text = texts.get(digest, "")
    elif kind is FileKind.IMAGE:
        read, text = _image(text, called or "image", note)
    else:
        read = attached(ReadFile(printable_name(called), kind, (), note), text, taken)
    texts[read.digest] = text
    return read


def _image(text: str, name: str, note: str = "") -> Image:
    try:
        data = image_data(text)
    except ValueError as error:
        raise DamagedChatError("The data of an image is damaged") from error
    if not begins_as_image(data):
        raise DamagedChatError("The data of an image is that of no image")
    return image_file(data, name, note)


def plain_chat(chat: FullChat) -> Json:
    """Return a chat in the form that `read` accepts."""
    conversation = chat.conversation
    own = conversation.own.portable
    optional: Json = {
        "thinking": conversation.thinking_choice,
        "answer_shape": conversation.answer_shape and asdict(conversation.answer_shape),
        "own": None if own == OwnOptions() else asdict(own),
        "pinned": conversation.pinned_at is not None,
        "archived": conversation.archived,
        "folder": list(chat.folder),
        "project": chat.is_project,
        "key": chat.key,
        "notes": [{"project": key, "text": text} for key, text in chat.notes],
    }
    return {
        "title": conversation.title,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "system_prompt": conversation.system_prompt,
        "sampling": asdict(conversation.sampling) if conversation.sampling else None,
        **{field: value for field, value in optional.items() if value},
        "messages": [_plain_message(message, chat) for message in chat.messages],
    }


def _plain_message(message: Message, chat: FullChat) -> Json:
    """Return a message's fields; from its model on, default values are left out."""
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
            plain[each.name] = json.loads(json.dumps(value, default=asdict))
    if (trace := chat.traces.get(message.id)) and (streams := plain_trace(trace)) is not None:
        plain["trace"] = streams
    if message.files:
        plain["files"] = [_plain_file(file, chat.texts) for file in message.files]
    return plain


def _plain_file(file: AttachedFile, texts: Mapping[str, str]) -> Json:
    plain = {"name": file.name, "kind": file.kind.value, "taken": file.taken, "note": file.note}
    content: Json = {"digest": file.digest, "characters": file.characters}
    if not _is_entry(file):
        content = {"text": texts[file.digest]} if file.digest else {}
    return {field: value for field, value in plain.items() if value} | content


def _dumped(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
