"""The banner of a chat that is longer than the model's context, with what can be done about it."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout

from rdchat.services.context.chat_context import ChatContext, Doing
from rdchat.services.context.context_meter import ContextUse
from rdchat.services.context.summariser import SummaryProgress
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
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
        use: How many tokens the chat takes.
        doing: What is being done about it.
        context: Does what the buttons say.
    """

    def __init__(self, theme: Theme, use: ContextUse, doing: Doing, context: ChatContext) -> None:
        is_free = doing is Doing.NOTHING
        sign = ("warning", "warning") if is_free else ("waiting", "muted")
        super().__init__(theme, *_words(use, doing), *sign)
        self.progress = ThemedLabel(theme, "", "muted", -1)
        self.progress.hide()
        choices = [
            ("Leave out the oldest", "They stay in the chat, marked; the model is not told them", context.leave_out),
            ("Summarise them", "They stay in the chat, marked; the model gets a summary instead", context.summarise),
            ("Start anew", "Begins another chat with a summary; this one stays as it is", context.start_anew),
        ]
        offered = choices if use.can_cut else []
        if not is_free:
            offered = [("Stop", "Leaves the chat as it is", context.stop)]
        self.buttons = [push_button(*each) for each in offered]
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._row.setContentsMargins(0, TIGHT, 0, 0)
        self._row.setSpacing(SMALL)
        for button, (_, tip, _) in zip(self.buttons, offered, strict=True):
            button.setAccessibleDescription(tip)
            self._row.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        self._row.addStretch(1)
        self.words.addWidget(self.progress)
        self.words.addLayout(self._row)

    def show_progress(self, progress: SummaryProgress) -> None:
        """Say how far the summary is."""
        part = f"Part {progress.part} of {progress.parts}: " if progress.parts > 1 else ""
        done = f"{progress.read:,} of {progress.to_read:,} tokens read"
        if progress.written:
            done = f"{progress.written:,} {'token' if progress.written == 1 else 'tokens'} written"
        self.progress.say(part + done)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        needed = sum(button.sizeHint().width() + SMALL for button in self.buttons) - SMALL
        directions = QBoxLayout.Direction
        is_wide = needed <= self.width() - _BESIDE
        self._row.setDirection(directions.LeftToRight if is_wide else directions.TopToBottom)


def _words(use: ContextUse, doing: Doing) -> tuple[str, str]:
    if doing is not Doing.NOTHING:
        return _DOING[doing], ""
    far = f"It takes far more than {use.limit:,} tokens"
    detail = far if use.tokens is None else f"It takes {use.tokens:,} of {use.limit:,} tokens"
    if use.can_cut:
        return "This chat is longer than the model's context", f"{detail}. Nothing is left out by itself."
    return "This message is longer than the model's context", f"{detail}. Shorten it, or choose another model."
