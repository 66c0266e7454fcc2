"""The line under a reply that says why it ended early or what it waits for."""

from enum import StrEnum

from PySide6.QtCore import QCoreApplication, QSize, Signal
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.events import FinishReason
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import SMALL, Theme


class Remedy(StrEnum):
    """What the person can do about a reply's early end: the words of the button."""

    NOTHING = ""
    CONTINUE = "Continue"
    TRY_AGAIN = "Try again"


def early_end(message: Message) -> tuple[str, Remedy]:
    """Return why a reply ended early, and what to do; an empty text if it ended by itself or is being written."""
    begun = bool(message.text.strip())
    remedy = Remedy.CONTINUE if begun else Remedy.TRY_AGAIN
    match message.status, message.finish_reason:
        case MessageStatus.FAILED, _:
            text, remedy = message.error or _tr("The reply failed."), Remedy.TRY_AGAIN
        case MessageStatus.INTERRUPTED, _:
            text = _tr("Interrupted: rdchat closed while this was being written.")
            text = text if begun else _tr("Interrupted: rdchat closed before this began.")
        case MessageStatus.COMPLETE, FinishReason.CANCELLED:
            text = _tr("Stopped.")
        case MessageStatus.COMPLETE, FinishReason.LENGTH:
            text = _tr("Stopped at the limit of tokens for one reply.")
        case MessageStatus.COMPLETE, FinishReason.CONTEXT_FULL:
            text = _tr("The model's context is full. Leave out the oldest messages, summarise them, or start anew.")
            remedy = Remedy.NOTHING
        case _:
            text, remedy = "", Remedy.NOTHING
    return text, remedy


class StatusLine(QWidget):
    """A text in a muted colour, or red after a failure, and at most one button."""

    remedy_requested = Signal(Remedy)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._remedy = Remedy.NOTHING
        self._label = ThemedLabel(theme, wraps=True, selectable=True)
        self._label.setParent(self)
        self._button = TextButton("", theme, self)
        self._button.clicked.connect(lambda: self.remedy_requested.emit(self._remedy))

    def show_message(self, message: Message, waiting: str) -> None:
        """Show how a reply ended, or what an empty one waits for."""
        text, self._remedy = early_end(message)
        if message.status is MessageStatus.STREAMING and not message.text:
            text = waiting or self.tr("Waiting for the model…")
        self._label.setText(text)
        self._label.set_color("danger" if message.status is MessageStatus.FAILED else "muted")
        self._button.setText(self.tr(self._remedy))
        self._button.setAccessibleName(self._button.text())
        self._button.setVisible(bool(self._remedy))

    @property
    def text(self) -> str:
        return self._label.text()

    def layout_for(self, width: int) -> int:
        """Place text and button at a width, and return the height they need."""
        button = self._button.sizeHint() if self._remedy else QSize()
        aside = button.width() + SMALL if self._remedy else 0
        natural = self._label.fontMetrics().horizontalAdvance(self._label.text()) + 2
        words = max(1, min(natural, width - aside))
        height = max(self._label.heightForWidth(words), button.height())
        self._label.setGeometry(0, 0, words, height)
        self._button.setGeometry(words + SMALL, (height - button.height()) // 2, button.width(), button.height())
        return height


def _tr(text: str) -> str:
    return QCoreApplication.translate("StatusLine", text)
