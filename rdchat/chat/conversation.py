"""The data of chats: conversations, folders and messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.inference.api.answer_shape import AnswerShape
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role, ToolCall
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Mode, SamplingParams, ThinkingChoice, check_thinking_tokens
from rdchat.inference.api.thoughts import Part, Thoughts, split_thoughts


class MessageStatus(StrEnum):
    """The state of a message. `interrupted`: the app ended while the message was being written."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OwnOptions:
    """Options of a chat that have no column of their own.

    Attributes:
        preset: Id of its preset; empty for none, None for that of the model.
        thinking_tokens: The most tokens of a thought; None for the usual limit.
        draft: How its replies are drafted; None for the usual settings.
        cleared: Names of options that are None here although they are not usually.
        keep_cache: Whether its KV caches may be kept on disk.
        tools: Names of the tool servers that are switched on in it.
        tools_off: Full names of tools of these that are switched off.
        sent_to: Addresses of the remote servers that it may be sent to.
    """

    preset: str | None = None
    thinking_tokens: int | None = None
    draft: DraftSettings | None = None
    cleared: tuple[str, ...] = ()
    keep_cache: bool = True
    tools: tuple[str, ...] = ()
    tools_off: tuple[str, ...] = ()
    sent_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_thinking_tokens(self.thinking_tokens)
        # A chat always has these two, whatever an imported file says.
        can_be_none = tuple(name for name in self.cleared if name not in {"system_prompt", "sampling"})
        object.__setattr__(self, "cleared", can_be_none)

    @property
    def portable(self) -> "OwnOptions":
        """These options without what belongs to this computer: its presets, paths of drafters, and servers."""
        return replace(self, preset=None, draft=None, tools=(), tools_off=(), sent_to=())


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
        deleted_at: When it was moved to the bin; None elsewhere.
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
        values = {
            "system_prompt": self.system_prompt,
            "sampling": self.sampling,
            "thinking_choice": self.thinking_choice,
            "thinking_tokens": self.own.thinking_tokens,
            "answer_shape": self.answer_shape,
            "draft": self.own.draft,
        }
        return {name: value for name, value in values.items() if value is not None or name in self.own.cleared}

    @property
    def has_own_options(self) -> bool:
        """Whether an option differs from the settings."""
        return self.own.preset is not None or bool(self.own_values)

    def with_own(self, values: Mapping[str, Any]) -> "Conversation":
        """Return the chat with just these own options besides the preset, by the names of `own_values`."""
        names = ("system_prompt", "sampling", "thinking_choice", "answer_shape")
        columns: dict[str, Any] = {name: values.get(name) for name in names}
        cleared = tuple(name for name, value in values.items() if value is None)
        tokens = values.get("thinking_tokens")
        draft = values.get("draft")
        return replace(self, own=replace(self.own, thinking_tokens=tokens, draft=draft, cleared=cleared), **columns)

    def allowed(self, address: str) -> "Conversation":
        """Return the chat with the permission to be sent to a remote server."""
        return replace(self, own=replace(self.own, sent_to=(*self.own.sent_to, address)))


NEW_CHAT = Conversation(0, "", None, None)
"""A chat that is not stored yet."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of chats.

    Attributes:
        id: The primary key.
        name: As the sidebar shows it.
        parent_id: The folder around it; None at the top. A folder in a folder cannot contain another one.
        expanded: Whether its content is shown.
        deleted_at: When it was moved to the bin; None elsewhere.
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
    parts: tuple[Part, ...] = ()


NO_THINKING = Thinking()


@dataclass(frozen=True, slots=True)
class ContextCut:
    """Hides a message and those before it from the model. The last cut of a path counts.

    Attributes:
        summary: What the model gets instead; empty for nothing.
        model: The model that wrote the summary.
    """

    summary: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The options of a reply besides its model and seed.

    Attributes:
        sampling: How its tokens were chosen; None where unknown.
        system_prompt: The reply's own system prompt; None for that of the chat.
        once: Whether the options were for this reply only.
    """

    sampling: SamplingParams | None = None
    system_prompt: str | None = None
    once: bool = False


USUAL_OPTIONS = MadeWith()
"""A reply without options of its own: the options of its chat apply."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it is stored, shown, exported and imported.

    Each field except `files`, `sibling` and `siblings` is a column of the database, read and written according to its
    type (`storage.rows`): a new field needs one line here and a migration.

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
        activated: The visible path ends with the message of the chat with the highest number here.
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
    activated: int = field(default=0, compare=False)
    files: tuple[AttachedFile, ...] = ()
    sibling: int = 0
    siblings: int = 1

    @property
    def parts(self) -> Thoughts:
        """The text split into thought and answer; a thought with which the model ended counts as the answer."""
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
    """A message to the person about something that did not stop the app, such as a database that was moved aside."""

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
