"""One message of the transcript: what a person's and a model's have in common."""

from functools import partial

from PySide6.QtCore import QEvent, QPoint, QRect, QSignalBlocker, Signal
from PySide6.QtGui import QAction, QContextMenuEvent, QEnterEvent
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.search_words import WordMatcher
from rdchat.inference.api.requests import Role
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.theme import Theme
from rdchat.ui.transcript.copying.clipboard import CopyForm, TextCopy, copy_blocks
from rdchat.ui.transcript.copying.markdown_text import as_markdown
from rdchat.ui.transcript.markdown.text_body import TextBody, Work
from rdchat.ui.transcript.message_actions import MessageActions
from rdchat.ui.transcript.message_editor import MessageEditor


class MessageWidget(QWidget):
    """Places its parts itself, so that the transcript knows every height at once and no reader's place is lost."""

    edit_submitted = Signal(int, str)
    regenerate_requested = Signal(int)
    regenerate_with_requested = Signal(int)
    continue_requested = Signal(int)
    alternative_requested = Signal(int, int)
    tokens_requested = Signal(int)
    quote_requested = Signal(str)  # Markdown
    compare_requested = Signal(int)
    delete_requested = Signal(int)
    branch_requested = Signal(int)
    file_requested = Signal(object)  # an `AttachedFile`
    height_changed = Signal()
    work_added = Signal()
    caret_moved = Signal(QRect)  # in this widget
    edited = Signal(str)  # what stands in its editor; empty where that was closed

    def __init__(self, message: Message, body: TextBody, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self.theme = theme
        self.body = body
        body.setParent(self)
        body.caret_moved.connect(lambda rect: self.caret_moved.emit(rect.translated(body.pos())))
        body.menu_requested.connect(self._show_menu)
        body.height_changed.connect(self.height_changed)
        self.more = TextButton("", theme, self)
        self.more.hide()
        self.more.clicked.connect(self._show_more)
        self.actions_row = MessageActions(message.role, theme, self)
        self.actions_row.copy_requested.connect(self.copy)
        self.actions_row.menu_requested.connect(self._open_menu)
        self.actions_row.step_requested.connect(lambda step: self.alternative_requested.emit(self.message.id, step))
        self._editor: MessageEditor | None = None
        self._last = False
        self._hovered = False

    # --- what subclasses add

    def show_message(self, message: Message) -> None:
        """Show another state of the message."""
        self.message = message
        self.actions_row.show_message(message)
        hidden = self.body.hidden_characters
        self.more.setText(self.tr("Show more (%s characters are hidden)") % f"{hidden:,}")
        self.more.setAccessibleName(self.more.text())
        self.more.setVisible(hidden > 0)
        if self.work:
            self.work_added.emit()

    def layout_for(self, width: int) -> int:
        """Place the parts at a width and return the height they need."""
        raise NotImplementedError

    def message_actions(self, menu: QMenu) -> list[QAction]:
        """Return what the context menu offers for this message."""
        copy = QAction(self.tr("Copy message"), menu)
        copy.triggered.connect(self.copy)
        forms = QMenu(self.tr("Copy message as"), menu)
        for form in CopyForm:
            forms.addAction(form.value, partial(self.copy_as, form))
        copy.setEnabled(bool(self.copied_text()))
        forms.menuAction().setEnabled(bool(self.copied_text()))
        return [copy, forms.menuAction()]

    def selection_actions(self, menu: QMenu, body: TextBody) -> list[QAction]:
        """Return what the context menu offers for what is selected."""
        if not body.textCursor().hasSelection():
            return []
        forms = QMenu(self.tr("Copy selection as"), menu)
        for form in CopyForm:
            forms.addAction(form.value, lambda form=form: copy_blocks(body.selected_blocks(), form))
        quote = QAction(self.tr("Quote selection"), menu)
        quote.triggered.connect(lambda: self.quote_requested.emit(as_markdown(body.selected_blocks())))
        return [forms.menuAction(), quote]

    def last_actions(self, menu: QMenu) -> list[QAction]:
        """Return what the context menu offers below that, for every message."""
        above = QAction(menu)
        above.setSeparator(True)
        compare = QAction(self.tr("Compare alternatives"), menu)
        compare.triggered.connect(lambda: self.compare_requested.emit(self.message.id))
        compare.setVisible(self.message.siblings > 1)
        branch = QAction(self.tr("Branch into new chat"), menu)
        branch.triggered.connect(lambda: self.branch_requested.emit(self.message.id))
        delete = QAction(self.tr("Delete message"), menu)
        delete.triggered.connect(lambda: self.delete_requested.emit(self.message.id))
        for action in (branch, delete):
            action.setEnabled(self.message.status is not MessageStatus.STREAMING)
        return [above, compare, branch, delete]

    # --- being edited

    def open_editor(self, text: str) -> MessageEditor:
        """Show an editor of this text in the message's place, and return it."""
        editor = self._editor = MessageEditor(text, self.theme, self, of_reply=self.message.role is Role.ASSISTANT)
        editor.submitted.connect(self._submit)
        editor.cancelled.connect(self._close_editor)
        editor.height_changed.connect(self.height_changed)
        editor.changed.connect(self.edited)
        self._show_parts()
        self.height_changed.emit()
        editor.show()
        self.edited.emit(text)
        return editor

    def _submit(self, text: str) -> None:
        """Ask for the edit to be saved; the editor stays until another version of the message is shown."""
        self.edit_submitted.emit(self.message.id, text)

    def _close_editor(self) -> None:
        if self._editor:
            self._editor.hide()
            self._editor.deleteLater()
            self._editor = None
            self.edited.emit("")
            self._show_parts()
            self.height_changed.emit()
            self.body.setFocus()

    def _show_parts(self) -> None:
        """Show the editor, or what it stands in the place of."""
        raise NotImplementedError

    def resume_edit(self, text: str) -> None:
        """Go on with an edit that was left; the keyboard stays where it is, and no height has changed."""
        with QSignalBlocker(self):
            self.open_editor(text)

    # --- drawing in steps

    @property
    def work(self) -> Work:
        return self.body.work

    def advance(self, deadline: float) -> Work:
        """Do one bounded step of drawing and return what is left."""
        if self.body.work:
            self.body.advance(deadline)
        return self.work

    def restyle(self) -> None:
        """Follow the theme."""
        self.body.restyle()
        self.more.restyle()
        self.actions_row.restyle()
        self.work_added.emit()

    # --- words that are searched for

    @property
    def bodies(self) -> list[TextBody]:
        """The texts that may have them, from the top."""
        return [self.body]

    def mark(self, matcher: WordMatcher) -> None:
        """Mark the words of a search."""
        for body in self.bodies:
            body.marks.set_matcher(matcher)

    @property
    def hits(self) -> list[tuple[TextBody, int]]:
        """The words that are marked, each as a body and its number there."""
        return [(body, number) for body in self.bodies for number in range(len(body.marks.hits))]

    def draw_more(self, deadline: float) -> bool:
        """Draw some of what is not drawn yet, folded and hidden parts too; whether there was any."""
        for body in self.bodies:
            if body.work is Work.READY:
                body.advance(deadline)
                return True
        if self.body.hidden_characters:
            self._show_more()
            return True
        return False

    def go_to_hit(self, number: int) -> QRect:
        """Mark one of `hits` as current, or none for -1; return where it stands in this widget."""
        chosen = self.hits[number] if number >= 0 else None
        for body in self.bodies:
            if chosen is None or body is not chosen[0]:
                body.marks.go_to(-1)
        if chosen is None:
            return QRect()
        rect = chosen[0].marks.go_to(chosen[1])
        chosen[0].sideways.bring_into_view(rect)
        return rect.translated(chosen[0].mapTo(self, QPoint(0, 0)))

    # --- the person's hands

    def copy(self) -> None:
        """Copy the message as it was written."""
        self.actions_row.copy(self.copied_text())

    def copy_as(self, form: CopyForm) -> None:
        """Copy the message in a form; Markdown is as it was written."""
        if form is CopyForm.MARKDOWN:
            self.copy()
        else:
            self._text_copy().copy(self.copied_text(), type(self.body.parser), form, self.actions_row.say_copied)

    def _text_copy(self) -> TextCopy:
        """Return what copies long texts, made when it is first needed: a chat has many messages."""
        return self.findChild(TextCopy) or TextCopy(self)

    def copied_text(self) -> str:
        return self.message.text

    @property
    def is_last(self) -> bool:
        """Whether it is the transcript's last message."""
        return self._last

    def set_last(self, last: bool) -> None:
        """Of the transcript's last message the buttons always show."""
        self._last = last
        self._reveal()

    def _show_more(self) -> None:
        self.body.show_more()
        self.show_message(self.message)
        self.height_changed.emit()

    def _reveal(self) -> None:
        self.actions_row.set_revealed(self._last or self._hovered, self._hovered)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hovered = True
        self._reveal()
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = False
        self._reveal()
        super().leaveEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self._open_menu(event.globalPos())

    def _open_menu(self, place: QPoint) -> None:
        menu = QMenu(self)
        menu.addActions([*self.message_actions(menu), *self.last_actions(menu)])
        _pop_up(menu, place)

    def _show_menu(self, event: QContextMenuEvent) -> None:
        menu = self.body.createStandardContextMenu(event.pos())
        menu.addActions(self.selection_actions(menu, self.body))
        menu.addSeparator()
        menu.addActions([*self.message_actions(menu), *self.last_actions(menu)])
        _pop_up(menu, event.globalPos())


def _pop_up(menu: QMenu, place: QPoint) -> None:
    menu.aboutToHide.connect(menu.deleteLater)
    menu.popup(place)
