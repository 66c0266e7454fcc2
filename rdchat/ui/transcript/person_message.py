"""A message of the person's: a bubble at the right, which can be edited in its place."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QAction, QPainter, QPaintEvent
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.chat.conversation import Message
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.look.theme import MEDIUM, RADIUS, SMALL, TIGHT, Theme
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.parser import PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.message_widget import MessageWidget

_WIDEST = 0.82  # of the column
_LONG = 4000  # characters: such a text fills its lines, and is laid out once only


class PersonMessage(MessageWidget):
    """Shows the text as it was typed; fenced code is set apart."""

    def __init__(self, message: Message, theme: Theme, library: LexerLibrary, parent: QWidget | None = None) -> None:
        super().__init__(message, TextBody(PlainParser(), theme, library), theme, parent)
        self.body.setAccessibleName(self.tr("Your message"))
        self._bubble = QRect()
        self._files = SentFiles(message.files, theme, self)
        self._files.opened.connect(self.file_requested)
        self.actions_row.edit_requested.connect(self.edit)
        self.actions_row.regenerate_requested.connect(lambda: self.regenerate_requested.emit(self.message.id))
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.body.set_text(message.text, True)
        super().show_message(message)

    def layout_for(self, width: int) -> int:
        top = self._files.place(width)
        if self._editor:
            height = self._editor.sizeHint().height()
            self._editor.setGeometry(0, top, width, height)
            return top + height + SMALL
        widest = round(width * _WIDEST) - 2 * (MEDIUM + 2)
        is_short = len(self.message.text) < _LONG
        text_width = self.body.natural_width(widest) if is_short else widest
        height = self.body.height_for(text_width)
        left = width - text_width - MEDIUM - 2
        self.body.setGeometry(left, top + SMALL + 2, text_width, height)
        bottom = top + SMALL + 1 + height
        if not self.more.isHidden():
            self.more.setGeometry(left, bottom, self.more.sizeHint().width(), self.more.sizeHint().height())
            bottom += self.more.height()
        self._bubble = QRect(left - MEDIUM - 2, top, text_width + 2 * (MEDIUM + 2), bottom - top + SMALL + 1)
        row = self.actions_row
        row.setGeometry(0, self._bubble.bottom() + TIGHT, width, row.HEIGHT)
        self.update()
        return self._bubble.bottom() + 1 + TIGHT + row.HEIGHT

    def set_last(self, last: bool) -> None:
        self.actions_row.offer_reply(last)
        super().set_last(last)

    def message_actions(self, menu: QMenu) -> list[QAction]:
        edit = QAction(self.tr("Edit message"), menu)
        edit.triggered.connect(self.edit)
        answer = QAction(self.tr("Get a reply"), menu)
        answer.triggered.connect(lambda: self.regenerate_requested.emit(self.message.id))
        answer.setVisible(self.is_last)  # its reply was deleted, or it is where a branch begins
        return [*super().message_actions(menu), edit, answer]

    def edit(self) -> None:
        """Turn the text into an editor."""
        if self._editor is None:
            self.open_editor(self.message.text).setFocus()

    def _show_parts(self) -> None:
        reading = self._editor is None
        self.body.setVisible(reading)
        self.actions_row.setVisible(reading)
        self.more.setVisible(reading and self.body.hidden_characters > 0)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._editor is None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.theme.colors.raised)
            painter.drawRoundedRect(self._bubble, RADIUS + 4, RADIUS + 4)
