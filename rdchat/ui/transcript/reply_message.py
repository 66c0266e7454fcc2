"""A model's reply: its thoughts, its text, and a line that says how it ended."""

from PySide6.QtWidgets import QMenu

from rdchat.chat.conversation import Message
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.message_area import MessageArea
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.status_line import Remedy, StatusLine
from rdchat.ui.transcript.thought_box import ThoughtBox


class ReplyMessage(MessageWidget):
    """Plain text on the transcript's ground."""

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, MarkdownParser(), area)
        self.body.setAccessibleName(self.tr("Reply"))
        self._thought: ThoughtBox | None = None
        self._waiting = ""
        self._status = StatusLine(area.theme, self)
        self._status.remedy_requested.connect(self._mend)
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
        thought = ThoughtBox(self.area.theme, self.area.library, self)
        thought.height_changed.connect(self.area.work_added)
        thought.height_changed.connect(self.area.height_changed)
        thought.body.marks.set_matcher(self.body.marks.matcher)
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

    def _place_parts(self, width: int) -> int:
        bottom = 0
        if self._thought:
            height = self._thought.layout_for(width)
            self._thought.setGeometry(0, 0, width, height)
            bottom += height + MEDIUM
        has_text = self.body.document().characterCount() > 1 or not self.body.is_rendered
        height = self.body.height_for(width) if has_text else 0
        self.body.setGeometry(0, bottom, width, height)
        bottom += height
        if more := self._place_more(0, bottom + TIGHT):
            bottom += TIGHT + more
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
        super().restyle()

    def _submit(self, text: str) -> None:
        if text == self.written_text.strip("\n"):
            self._close_editor()
        else:
            super()._submit(text)

    def _show_parts(self) -> None:
        super()._show_parts()
        if self._thought:
            self._thought.setVisible(self._editor is None)
        self._status.setVisible(self._editor is None and bool(self._status.text))

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
