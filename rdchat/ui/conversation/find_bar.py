"""A bar above the transcript that finds words in the open chat, and goes from one to the next.

`ChatSearch` finds the messages in the database; the transcript marks the words in those that it shows.
"""

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent

from rdchat.chat.storage import MessageMatches, WordMatcher
from rdchat.services.chat_list.chat_list import ChatSearch
from rdchat.ui.style import (
    MEDIUM,
    SMALL,
    TIGHT,
    Ground,
    IconButton,
    SearchField,
    Separator,
    TextButton,
    Theme,
    column,
    row,
    set_tip,
    small_text,
)
from rdchat.ui.transcript.view import TranscriptView
from rdchat.wording import counted

_FIELD_WIDTH = 320


class FindBar(Ground):
    """Shown above the transcript during a search.

    A step goes to the next word in the message, or to the next message that has every word. Messages that another
    version of the chat has, an edited question or another reply, are counted apart.

    Args:
        finder: Searches.
        transcript: Shows the messages and marks the words.
        theme: The appearance to follow.
    """

    # A message of another version of the chat.
    version_requested = Signal(int)

    def __init__(self, finder: ChatSearch, transcript: TranscriptView, theme: Theme) -> None:
        super().__init__(theme, "window")
        self._finder = finder
        self._transcript = transcript
        self._chat: int | None = None
        # The messages that match: those of the path in its order, and those of other versions. `_index` is that of the
        # current one in `_here`; -1 for none.
        self._here: list[int] = []
        self._elsewhere: tuple[int, ...] = ()
        self._index = -1
        # The words of the sidebar's search of all chats, while the bar shows their places in this one: it closes with
        # that search. Empty once the bar was opened to type in.
        self._sidebar_words = ""
        # Whether the bar goes to the last message of the next result, or keeps its place. A search sets it; so does the
        # step to another version of the chat, whose search begins when that version is shown (`show_chat`).
        self._goes_to_result = False
        self.field = SearchField(theme, "Find in this chat", "Find in this chat", escape_clears=False)
        self.field.setMaximumWidth(_FIELD_WIDTH)
        self.field.setMinimumWidth(_FIELD_WIDTH // 3)
        self.count = small_text(theme, tabular=True, wraps=False)
        self.versions = TextButton("", theme, self._ask_for_version)
        self.versions.hide()
        self.previous = IconButton("previous", "Find previous", theme, None, lambda: self.go_to_match(-1))
        self.next = IconButton("next", "Find next", theme, None, lambda: self.go_to_match(1))
        close = IconButton("close", "Close", theme, None, self.close_bar)
        parts = (None, (self.field, 4), TIGHT, self.count, self.versions, self.previous, self.next, close)
        line = row(*parts, spacing=TIGHT, margins=(MEDIUM, TIGHT + 2, SMALL, TIGHT + 2))
        column(line, Separator(theme), within=self, spacing=0)
        self.field.typing.timeout.connect(lambda: self._look(go_there=True))
        self.field.returnPressed.connect(lambda: self.go_to_match(1))
        self.field.previous_requested.connect(lambda: self.go_to_match(-1))
        finder.messages_matched.connect(self._show_matches)
        self._show_count()
        self.hide()

    def open_bar(self) -> None:
        """Show the bar to type in."""
        self._sidebar_words = ""
        self.show()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()

    def follow(self, text: str) -> None:
        """Search for the words of a search of all chats, and show the bar if a message has them; empty at its end."""
        if not text:
            if self._sidebar_words:
                self.close_bar()
            return
        self._sidebar_words = text
        if self.field.text() != text:
            self.field.setText(text)
        self._look(go_there=True)

    def close_bar(self) -> None:
        """End the search and hide the bar."""
        focused = self.focusWidget()
        had_focus = focused is not None and self.isAncestorOf(focused)
        self.field.typing.stop()
        self.hide()
        self._sidebar_words = ""
        self._here = []
        self._elsewhere = ()
        self._index = -1
        self._transcript.hits.mark_matches(WordMatcher(""))
        if had_focus:
            self._transcript.setFocus()

    def show_chat(self, conversation_id: int | None) -> None:
        """Search the messages of another conversation, or of another path."""
        other = conversation_id != self._chat
        self._chat = conversation_id
        if not self.isHidden():
            self._look(go_there=other or self._goes_to_result)

    def go_to_match(self, by: int) -> None:
        """Go to the next word, or for -1 to the one before; beyond the last one it begins anew.

        A hidden bar is shown first: with a text it goes to the last message that has it, without one it waits for one.
        """
        if self.isHidden():
            if self.field.text():
                self.show()
                self._look(go_there=True)
            else:
                self.open_bar()
        elif self._here and not self._transcript.hits.go_to_next(by):
            self._go((self._index + by) % len(self._here), last=by < 0)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.window().installEventFilter(self)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.window().removeEventFilter(self)

    def eventFilter(self, _window: QObject, event: QEvent) -> bool:
        """Close the bar on Escape, wherever the focus is: the window gets the keys that nothing in it has used.

        Accepting the ShortcutOverride keeps the key from the shortcut that stops a reply.
        """
        if not isinstance(event, QKeyEvent) or event.key() != Qt.Key.Key_Escape:
            return False
        if event.type() is QEvent.Type.KeyPress:
            self.close_bar()
        event.accept()
        return True

    def _look(self, *, go_there: bool) -> None:
        """Search the chat for the words in the field; `go_there`: go to the last message that has them."""
        self.field.typing.stop()
        self._goes_to_result = go_there
        text = self.field.text().strip()
        self._transcript.hits.mark_matches(WordMatcher(text))
        if self._chat is None or not text:
            self._show_matches(MessageMatches(self._chat or 0, text))
        else:
            self._finder.find_in(self._chat, text)

    def _show_matches(self, matches: MessageMatches) -> None:
        """Take the messages that a search has found, unless the chat or the words are others now.

        The bar goes to the last one if `_look` asked for that, else the current one stays if it is still found.
        """
        if matches.conversation_id != (self._chat or 0) or matches.text != self.field.text().strip():
            return
        if self._sidebar_words and matches.text == self._sidebar_words:
            # The words may be in the chat's title only.
            self.setVisible(bool(matches.ids))
        if self.isHidden():
            return
        path = self._transcript.messages.ids
        ids = set(matches.ids)
        current = self._here[self._index] if 0 <= self._index < len(self._here) else None
        self._here = [message_id for message_id in path if message_id in ids]
        self._elsewhere = tuple(sorted(ids - set(path)))
        go_there = self._goes_to_result
        self._goes_to_result = False
        if self._here and go_there:
            self._go(len(self._here) - 1)
        else:
            self._index = self._here.index(current) if current in self._here else -1
            self._show_count()

    def _go(self, index: int, *, last: bool = False) -> None:
        self._index = index
        self._show_count()
        self._transcript.hits.go_to(self._here[index], last=last)

    def _show_count(self) -> None:
        """Say which of the messages with the words is gone to, and how many other versions of the chat have."""
        count = len(self._here)
        others = len(self._elsewhere)
        label = f"Message {self._index + 1:,} of {count:,}" if self._index >= 0 else counted(count, "message")
        if not self.field.text().strip():
            label = ""
        elif not count:
            label = "Not found"
        self.count.setText(label)
        set_tip(self.count, "Messages that contain every word" if count else "")
        self.count.setAccessibleName(label)
        for button in (self.previous, self.next):
            button.setEnabled(count > 0)
        where = f"{counted(others, 'message')} in other versions of this chat (an edited question or another reply)"
        self.versions.setText(f"+{others:,} elsewhere")
        set_tip(self.versions, where)
        self.versions.setAccessibleName(f"Show {where}")
        self.versions.setVisible(others > 0)

    def _ask_for_version(self) -> None:
        if self._elsewhere:
            self._goes_to_result = True
            self.version_requested.emit(self._elsewhere[-1])
