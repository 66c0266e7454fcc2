"""Conversations, their messages, and folders: the data of chats."""

from dataclasses import dataclass, field
from enum import StrEnum

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.inference.api.drafter_facts import HeadKind
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode, Role, SamplingParams, ThinkingChoice
from rdchat.thoughts import Thoughts, split_thoughts


class MessageStatus(StrEnum):
    """The state of a message. `interrupted`: the app ended while the message was being written."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A row of the sidebar.

    Attributes:
        id: Primary key.
        title: Shown in the sidebar; made from the first message until the person renames it.
        created_at, updated_at: Seconds since the epoch; None where what is stored is no date.
        system_prompt: None takes the one of the preferences; an empty string is none at all.
        sampling: None takes the one of the preferences.
        thinking_choice: Whether or how much the model is to think, where it has a switch; None leaves it to the model.
        folder_id: The folder it is in; None outside of any.
        pinned_at: When it was pinned; None where it is not.
        archived: Whether it is out of the list, in the archive.
        deleted_at: When it went into the bin; None elsewhere.
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


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of conversations.

    Attributes:
        id: Primary key.
        name: Shown in the sidebar.
        parent_id: The folder it is in; None at the top. A folder in a folder holds no others.
        expanded: Whether what it holds is shown.
        deleted_at: When it went into the bin; None elsewhere.
    """

    id: int
    name: str
    parent_id: int | None = None
    expanded: bool = True
    deleted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a reply was drafted.

    Attributes:
        mode: The drafting mode that ran.
        reason: A sentence that says why it is not the one asked for; empty where it is.
        drafter: Path or name of what drafted; empty where nothing did.
        kind: Of the head that drafted, or in mode `auto` was there to draft; None without.
        last_part: Whether the reply was continued: this, and the statistics beside it, are of its last part alone.
    """

    mode: Mode = Mode.OFF
    reason: str = ""
    drafter: str = ""
    last_part: bool = False
    kind: HeadKind | None = None


@dataclass(frozen=True, slots=True)
class Thinking:
    """A reply's thoughts, beside their text.

    Attributes:
        begun: The chat template began a thought, so the reply begins inside one.
        ms: How long the model thought; 0 where that was not measured.
    """

    begun: bool = False
    ms: float = 0.0


NO_THINKING = Thinking()


@dataclass(frozen=True, slots=True)
class ContextCut:
    """The model is not told a message and those before it. The last cut of a path counts.

    Attributes:
        summary: What it is told in their place; empty for nothing.
        model: Wrote the summary.
    """

    summary: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The options of a reply, beside its model and its seed.

    Attributes:
        sampling: How its tokens were chosen; None where that was not kept.
        system_prompt: Of a reply that was asked for with one of its own; None for the chat's.
        once: Whether this reply alone was to be made like that.
    """

    sampling: SamplingParams | None = None
    system_prompt: str | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it is stored, shown, exported and imported.

    Each field but `files`, `sibling` and `siblings` is a column of the database, and is read and written by its type
    (`storage.rows`): another field needs a migration beside its line here.
    """

    id: int
    conversation_id: int
    parent_id: int | None  # the message it follows; None for a first message
    role: Role  # `user` or `assistant`
    text: str  # Markdown as written
    status: MessageStatus = MessageStatus.COMPLETE
    created_at: float | None = None  # seconds since the epoch; None where what is stored is no date
    model: str | None = None  # name of the model that wrote it; None for a person's
    seed: int | None = None  # the reply seed (`rdchat.inference.api.requests.reply_seed`); None for a person's
    finish_reason: FinishReason | None = None  # None while it is written, for a person's, and after a crash
    error: str = ""  # why a reply failed, in words for the person
    statistics: Statistics | None = None  # the reply's counters, without its ledger where that was not kept
    drafting: Drafting | None = None  # None where it was not kept
    control_offsets: tuple[int, ...] = ()  # where in `text` the model wrote control tokens
    thinking: Thinking = NO_THINKING
    context_cut: ContextCut | None = None  # leaves this message and those before it out of what the model is told
    edited: bool = False  # the text is the person's version of a reply; a model may have continued it since
    made_with: MadeWith | None = None  # None for a person's, and where it was not kept
    activated: int = field(default=0, compare=False)  # the shown path ends with the highest one of the chat
    files: tuple[AttachedFile, ...] = ()  # without their texts
    sibling: int = 0  # place among the alternatives with the same parent and role, from 0 in order of creation
    siblings: int = 1  # number of those alternatives, itself included

    @property
    def parts(self) -> Thoughts:
        """The text in what was thought and what is said; a thought that the model ended with is what it says."""
        final = self.status is not MessageStatus.STREAMING
        ended = final and (self.edited or self.finish_reason in {FinishReason.EOS, FinishReason.STOP_STRING})
        return split_thoughts(self.text, final, begun=self.thinking.begun, ended=ended)


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to the person about something that did not stop the app, such as a database that was moved aside."""

    title: str
    detail: str = field(default="")
