"""The widget of one message: what prompts, replies and results of tools have in common.

It has the message's texts, which are drawn in steps when the transcript asks for it, the row of buttons, an editor, the
context menu, and the line below a message that says what the model does not get. `message_kinds` has the subclasses.
"""

from dataclasses import replace
from functools import partial

from PySide6.QtCore import QEvent, QPoint, QRect, QSignalBlocker, SignalInstance
from PySide6.QtGui import QAction, QContextMenuEvent, QEnterEvent
from PySide6.QtWidgets import QMenu, QVBoxLayout, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.storage import WordMatcher
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import Role
from rdchat.services.background_work import BackgroundWork
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.style import add_action, ask_to_save_content, cut, discard, keep_room, pop_up
from rdchat.ui.transcript.markdown.blocks import Block
from rdchat.ui.transcript.markdown.copying import (
    CopyForm,
    as_markdown,
    as_plain,
    blocks_of,
    csv_of,
    forms_of,
    put_on_clipboard,
)
from rdchat.ui.transcript.markdown.parser import Parser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work
from rdchat.ui.transcript.message_actions import MessageActions
from rdchat.ui.transcript.message_parts import CutMark, FoldedText, MessageArea, MessageEditor, height_of

# The longest name of a table in the menu, in characters.
_NAME_LENGTH = 30


class MessageWidget(QWidget):
    """One message. The transcript lays it out: it asks for the height first.

    Attributes:
        room_below: The distance to the next message.
    """

    room_below: int
    # The parts of the message, from the top. An editor is put behind the first one, which has the files, or is hidden
    # meanwhile.
    _column: QVBoxLayout

    def __init__(self, message: Message, parser: Parser, area: MessageArea) -> None:
        super().__init__(area.column)
        self.message = message
        self.area = area
        self.body = TextBody(parser, area.theme, parent=self)
        self.body.caret_moved.connect(self._report_caret)
        self.body.menu_requested.connect(self._show_menu)
        self._lay_out_after(self.body.height_changed)
        self.actions_row = MessageActions(message, area, lambda: self.written_text, self)
        self.actions_row.edit_requested.connect(self.edit)
        self.actions_row.menu_requested.connect(self._open_menu)
        self._editor: MessageEditor | None = None
        self.thought: FoldedText | None = None
        self._cut: CutMark | None = None
        self.is_last = False

    # --- what subclasses extend

    def show_message(self, message: Message) -> None:
        """Show another state of the message."""
        self.message = message
        self.actions_row.show_actions(message)
        self._show_parts()
        if self.work:
            self.area.work_added.emit()

    def _add_actions(self, menu: QMenu) -> None:
        """Add what the context menu offers for this kind of message."""
        raise NotImplementedError

    def _show_parts(self) -> None:
        """Show the editor, or what it replaces."""
        reading = not self.is_edited
        self.body.setVisible(reading)
        # A reply of calls alone, perhaps with a thought, has nothing to copy; its calls stand below.
        is_empty = not self.written_text.strip() and bool(self.message.tool_calls) and not self.is_last
        keep_room(self.actions_row, not is_empty)
        self.actions_row.setVisible(reading and not self.is_busy and self.area.has_actions and not is_empty)

    @property
    def is_busy(self) -> bool:
        """Whether the message is being written."""
        return self.message.status is MessageStatus.STREAMING

    @property
    def written_text(self) -> str:
        """The text as it was written, which is what is copied and edited."""
        return self.message.text

    @property
    def is_edited(self) -> bool:
        """Whether an editor is shown instead of the text."""
        return self._editor is not None

    def layout_for(self, width: int) -> int:
        """Return the height that the message needs at a width."""
        return height_of(self._column, width)

    def show_cut(self, cut: ContextCut | None, messages: int) -> None:
        """Say below the message that the model does not get all of it and those above.

        Args:
            cut: How the context is cut here; None removes the line.
            messages: The number of messages that are cut.
        """
        if self._cut and (self._cut.cut, self._cut.messages) == (cut, messages):
            return
        if self._cut:
            discard(self._cut)
            self._cut = None
        if cut:
            self._cut = CutMark(cut, messages, self.area.theme, self)
            self._cut.undo_requested.connect(lambda: self.area.cut_undo_requested.emit(self.message.id))
            self._cut.replaced_requested.connect(self.area.replaced_requested)
            self._cut.edited.connect(lambda text: self.area.summary_edited.emit(self.message.id, text))
            self._lay_out_after(self._cut.height_changed)
            self._column.addWidget(self._cut)
            self._cut.show()
            if self._cut.summary:
                self._add_folded(self._cut.summary)

    def _make_files(self) -> SentFiles:
        files = SentFiles(self.message.files, self.area.file_text, self.area.theme, self)
        files.opened.connect(self.area.file_requested)
        files.mark_left_out(self.area.left_out.get(self.message.id, ()))
        return files

    # --- being edited

    def edit(self) -> MessageEditor:
        """Turn the text into an editor, unless it is one, and give that the keyboard."""
        editor = self._editor or self.open_editor(self.written_text.strip("\n"))
        editor.setFocus()
        return editor

    def open_editor(self, text: str) -> MessageEditor:
        """Show an editor of this text instead of the message, and return it."""
        editor = MessageEditor(text, self.area.theme, self, of_reply=self.message.role is Role.ASSISTANT)
        self._editor = editor
        editor.submitted.connect(self._submit)
        editor.cancelled.connect(self._close_editor)
        editor.field.height_changed.connect(self.area.height_changed)
        editor.changed.connect(lambda text: self.area.edited.emit(self.message, text))
        self.area.on_edit(self.message, editor)
        self._column.insertWidget(1, editor)
        self._show_parts()
        editor.show()
        self.area.height_changed.emit()
        self.area.edited.emit(self.message, text)
        return editor

    def resume_edit(self, text: str) -> None:
        """Go on with an edit that was left; the keyboard stays where it is, and no height has changed."""
        with QSignalBlocker(self.area):
            self.open_editor(text)

    def _submit(self, text: str) -> None:
        """Ask for the edit to be saved; the editor stays until another version of the message is shown."""
        self.area.edit_submitted.emit(self.message.id, text)

    def _close_editor(self) -> None:
        if self._editor:
            discard(self._editor)
            self._editor = None
            self.area.edited.emit(self.message, "")
            self._show_parts()
            self.area.height_changed.emit()
            self.body.setFocus()

    # --- drawing in steps

    def _lay_out_after(self, changed: SignalInstance) -> None:
        """Lay the message out again, and draw it, whenever the person changed something."""
        changed.connect(self.area.work_added)
        changed.connect(self.area.height_changed)

    def _add_folded(self, folded: FoldedText) -> None:
        """Let a part that folds behave as a part of the message."""
        self._lay_out_after(folded.toggled)
        self._lay_out_after(folded.body.height_changed)
        folded.body.marks.set_matcher(self.body.marks.matcher)

    @property
    def _folded(self) -> list[FoldedText]:
        return [part for part in (self.thought, self._cut and self._cut.summary) if part]

    @property
    def bodies(self) -> list[TextBody]:
        """The texts of the message, from the top."""
        texts = [part.body for part in self._folded]
        # Thoughts stand above the text, a summary stands below it.
        texts.insert(1 if self.thought else 0, self.body)
        return texts

    @property
    def visible_bodies(self) -> list[TextBody]:
        """Those of them that are not folded."""
        return [self.body, *(part.body for part in self._folded if part.unfolded)]

    @property
    def work(self) -> Work:
        """The kind of drawing that is left to do."""
        return max((body.work for body in self.visible_bodies), default=Work.NONE)

    def draw_until(self, deadline: float) -> None:
        """Draw until the deadline, at least one step of each text."""
        for body in self.visible_bodies:
            body.draw_until(deadline)

    def draw_more(self, deadline: float) -> bool:
        """Draw some of what is not drawn yet, folded and hidden parts too; return whether there was any."""
        for body in self.bodies:
            if body.work is Work.READY:
                body.take_step(deadline)
                return True
        if self.body.hidden_characters:
            self.body.show_more()
            return True
        return False

    def restyle(self) -> None:
        """Follow the theme."""
        for body in self.bodies:
            body.restyle()
        self.area.work_added.emit()

    def mark_matches(self, matcher: WordMatcher) -> None:
        """Mark the words of a search."""
        for body in self.bodies:
            body.marks.set_matcher(matcher)

    @property
    def hits(self) -> list[tuple[TextBody, int]]:
        """The words that are marked, each as a text and the word's number in it."""
        return [(body, number) for body in self.bodies for number in range(len(body.marks.hits))]

    def unfold(self, body: TextBody) -> None:
        """Show one of the message's texts, if it is folded."""
        for part in self._folded:
            if part.body is body:
                part.unfold()

    # --- copying, and the context menu

    def copy(self) -> None:
        """Copy the message as it was written."""
        self.actions_row.copy_button.copy(self.written_text)

    def copy_as(self, form: CopyForm) -> None:
        """Copy the message in a form; Markdown is as it was written.

        Other forms are made on a thread, because a long message takes seconds.
        """
        if form is CopyForm.MARKDOWN:
            self.copy()
        else:
            text = self.written_text
            parser = type(self.body.parser)()
            thread = self.findChild(BackgroundWork) or BackgroundWork("copy", self)
            thread.replace(lambda _job: forms_of(blocks_of(text, parser), form), self._put_on_clipboard)

    def _put_on_clipboard(self, forms: tuple[str, str]) -> None:
        put_on_clipboard(*forms)
        self.actions_row.copy_button.show_copied()

    def _copy_selection(self, form: CopyForm) -> None:
        put_on_clipboard(*forms_of(self.body.selected_blocks(), form))

    def _open_menu(self, point: QPoint) -> None:
        menu = QMenu(self)
        self.fill_menu(menu)
        pop_up(menu, point)

    def _show_menu(self, event: QContextMenuEvent) -> None:
        menu = self.body.createStandardContextMenu(event.pos())
        if self.body.textCursor().hasSelection():
            forms = menu.addMenu("Copy Selection As")
            for form in CopyForm:
                forms.addAction(form.value, partial(self._copy_selection, form))
            text = as_markdown(self.body.selected_blocks())
            menu.addAction("Quote Selection", lambda: self.area.quote_requested.emit(text))
            if self.area.has_actions:
                menu.addAction("Add to Notes…", lambda: self.area.note_requested.emit(self.message, text))
        menu.addSeparator()
        self.fill_menu(menu)
        pop_up(menu, event.globalPos())

    def fill_menu(self, menu: QMenu) -> None:
        """Add what can be done with the message."""
        menu.addAction("Copy Message", self.copy).setEnabled(bool(self.written_text))
        forms = menu.addMenu("Copy Message As")
        forms.setEnabled(bool(self.written_text))
        for form in CopyForm:
            forms.addAction(form.value, partial(self.copy_as, form))
        for table in self.body.tables:
            name = cut(as_plain([replace(table, rows=table.rows[:1])]).replace("\t", ", "), _NAME_LENGTH)
            add_action(menu, f"Save Table “{name}” as CSV…", partial(self._save_table, table))
        if not self.area.has_actions:
            return
        self._add_actions(menu)
        menu.addSeparator()
        self._add(menu, "Compare Versions", self.area.compare_requested).setVisible(self.message.siblings > 1)
        self._add(menu, "Branch into New Chat", self.area.branch_requested).setEnabled(not self.is_busy)
        self._add(menu, "Delete Message", self.area.delete_requested).setEnabled(not self.is_busy)

    def _save_table(self, table: Block) -> None:
        ask_to_save_content(self.window(), "Save Table", "table.csv", ["CSV (*.csv)"], partial(csv_of, table))

    def _add(self, menu: QMenu, text: str, signal: SignalInstance) -> QAction:
        """Add an action that emits a signal of the area with the message's id."""
        return menu.addAction(text, lambda: signal.emit(self.message.id))

    # --- focus and pointer

    def set_last(self, last: bool) -> None:
        """Set whether it is the last message: its buttons always show."""
        self.is_last = last
        self.actions_row.set_revealed(last=last)
        self._show_parts()

    def _report_caret(self, rect: QRect) -> None:
        self.area.caret_moved.emit(rect.translated(self.body.mapTo(self.area.column, QPoint(0, 0))))

    def enterEvent(self, event: QEnterEvent) -> None:
        self.actions_row.set_revealed(hovered=True)
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self.actions_row.set_revealed(hovered=False)
        super().leaveEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self._open_menu(event.globalPos())
