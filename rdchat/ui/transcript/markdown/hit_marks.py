"""Marks the words of a search in a text that is shown."""

from collections.abc import Sequence

from PySide6.QtCore import QRect
from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QTextEdit

from rdchat.chat.storage.search_text import WordMatcher
from rdchat.ui.style.labels import utf16_spans
from rdchat.ui.style.theme import Theme, text_look

_MAX_HITS = 2000


def marked(edit: QTextEdit, begin: int, end: int, look: QTextCharFormat) -> QTextEdit.ExtraSelection:
    """Return a mark of a part of an edit's document, as far as there is one."""
    mark = QTextEdit.ExtraSelection()
    last = edit.document().characterCount() - 1
    mark.cursor = QTextCursor(edit.document())
    mark.format = look
    mark.cursor.setPosition(min(begin, last))
    mark.cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
    return mark


class HitMarks:
    """Finds the words in a text edit's document, as far as it is drawn, and paints their background.

    Attributes:
        hits: The begin and end of each hit, as the document counts.
        current: The number of the hit that the reader is at; -1 for none.
    """

    def __init__(self, edit: QTextEdit, theme: Theme) -> None:
        self._edit = edit
        self._theme = theme
        self.matcher = WordMatcher("")
        self.hits: list[tuple[int, int]] = []
        self.current = -1

    def set_matcher(self, matcher: WordMatcher) -> None:
        """Mark other words; of a matcher without words, none."""
        if matcher is not self.matcher:
            self.matcher = matcher
            self.current = -1
            self.refresh()

    def refresh(self) -> None:
        """Mark what is drawn by now."""
        if not self.matcher and not self.hits:
            return
        text = self._edit.document().toPlainText() if self.matcher else ""
        self.hits = utf16_spans(text, self.matcher.spans(text, _MAX_HITS))
        if self.current >= len(self.hits):
            self.current = -1
        self._paint()

    def show(self, spans: Sequence[tuple[int, int]]) -> None:
        """Mark these parts of the document."""
        self.hits = list(spans[:_MAX_HITS])
        self.current = -1
        self._paint()

    def go_to(self, number: int) -> QRect:
        """Mark one of `hits` as current, or none for -1; return where it stands in the edit."""
        self.current = number
        self._paint()
        if number < 0:
            return QRect()
        mark = marked(self._edit, *self.hits[number], QTextCharFormat())
        # Qt's mark owns its cursor.
        cursor = QTextCursor(mark.cursor)
        begin = QTextCursor(cursor)
        begin.setPosition(cursor.selectionStart())
        return self._edit.cursorRect(begin).united(self._edit.cursorRect(cursor))

    def _paint(self) -> None:
        colors = self._theme.colors
        look = text_look(colors.text, colors.hit)
        current = text_look(colors.text, colors.current_hit)
        looks = [current if number == self.current else look for number in range(len(self.hits))]
        marks = [marked(self._edit, *hit, look) for hit, look in zip(self.hits, looks, strict=True)]
        self._edit.setExtraSelections(marks)
