"""The banner of a chat that is longer than the model's context: what happened, and the choice."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QPushButton

from rdchat.services.context.chat_context import Doing, Outgrown
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.look.theme import SMALL, TIGHT, Theme

_DOING = {Doing.LEAVING_OUT: "Looking for what fits…"}


class ContextBanner(Banner):
    """Says by how much the chat is too long. Its buttons stand in a row, or where that is narrow one below the other.

    Args:
        theme: The appearance to follow.
        outgrown: What does not fit.
        doing: What is being done about it.
    """

    leave_out_requested = Signal()
    stop_requested = Signal()

    def __init__(self, theme: Theme, outgrown: Outgrown, doing: Doing) -> None:
        super().__init__(theme, *_words(outgrown, doing), icon="warning", color="warning")
        self._buttons = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._buttons.setContentsMargins(0, TIGHT, 0, 0)
        self._buttons.setSpacing(SMALL)
        self.words.addLayout(self._buttons)
        self.leave_out = self._add("Leave out the oldest", "They stay in the chat, marked; the model is not told them")
        self.leave_out.clicked.connect(self.leave_out_requested)
        self.stop = self._add("Stop", "Leaves the chat as it is")
        self.stop.clicked.connect(self.stop_requested)
        self._buttons.addStretch(1)
        free = doing is Doing.NOTHING
        self.stop.setVisible(not free)
        for button in self._choices:
            button.setVisible(free and outgrown.can_cut)

    @property
    def _choices(self) -> list[QPushButton]:
        return [self.leave_out]

    def _add(self, text: str, tip: str) -> QPushButton:
        button = QPushButton(text)
        button.setToolTip(tip)
        self._buttons.addWidget(button)
        return button

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        needed = sum(button.sizeHint().width() + SMALL for button in self._choices)
        in_row = needed <= self.width() - 90  # the icon, the button that closes and the margins
        directions = QBoxLayout.Direction
        self._buttons.setDirection(directions.LeftToRight if in_row else directions.TopToBottom)


def _words(outgrown: Outgrown, doing: Doing) -> tuple[str, str]:
    if doing is not Doing.NOTHING:
        return _DOING[doing], ""
    far = f"It takes far more than {outgrown.limit:,} tokens"
    detail = far if outgrown.tokens is None else f"It takes {outgrown.tokens:,} of {outgrown.limit:,} tokens"
    if outgrown.can_cut:
        return "This chat is longer than the model's context", f"{detail}. Nothing is left out unless you choose so."
    return "This message is longer than the model's context", f"{detail}. Shorten it, or choose another model."
