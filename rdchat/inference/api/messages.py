"""The messages of a conversation as the chat template sees them: their texts, images and calls of tools.

An `ImageSpan` says where an image of a prompt stands among its tokens. These tokens have ids below -1, made of the hash
of the pixels that the model sees and of each token's place in them. So equal ids mean equal pixels, and another image
of the same size has other ids. A model that does not see gets the text `UNSEEN` in place of each image.

Calls of tools are JSON from outside, so their limits are here too.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise, zip_longest
from pathlib import Path

from rdchat.errors import InvalidSettingError
from rdchat.files import is_nested_deeper

# The most images of a prompt, and of a message.
MAX_IMAGES = 100
MAX_MESSAGE_IMAGES = 20
# Levels of JSON from outside: code that walks along it calls itself for each level.
_MAX_NESTED = 100
ID_LENGTH = 9
"""Mistral's templates refuse ids of calls of any other length."""
MAX_CALLS = 128
"""The most calls of a reply of a remote server, and of an imported one."""
MAX_CALL_NAME = 64
"""The most characters of their names."""
MAX_ARGUMENTS = 2**20
"""The most characters of all arguments of such a reply."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
JSON_LIMITS = f"It may be {_MAX_NESTED} deep, with no half characters (lone surrogates) and no infinite numbers."
"""The limits of JSON from outside, for people."""
UNSEEN = "(an image that this model cannot see)"


@dataclass(frozen=True, slots=True)
class ChatImage:
    """An image of a message.

    Attributes:
        path: The file as it was given; it stays on this machine.
        digest: SHA-256 of the file, in hexadecimal.
        width: Width in pixels, after the turning that the file's EXIF asks for.
        height: Height in pixels, as `width`.
        name: The file's name for people.
    """

    path: Path
    digest: str
    width: int
    height: int
    name: str = ""


class ImageCap(StrEnum):
    """How many tokens an image may take; an image that is small takes fewer.

    Attributes:
        SMALL: About 256.
        MEDIUM: About 1,024.
        FULL: As many as the model takes.
    """

    SMALL = "small"
    MEDIUM = "medium"
    FULL = "full"

    @property
    def tokens(self) -> int | None:
        """The number of tokens; None for the model's own limit."""
        return {ImageCap.SMALL: 256, ImageCap.MEDIUM: 1024}.get(self)


class Role(StrEnum):
    """Who wrote a message.

    Attributes:
        TOOL: A tool; the message is the result of a call.
    """

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool: written by the model, or sent back with a conversation.

    Attributes:
        name: Name of the tool.
        arguments: A JSON object.
        call_id: Id by which the result refers to the call; empty if the model gave none.
        refusal: In a chat, why the call is not run; the model gets it as the result. Empty for a call that can be run.
        mended: Whether the model wrote the call with slips, such as a missing brace.

    Raises:
        InvalidSettingError: If the arguments are not a JSON object.
    """

    name: str
    arguments: str
    call_id: str = ""
    refusal: str = ""
    mended: bool = False

    def __post_init__(self) -> None:
        if not isinstance(parsed_json(self.arguments), dict):
            raise InvalidSettingError(f"The arguments of a call of the tool {self.name} are not a JSON object.")


def parsed_json(text: str) -> object:
    """Return the value of a JSON text; None also for a text that is no JSON, or is not within `JSON_LIMITS`."""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
        # A pair of surrogates is a character.
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return None if is_nested_deeper(value, _MAX_NESTED) else value


def _finite(number: str) -> float:
    # Python reads 1e999 and NaN, which no JSON can have: shown and sent would differ.
    if not math.isfinite(value := float(number)):
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as the model's chat template sees it.

    Attributes:
        role: Who wrote the message.
        content: The text; if it spells a control token, it stays plain text.
        own_control: Offsets in `content` of control tokens that the model itself wrote; these stay tokens.
        answer: Ranges of `content` (start, end) that are the answer, where the model also thought; None where all of it
            is. Chat templates that leave out thoughts get only these.
        tool_calls: Calls at the end of an assistant's message, whose text may then be empty.
        tool_call_id: In a tool's message, the call that it answers; empty if unknown.
        name: In a tool's message, the tool's name; empty if unknown.
        thought: Thought of an assistant's message that is not in `content`, as programs send it beside calls of tools.
        images: They stand before the text, unless they have offsets.
        image_offsets: Where in `content` each image stands; empty if all stand before it.
    """

    role: Role
    content: str
    own_control: tuple[int, ...] = ()
    answer: tuple[tuple[int, int], ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    thought: str = ""
    images: tuple[ChatImage, ...] = ()
    image_offsets: tuple[int, ...] = ()

    def can_be_joined(self, later: "ChatMessage") -> bool:
        """Return whether a later message may be added to this one: both have one role, and no calls or results."""
        alike = self.role is later.role and self.role is not Role.TOOL
        return alike and not self.tool_calls and not later.tool_calls

    def joined(self, later: "ChatMessage") -> "ChatMessage":
        """Return both messages as one, with an empty line between their texts."""
        before = f"{self.content}\n\n" if self.content else ""
        moved = tuple(len(before) + offset for offset in later.own_control)
        offsets = (*self.image_positions, *(len(before) + position for position in later.image_positions))
        return ChatMessage(
            self.role,
            before + later.content,
            self.own_control + moved,
            thought=later.thought or self.thought,
            images=self.images + later.images,
            image_offsets=offsets if any(offsets) else (),
        )

    @property
    def image_positions(self) -> tuple[int, ...]:
        """The offset in `content` of each image."""
        return self.image_offsets or (0,) * len(self.images)

    @property
    def text_ranges(self) -> Iterable[tuple[int, int]]:
        """The ranges of `content` before, between and behind the images."""
        return pairwise((0, *self.image_positions, len(self.content)))

    def with_lines(self, seen: Sequence[ChatImage | str]) -> "ChatMessage":
        """Return the message with a line of text in the place of some images.

        With an image between "a" and "b", and the line "(an image)", the content becomes three lines: "a", "(an image)"
        and "b". Offsets of control tokens and of the images that stay are moved.

        Args:
            seen: For each image what stands in its place: an image or a line.
        """
        content = ""
        line = ""
        own = list[int]()
        images = list[ChatImage]()
        offsets = list[int]()
        for (start, end), each in zip_longest(self.text_ranges, seen):
            if line and start < end:
                content += "\n"
            own += [len(content) + at - start for at in self.own_control if start <= at < end]
            content += self.content[start:end]
            line = each if isinstance(each, str) else ""
            if line:
                content += f"\n{line}" if content else line
            elif isinstance(each, ChatImage):
                images.append(each)
                offsets.append(len(content))
        return replace(
            self, content=content, own_control=tuple(own), images=tuple(images), image_offsets=tuple(offsets)
        )


def images_of(messages: Iterable[ChatMessage]) -> list[ChatImage]:
    """Return all images of a conversation, in order."""
    return [image for message in messages for image in message.images]


def join_neighbours(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return messages with neighbours of one role as one, where they can be joined."""
    turns: list[ChatMessage] = []
    for message in messages:
        if turns and turns[-1].can_be_joined(message):
            turns[-1] = turns[-1].joined(message)
        else:
            turns.append(message)
    return turns


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """The tokens of one image in a prompt, or of one tile of it.

    Attributes:
        start: Index of the first.
        count: Their number.
        shift: Is added to the positions of all tokens behind the image. An image of r x c tokens that takes max(r, c)
            positions has max(r, c) - r * c.
        bidirectional: Whether the rows see each other, so that a cache holds all of them or none.
        columns: Tokens in a row of it.
    """

    start: int
    count: int
    shift: int = 0
    bidirectional: bool = False
    columns: int = 1

    @property
    def end(self) -> int:
        """Index behind the last token."""
        return self.start + self.count


def shift_before(images: Iterable[ImageSpan], index: int) -> int:
    """Return what the images that end at or before an index add to the position of the token there."""
    return sum(image.shift for image in images if image.end <= index)


def without_images(
    messages: Sequence[ChatMessage], is_unseen: Callable[[ChatImage], bool] = lambda _: True
) -> list[ChatMessage]:
    """Return a conversation for a model that does not see all images: a line stands for each that it does not."""
    return [each.with_lines([UNSEEN if is_unseen(image) else image for image in each.images]) for each in messages]


def short_id(text: str) -> str:
    """Return nine letters and digits that depend on a text alone, as Mistral's templates want the ids of calls."""
    return hashlib.blake2b(text.encode()).hexdigest()[:ID_LENGTH]
