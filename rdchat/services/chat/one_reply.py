"""A reply with options of its own, and the model that is borrowed for it."""

from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.conversation import Message
from rdchat.inference.api.requests import Dtype, SamplingParams
from rdchat.services.chat.replies import Replies
from rdchat.services.engine.model_slot import ModelSlot


@dataclass(frozen=True, slots=True)
class OtherModel:
    """Another model to load for one reply."""

    model: str | None  # as `ModelSlot.load` takes it; None is the default one
    name: str  # for people
    stay: bool = False  # it answers from then on


@dataclass(frozen=True, slots=True)
class ReplyWish:
    """Options of one reply; None takes those of the chat."""

    sampling: SamplingParams | None = None
    system_prompt: str | None = None
    other: OtherModel | None = None


class BorrowedModel(QObject):
    """Loads another model for one reply, and the chat's own again when that has ended, however it did.

    Until then the settings have the chat's own: an app that is quit or dies meanwhile starts with it. A model that the
    person chooses meanwhile, or that they stay with, ends the loan.

    Args:
        slot: Loads models.
        replies: Tell when the reply has ended.
        parent: The Qt parent.
    """

    changed = Signal()
    stayed = Signal()  # the borrowed model is the chat's own from now on

    def __init__(self, slot: ModelSlot, replies: Replies, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._slot = slot
        self._own: tuple[str | None, Dtype] | None = None
        self._borrowed: str | None = None
        self._reply_id: int | None = None
        self.name = ""  # of the borrowed model; empty while none is borrowed
        self.own_name = ""  # of the one that comes back
        slot.load_started.connect(self._on_load)
        slot.unload_started.connect(self._forget)
        replies.ended.connect(self._on_reply_ended)

    @property
    def holds(self) -> bool:
        """Whether the chat's own model is to come back."""
        return self._own is not None

    def is_for(self, reply_id: int) -> bool:
        """Whether a model is borrowed for this reply."""
        return self.holds and reply_id == self._reply_id

    def borrow(self, other: OtherModel, reply_id: int, own_name: str) -> None:
        """Load a model for a reply that waits for it."""
        own = self._own or (self._slot.chosen, self._slot.dtype)
        own_name = self.own_name if self.holds else own_name  # of a loan before this one, if it has not ended
        self._forget()
        if not other.stay:
            self._own, self._borrowed, self._reply_id = own, other.model, reply_id
            self.name, self.own_name = other.name, own_name
        self._slot.load(other.model)
        self.changed.emit()

    def stay(self) -> None:
        """Keep the borrowed model: the chat's own does not come back by itself."""
        if self.holds:
            self._forget()
            self.stayed.emit()

    @Slot(Message)
    def _on_reply_ended(self, reply: Message) -> None:
        if self.holds and reply.id == self._reply_id:
            QTimer.singleShot(0, self, self.give_back)  # behind all others that follow the model or the reply

    @Slot()
    def give_back(self) -> None:
        """Load the chat's own model again, if another one is borrowed."""
        if (own := self._own) is not None:
            self._forget()
            self._slot.load(*own)

    @Slot()
    def _on_load(self) -> None:
        if self.holds and self._slot.chosen != self._borrowed:
            self._forget()

    @Slot()
    def _forget(self) -> None:
        had = self.holds
        self._own = self._borrowed = self._reply_id = None
        self.name = ""
        if had:
            self.changed.emit()
