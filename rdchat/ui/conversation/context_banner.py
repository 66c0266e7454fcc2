"""The banner of a chat that is longer than the model's context, with what can be done about it."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QPushButton

from rdchat.services.context.chat_context import ChatContext, Doing, Outgrown
from rdchat.services.context.summariser import SummaryProgress
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme

_BESIDE = 80  # pixels: the icon, the button that closes and the margins
_DOING = {
    Doing.LEAVING_OUT: "Looking for what fits…",
    Doing.SUMMARISING: "The model is summarising the oldest turns…",
    Doing.STARTING_ANEW: "The model is summarising this chat for a new one…",
}


class ContextBanner(Banner):
    """Says by how much the chat is too long. Its buttons stand in a row, or where that is narrow one below the other.

    Args:
        theme: The appearance to follow.
        outgrown: By how much.
        doing: What is being done about it.
        context: Does what the buttons say.
    """

    def __init__(self, theme: Theme, outgrown: Outgrown, doing: Doing, context: ChatContext) -> None:
        free = doing is Doing.NOTHING
        sign = ("warning", "warning") if free else ("waiting", "muted")
        super().__init__(theme, *_words(outgrown, doing), *sign)
        self.progress = ThemedLabel(theme, "", "muted", -1)
        self.progress.hide()
        self.words.addWidget(self.progress)
        self._buttons = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._buttons.setContentsMargins(0, TIGHT, 0, 0)
        self._buttons.setSpacing(SMALL)
        self.words.addLayout(self._buttons)
        self.leave_out = self._add(
            "Leave out the oldest", "They stay in the chat, marked; the model is not told them", context.leave_out
        )
        self.summarise = self._add(
            "Summarise them", "They stay in the chat, marked; the model gets a summary instead", context.summarise
        )
        self.anew = self._add(
            "Start anew", "Begins another chat with a summary; this one stays as it is", context.start_anew
        )
        self.stop = self._add("Stop", "Leaves the chat as it is", context.stop)
        self._buttons.addStretch(1)
        self.stop.setVisible(not free)
        for button in self._choices:
            button.setVisible(free and outgrown.can_cut)

    def show_progress(self, progress: SummaryProgress) -> None:
        """Say how far the summary is."""
        part = f"Part {progress.part} of {progress.parts}: " if progress.parts > 1 else ""
        done = f"{progress.read:,} of {progress.to_read:,} tokens read"
        if progress.written:
            done = f"{progress.written:,} {'token' if progress.written == 1 else 'tokens'} written"
        self.progress.setText(part + done)
        self.progress.show()

    @property
    def _choices(self) -> list[QPushButton]:
        return [self.leave_out, self.summarise, self.anew]

    def _add(self, text: str, tip: str, act: Callable[[], object]) -> QPushButton:
        button = QPushButton(text)
        button.clicked.connect(act)
        set_tip(button, tip)
        button.setAccessibleDescription(tip)
        self._buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        return button

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        widths = [button.sizeHint().width() for button in self._choices if not button.isHidden()]
        needed = sum(widths) + SMALL * (len(widths) - 1)
        in_row = needed <= self.width() - _BESIDE
        directions = QBoxLayout.Direction
        self._buttons.setDirection(directions.LeftToRight if in_row else directions.TopToBottom)


def _words(outgrown: Outgrown, doing: Doing) -> tuple[str, str]:
    if doing is not Doing.NOTHING:
        return _DOING[doing], ""
    far = f"It takes far more than {outgrown.limit:,} tokens"
    detail = far if outgrown.tokens is None else f"It takes {outgrown.tokens:,} of {outgrown.limit:,} tokens"
    if outgrown.can_cut:
        return "This chat is longer than the model's context", f"{detail}. Nothing is left out by itself."
    return "This message is longer than the model's context", f"{detail}. Shorten it, or choose another model."
