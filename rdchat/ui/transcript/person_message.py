"""A prompt: a bubble at the right, which can be edited in its place."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QMenu

from rdchat.chat.conversation import Message
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.look.theme import MEDIUM, RADIUS, SMALL, TIGHT
from rdchat.ui.transcript.markdown.parser import PlainParser
from rdchat.ui.transcript.message_area import MessageArea
from rdchat.ui.transcript.message_widget import MessageWidget

_WIDEST = 0.82  # of the column
_LONG = 4000  # characters: such a text fills its lines, and is laid out only once
_PAD = MEDIUM + 2


class PersonMessage(MessageWidget):
    """Shows the text as it was typed; fenced code is set apart."""

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, PlainParser(), area)
        self.body.setAccessibleName(self.tr("Your message"))
        self._bubble = QRect()
        self._files = SentFiles(message.files, area.theme, self)
        self._files.opened.connect(area.file_requested)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.body.set_text(message.text, True)
        super().show_message(message)

    def _editor_top(self, width: int) -> int:
        return self._files.place(width)

    def _place_parts(self, width: int) -> int:
        top = self._files.place(width)
        widest = round(width * _WIDEST) - 2 * _PAD
        is_short = len(self.message.text) < _LONG
        text_width = self.body.natural_width(widest) if is_short else widest
        height = self.body.height_for(text_width)
        left = width - text_width - _PAD
        self.body.setGeometry(left, top + SMALL + 2, text_width, height)
        bottom = top + SMALL + 1 + height
        bottom += self._place_more(left, bottom)
        self._bubble = QRect(left - _PAD, top, text_width + 2 * _PAD, bottom - top + SMALL + 1)
        row = self.actions_row
        row.setGeometry(0, self._bubble.bottom() + TIGHT, width, row.HEIGHT)
        self.update()
        return self._bubble.bottom() + 1 + TIGHT + row.HEIGHT

    def set_last(self, last: bool) -> None:
        self.actions_row.offer_reply(last)  # its reply was deleted, or a branch begins here
        super().set_last(last)

    def _add_actions(self, menu: QMenu) -> None:
        menu.addAction(self.tr("Edit message"), self.edit)
        self._add(menu, self.tr("Get a reply"), self.area.regenerate_requested).setVisible(self.is_last)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._editor is None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.area.theme.colors.raised)
            painter.drawRoundedRect(self._bubble, RADIUS + 4, RADIUS + 4)
