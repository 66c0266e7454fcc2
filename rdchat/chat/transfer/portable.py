"""A chat outside of the store: what every import makes of its file, and every export begins with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import NO_THINKING, ContextCut, Drafting, MadeWith, MessageStatus, Thinking
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Role, SamplingParams, ThinkingChoice


class DamagedChatError(ValueError):
    """A chat cannot be taken whole, so nothing of it is; the text says why, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class PortableMessage:
    """One message.

    Attributes:
        parent: Place of the message it follows in `PortableChat.messages`, lower than its own; None for a first one.
        role: `user` or `assistant`.
        text: Markdown as written.
        activated: The message with the highest one ends the path that is shown; only their order counts.
        status, created_at, model, seed, finish_reason, error, statistics, drafting, control_offsets, thinking,
            context_cut, edited, made_with: As of `Message`.
        trace: How the reply came about (`trace_format`); None where that was not recorded.
        files: What the person brought with it, each with its text.
    """

    parent: int | None
    role: Role
    text: str
    activated: int = 0
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
    trace: bytes | None = None
    files: tuple[tuple[AttachedFile, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PortableChat:
    """A conversation with all its alternatives.

    Attributes:
        title: Empty where its source has none.
        created_at, updated_at: Seconds since the epoch; None where they are not known.
        system_prompt: None takes the one of the preferences; an empty string is none at all.
        sampling: None takes the one of the preferences.
        messages: Each after the one it follows.
        without: What of the chat could not be taken, and how many of it: `{"image": 2}`.
        pinned, archived: Whether it is.
        folder: The name of its folder, behind that of the folder around it; empty for none.
        thinking_choice: As of `Conversation`.
    """

    title: str
    created_at: float | None
    updated_at: float | None
    system_prompt: str | None
    sampling: SamplingParams | None
    messages: tuple[PortableMessage, ...]
    without: Mapping[str, int] = field(default_factory=dict)
    pinned: bool = False
    archived: bool = False
    folder: tuple[str, ...] = ()
    thinking_choice: ThinkingChoice | None = None


def shown_path(messages: Sequence[PortableMessage]) -> list[PortableMessage]:
    """Return the path that is shown: from a first message to the one that was activated last."""
    step: int | None = max(range(len(messages)), key=lambda place: messages[place].activated, default=None)
    path = []
    while step is not None:
        path.append(messages[step])
        step = messages[step].parent
    return path[::-1]


def alternatives(messages: Sequence[PortableMessage], message: PortableMessage) -> list[PortableMessage]:
    """Return the message and its alternatives, in the order in which they were written."""
    return [each for each in messages if (each.parent, each.role) == (message.parent, message.role)]


def parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Put ids into an order in which each comes after its parent; those with one parent keep their order.

    Args:
        parents: By id: the parent's id. One that is not among the ids counts as none.

    Raises:
        DamagedChatError: If some are above themselves.
    """
    children: dict[str | None, list[str]] = {}
    for each, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(each)
    order: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        step = waiting.pop()
        order.append(step)
        waiting += reversed(children.get(step, []))
    if len(order) < len(parents):
        raise DamagedChatError("Its messages follow one another in a circle")
    return order
