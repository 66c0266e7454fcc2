"""What the readers of other programs' chats share: `ForeignChat` collects a chat; functions convert JSON values.

A reader removes from the parsed JSON what it takes. What is damaged is left out and counted, and so is each text that
is still there at the end (`count_rest`), so that no field is dropped unseen. The counts are in `ForeignChat.without`,
under names for people, such as `image` or `tool call`. All of this runs in the transfer process.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from rdchat.chat.attachments.attached_file import (
    MAX_FILES,
    MAX_IMAGE_BYTES,
    MAX_MESSAGE_CHARACTERS,
    AttachedFile,
    image_data,
    image_file,
    too_large,
)
from rdchat.chat.attachments.kinds import begins_as_image
from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.storage import END_OF_DATES, LONGEST_VALUE, DamagedChatError, FullChat, text_column
from rdchat.chat.titles import tidy_title
from rdchat.files import from_plain
from rdchat.inference.api import MAX_ARGUMENTS, MAX_CALL_NAME, MAX_CALLS, Role, SamplingParams, ToolCall

# A character takes up to four bytes in UTF-8.
_LONGEST_TEXT = LONGEST_VALUE // 4
# As seconds, this would be the year 5138.
_MILLISECONDS_FROM = 1e11

# A message's content may be a list of parts, each with a kind. These kinds are left out, and counted under these names.
_PARTS = {
    "image": "image", "image_url": "image", "image_file": "image", "image_asset_pointer": "image",
    "audio_asset_pointer": "recording", "real_time_user_audio_video_asset_pointer": "recording",
    "video_container_asset_pointer": "video", "file": "file",
    "tool_call": "tool call", "tool_use": "tool call", "toolCallRequest": "tool call", "toolStatus": "tool call",
    "function_call": "tool call",
    "open_webui:code_interpreter": "tool call",
    "tool_result": "tool result", "toolCallResult": "tool result", "function_call_output": "tool result",
    "SEARCH": "tool result", "READ_LINK": "tool result",
}  # fmt: skip
# The kinds of parts that are thoughts, and the fields where parts have their text.
_THOUGHTS = ("reasoning", "thinking", "think")
_TEXTS = ("text", "thinking", "think", "error")
# Our names of sampling values, by those of several programs.
_SAMPLING = {each.name: each.name for each in fields(SamplingParams)} | {
    "topP": "top_p", "topK": "top_k", "repeat_penalty": "repetition_penalty", "maxOutputTokens": "max_tokens",
    "num_predict": "max_tokens",
    "llm.prediction.temperature": "temperature", "llm.prediction.topPSampling": "top_p",
    "llm.prediction.topKSampling": "top_k", "llm.prediction.minPSampling": "min_p",
    "llm.prediction.repeatPenalty": "repetition_penalty", "llm.prediction.maxPredictedTokens": "max_tokens",
    "llm.prediction.stopStrings": "stop",
}  # fmt: skip
# Fields whose names end like this have no words.
_NOT_WORDS = ("type", "id", "_at", "timestamp")
# With more kinds of parts left out, further texts are counted as `other text`.
_MAX_KINDS = 100
# The longest option of a chat or a message, as JSON: much longer than any that is made here.
_LONGEST_OPTION = 100_000
# The longest error: the window shows no more of it.
_LONGEST_ERROR = 2000

TOO_LARGE = "too large image"
# Limit of all images of a chat, since a chat is one message between processes.
_MAX_IMAGES_BYTES = 100_000_000
type Json = dict[str, Any]
"""A parsed JSON object."""
type FindImage = Callable[[str], bytes | None]
"""Returns the data of an image by a message's name for it; None without one."""
# The fields where ChatGPT and LM Studio name an image.
_POINTERS = ("asset_pointer", "fileIdentifier")
# The fields by which ChatGPT and Open WebUI say that a chat is archived.
_ARCHIVED = ("is_archived", "archived")
ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
"""Roles by the names that most programs have for them."""


def no_image(_name: str) -> None:
    """Find no image in an export that is a single file."""


def mapping(value: Any, what: str) -> Json:
    """Return a JSON object; an empty one for null."""
    return _of_type(dict, value, what)


def items(value: Any, what: str) -> list[Any]:
    """Return a JSON array; an empty one for null."""
    return _of_type(list, value, what)


def _of_type[T](kind: type[T], value: Any, what: str) -> T:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise DamagedChatError(f"{what} has the wrong type")
    return value


def string(value: Any, what: str) -> str:
    """Return a text that can be stored; empty for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DamagedChatError(f"{what} is not a text")
    _check_length(len(value), what)
    return text_column(value.replace("\0", ""))


def joined(texts: Iterable[str], between: str = "\n\n") -> str:
    """Return the parts of a message as one text that can be stored, without those that are blank."""
    parts = [text for text in texts if text.strip()]
    _check_length(sum(len(part) + len(between) for part in parts), "A message")
    return between.join(parts)


def name(value: Any) -> str | None:
    """Return a name such as a model's, with a mark where it is cut; None without a name that can be shown."""
    if not isinstance(value, str):
        return None
    return text_column(tidy_title(value)) or None


def date(value: Any) -> float | None:
    """Return seconds since the epoch for seconds, milliseconds or an ISO date; None for anything else."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Dividing a huge integer would overflow.
    if not 0 < value < END_OF_DATES * 1000:
        return None
    return value / 1000 if value > _MILLISECONDS_FROM else float(value)


def take_sampling(data: Json) -> Json:
    """Take settings out of an object, by the names of several programs; return them under ours.

    All of our names are in the result, with None for those that it does not have. If it has a setting under two names,
    the first one in `_SAMPLING` counts.
    """
    sampling: Json = {}
    for theirs, ours in _SAMPLING.items():
        value = data.pop(theirs, None)
        if sampling.get(ours) is None:
            sampling[ours] = value
    return sampling


def texts_in(value: Any) -> Iterator[tuple[str, str]]:
    """Yield all texts below a value, each with the name of the nearest field around it."""
    waiting = [("", value)]
    while waiting:
        field, each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.items()
        elif isinstance(each, list):
            waiting += [(field, inner) for inner in each]
        elif isinstance(each, str) and each.strip():
            yield field, each


def _check_length(characters: int, what: str) -> None:
    if characters > _LONGEST_TEXT:
        raise DamagedChatError(f"{what} is longer than {_LONGEST_TEXT >> 20} million characters")


def thinking(text: str) -> str:
    """Return a text as a thought, which the transcript folds."""
    return f"<think>\n{text.strip()}\n</think>" if text.strip() else ""


def attached_text(label: Any, text: str) -> str:
    """Return the text of an attachment, below its name."""
    return f"[{name(label) or 'attachment'}]\n\n{text}".rstrip()


def document(label: Any, text: str, language: str) -> str:
    """Return a document that a model wrote beside the chat, below its name; as code if it has a language."""
    return f"**{name(label) or 'Document'}**\n\n" + (f"````{language}\n{text}\n````" if language else text)


def with_copy(text: str, copy: str) -> str:
    """Return a text that a program has twice; joined with the copy if that has other words."""
    is_copy = "".join(copy.split()) in "".join(text.split())
    return text if is_copy else joined((text, copy))


@dataclass(slots=True)
class ForeignChat:
    """A chat of another program while it is read.

    Attributes:
        messages: The messages so far; the id of each is its index.
        system_prompt: The chat's own; empty without one.
        without: Parts that are left out.
        damage: The first error that `skip_damaged` caught.
        find: Finds images of the export.
        files: Images that were read and belong to the message that is added next.
        texts: The texts of all images, by digest.
    """

    messages: list[Message] = field(default_factory=list)
    system_prompt: str = ""
    without: Counter[str] = field(default_factory=Counter)
    damage: DamagedChatError | None = None
    find: FindImage = no_image
    files: list[AttachedFile] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    _images_bytes: int = 0

    @contextmanager
    def skip_damaged(self, part: str) -> Iterator[None]:
        """Leave out a part of the chat if reading it raises DamagedChatError."""
        try:
            yield
        except DamagedChatError as error:
            self.damage = self.damage or error
            self.without[f"damaged {part}"] += 1

    def take_text(self, data: Json, key: str) -> str:
        """Take a text, or one in parts, out of an object; empty if it is missing or damaged."""
        return self.text_of(data.pop(key, None))

    def option(self, data: Json, key: str, longest: int = _LONGEST_OPTION) -> Any:
        """Return an option in an object; None for one that is too long, which is counted."""
        value = data.get(key)
        if len(json.dumps(value)) <= longest:
            return value
        self.without["too long option"] += 1
        return None

    def inner(self, data: Json, key: str) -> Json:
        """Return an object in another one; an empty one if it is missing or damaged.

        It stays in the other one, so what its reader does not take out of it is counted.
        """
        return next(iter(self.listed({key: [data.get(key)]}, key)), {})

    def listed(self, data: Json, key: str) -> list[Json]:
        """Return the objects of a list in an object, without those that are damaged."""
        results: list[Json] = []
        with self.skip_damaged("part"):
            for each in items(data.get(key), f"The field {key}"):
                with self.skip_damaged("part"):
                    results.append(mapping(each, f"A part of {key}"))
        return results

    def leave_out(self, data: Json, names: Mapping[str, str]) -> None:
        """Remove fields and count their contents.

        Args:
            data: The object.
            names: The name for the report by field; what has an empty name is not reported.
        """
        for key, called in names.items():
            value = data.pop(key, None)
            self.without[called] += len(value) if isinstance(value, list) else bool(value)

    def count_rest(self, data: Any) -> None:
        """Count the texts that no reader took, each by its field, such as `“notes” text`."""
        for key, text in texts_in(data):
            # Ids, kinds and addresses are one word of ASCII.
            if len(text.split(maxsplit=1)) > 1 or not text.isascii():
                is_few = len(self.without) < _MAX_KINDS
                self.without[f"“{(name(key) or '')[:40]}” text" if is_few else "other text"] += 1

    def add_system(self, text: str, *, is_first: bool) -> None:
        """Take a system message before the first question as the chat's system prompt; count any other."""
        if is_first and not self.system_prompt.strip():
            self.system_prompt = text
        elif text.strip() and text != self.system_prompt:
            self.without["system message"] += 1

    def add_message(self, role: Role, text: str, parent: int | None, **fields: Any) -> int:
        """Add a message below the one at index `parent`, with the images that were read; return its own index.

        Only a reply has a model.
        """
        index = len(self.messages)
        if role is not Role.ASSISTANT:
            fields["model"] = None
        files = self.take_files()
        self.messages.append(Message(index, 0, parent, role, text, files=files, **{"activated": index} | fields))
        return index

    def take_messages(self) -> tuple[Message, ...]:
        """Return the messages, without what is beyond the limits of messages made here; that is counted."""
        return tuple(map(self._limited, self.messages))

    def _limited(self, message: Message) -> Message:
        files = message.files[:MAX_FILES]
        while too_large(files):
            files = files[:-1]
        calls = list[ToolCall]()
        length = 0
        for call in message.tool_calls[:MAX_CALLS]:
            if len(call.name) <= MAX_CALL_NAME and length + len(call.arguments) <= MAX_ARGUMENTS:
                calls.append(call)
                length += len(call.arguments)
        self.without["file"] += len(message.files) - len(files)
        self.without["tool call"] += len(message.tool_calls) - len(calls)
        if len(message.text) > MAX_MESSAGE_CHARACTERS:
            self.without["too long text"] += 1
            message = replace(message, text="", control_offsets=())
        self.without["shortened error"] += len(message.error) > _LONGEST_ERROR
        return replace(message, files=files, tool_calls=tuple(calls), error=message.error[:_LONGEST_ERROR])

    def take_files(self) -> tuple[AttachedFile, ...]:
        """Return the images that were read since the last message."""
        files = tuple(self.files)
        self.files.clear()
        return files

    def _take_image(self, part: Json) -> str:
        """Read the image of a part; return what is left out, which is nothing if it was read."""
        address = part.get("image_url") or part.get("url")
        address = address.get("url") if isinstance(address, dict) else address
        pointers = [part.pop(each, None) for each in _POINTERS]
        pointer = next((each for each in pointers if isinstance(each, str)), "")
        data = _data_of(address) or self.find(pointer)
        if not data or not begins_as_image(data):
            return "image"
        if len(data) > MAX_IMAGE_BYTES or self._images_bytes + len(data) > _MAX_IMAGES_BYTES:
            return TOO_LARGE
        file, text = image_file(data, name(part.pop("name", None)) or f"image {len(self.files) + 1}")
        self.files.append(file)
        if file.digest not in self.texts:
            self._images_bytes += len(data)
        self.texts[file.digest] = text
        return ""

    def text_of(self, content: Any, between: str = "\n\n") -> str:
        """Return a message's text, or the joined texts of its parts; other parts are counted in `without`."""
        if isinstance(content, str):
            return string(content, "A message")
        texts = []
        with self.skip_damaged("part"):
            for each in items(content, "A message's content"):
                with self.skip_damaged("part"):
                    texts.append(self._text_of_part(each))
        return joined(texts, between)

    def _text_of_part(self, data: Any) -> str:
        """Return the text of a part; empty for an image, which is taken, and for other kinds, which are counted.

        A document of Claude's is taken out of the call that writes it. A field with a text counts first, whatever the
        kind. Then the kind decides, or `fileType` where a part has it. A part of an unknown kind counts only if it has
        words.
        """
        if isinstance(data, str):
            return string(data, "A message")
        part = mapping(data, "A part of a message")
        match part:
            case {"name": "artifacts", "input": {"content": str()} as call}:
                # Such as `text/markdown`, and `application/vnd.ant.code`, which has a `language`.
                kind = re.split(r"[/.]", name(call.get("type")) or "")[-1].replace("markdown", "")
                language = name(call.pop("language", None)) or kind
                part["text"] = document(call.pop("title", None), self.take_text(call, "content"), language)
        kind = next((part.pop(each) for each in ("type", "type_", "content_type") if each in part), None)
        for key in _TEXTS:
            text = part.get(key)
            # Jan and LibreChat have texts as `{"value": ...}`. ChatGPT stores spoken text in parts of other kinds.
            text = text.get("value") if isinstance(text, dict) else text
            if isinstance(text, str):
                del part[key]
                self.count_rest(part)
                text = string(text, "A message")
                return thinking(text) if kind in _THOUGHTS else text
        if not isinstance(kind, str):
            raise DamagedChatError("A part of a message has the wrong type")
        file_kind = part.get("fileType")
        called = _PARTS.get(file_kind if isinstance(file_kind, str) else kind)
        if called is None and any(not key.lower().endswith(_NOT_WORDS) for key, _ in texts_in(part)):
            called = "attachment" if "fileType" in part else "other part"
        left_out = self._take_image(part) if called == "image" else called
        if left_out:
            self.without[left_out] += 1
            part.clear()
        self.count_rest(part)
        return ""

    def finished_chat(self, fields: Json, names: tuple[str, str, str], sampling: Json) -> FullChat:
        """Return the chat.

        Args:
            fields: The chat's fields, without those that were read.
            names: The fields with its title, and when it was begun and last changed.
            sampling: Settings under our names.

        Raises:
            DamagedChatError: If all of its messages are damaged.
        """
        if self.damage and not self.messages:
            raise self.damage
        title, created, updated = (fields.pop(each, None) for each in names)
        self.count_rest(fields)
        prompt = self.system_prompt if self.system_prompt.strip() else None
        times = date(created), date(updated)
        archived = any(fields.get(each) is True for each in _ARCHIVED)
        conversation = Conversation(0, name(title) or "", *times, prompt, self._sampling(sampling), archived=archived)
        return FullChat(conversation, self.take_messages(), texts=self.texts, without=self.without)

    def _sampling(self, values: Json) -> SamplingParams | None:
        """Return the sampling parameters that rdchat can use; None without any."""
        options = {each: self.option(values, each) for each in values}
        known = {each: value for each, value in options.items() if value not in (None, "", [])}
        read, wrong = from_plain(SamplingParams(), known)
        self.without["setting"] += len(wrong)
        return read if len(wrong) < len(known) else None


def _data_of(address: Any) -> bytes | None:
    """Return the data of an address that has it, `data:image/png;base64,...`; None for another one."""
    if isinstance(address, str) and address.startswith("data:"):
        with suppress(ValueError):
            return image_data(address.partition(";base64,")[2])
    return None


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The export of one program.

    Attributes:
        name: The program.
        is_ours: Returns whether an object is one of its chats.
        convert: Adds the messages of a chat's object, and returns the whole of it.
    """

    name: str
    is_ours: Callable[[Json], bool]
    convert: Callable[[ForeignChat, Json], FullChat]

    def read(self, data: Any, find: FindImage = no_image) -> FullChat:
        """Return one chat; `find` finds its images.

        Raises:
            DamagedChatError: If it has no list of messages, or all of them are damaged.
        """
        return self.convert(ForeignChat(find=find), mapping(data, "The chat"))


def role_of(value: Any, roles: Mapping[str, Role | None]) -> Role | None:
    """Return a message's role; raise DamagedChatError for an unknown one."""
    if string(value, "A message's role") not in roles:
        raise DamagedChatError("A message has an unknown role")
    return roles[value]
