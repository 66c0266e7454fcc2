"""The two kinds of messages: a prompt in a bubble at the right, and a model's reply."""

import re
from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QGridLayout, QMenu, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.style.buttons import TextButton
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.theme import MEDIUM, RADIUS, SMALL, TIGHT, paint_card
from rdchat.ui.transcript.markdown.parser import MarkdownParser, PlainParser
from rdchat.ui.transcript.message_actions import HEIGHT
from rdchat.ui.transcript.message_parts import (
    EDGE,
    FoldedText,
    LineLabel,
    MessageArea,
    Remedy,
    early_end,
    thought_title,
)
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.tool_messages import refused_text

# A bubble's width, as a share of the column.
_WIDEST = 0.82
# A text of more characters fills its lines, and is laid out only once.
_LONG = 4000
_PAD = MEDIUM + 2
_JSON_BEGINS = re.compile(r'\s*\{\s*["}]')
_BRACE = re.compile(r"\s*\{")
# The room that a bubble leaves for the buttons beside it.
_BUTTONS = 3 * 28 + TIGHT


def fenced(answer: str) -> str:
    """Return an answer that is a JSON object as a block of code, also while it is written; another one as it is."""
    return f"```json\n{answer}" if _JSON_BEGINS.match(answer) else answer


class PersonMessage(MessageWidget):
    """Shows the text as it was typed; fenced code is set apart. The buttons stand beside the bubble if they fit."""

    # The reply belongs to the same turn.
    room_below = MEDIUM

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, PlainParser(), area)
        self.body.setAccessibleName("Your message")
        self._files = SentFiles(message.files, area.file_text, area.theme, self)
        self._files.opened.connect(area.file_requested)
        self._bubble = column(self.body)
        self._buttons_layout = row(None, self.actions_row)
        # The height of the buttons where they stand under the bubble.
        self._under = 0
        both = QGridLayout()
        both.addLayout(self._bubble, 0, 0)
        both.addLayout(self._buttons_layout, 0, 0, Qt.AlignmentFlag.AlignBottom)
        self._column = column(self._files, both, within=self, spacing=0)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.body.set_text(message.text, True)
        super().show_message(message)

    def _show_parts(self) -> None:
        super()._show_parts()
        if not self.message.text:
            # Images without words have no bubble.
            self.body.hide()
        # The editor shows them too.
        self._files.setVisible(bool(self.message.files) and not self.is_edited)

    def layout_for(self, width: int) -> int:
        column_width = width - 2 * EDGE
        self._files.setFixedHeight(self._files.arrange(width - EDGE))
        widest = min(round(column_width * _WIDEST), column_width - _BUTTONS) - 2 * _PAD
        is_short = len(self.message.text) < _LONG
        text_width = self.body.natural_width(widest) if is_short else widest
        left = width - EDGE - _PAD - text_width
        is_narrow = left - _PAD < self.actions_row.sizeHint().width()
        self._under = HEIGHT if is_narrow and not self.is_edited else 0
        pad = SMALL if self.message.text else 0
        self._bubble.setContentsMargins(left, pad and pad + 2, EDGE + _PAD, pad + self._under)
        self._buttons_layout.setContentsMargins(0, 0, EDGE if self._under else width - left + _PAD + TIGHT, 0)
        self.update()
        return super().layout_for(width)

    def set_last(self, last: bool) -> None:
        # The reply of the last prompt was deleted, or a branch begins here.
        self.actions_row.offer_reply(last)
        super().set_last(last)

    def _add_actions(self, menu: QMenu) -> None:
        menu.addAction("Edit Message", self.edit)
        self._add(menu, "Get a Reply", self.area.regenerate_requested).setVisible(self.is_last)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.is_edited and self.message.text:
            left = self._bubble.contentsMargins().left() - _PAD
            bubble = self._bubble.geometry().adjusted(left, 0, -EDGE, -self._under)
            paint_card(self, bubble, self.area.theme.colors.raised, radius=RADIUS + 4)


class ReplyMessage(MessageWidget):
    """Shows the model's thoughts, its answer, and a line about how it ended."""

    # This is the distance below the buttons, which stand in the gap between two turns.
    room_below = TIGHT

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, MarkdownParser(), area)
        self.body.setAccessibleName("Reply")
        self._waiting = ""
        self._thinking = False
        self._status = LineLabel(area.theme)
        self._remedy = TextButton("", area.theme, self._mend)
        self._status_line = QWidget()
        row(self._status, self._remedy, None, within=self._status_line, margins=(EDGE, TIGHT, EDGE, 0))
        body = row(self.body, margins=(EDGE, 0, EDGE, 0))
        self._column = column(body, self._status_line, self.actions_row, within=self, spacing=0)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.message = message
        final = not self.is_busy
        parts = message.parts
        self._thinking = thinking = parts.open and not final and bool(message.text)
        if parts.thought or thinking:
            self.thought = self.thought or self._make_thought()
            cut_off = parts.open and final
            title = thought_title(message.thinking.ms, thinking=thinking, cut_off=cut_off)
            self.thought.show_text(title, parts.thought, final=not thinking, unfolded=cut_off)
        elif self.thought:
            self.thought.deleteLater()
            self.thought = None
        self.body.set_text(fenced(parts.answer), final)
        self._show_status()
        super().show_message(message)

    def append_text(self, message: Message, text: str) -> None:
        """Show a reply that is being written, which has gained a text."""
        before = self.message.thinking.parts
        parts = message.thinking.parts
        joins = before and parts and parts == (*before[:-1], replace(before[-1], end=before[-1].end + len(text)))
        if self.body.is_empty or self._thinking or not joins or _BRACE.match(message.text):
            self.show_message(message)
            return
        self.message = message
        self.body.append(text)
        self.area.work_added.emit()

    def set_waiting(self, text: str) -> None:
        """Show what an empty reply waits for."""
        self._waiting = text
        self._show_status()
        self._show_parts()

    def _show_status(self) -> None:
        """Show how the reply ended and which calls are not run, or what an empty one waits for."""
        text, remedy = early_end(self.message)
        text = f"{text} {refused_text(self.message)}".strip()
        if self.is_busy and not self.message.text:
            text = self._waiting or "Waiting for the model…"
        self._status.show_text(text, "danger" if self.message.status is MessageStatus.FAILED else "muted")
        self._remedy.setText(remedy)
        self._remedy.setVisible(bool(remedy) and self.area.has_actions)

    def _make_thought(self) -> FoldedText:
        thought = FoldedText(self.area.theme, "the model's thoughts", self)
        self._add_folded(thought)
        self._column.insertWidget(0, thought)
        return thought

    def _submit(self, text: str) -> None:
        if text == self.written_text.strip("\n"):
            self._close_editor()
        else:
            super()._submit(text)

    def _show_parts(self) -> None:
        super()._show_parts()
        if self.thought:
            self.thought.setVisible(not self.is_edited)
        self._status_line.setVisible(not self.is_edited and bool(self._status.text()))

    @property
    def written_text(self) -> str:
        """The answer as it was written, without the thoughts, which are not the person's to edit."""
        return self.message.parts.answer

    def _add_actions(self, menu: QMenu) -> None:
        menu.addSeparator()
        can_edit = not self.is_busy and bool(self.written_text.strip())
        menu.addAction("Edit Reply", self.edit).setEnabled(can_edit)
        begun = bool(self.message.text)
        can_continue = begun and not self.is_busy and not self.message.tool_calls
        self._add(menu, "Regenerate Reply", self.area.regenerate_requested).setEnabled(not self.is_busy)
        self._add(menu, "Regenerate With…", self.area.regenerate_with_requested).setEnabled(not self.is_busy)
        self._add(menu, "Continue Reply", self.area.continue_requested).setEnabled(can_continue)
        self._add(menu, "Show Tokens", self.area.tokens_requested).setEnabled(begun)

    def _mend(self) -> None:
        continues = early_end(self.message)[1] is Remedy.CONTINUE
        (self.area.continue_requested if continues else self.area.regenerate_requested).emit(self.message.id)
