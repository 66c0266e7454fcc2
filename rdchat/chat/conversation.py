"""The data of chats: conversations with their options, folders, messages, and paths of messages.

A path is the messages from the root of a chat's tree to one of its messages; it reads them when they are first needed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any, overload

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.presets import LongChats
from rdchat.chat.summaries import ContextCut
from rdchat.errors import StorageError
from rdchat.inference.api import (
    AnswerShape,
    DraftSettings,
    FinishReason,
    HeadKind,
    Mode,
    ReplyPart,
    Role,
    SamplingParams,
    Statistics,
    ThinkingChoice,
    Thoughts,
    ToolCall,
    check_thinking_tokens,
    split_thoughts,
)

_PAGE = 128
"""Messages that are read together."""
_TAIL = 16
"""Messages at the end that are read together, about as many as the window shows first."""
_MAX_RESULTS = 256
"""The most messages of one reply's results: what is further below belongs to no call. A reply has up to 128 calls."""
_WITH_COLUMN = ("system_prompt", "sampling", "thinking_choice", "answer_shape")
"""Options of a chat that a preset may have too, in fields (and columns) of `Conversation`."""
_WITHOUT_COLUMN = ("thinking_tokens", "draft", "long_chats")
"""Options of a chat that a preset may have too, in `OwnOptions`."""


class MessageStatus(StrEnum):
    """The state of a message. `interrupted`: the app ended while the message was being written."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Origin(StrEnum):
    """Where the words of a message are from, if not from the person or a model."""

    IMPORT = "an import"
    LINK = "a link"
    PASTE = "a pasted text"


@dataclass(frozen=True, slots=True)
class OwnOptions:
    """Options of a chat that have no column of their own.

    Attributes:
        preset: Id of its preset; empty for none, None for that of the model.
        thinking_tokens: The most tokens of a thought; None for the usual limit.
        draft: How its replies are drafted; None for the usual settings.
        cleared: Names of options that the chat itself sets to None, such as no limit of thinking. Of other options,
            None leaves the value to the project, the preset and the settings.
        keep_cache: Whether its KV caches may be kept on disk.
        tools: Names of the tool servers that are switched on in it. Empty leaves it to the project, unless `cleared`
            has "tools".
        tools_off: Full names of tools of these that are switched off.
        sent_to: Addresses of the remote servers that it may be sent to.
        starts_servers: Whether servers of tools start when it is opened and has calls that wait; not if these are from
            a backup.
        notes: Whether it has notes, and proposes some.
        decided_notes: Digests of the proposed notes that were kept or dismissed (`note_digest`).
        long_chats: What happens when it nearly fills the context; None for the usual.
    """

    preset: str | None = None
    thinking_tokens: int | None = None
    draft: DraftSettings | None = None
    cleared: tuple[str, ...] = ()
    keep_cache: bool = True
    tools: tuple[str, ...] = ()
    tools_off: tuple[str, ...] = ()
    sent_to: tuple[str, ...] = ()
    starts_servers: bool = True
    notes: bool = True
    decided_notes: tuple[str, ...] = ()
    long_chats: LongChats | None = None

    def __post_init__(self) -> None:
        check_thinking_tokens(self.thinking_tokens)
        # A chat always has these, whatever an imported file says.
        can_be_none = tuple(name for name in self.cleared if name not in {"system_prompt", "sampling", "long_chats"})
        object.__setattr__(self, "cleared", can_be_none)

    @property
    def portable(self) -> "OwnOptions":
        """These options without what belongs to this computer: presets, paths of drafters, servers, decisions."""
        return replace(self, preset=None, draft=None, tools=(), tools_off=(), sent_to=(), decided_notes=())


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat, as a row of the sidebar.

    Attributes:
        id: The primary key.
        title: Made from the first message until the person renames it.
        created_at: Seconds since the epoch; None if the stored value is not a date.
        updated_at: Seconds since the epoch; None if the stored value is not a date.
        system_prompt: None for the one of the settings; an empty string for none.
        sampling: None for the one of the settings.
        folder_id: None outside of folders.
        pinned_at: None if it is not pinned.
        archived: Whether it is in the archive instead of the list.
        deleted_at: When it was moved to the Trash; None elsewhere.
        thinking_choice: Whether or how much the model thinks, if it has a switch; None leaves it to the model.
        answer_shape: The format of its answers; None for any text.
        own: Its other options.
    """

    id: int
    title: str
    created_at: float | None
    updated_at: float | None
    system_prompt: str | None = None
    sampling: SamplingParams | None = None
    folder_id: int | None = None
    pinned_at: float | None = None
    archived: bool = False
    deleted_at: float | None = None
    thinking_choice: ThinkingChoice | None = None
    answer_shape: AnswerShape | None = None
    own: OwnOptions = OwnOptions()

    @property
    def own_values(self) -> dict[str, Any]:
        """Its own options besides the preset, by name, without the usual ones; None for cleared ones."""
        values = {name: getattr(self, name) for name in _WITH_COLUMN}
        values |= {name: getattr(self.own, name) for name in _WITHOUT_COLUMN}
        return {name: value for name, value in values.items() if value is not None or name in self.own.cleared}

    @property
    def has_own_options(self) -> bool:
        """Whether an option differs from the settings."""
        return self.own.preset is not None or bool(self.own_values)

    def with_own(self, values: Mapping[str, Any]) -> "Conversation":
        """Return the chat with just these own options besides the preset, by the names of `own_values`.

        A value of None makes the option cleared. `own_values` has no tools, so these stay as they are.
        """
        columns: dict[str, Any] = {name: values.get(name) for name in _WITH_COLUMN}
        cleared = tuple(name for name, value in values.items() if value is None)
        cleared += ("tools",) if "tools" in self.own.cleared else ()
        others: dict[str, Any] = {name: values.get(name) for name in _WITHOUT_COLUMN}
        return replace(self, own=replace(self.own, cleared=cleared, **others), **columns)

    def allowed(self, address: str) -> "Conversation":
        """Return the chat with the permission to be sent to a remote server."""
        return replace(self, own=replace(self.own, sent_to=(*self.own.sent_to, address)))


NEW_CHAT = Conversation(0, "", None, None)
"""A chat that is not stored yet."""
LARGEST_ID = 1 << 30
"""The largest id of a chat or a message in a file. Larger ones are those of temporary chats.

Qt's signals carry ids as 32-bit integers.
"""


def is_temporary(any_id: int | None) -> bool:
    """Return whether this is the id of a temporary chat or of one of its messages, which nothing may keep."""
    return any_id is not None and any_id > LARGEST_ID


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a reply was drafted.

    Attributes:
        mode: The drafting mode that ran; None where a remote server does not say it.
        reason: A sentence on why the mode is not the requested one; else empty.
        drafter: Path or name of the drafter; empty without one.
        last_part: Whether the reply was continued. Then this, and the statistics, describe its last part only.
        kind: The kind of the head that drafted, or could draft in mode `auto`; None without one.
        server: Name of the remote server that wrote the reply; empty for this computer.
    """

    mode: Mode | None = Mode.OFF
    reason: str = ""
    drafter: str = ""
    last_part: bool = False
    kind: HeadKind | None = None
    server: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """Facts about a reply's thoughts.

    Attributes:
        begun: Whether the chat template began a thought, so that the reply begins inside one.
        ms: How long the model thought; 0 where it was not measured.
        paired: Whether a closing marker counts only for an opening one; replies of rdchat 0.1.0 are read otherwise.
        parts: The reply's parts, as they were told apart while it was written; empty where its markers are to be read.
    """

    begun: bool = False
    ms: float = 0.0
    paired: bool = False
    parts: tuple[ReplyPart, ...] = ()


NO_THINKING = Thinking()


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The options of a reply besides its model and seed.

    Attributes:
        sampling: How its tokens were chosen; None where unknown.
        system_prompt: The reply's own system prompt; None for that of the chat.
        once: Whether the options were for this reply only.
        passages: The passages of the project's files that stood before its question: `guide.txt: passages 3 and 7 of
            60`.
    """

    sampling: SamplingParams | None = None
    system_prompt: str | None = None
    once: bool = False
    passages: tuple[str, ...] = ()


USUAL_OPTIONS = MadeWith()
"""A reply without options of its own: the options of its chat apply."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it is stored, shown, exported and imported.

    Each field except `files`, `sibling` and `siblings` is a column of the database, read and written according to its
    type (`storage.stored_rows`): a new field needs one line here and a migration.

    Attributes:
        id: The primary key.
        conversation_id: Its chat.
        parent_id: The message it follows; None for a first message.
        role: `user`, `assistant` or `tool`.
        text: Markdown as written; of a tool's message, the plain text of the result. A reply's text has no calls.
        status: See `MessageStatus`.
        created_at: Seconds since the epoch; None if the stored value is not a date.
        model: Name of the model that wrote it; None for the person's messages.
        seed: The reply seed (`rdchat.inference.api.requests.reply_seed`); None for the person's messages.
        finish_reason: None while it is written, for the person's messages, and after a crash.
        error: Why a reply or a call failed, for the person.
        statistics: The reply's counters.
        drafting: How it was drafted; None where unknown.
        control_offsets: Where in `text` the model wrote control tokens.
        thinking: Facts about its thoughts.
        context_cut: Hides this message and those before it from the model.
        edited: Whether the text is the person's version of a reply; a model may have continued it since.
        made_with: Its options; None for the person's messages, and where unknown.
        tool_calls: The calls at the end of a reply, each with an id of its own.
        tool_call_id: Of a tool's message: the call that it answers.
        tool_name: Of a tool's message: the tool's full name.
        origin: Where its words are from, perhaps in part; None for the person or a model. A file that is imported has
            no say in it.
        activated: A number that grows with each choice of a path: the visible path ends with the message of the chat
            that has the highest one.
        files: Attached files, without their texts.
        sibling: Index among the alternatives with the same parent and role, in order of creation.
        siblings: Number of those alternatives, including itself.
    """

    id: int
    conversation_id: int
    parent_id: int | None
    role: Role
    text: str
    status: MessageStatus = MessageStatus.COMPLETE
    created_at: float | None = None
    model: str | None = None
    seed: int | None = None
    finish_reason: FinishReason | None = None
    error: str = ""
    statistics: Statistics | None = None
    drafting: Drafting | None = None
    control_offsets: tuple[int, ...] = ()
    thinking: Thinking = NO_THINKING
    context_cut: ContextCut | None = None
    edited: bool = False
    made_with: MadeWith | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    origin: Origin | None = None
    activated: int = field(default=0, compare=False)
    files: tuple[AttachedFile, ...] = ()
    sibling: int = 0
    siblings: int = 1

    @property
    def parts(self) -> Thoughts:
        """The text split into thought and answer: as told apart while it was written, else by its markers.

        A thought with which a whole text ends counts as the answer. A text is whole if the model itself ended it, or
        the person edited it.
        """
        if self.thinking.parts:
            return Thoughts(self.text, self.thinking.parts)
        final = self.status is not MessageStatus.STREAMING
        ended = final and (self.edited or self.finish_reason in {FinishReason.EOS, FinishReason.STOP_STRING})
        return split_thoughts(self.text, begun=self.thinking.begun, ended=ended, old=not self.thinking.paired)

    @property
    def runs_nothing(self) -> bool:
        """Whether it has calls, and none of them can be run."""
        return bool(self.tool_calls) and all(call.refusal for call in self.tool_calls)

    def with_siblings_of(self, other: "Message") -> "Message":
        """Return this message with another state's index among the alternatives."""
        return replace(self, sibling=other.sibling, siblings=other.siblings)


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to the person about something that did not stop the app, such as a database that was moved aside.

    Attributes:
        title: One line.
        detail: Sentences below it; empty for none.
    """

    title: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReadingPosition:
    """A reading position in a chat.

    Attributes:
        message_id: The first message in view.
        above: Pixels of it that are above the view.
    """

    message_id: int
    above: int


class MessagePath(Sequence[Message]):
    """A sequence that reads its messages when needed: opening a chat of 100,000 messages reads only a few.

    Reading raises StorageError. Slices are copies: they keep the messages already read, change independently, and may
    be used on another thread.

    Args:
        ids: Ids of the messages, from the root on.
        read: Reads messages by their ids, on any thread; missing ones are left out. None if all are known.
        known: Messages that are already read.
        cuts: Messages with a context cut, also of other paths, by id: whether it only shortens results of tools.

    Attributes:
        ids: Ids of its messages.
    """

    def __init__(
        self,
        ids: Iterable[int] = (),
        read: Callable[[Sequence[int]], Iterable[Message]] | None = None,
        known: Iterable[Message] = (),
        cuts: Mapping[int, bool] | None = None,
    ) -> None:
        self.ids = tuple(ids)
        # Index by id, made when first needed.
        self._indexes: dict[int, int] | None = None
        self._read_ids = read
        self._known: dict[int, Message] = {}
        self._cuts = dict(cuts or {})
        for message in known:
            self._add(message)

    @classmethod
    def as_path(cls, messages: Sequence[Message]) -> "MessagePath":
        """Return messages as a path, a path itself."""
        return messages if isinstance(messages, MessagePath) else cls([each.id for each in messages], None, messages)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "MessagePath": ...
    def __getitem__(self, index: int | slice) -> "Message | MessagePath":
        if isinstance(index, slice):
            part = MessagePath(self.ids[index], self._read_ids, cuts=self._cuts)
            part._known = dict(self._known)
            # A slice of all ids is the same tuple.
            part._indexes = self._indexes if part.ids is self.ids else None
            return part
        message_id = self.ids[index]
        # The page of `_PAGE` messages with this index, which may be negative, is read at once.
        if message_id not in self._known:
            begin = index % len(self) // _PAGE * _PAGE
            self.read_messages(begin, begin + _PAGE)
        return self._known[message_id]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def read_messages(self, start: int, end: int) -> list[Message]:
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
        return self.read_messages(max(0, len(self) - _TAIL), len(self))

    def index_of(self, message_id: int) -> int | None:
        """Return the index of a message; None if it is not on the path."""
        if self._indexes is None:
            self._indexes = {each: index for index, each in enumerate(self.ids)}
        return self._indexes.get(message_id)

    def find_message(self, message_id: int) -> Message | None:
        """Return a message of the path by its id; None if it is not on the path."""
        index = self.index_of(message_id)
        return None if index is None else self[index]

    @property
    def last_id(self) -> int | None:
        """Id of the last message; None without any."""
        return self.ids[-1] if self.ids else None

    @property
    def cut_index(self) -> int:
        """Index of the last message hidden from the model; -1 where it gets all."""
        return self._last_cut(shortens=False)

    @property
    def shortened_index(self) -> int:
        """Index of the last message up to which long results of tools are shortened for the model; -1 for none."""
        return self._last_cut(shortens=True)

    def _last_cut(self, *, shortens: bool) -> int:
        marked = (each for each, kind in self._cuts.items() if kind is shortens)
        return max((index for each in marked if (index := self.index_of(each)) is not None), default=-1)

    @property
    def last_reply(self) -> Message | None:
        """The last reply that ended, near the end of the path; None without one."""
        replies = (each for each in reversed(self.read_tail()) if each.role is Role.ASSISTANT)
        return next((each for each in replies if each.status is not MessageStatus.STREAMING), None)

    def update_message(self, message: Message) -> Message | None:
        """Replace a message by its newer state but for its alternatives; return that, None if it is not on the path."""
        if (old := self.find_message(message.id)) is None:
            return None
        message = message.with_siblings_of(old)
        self._add(message)
        return message

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self.ids = (*self.ids, message.id)
        self._indexes = None
        self._add(message)

    def _add(self, message: Message) -> None:
        self._known[message.id] = message
        if message.context_cut is None:
            self._cuts.pop(message.id, None)
        else:
            self._cuts[message.id] = message.context_cut.shortens


def call_of(path: Sequence[Message], result: Message) -> ToolCall | None:
    """Return the call that a result of a path answers; None if the path does not have it."""
    messages = MessagePath.as_path(path)
    # Nothing is before a result that is not on the path.
    end = messages.index_of(result.id) or 0
    before = (messages[index] for index in reversed(range(max(0, end - _MAX_RESULTS), end)))
    reply = next((each for each in before if each.role is not Role.TOOL), None)
    calls = reply.tool_calls if reply is not None else ()
    return next((each for each in calls if each.call_id == result.tool_call_id), None)


def last_calls(path: Sequence[Message]) -> dict[ToolCall, Message | None]:
    """Return the calls that can be run of a path's last reply, with their results; None for a call without one."""
    results = dict[str, Message]()
    for message in islice(reversed(path), _MAX_RESULTS):
        if message.role is not Role.TOOL:
            return {call: results.get(call.call_id) for call in message.tool_calls if not call.refusal}
        # Of several results of one call the last counts.
        results.setdefault(message.tool_call_id, message)
    return {}


def waiting_calls(path: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of a path's last reply that have no result."""
    return tuple(call for call, result in last_calls(path).items() if result is None)


def uncut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model gets."""
    return path[MessagePath.as_path(path).cut_index + 1 :]


def from_cut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the last hidden message of a path, whose cut has the summary, and those after it; all without a cut."""
    return path[max(0, MessagePath.as_path(path).cut_index) :]
