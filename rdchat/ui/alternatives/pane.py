"""One alternative: how it was made, its text, and a button to go on with it."""

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from rdchat.chat.conversation import Message
from rdchat.inference.api.requests import Role
from rdchat.services.text.comparison import Spans
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import IconButton, TextButton
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.parser import MarkdownParser, Parser, PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work

_SLICE_S = 0.008  # of drawing, per turn of the event loop


def made_words(message: Message) -> str:
    """Say how a message was made: in which way, how freely, how fast."""
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
    """A text that is drawn in bounded steps, and scrolls; `drawn` tells when all of it is."""

    drawn = Signal()

    def __init__(self, parser: Parser, theme: Theme, library: LexerLibrary) -> None:
        super().__init__()
        self._text = ""
        self._ground = QWidget()
        self.body = TextBody(parser, theme, library, parent=self._ground)
        self.more = TextButton("Show more", theme, self._ground)
        self.more.clicked.connect(self._show_more)
        self.setWidget(self._ground)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # the text keeps its width
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._draw)

    def set_text(self, text: str, final: bool) -> None:
        """Show another text from its beginning; the same one stays where it is."""
        if text != self._text:
            self._text = text
            self.body.marks.show([])
            self.body.set_text(text, final)
            self.verticalScrollBar().setValue(0)
        self._timer.start()

    def restyle(self) -> None:
        """Follow the theme."""
        self.body.restyle()
        self._timer.start()

    def place(self) -> None:
        """Lay the text out at the width there is."""
        width = max(self.viewport().width() - 2 * MEDIUM, 80)
        height = self.body.height_for(width)
        self.body.setGeometry(MEDIUM, SMALL, width, height)
        bottom = SMALL + height
        self.more.setVisible(self.body.hidden_characters > 0)
        if self.body.hidden_characters:
            self.more.setText(f"Show more ({self.body.hidden_characters:,} characters are hidden)")
            self.more.setGeometry(MEDIUM, bottom + TIGHT, self.more.sizeHint().width(), self.more.sizeHint().height())
            bottom += TIGHT + self.more.height()
        self._ground.resize(self.viewport().width(), bottom + LARGE)

    def _show_more(self) -> None:
        self.body.show_more()
        self._timer.start()

    def _draw(self) -> None:
        self.body.draw(time.perf_counter() + _SLICE_S)
        self.place()
        if self.body.work is Work.NONE:
            self._timer.stop()
            self.drawn.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.place()


class AlternativePane(QWidget):
    """Shows one message of several; `step_requested` and `use_requested` say what is wanted."""

    step_requested = Signal(int)
    use_requested = Signal(int)  # message id

    def __init__(self, role: Role, theme: Theme, library: LexerLibrary, side: str) -> None:
        super().__init__()
        self._theme = theme
        self._message: Message | None = None
        self.previous = IconButton("previous", f"Previous alternative, {side}", theme)
        self.next = IconButton("next", f"Next alternative, {side}", theme)
        self.place = ThemedLabel(theme, "", "muted", -1, tabular=True)
        self.model = ElidedLabel(theme, bold=True)
        self.made = ElidedLabel(theme, "", "muted", -1)
        self.area = TextArea(PlainParser() if role is Role.USER else MarkdownParser(), theme, library)
        self.area.body.setAccessibleName(f"Alternative, {side}")
        self.use = QPushButton("Use this one")
        set_tip(self.use, "Shows it in the chat, which goes on from it")
        self.use.setAccessibleName(f"Use this one, {side}")
        self.use.setAutoDefault(False)
        self.previous.clicked.connect(lambda: self.step_requested.emit(-1))
        self.next.clicked.connect(lambda: self.step_requested.emit(1))
        self.use.clicked.connect(self._use)
        head = QHBoxLayout()
        head.setContentsMargins(MEDIUM, SMALL, SMALL, 0)
        head.setSpacing(TIGHT)
        head.addWidget(self.model, 1)
        for widget in (self.previous, self.place, self.next):
            head.addWidget(widget)
        about = QHBoxLayout()
        about.setContentsMargins(MEDIUM, 0, MEDIUM, SMALL)
        about.addWidget(self.made)
        foot = QHBoxLayout()
        foot.setContentsMargins(MEDIUM, SMALL, MEDIUM, SMALL)
        foot.addStretch(1)
        foot.addWidget(self.use)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(head)
        column.addLayout(about)
        column.addWidget(Separator(theme))
        column.addWidget(self.area, 1)
        column.addWidget(Separator(theme))
        column.addLayout(foot)
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
        self.area.set_text(text, True)

    @property
    def shown_text(self) -> str:
        """The text as it is drawn."""
        return self.area.body.document().toPlainText()

    def mark(self, spans: Spans) -> None:
        """Mark places of the drawn text."""
        self.area.body.marks.show(spans)

    def _use(self) -> None:
        if self._message is not None:
            self.use_requested.emit(self._message.id)
