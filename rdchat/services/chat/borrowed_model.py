"""Loads another model for one reply."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.conversation import Message
from rdchat.inference.api import Dtype
from rdchat.services.engine.engine_client import ModelSlot


@dataclass(frozen=True, slots=True)
class OtherModel:
    """Another model to load for one reply.

    Attributes:
        model: A folder or hub id; None is the default model.
        name: Its name, for people.
        stay: Whether it also writes the replies after that one.
    """

    model: str | None
    name: str
    stay: bool = False


@dataclass(frozen=True, slots=True)
class Loan:
    """A model that is borrowed for one reply.

    Attributes:
        reply_id: The reply.
        borrowed: The borrowed model.
        own: The chat's own model and its precision, loaded again afterwards.
        own_name: Its name, for people.
    """

    reply_id: int
    borrowed: OtherModel
    own: tuple[str | None, Dtype]
    own_name: str


class BorrowedModel(QObject):
    """Loads another model for one reply, and the chat's own again when that has ended, however it did.

    Until then the settings have the chat's own: an app that is quit or dies meanwhile starts with it. A model that the
    person chooses meanwhile, or that they stay with, ends the loan.

    Args:
        slot: The model.
        parent: The Qt parent.
    """

    changed = Signal()
    # The borrowed model is the chat's own from now on.
    stayed = Signal()

    def __init__(self, slot: ModelSlot, parent: QObject) -> None:
        super().__init__(parent)
        self._slot = slot
        self.loan: Loan | None = None
        slot.load_started.connect(self._on_load)
        slot.unload_started.connect(lambda: self._set(None))

    def begin_reply(self, reply_id: int, other: OtherModel | None) -> None:
        """Load the model for a reply, which is about to begin.

        - With another model: load it, and remember the chat's own, unless the other one is to stay.
        - Without: load the chat's own again if another one is still borrowed, unless this is the reply it is for.
        """
        if other is None:
            if self.loan is not None and reply_id != self.loan.reply_id:
                self.give_back()
            return
        # If a model is borrowed already, its loan knows the chat's own; the slot has the borrowed one.
        loan = self.loan or Loan(reply_id, other, (self._slot.chosen, self._slot.dtype), self._slot.name or "")
        # Before the load: `_on_load` compares the model that is loaded with the loan.
        self._set(None if other.stay else replace(loan, reply_id=reply_id, borrowed=other))
        self._slot.load_model(other.model)

    def stay(self) -> None:
        """Keep the borrowed model: the chat's own does not come back by itself."""
        if self.loan is not None:
            self._set(None)
            self.stayed.emit()

    def give_back(self) -> None:
        """Load the chat's own model again, if another one is borrowed."""
        if (loan := self.loan) is not None:
            self._set(None)
            self._slot.load_model(*loan.own)

    def end_reply(self, reply: Message) -> None:
        """Give the model back after its reply."""
        if self.loan is not None and reply.id == self.loan.reply_id:
            QTimer.singleShot(0, self, self.give_back)  # Behind all others that follow the model or the reply.

    def _on_load(self) -> None:
        """End the loan if another model than the borrowed one is being loaded: the person chose it."""
        if self.loan is not None and self._slot.chosen != self.loan.borrowed.model:
            self._set(None)

    def _set(self, loan: Loan | None) -> None:
        if loan != self.loan:
            self.loan = loan
            self.changed.emit()
