"""How a reply that did not simply end is explained, and what the person can do about it."""

from dataclasses import dataclass
from enum import Enum, auto

from PySide6.QtCore import QCoreApplication

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.events import FinishReason


class Remedy(Enum):
    """What the person can do about a reply's ending."""

    NOTHING = auto()
    CONTINUE = auto()
    TRY_AGAIN = auto()


@dataclass(frozen=True, slots=True)
class Ending:
    """A quiet line under a reply."""

    text: str
    remedy: Remedy
    failed: bool = False


def ending(message: Message) -> Ending | None:
    """Return what is to be said under a reply; None where it ended by itself or is still being written."""
    if message.status is MessageStatus.FAILED:
        return Ending(message.error or _tr("The reply failed."), Remedy.TRY_AGAIN, failed=True)
    begun = bool(message.text.strip())
    if message.status is MessageStatus.INTERRUPTED:
        return _interruption(begun)
    if message.status is MessageStatus.STREAMING:
        return None
    return _early_end(message.finish_reason, Remedy.CONTINUE if begun else Remedy.TRY_AGAIN)


def _interruption(begun: bool) -> Ending:
    if begun:
        return Ending(_tr("Interrupted: rdchat closed while this was being written."), Remedy.CONTINUE)
    return Ending(_tr("Interrupted: rdchat closed before this began."), Remedy.TRY_AGAIN)


def _early_end(reason: FinishReason | None, remedy: Remedy) -> Ending | None:
    match reason:
        case FinishReason.CANCELLED:
            return Ending(_tr("Stopped."), remedy)
        case FinishReason.LENGTH:
            return Ending(_tr("Stopped at the limit of tokens for one reply."), remedy)
        case FinishReason.CONTEXT_FULL:
            text = _tr("The model's context is full. Leave out the oldest messages, summarise them, or start anew.")
            return Ending(text, Remedy.NOTHING)
    return None


def _tr(text: str) -> str:
    return QCoreApplication.translate("Ending", text)
