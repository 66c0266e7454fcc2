"""One of two alternatives: how it was made, its text, and a button to choose it."""

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from rdchat.chat.conversation import Message
from rdchat.inference.api.requests import Role
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import IconButton, TextButton, push_button
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.transcript.markdown.parser import MarkdownParser, Parser, PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work

_SLICE_S = 0.008  # of drawing, per turn of the event loop


def made_words(message: Message) -> str:
    """Return how a message was made: by whom, its temperature and its speed."""
    said = []
    if message.role is Role.USER:
        said.append("Yours")
    if message.edited:
        said.append("Edited by you")
    made_with, statistics = message.made_with, message.statistics
    if made_with is not None and made_with.sampling is not None:
        said.append(f"temperature {made_with.sampling.temperature:g}")
    if statistics is not None:
        rate = formatting.rate(statistics.decode_tps)
        said += [f"{rate} tokens/s"] if rate != formatting.NONE else []
        said.append(formatting.counted(statistics.generated_tokens, "token"))
    if made_with is not None and made_with.system_prompt is not None:
        said.append("system prompt of its own")
    words = " · ".join(said)
    return words[:1].upper() + words[1:]


class TextArea(QScrollArea):
    """A text that is drawn in bounded steps, and scrolls."""

    drawn = Signal()  # all of it

    def __init__(self, parser: Parser, theme: Theme) -> None:
        super().__init__()
        self._text = ""
        self._ground = QWidget()
        self.body = TextBody(parser, theme, parent=self._ground)
        self.more = TextButton("Show more", theme, self._ground)
        self.more.clicked.connect(self._show_more)
        self._column = column(
            self.body, row(self.more, None), within=self._ground, spacing=TIGHT, margins=(MEDIUM, SMALL, MEDIUM, LARGE)
        )
        self.setWidget(self._ground)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # the text keeps its width
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._draw)

    def set_text(self, text: str) -> None:
        """Show another text from its beginning; the same one stays where it is."""
        if text != self._text:
            self._text = text
            self.body.marks.show([])
            self.body.set_text(text, True)
            self.verticalScrollBar().setValue(0)
        self._timer.start()

    def restyle(self) -> None:
        """Follow the theme."""
        self.body.restyle()
        self._timer.start()

    def _place(self) -> None:
        """Lay the text out at the width there is."""
        self.more.setVisible(self.body.hidden_characters > 0)
        self.more.setText(f"Show more ({self.body.hidden_characters:,} characters are hidden)")
        self._column.activate()
        width = max(self.viewport().width(), 80)
        self._ground.resize(width, self._column.heightForWidth(width))

    def _show_more(self) -> None:
        self.body.show_more()
        self._timer.start()

    def _draw(self) -> None:
        self.body.draw(time.perf_counter() + _SLICE_S)
        self._place()
        if self.body.work is Work.NONE:
            self._timer.stop()
            self.drawn.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()


class AlternativePane(QWidget):
    """Shows one of the alternatives of a message."""

    step_requested = Signal(int)
    use_requested = Signal(int)  # message id

    def __init__(self, role: Role, theme: Theme, side: str) -> None:
        super().__init__()
        self._theme = theme
        self._message: Message | None = None
        self.previous = IconButton("previous", f"Previous alternative, {side}", theme)
        self.next = IconButton("next", f"Next alternative, {side}", theme)
        self.place = ThemedLabel(theme, "", "muted", -1, tabular=True)
        self.model = ElidedLabel(theme, bold=True)
        self.made = ElidedLabel(theme, "", "muted", -1)
        self.area = TextArea(PlainParser() if role is Role.USER else MarkdownParser(), theme)
        self.area.body.setAccessibleName(f"Alternative, {side}")
        self.use = push_button("Use this one", "Shows it in the chat, which goes on from it", self._use)
        self.use.setAccessibleName(f"Use this one, {side}")
        self.previous.clicked.connect(lambda: self.step_requested.emit(-1))
        self.next.clicked.connect(lambda: self.step_requested.emit(1))
        head = row(
            (self.model, 1), self.previous, self.place, self.next, spacing=TIGHT, margins=(MEDIUM, SMALL, SMALL, 0)
        )
        about = row(self.made, margins=(MEDIUM, 0, MEDIUM, SMALL))
        foot = row(None, self.use, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(head, about, Separator(theme), (self.area, 1), Separator(theme), foot, within=self, spacing=0)
        theme.changed.connect(self.area.restyle)

    def show_message(self, message: Message, *, in_use: bool) -> None:
        """Show an alternative; the one that the chat shows already need not be chosen."""
        self._message = message
        self.model.setText("Your message" if message.role is Role.USER else message.model or "Reply")
        self.made.setText(made_words(message))
        self.place.setText(f"{message.sibling + 1} of {message.siblings}")
        self.previous.setEnabled(message.sibling > 0)
        self.next.setEnabled(message.sibling + 1 < message.siblings)
        self.use.setEnabled(not in_use)
        self.use.setText("In use" if in_use else "Use this one")
        text = message.text if message.role is Role.USER else message.parts.answer
        self.area.set_text(text)

    @property
    def shown_text(self) -> str:
        """The text as it is drawn."""
        return self.area.body.document().toPlainText()

    def _use(self) -> None:
        if self._message is not None:
            self.use_requested.emit(self._message.id)
