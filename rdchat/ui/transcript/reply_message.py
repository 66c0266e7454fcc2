"""A model's reply: plain text on the transcript's ground."""

from PySide6.QtCore import QRect
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.transcript.endings import Ending, Remedy, ending
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.status_line import StatusLine
from rdchat.ui.transcript.thought_box import ThoughtBox


class ReplyMessage(MessageWidget):
    """Thoughts, text, and a line that says how it ended or what it waits for."""

    def __init__(self, message: Message, theme: Theme, library: LexerLibrary, parent: QWidget | None = None) -> None:
        super().__init__(message, TextBody(MarkdownParser(), theme, library), theme, parent)
        self.body.setAccessibleName(self.tr("Reply"))
        self._library = library
        self._thought: ThoughtBox | None = None
        self._waiting = ""
        self._ending: Ending | None = None
        self._status = StatusLine(theme, self)
        self._status.action_requested.connect(self._remedy)
        self.actions_row.regenerate_requested.connect(lambda: self.regenerate_requested.emit(self.message.id))
        self.actions_row.tokens_requested.connect(lambda: self.tokens_requested.emit(self.message.id))
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        final = message.status is not MessageStatus.STREAMING
        parts = message.parts
        thinking = parts.open and not final and bool(message.text)
        self._show_thought(parts.thought, message.thinking.ms, thinking=thinking, cut_off=parts.open and final)
        self.body.set_text(parts.answer, final)
        self._ending = ending(message)
        super().show_message(message)
        self._say()
        if self._editor is not None:
            self._show_parts()

    def set_waiting(self, text: str) -> None:
        """Say what an empty reply waits for."""
        self._waiting = text
        self._say()

    def _say(self) -> None:
        streaming = self.message.status is MessageStatus.STREAMING
        if self._ending:
            action = {
                Remedy.CONTINUE: self.tr("Continue"),
                Remedy.TRY_AGAIN: self.tr("Try again"),
                Remedy.NOTHING: "",
            }[self._ending.remedy]
            self._status.say(self._ending.text, action, self._ending.failed)
        elif streaming and not self.message.text:
            self._status.say(self._waiting or self.tr("Waiting for the model…"))
        else:
            self._status.say("")
        self._status.setVisible(bool(self._status.text) and self._editor is None)

    def _show_thought(self, thought: str, ms: float, *, thinking: bool, cut_off: bool) -> None:
        if not thought and not thinking:
            if self._thought:
                self._thought.deleteLater()
                self._thought = None
            return
        if self._thought is None:
            self._thought = ThoughtBox(self.theme, self._library, self)
            self._thought.height_changed.connect(self._thought_folded)
            self._thought.body.marks.set_matcher(self.body.marks.matcher)
            self._thought.setVisible(self._editor is None)
        self._thought.show_thought(thought, ms, thinking=thinking, cut_off=cut_off)

    def _thought_folded(self) -> None:
        self.work_added.emit()
        self.height_changed.emit()

    @property
    def bodies(self) -> list[TextBody]:
        return [*([self._thought.body] if self._thought else []), self.body]

    def go_to_hit(self, number: int) -> QRect:
        if number >= 0 and self._thought and self.hits[number][0] is self._thought.body:
            self._thought.unfold()
        return super().go_to_hit(number)

    @property
    def work(self) -> Work:
        return max(super().work, self._thought.work if self._thought else Work.NONE)

    def advance(self, deadline: float) -> Work:
        if self._thought and self._thought.work:
            self._thought.body.advance(deadline)
        return super().advance(deadline)

    def layout_for(self, width: int) -> int:
        if self._editor:
            height = self._editor.sizeHint().height()
            self._editor.setGeometry(0, 0, width, height)
            return height + SMALL
        bottom = 0
        if self._thought:
            height = self._thought.layout_for(width)
            self._thought.setGeometry(0, 0, width, height)
            bottom += height + MEDIUM
        has_text = bool(self.body.document().characterCount() > 1) or not self.body.is_rendered
        height = self.body.height_for(width) if has_text else 0
        self.body.setGeometry(0, bottom, width, height)
        bottom += height
        if not self.more.isHidden():
            self.more.setGeometry(0, bottom + TIGHT, self.more.sizeHint().width(), self.more.sizeHint().height())
            bottom += TIGHT + self.more.height()
        if not self._status.isHidden():
            height = self._status.layout_for(width)
            above = SMALL if bottom else 0
            self._status.setGeometry(0, bottom + above, width, height)
            bottom += above + height
        row = self.actions_row
        row.setGeometry(-TIGHT - 2, bottom + TIGHT, width, row.HEIGHT)  # the icon, not its frame, meets the text's edge
        return bottom + TIGHT + row.HEIGHT

    def restyle(self) -> None:
        if self._thought:
            self._thought.restyle()
        self._status.restyle()
        super().restyle()

    def edit(self) -> None:
        """Turn the answer into an editor; what was thought is not the person's to write."""
        if self._editor is None:
            self.open_editor(self.copied_text().strip("\n")).setFocus()

    def _submit(self, text: str) -> None:
        if text == self.copied_text().strip("\n"):
            self._close_editor()
        else:
            super()._submit(text)

    def _show_parts(self) -> None:
        reading = self._editor is None
        busy = self.message.status is MessageStatus.STREAMING
        self.actions_row.setVisible(reading and not busy)
        for part in (self.body, *([self._thought] if self._thought else [])):
            part.setVisible(reading)
        self.more.setVisible(reading and self.body.hidden_characters > 0)
        self._status.setVisible(reading and bool(self._status.text))

    def copied_text(self) -> str:
        """Return the answer as it was written, without the thoughts."""
        return self.message.parts.answer

    def message_actions(self, menu: QMenu) -> list[QAction]:
        again = QAction(self.tr("Regenerate reply"), menu)
        again.triggered.connect(lambda: self.regenerate_requested.emit(self.message.id))
        other = QAction(self.tr("Regenerate with…"), menu)
        other.triggered.connect(lambda: self.regenerate_with_requested.emit(self.message.id))
        other.setEnabled(self.message.status is not MessageStatus.STREAMING)
        onward = QAction(self.tr("Continue reply"), menu)
        onward.triggered.connect(lambda: self.continue_requested.emit(self.message.id))
        tokens = QAction(self.tr("Show tokens"), menu)
        tokens.triggered.connect(lambda: self.tokens_requested.emit(self.message.id))
        tokens.setEnabled(bool(self.message.text))
        busy = self.message.status is MessageStatus.STREAMING
        again.setEnabled(not busy)
        onward.setEnabled(not busy and bool(self.message.text))
        edit = QAction(self.tr("Edit reply"), menu)
        edit.triggered.connect(self.edit)
        edit.setEnabled(not busy and bool(self.copied_text().strip()))
        between = QAction(menu)
        between.setSeparator(True)
        return [*super().message_actions(menu), between, edit, again, other, onward, tokens]

    def _remedy(self) -> None:
        if self._ending and self._ending.remedy is Remedy.CONTINUE:
            self.continue_requested.emit(self.message.id)
        else:
            self.regenerate_requested.emit(self.message.id)
