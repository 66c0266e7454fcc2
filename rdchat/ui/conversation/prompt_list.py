"""The list of saved prompts that opens above the message field while a name is typed after `/`.

A saved prompt may have placeholders, parts for the person to fill in; Tab selects the next one.
"""

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCharFormat, QTextCursor, QTextFormat
from PySide6.QtWidgets import QListWidget

from rdchat.chat.presets import PLACEHOLDER, SavedPrompt
from rdchat.ui.style import MEDIUM, add_action
from rdchat.ui.transcript.message_parts import PromptField
from rdchat.wording import utf16_length

_MAX_LINES = 8
_WIDTH = 320
_NEW = "No prompts yet. New…"
# The characters of a document that has only a slash: Qt counts its end, too.
_ONLY_A_SLASH = 2
# Marks a part that a saved prompt asks for; its value is the part's text.
_MARK = QTextFormat.Property.UserProperty


class PromptList(QListWidget):
    """Lists the saved prompts whose names have the typed words, and offers a new one where none is saved.

    The field keeps the keyboard and passes its keys on.

    Args:
        field: The message field. Its menu offers to save its text.
    """

    saved = Signal(str)
    new_requested = Signal()

    def __init__(self, field: PromptField) -> None:
        super().__init__(field)
        self._field = field
        self._prompts = tuple[SavedPrompt, ...]()
        self._matches = list[SavedPrompt]()
        # Whether Esc has closed the list for the text that is typed.
        self._closed = False
        self.setWindowFlags(Qt.WindowType.ToolTip)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName("Saved prompts")
        self.setSpacing(2)
        self.itemClicked.connect(self._insert)
        field.textChanged.connect(self._filter)
        field.installEventFilter(self)
        field.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        field.customContextMenuRequested.connect(self._open_menu)

    def offer_prompts(self, prompts: Sequence[SavedPrompt]) -> None:
        """Take the saved prompts."""
        self._prompts = tuple(prompts)

    def _open_menu(self, position: QPoint) -> None:
        menu = self._field.createStandardContextMenu()
        text = self._field.toPlainText().strip()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        add_action(menu, "Save as Prompt", lambda: self.saved.emit(text)).setEnabled(bool(text))
        menu.popup(self._field.mapToGlobal(position))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind is QEvent.Type.FocusOut:
            self.hide()
        # A Mac's arrow keys count as keys of the keypad.
        if not isinstance(event, QKeyEvent) or event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            return False
        if kind is QEvent.Type.ShortcutOverride and event.key() == Qt.Key.Key_Escape and self.isVisible():
            # Esc closes the list instead of stopping a reply.
            event.accept()
        return kind is QEvent.Type.KeyPress and not self._field.composing and self._take_key(event.key())

    def _take_key(self, key: int) -> bool:
        """Act on a key for the list, or on Tab for what a prompt asks for; return whether it was."""
        if not self.isVisible():
            return key == Qt.Key.Key_Tab and self._select_next()
        if key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.setCurrentRow((self.currentRow() + (1 if key == Qt.Key.Key_Down else -1)) % self.count())
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Tab):
            self._insert()
        elif key == Qt.Key.Key_Escape:
            self._closed = True
            self.hide()
        else:
            return False
        return True

    def _filter(self) -> None:
        """Show the prompts whose names have the words behind the slash, or hide the list without a slash."""
        document = self._field.document()
        if document.characterAt(0) != "/" or document.blockCount() > 1 or not self._field.hasFocus():
            self._closed = False
            self.hide()
            return
        terms = document.toPlainText()[1:].casefold().split()
        self._matches = [each for each in self._prompts if all(word in each.name.casefold() for word in terms)]
        self.clear()
        names = [each.name.replace("\n", " ") for each in self._matches]
        if not self._prompts and document.characterCount() == _ONLY_A_SLASH:
            names = [_NEW]
        self.addItems(names)
        self.setVisible(bool(names) and not self._closed)
        if self.isVisible():
            self.setCurrentRow(0)
            height = (self.sizeHintForRow(0) + 4) * min(len(names), _MAX_LINES) + 2 * self.frameWidth() + 2
            self.setFixedSize(min(_WIDTH, self._field.width()), height)
            self.move(self._field.mapToGlobal(QPoint(0, -height - MEDIUM)))

    def _insert(self, *_clicked: object) -> None:
        """Put the chosen prompt in place of the typed text, with the first part that it asks for selected."""
        if not self._matches:
            # The one line is `_NEW`.
            self._field.clear()
            self.new_requested.emit()
            return
        prompt = self._matches[self.currentRow()]
        if prompt.imported:
            # Its words are no more the person's own than those of a paste.
            self._field.pasted.emit(prompt.text)
        cursor = self._field.textCursor()
        cursor.select(QTextCursor.SelectionType.Document)
        # One step of the field's Undo.
        cursor.beginEditBlock()
        cursor.insertText(prompt.text)
        self.mark_fields()
        cursor.endEditBlock()
        self.hide()
        cursor.movePosition(QTextCursor.MoveOperation.Start)
        self._field.setTextCursor(cursor)
        if not self._select_next():
            self._field.moveCursor(QTextCursor.MoveOperation.End)

    def mark_fields(self) -> None:
        """Mark the parts of the field that a saved prompt asks for, to tell them from what the person types."""
        placeholders = {part for prompt in self._prompts for part in PLACEHOLDER.findall(prompt.text)}
        for cursor in self._parts():
            if (part := cursor.selectedText()) in placeholders:
                marked = QTextCharFormat()
                marked.setProperty(_MARK, part)
                cursor.setCharFormat(marked)

    def select_unfilled(self) -> bool:
        """Select the first marked part that is as it was; return whether there is one."""
        return self._select(each for each in self._parts() if each.charFormat().property(_MARK) == each.selectedText())

    def _select_next(self) -> bool:
        """Select the next part that is asked for, so that typing replaces it; return whether there is one."""
        end = self._field.textCursor().selectionEnd()
        return self._select(each for each in self._parts() if each.selectionStart() >= end)

    def _select(self, parts: Iterator[QTextCursor]) -> bool:
        if (first := next(parts, None)) is not None:
            self._field.setTextCursor(first)
        return first is not None

    def _parts(self) -> Iterator[QTextCursor]:
        """Yield cursors that select what looks like a part that is asked for."""
        text = self._field.toPlainText()
        for each in PLACEHOLDER.finditer(text):
            cursor = QTextCursor(self._field.document())
            cursor.setPosition(utf16_length(text[: each.start()]))
            cursor.setPosition(cursor.position() + utf16_length(each[0]), QTextCursor.MoveMode.KeepAnchor)
            yield cursor
