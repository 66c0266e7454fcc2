"""The data of chats: conversations, folders and messages, and paths of messages, each read when first needed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import overload

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.errors import StorageError
from rdchat.inference.api.answer_shape import AnswerShape
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode, SamplingParams, ThinkingChoice
from rdchat.thoughts import Thoughts, split_thoughts


class MessageStatus(StrEnum):
    """The state of a message. `interrupted`: the app ended while the message was being written."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat, as a row of the sidebar."""

    id: int  # primary key
    title: str  # made from the first message until the person renames it
    # `created_at`, `updated_at`: Seconds since the epoch; None if the stored value is not a date.
    created_at: float | None
    updated_at: float | None
    system_prompt: str | None = None  # None for that of the preferences; an empty string for none
    sampling: SamplingParams | None = None  # None for that of the preferences
    folder_id: int | None = None  # None outside of folders
    pinned_at: float | None = None  # None if it is not pinned
    archived: bool = False  # whether it is in the archive instead of the list
    deleted_at: float | None = None  # when it was moved to the bin; None elsewhere
    # Whether or how much the model thinks, if it has a switch; None leaves it to the model.
    thinking_choice: ThinkingChoice | None = None
    answer_shape: AnswerShape | None = None  # the shape that its answers must have; None for any text

    @property
    def has_own_options(self) -> bool:
        """Whether an option differs from the preferences."""
        options = (self.system_prompt, self.sampling, self.thinking_choice, self.answer_shape)
        return any(each is not None for each in options)


NEW_CHAT = Conversation(0, "", None, None)
"""A chat that is not stored yet."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of chats."""

    id: int  # primary key
    name: str  # shown in the sidebar
    # The folder around it; None at the top. A folder in a folder cannot contain another one.
    parent_id: int | None = None
    expanded: bool = True  # whether its content is shown
    deleted_at: float | None = None  # when it was moved to the bin; None elsewhere


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a reply was drafted."""

    mode: Mode = Mode.OFF  # the drafting mode that ran
    reason: str = ""  # a sentence that says why the mode is not the one asked for; else empty
    drafter: str = ""  # path or name of the drafter; empty without one
    # Whether the reply was continued. Then this, and the statistics, describe its last part only.
    last_part: bool = False
    kind: HeadKind | None = None  # of the head that drafted, or could draft in mode `auto`; None without one


@dataclass(frozen=True, slots=True)
class Thinking:
    """Facts about a reply's thoughts."""

    begun: bool = False  # whether the chat template began a thought, so that the reply begins inside one
    ms: float = 0.0  # how long the model thought; 0 where it was not measured


NO_THINKING = Thinking()


@dataclass(frozen=True, slots=True)
class ContextCut:
    """Hides a message and those before it from the model. The last cut of a path counts."""

    summary: str = ""  # what the model gets instead; empty for nothing
    model: str = ""  # the model that wrote the summary


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The options of a reply besides its model and seed."""

    sampling: SamplingParams | None = None  # how its tokens were chosen; None where unknown
    system_prompt: str | None = None  # the reply's own system prompt; None for that of the chat
    once: bool = False  # whether the options were for this reply only


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it is stored, shown, exported and imported.

    Each field except `files`, `sibling` and `siblings` is a column of the database, read and written according to its
    type (`storage.rows`): a new field needs one line here and a migration.
    """

    id: int
    conversation_id: int
    parent_id: int | None  # the message it follows; None for a first message
    role: Role  # `user` or `assistant`
    text: str  # Markdown as written
    status: MessageStatus = MessageStatus.COMPLETE
    created_at: float | None = None  # seconds since the epoch; None if the stored value is not a date
    model: str | None = None  # name of the model that wrote it; None for the person's messages
    # The reply seed (`rdchat.inference.api.requests.reply_seed`); None for the person's messages.
    seed: int | None = None
    finish_reason: FinishReason | None = None  # None while it is written, for the person's messages, and after a crash
    error: str = ""  # why a reply failed, for the person
    statistics: Statistics | None = None  # the reply's counters, without the ledger in older chats
    drafting: Drafting | None = None  # None where unknown
    control_offsets: tuple[int, ...] = ()  # where in `text` the model wrote control tokens
    thinking: Thinking = NO_THINKING
    context_cut: ContextCut | None = None  # hides this message and those before it from the model
    edited: bool = False  # whether the text is the person's version of a reply; a model may have continued it since
    made_with: MadeWith | None = None  # None for the person's messages, and where unknown
    activated: int = field(default=0, compare=False)  # the shown path ends with the highest one of the chat
    files: tuple[AttachedFile, ...] = ()  # without their texts
    sibling: int = 0  # index among the alternatives with the same parent and role, in order of creation
    siblings: int = 1  # number of those alternatives, including itself

    @property
    def parts(self) -> Thoughts:
        """The text split into thought and answer; a thought with which the model ended counts as the answer."""
        final = self.status is not MessageStatus.STREAMING
        ended = final and (self.edited or self.finish_reason in {FinishReason.EOS, FinishReason.STOP_STRING})
        return split_thoughts(self.text, final, begun=self.thinking.begun, ended=ended)

    def beside(self, other: "Message") -> "Message":
        """Return this message with another state's index among the alternatives."""
        return replace(self, sibling=other.sibling, siblings=other.siblings)


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to the person about something that did not stop the app, such as a database that was moved aside."""

    title: str
    detail: str = field(default="")


_PAGE = 128  # messages read together
_TAIL = 16  # messages at the end read together, about as many as the window shows first


class MessagePath(Sequence[Message]):
    """A sequence that reads its messages when needed: opening a chat of 100,000 messages reads only a few.

    Reading raises StorageError. Slices are copies: they keep the messages already read, change independently, and may
    be used on another thread.

    Args:
        ids: Ids of the messages, from the root on.
        read: Reads messages by their ids, on any thread; missing ones are left out. None if all are known.
        known: Messages that are already read.
        cuts: Ids of messages with a context cut, including those of other paths.

    Attributes:
        ids: Ids of its messages.
    """

    def __init__(
        self,
        ids: Iterable[int] = (),
        read: Callable[[Sequence[int]], Iterable[Message]] | None = None,
        known: Iterable[Message] = (),
        cuts: Iterable[int] = (),
    ) -> None:
        self.ids = tuple(ids)
        self._places: dict[int, int] | None = None  # index by id, made when first needed
        self._read_ids = read
        self._known: dict[int, Message] = {}
        self._cuts = set(cuts)
        for message in known:
            self._keep(message)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "MessagePath":
        """Return messages as a path, a path itself."""
        return messages if isinstance(messages, MessagePath) else cls([each.id for each in messages], None, messages)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> "MessagePath": ...
    def __getitem__(self, place: int | slice) -> "Message | MessagePath":
        if isinstance(place, slice):
            part = MessagePath(self.ids[place], self._read_ids, cuts=self._cuts)
            part._known = dict(self._known)
            part._places = self._places if part.ids is self.ids else None
            return part
        message_id = self.ids[place]
        if message_id not in self._known:
            begin = place % len(self) // _PAGE * _PAGE
            self.read(begin, begin + _PAGE)
        return self._known[message_id]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def read(self, start: int, end: int) -> list[Message]:
        """Return the messages from index `start` to `end`, read together."""
        ids = self.ids[start:end]
        missing = [each for each in ids if each not in self._known]
        if missing and self._read_ids is not None:
            self._known.update((message.id, message) for message in self._read_ids(missing))
        if any(each not in self._known for each in ids):
            raise StorageError("A message of this chat no longer exists.", "Open the chat again.")
        return [self._known[each] for each in ids]

    def read_tail(self) -> list[Message]:
        """Return the last messages, which are needed first."""
        return self.read(max(0, len(self) - _TAIL), len(self))

    def place_of(self, message_id: int) -> int | None:
        """Return the index of a message; None if it is not on the path."""
        if self._places is None:
            self._places = {each: place for place, each in enumerate(self.ids)}
        return self._places.get(message_id)

    def find(self, message_id: int) -> Message | None:
        """Return a message of the path by its id; None if it is not on the path."""
        place = self.place_of(message_id)
        return None if place is None else self[place]

    def has_any(self, other: "MessagePath") -> bool:
        """Return whether the two paths have a message in common."""
        return any(self.place_of(each) is not None for each in other.ids)

    @property
    def cut_index(self) -> int:
        """Index of the last message hidden from the model; -1 where it gets all."""
        return max((place for each in self._cuts if (place := self.place_of(each)) is not None), default=-1)

    @property
    def last_measured(self) -> Message | None:
        """The last message with statistics, near the end of the path; None without one."""
        return next((each for each in reversed(self.read_tail()) if each.statistics), None)

    def put(self, message: Message) -> None:
        """Replace a message by its newer state."""
        if self.place_of(message.id) is not None:
            self._keep(message)

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self.ids, self._places = (*self.ids, message.id), None
        self._keep(message)

    def _keep(self, message: Message) -> None:
        self._known[message.id] = message
        if message.context_cut is None:
            self._cuts.discard(message.id)
        else:
            self._cuts.add(message.id)


def uncut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model gets."""
    return path[_cut_index(path) + 1 :]


def from_cut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model gets, with the summary's message first."""
    return path[max(0, _cut_index(path)) :]


def cut_of(path: Sequence[Message]) -> Message | None:
    """Return the message with the last context cut; None where the model gets all of the path."""
    place = _cut_index(path)
    return path[place] if place >= 0 else None


def _cut_index(path: Sequence[Message]) -> int:
    return (path if isinstance(path, MessagePath) else MessagePath.of(path)).cut_index
