"""Converts JSON of other programs to chats; a part or message with a value of the wrong type is left out."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from rdchat.chat.attachments.attached_file import MAX_IMAGE_BYTES, AttachedFile, image_data, image_file
from rdchat.chat.attachments.kinds import begins_as_image
from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.storage.file_check import LONGEST_VALUE
from rdchat.chat.storage.rows import END_OF_DATES, text_column
from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat
from rdchat.files.plain_data import from_plain
from rdchat.inference.api.messages import Role
from rdchat.inference.api.requests import SamplingParams

# A character takes up to four bytes in UTF-8.
_LONGEST_TEXT = LONGEST_VALUE // 4
# As seconds, this would be the year 5138.
_MILLISECONDS_FROM = 1e11

# Names for people of parts that are not taken, by their kind.
_PARTS = {
    "image": "image", "image_url": "image", "image_asset_pointer": "image",
    "audio_asset_pointer": "recording", "real_time_user_audio_video_asset_pointer": "recording",
    "video_container_asset_pointer": "video", "file": "file",
    "tool_call": "tool call", "tool_use": "tool call", "toolCallRequest": "tool call",
    "tool_result": "tool result", "toolCallResult": "tool result",
}  # fmt: skip

_TOO_LARGE = "too large image"
# Of a chat, which is one message between processes.
_MAX_IMAGES_BYTES = 100_000_000
type Json = dict[str, Any]
# Where ChatGPT and LM Studio name an image.
_POINTERS = ("asset_pointer", "fileIdentifier")


def mapping(value: Any, what: str) -> Json:
    """Return a JSON object; an empty one for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DamagedChatError(f"{what} has the wrong type")
    return value


def items(value: Any, what: str) -> list[Any]:
    """Return a JSON array; an empty one for null."""
    if value is None:
        return []
    if not isinstance(value, list):
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
    """Return the parts of a message as one text that can be stored."""
    parts = list(texts)
    _check_length(sum(len(part) + len(between) for part in parts), "A message")
    return between.join(parts)


def name(value: Any) -> str | None:
    """Return a name such as a model's; None if there is none that can be shown."""
    return text_column(" ".join(value.split())[:200]) or None if isinstance(value, str) else None


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
    seconds = value / 1000 if value > _MILLISECONDS_FROM else float(value)
    return seconds if seconds < END_OF_DATES else None


def _sampling(values: Json) -> SamplingParams | None:
    """Return the sampling parameters that rdchat can use; None without any."""
    known = {field: value for field, value in values.items() if value is not None}
    if not known:
        return None
    read, wrong = from_plain(SamplingParams(), known)
    return read if len(wrong) < len(known) else None


def _check_length(characters: int, what: str) -> None:
    if characters > _LONGEST_TEXT:
        raise DamagedChatError(f"{what} is longer than {_LONGEST_TEXT >> 20} million characters")


def thinking(text: str) -> str:
    """Return a text as a thought, which the transcript folds."""
    return f"<think>\n{text.strip()}\n</think>\n\n" if text.strip() else ""


@dataclass(slots=True)
class ForeignChat:
    """A chat of another program while it is read.

    Attributes:
        without: Parts that are left out.
        damage: The first error that `skip_damaged` caught.
        find: Returns the data of an image of the export, by the name that a message has for it; None without one. If it
            is None itself, all images are left out.
        files: Images that were read, of the message that is added next.
        texts: The texts of all images, by digest.
    """

    messages: list[Message] = field(default_factory=list)
    system_prompt: str = ""
    without: Counter[str] = field(default_factory=Counter)
    damage: DamagedChatError | None = None
    find: Callable[[str], bytes | None] | None = None
    files: list[AttachedFile] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def skip_damaged(self, part: str) -> Iterator[None]:
        """Leave out a part of the chat if reading it raises DamagedChatError."""
        try:
            yield
        except DamagedChatError as error:
            self.damage = self.damage or error
            self.without[f"damaged {part}"] += 1

    def add_system(self, text: str, *, is_first: bool) -> None:
        """Take a system message before the first question as the chat's system prompt; count any other."""
        if is_first and not self.system_prompt.strip():
            self.system_prompt = text
        elif text.strip() and text != self.system_prompt:
            self.without["system message"] += 1

    def add(self, role: Role, text: str, parent: int | None, **fields: Any) -> int:
        """Add a message below the one at index `parent`, with the images that were read; return its own index."""
        index = len(self.messages)
        self.messages.append(Message(index, 0, parent, role, text, **{"activated": index} | fields))
        self.take_files(index)
        return index

    @property
    def found_images(self) -> int:
        """The number of images of the next message that the export has."""
        return len(self.files) + self.without[_TOO_LARGE]

    def take_files(self, index: int) -> None:
        """Give the images that were read to a message."""
        message = self.messages[index]
        self.messages[index] = replace(message, files=(*message.files, *self.files))
        self.files.clear()

    def _take_image(self, part: Json) -> str:
        """Read the image of a part; return what is left out, which is nothing if it was read."""
        address = part.get("image_url")
        address = address.get("url") if isinstance(address, dict) else address
        pointer = next((each for name in _POINTERS if isinstance(each := part.get(name), str)), "")
        data = None if self.find is None else _data_of(address) or (self.find(pointer) if pointer else None)
        if not data or not begins_as_image(data):
            return "image"
        if len(data) > MAX_IMAGE_BYTES or len(data) + sum(map(len, self.texts.values())) * 3 // 4 > _MAX_IMAGES_BYTES:
            return _TOO_LARGE
        file, text = image_file(data, name(part.get("name")) or f"image {len(self.files) + 1}")
        self.files.append(file)
        self.texts[file.digest] = text
        return ""

    def activate(self, index: int) -> None:
        """Show the path to a message."""
        self.messages[index] = replace(self.messages[index], activated=len(self.messages))

    def text_of(self, content: Any, between: str = "\n\n") -> str:
        """Return a message's text, or the joined texts of its parts; other parts are counted in `without`."""
        if isinstance(content, str):
            return string(content, "A message")
        texts = []
        for each in items(content, "A message's content"):
            with self.skip_damaged("part"):
                texts.append(self._part(each))
        return joined((text for text in texts if text.strip()), between)

    def _part(self, data: Any) -> str:
        if isinstance(data, str):
            return string(data, "A message")
        part = mapping(data, "A part of a message")
        kind = next((part[each] for each in ("type", "type_", "content_type") if each in part), None)
        text = part.get("text")
        # ChatGPT stores spoken text in parts of other kinds.
        if kind in ("text", "reasoning") or isinstance(text, str):
            text = string(text if isinstance(text, str) else mapping(text, "A message").get("value"), "A message")
        if not isinstance(kind, str):
            raise DamagedChatError("A part of a message has the wrong type")
        if isinstance(text, str):
            return thinking(text).rstrip("\n") if kind == "reasoning" else text
        file_kind = part.get("fileType")
        called = _PARTS.get(file_kind if isinstance(file_kind, str) else kind, "attachment")
        if left_out := self._take_image(part) if called == "image" else called:
            self.without[left_out] += 1
        return ""

    def finish(self, title: Any, created: float | None, updated: float | None, sampling: Json) -> FullChat:
        """Return the chat; `sampling` has settings under our names.

        Raises:
            DamagedChatError: If all of its messages are damaged.
        """
        if self.damage and not self.messages:
            raise self.damage
        prompt = self.system_prompt if self.system_prompt.strip() else None
        conversation = Conversation(0, name(title) or "", created, updated, prompt, _sampling(sampling))
        return FullChat(conversation, tuple(self.messages), texts=self.texts, without=self.without)


def _data_of(address: Any) -> bytes | None:
    """Return the data of an address that has it, `data:image/png;base64,...`; None for another one."""
    if not isinstance(address, str) or not address.startswith("data:"):
        return None
    try:
        return image_data(address.partition(";base64,")[2])
    except ValueError:
        return None


def role_of(value: Any, roles: Mapping[str, Role | None]) -> Role | None:
    """Return a message's role; raise DamagedChatError for an unknown one."""
    if string(value, "A message's role") not in roles:
        raise DamagedChatError("A message has an unknown role")
    return roles[value]
