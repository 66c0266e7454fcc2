"""A bar that finds words in the open chat."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from rdchat.chat.search_words import WordMatcher
from rdchat.chat.storage.search_reader import FoundMessages
from rdchat.services.order.chat_search import ChatSearch
from rdchat.ui.look.buttons import IconButton, TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.icons import line_icon
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.transcript import TranscriptView

_TYPING_MS, _FIELD_WIDTH = 120, 320


class FindBar(Ground):
    """Shown above the transcript during a search.

    A step goes to the next word in the message, or to the next message that has every word. Messages that another
    version of the chat has, an edited question or another reply, are counted apart.

    Args:
        finder: Searches.
        transcript: Shows the messages and marks the words.
        theme: The appearance to follow.
        parent: The Qt parent.
    """

    version_requested = Signal(int)  # a message of another version of the chat

    def __init__(
        self, finder: ChatSearch, transcript: TranscriptView, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(theme, "window", parent)
        self._finder, self._transcript = finder, transcript
        self._chat: int | None = None
        self._path: list[int] = []
        self._here: list[int] = []  # found messages, in the order of the path
        self._elsewhere: tuple[int, ...] = ()
        self._place = -1  # of the message that is gone to
        self._followed = False  # it was opened by a search of all chats, and closes with it
        self._goes_there = False  # the answer under way is gone to
        self.field = self._build_field()
        self.count = ThemedLabel(theme, "", "muted", -1, tabular=True)
        self.versions = TextButton("", theme)
        self.versions.hide()
        self.previous = IconButton("previous", "Find previous", theme)
        self.next = IconButton("next", "Find next", theme)
        self._close = IconButton("close", "Close", theme)
        row = QHBoxLayout()
        row.setContentsMargins(MEDIUM, TIGHT + 2, SMALL, TIGHT + 2)
        row.setSpacing(TIGHT)
        row.addStretch(1)
        row.addWidget(self.field, 4)
        row.addSpacing(TIGHT)
        row.addWidget(self.count)
        row.addWidget(self.versions)
        for button in (self.previous, self.next, self._close):
            row.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(row)
        layout.addWidget(Separator(theme))
        self._typing = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._typing.timeout.connect(lambda: self._look(go_there=True))
        self.field.textEdited.connect(self._typing.start)
        self.field.textChanged.connect(self._on_text)
        self.previous.clicked.connect(lambda: self.step(-1))
        self.next.clicked.connect(lambda: self.step(1))
        self._close.clicked.connect(self.close_bar)
        self.versions.clicked.connect(self._ask_for_version)
        finder.messages_found.connect(self._show_found)
        theme.changed.connect(self._restyle)
        self._restyle()
        self._show_count()
        self.hide()

    def _build_field(self) -> QLineEdit:
        field = QLineEdit()
        field.setPlaceholderText("Find in this chat")
        field.setAccessibleName("Find in this chat")
        field.setClearButtonEnabled(True)
        field.setMaximumWidth(_FIELD_WIDTH)
        field.setMinimumWidth(_FIELD_WIDTH // 3)
        self._icon = QAction(field)
        field.addAction(self._icon, QLineEdit.ActionPosition.LeadingPosition)
        field.installEventFilter(self)
        return field

    def open(self) -> None:
        """Show the bar to type in."""
        self._followed = False
        self.show()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()

    def follow(self, words: str) -> None:
        """Search for the words of a search of all chats; empty once that has ended."""
        if not words:
            if self._followed:
                self.close_bar()
            return
        self._followed = True
        if self.field.text() != words or self.isHidden():
            self.field.setText(words)
            self.show()
        self._look(go_there=True)

    def close_bar(self) -> None:
        """End the search and hide the bar."""
        focused = self.focusWidget()
        had_focus = focused is not None and self.isAncestorOf(focused)
        self._typing.stop()
        self.hide()
        self._followed, self._here, self._elsewhere, self._place = False, [], (), -1
        self._transcript.mark(WordMatcher(""))
        if had_focus:
            self._transcript.setFocus()

    def show_chat(self, conversation_id: int | None, path: Sequence[int]) -> None:
        """Search the messages of another conversation, or of another path."""
        other, self._chat, self._path = conversation_id != self._chat, conversation_id, list(path)
        if not self.isHidden():
            self._look(go_there=other or self._goes_there)

    def step(self, by: int) -> None:
        """Go to the next word, or for -1 to the one before; beyond the last one it begins anew."""
        if self.isHidden():
            if self.field.text():
                self.show()
                self._look(go_there=True)
            else:
                self.open()
        elif self._here and not self._transcript.step_hit(by):
            self._place = (self._place + by) % len(self._here)
            self._go(last=by < 0)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape:
                self.close_bar()
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.step(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
                return True
        return super().eventFilter(watched, event)

    def _on_text(self, text: str) -> None:
        if not text:  # emptied by its button, which is no typing
            self._typing.start()

    def _look(self, *, go_there: bool) -> None:
        self._typing.stop()
        self._goes_there = go_there
        words = self.field.text().strip()
        self._transcript.mark(WordMatcher(words))
        if self._chat is None or not words:
            self._show_found(FoundMessages(self._chat or 0, words))
        else:
            self._finder.find_in(self._chat, words)

    def _show_found(self, found: FoundMessages) -> None:
        if found.conversation_id != (self._chat or 0) or found.words != self.field.text().strip() or self.isHidden():
            return
        ids, kept = set(found.ids), self._here[self._place] if 0 <= self._place < len(self._here) else None
        self._here = [message_id for message_id in self._path if message_id in ids]
        self._elsewhere = tuple(sorted(ids - set(self._path)))
        if kept in self._here and not self._goes_there:
            self._place = self._here.index(kept)
            self._show_count()
        elif self._here and self._goes_there:
            self._place = len(self._here) - 1  # the newest, as the sidebar shows it
            self._go(last=False)
        else:
            self._place = -1
            self._show_count()
        self._goes_there = False

    def _go(self, *, last: bool) -> None:
        self._show_count()
        self._transcript.show_hit(self._here[self._place], last=last)

    def _show_count(self) -> None:
        several = bool(self._here)
        if not self.field.text().strip():
            words = ""
        elif not several:
            words = "Not found"
        elif self._place < 0:
            words = counted(len(self._here), "message")
        else:
            words = f"{self._place + 1:,} of {len(self._here):,}"
        self.count.setText(words)
        set_tip(self.count, "Messages with every word" if several else "")
        self.count.setAccessibleName(words)
        self.previous.setEnabled(several)
        self.next.setEnabled(several)
        others = len(self._elsewhere)
        self.versions.setText(f"+{others:,} elsewhere")
        where = f"{counted(others, 'message')} in other versions of this chat, with an edited question or another reply"
        set_tip(self.versions, where)
        self.versions.setAccessibleName(f"Show {where}")
        self.versions.setVisible(others > 0)

    def _ask_for_version(self) -> None:
        if self._elsewhere:
            self._goes_there = True
            self.version_requested.emit(self._elsewhere[-1])

    def _restyle(self) -> None:
        self._icon.setIcon(line_icon("search", self._theme.colors.muted, 16))
