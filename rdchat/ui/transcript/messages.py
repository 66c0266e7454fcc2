"""The two kinds of messages: a prompt in a bubble at the right, and a model's reply."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QMenu

from rdchat.chat.conversation import Message
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import MEDIUM, RADIUS, SMALL, TIGHT
from rdchat.ui.transcript.markdown.parser import MarkdownParser, PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.message_area import MessageArea
from rdchat.ui.transcript.message_parts import EDGE, Remedy, StatusLine, ThoughtBox
from rdchat.ui.transcript.message_widget import MessageWidget

_WIDEST = 0.82  # of the column
_LONG = 4000  # characters: such a text fills its lines, and is laid out only once
_PAD = MEDIUM + 2


class PersonMessage(MessageWidget):
    """Shows the text as it was typed; fenced code is set apart."""

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, PlainParser(), area)
        self.body.setAccessibleName(self.tr("Your message"))
        self._files = SentFiles(message.files, area.theme, self)
        self._files.opened.connect(area.file_requested)
        self._files.setVisible(bool(message.files))
        self._bubble = column(self.body, self.more, spacing=0)
        self._lay_out(self._files, self._bubble)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.body.set_text(message.text, True)
        super().show_message(message)

    def layout_for(self, width: int) -> int:
        column_width = width - 2 * EDGE
        self._files.setFixedHeight(max(0, self._files.place(width - EDGE) - TIGHT))
        widest = round(column_width * _WIDEST) - 2 * _PAD
        is_short = len(self.message.text) < _LONG
        text_width = self.body.natural_width(widest) if is_short else widest
        left = width - EDGE - _PAD - text_width
        self._bubble.setContentsMargins(left, SMALL + 2, EDGE + _PAD, SMALL)
        self.update()
        return super().layout_for(width)

    def set_last(self, last: bool) -> None:
        self.actions_row.offer_reply(last)  # its reply was deleted, or a branch begins here
        super().set_last(last)

    def _add_actions(self, menu: QMenu) -> None:
        menu.addAction(self.tr("Edit message"), self.edit)
        self._add(menu, self.tr("Get a reply"), self.area.regenerate_requested).setVisible(self.is_last)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.is_edited:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.area.theme.colors.raised)
            left = self._bubble.contentsMargins().left() - _PAD
            bubble = self._bubble.geometry().adjusted(left, 0, -EDGE, 0)
            painter.drawRoundedRect(bubble, RADIUS + 4, RADIUS + 4)


class ReplyMessage(MessageWidget):
    """Shows the model's thoughts, its answer, and a line that says how it ended."""

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, MarkdownParser(), area)
        self.body.setAccessibleName(self.tr("Reply"))
        self._thought: ThoughtBox | None = None
        self._waiting = ""
        self._status = StatusLine(area.theme, self)
        self._status.remedy_requested.connect(self._mend)
        self._lay_out(row(self.body, margins=(EDGE, 0, EDGE, 0)), row(self.more, None), self._status)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.message = message
        final, parts = not self.is_busy, message.parts
        thinking = parts.open and not final and bool(message.text)
        if not parts.thought and not thinking:
            if self._thought:
                self._thought.deleteLater()
                self._thought = None
        else:
            self._thought = self._thought or self._make_thought()
            cut_off = parts.open and final
            self._thought.show_thought(parts.thought, message.thinking.ms, thinking=thinking, cut_off=cut_off)
        self.body.set_text(parts.answer, final)
        self._status.show_message(message, self._waiting)
        super().show_message(message)

    def set_waiting(self, text: str) -> None:
        """Say what an empty reply waits for."""
        self._waiting = text
        self._status.show_message(self.message, text)
        self._show_parts()

    def _make_thought(self) -> ThoughtBox:
        thought = ThoughtBox(self.area.theme, self)
        thought.height_changed.connect(self.area.work_added)
        thought.height_changed.connect(self.area.height_changed)
        thought.body.marks.set_matcher(self.body.marks.matcher)
        self._column.insertWidget(0, thought)
        return thought

    @property
    def bodies(self) -> list[TextBody]:
        return [*([self._thought.body] if self._thought else []), *super().bodies]

    @property
    def shown_bodies(self) -> list[TextBody]:
        return self.bodies if not self._thought or self._thought.unfolded else super().bodies

    def unfold(self, body: TextBody) -> None:
        if self._thought and body is self._thought.body:
            self._thought.unfold()

    def _submit(self, text: str) -> None:
        if text == self.written_text.strip("\n"):
            self._close_editor()
        else:
            super()._submit(text)

    def _show_parts(self) -> None:
        super()._show_parts()
        if self._thought:
            self._thought.setVisible(not self.is_edited)
        self._status.setVisible(not self.is_edited and bool(self._status.text))

    @property
    def written_text(self) -> str:
        """The answer as it was written, without the thoughts, which are not the person's to edit."""
        return self.message.parts.answer

    def _add_actions(self, menu: QMenu) -> None:
        menu.addSeparator()
        can_edit = not self.is_busy and bool(self.written_text.strip())
        menu.addAction(self.tr("Edit reply"), self.edit).setEnabled(can_edit)
        for words, signal, enabled in (
            (self.tr("Regenerate reply"), self.area.regenerate_requested, not self.is_busy),
            (self.tr("Regenerate with…"), self.area.regenerate_with_requested, not self.is_busy),
            (self.tr("Continue reply"), self.area.continue_requested, not self.is_busy and bool(self.message.text)),
            (self.tr("Show tokens"), self.area.tokens_requested, bool(self.message.text)),
        ):
            self._add(menu, words, signal).setEnabled(enabled)

    def _mend(self, remedy: Remedy) -> None:
        wanted = self.area.continue_requested if remedy is Remedy.CONTINUE else self.area.regenerate_requested
        wanted.emit(self.message.id)
