"""The data of chats: conversations, their messages, and folders."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.model_facts import HeadKind
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
