"""Shows the messages of one conversation, and draws them in short steps on the main thread.

`MessageColumn`, its base, gives messages widgets and places them; this module shows what has changed in the
conversation, decides when and how long to draw, and goes to the hits of a search.
"""

import time
from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRect, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent

from rdchat.chat.conversation import Message, MessagePath, ReadingPosition
from rdchat.chat.storage import WordMatcher
from rdchat.inference.api import Role
from rdchat.services.chat.chat_prompt import LeftOut
from rdchat.services.chat.unsent_memory import UnsentMemory
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.style import MEDIUM, RoundButton, Theme, set_tip
from rdchat.ui.transcript.markdown.copying import as_markdown
from rdchat.ui.transcript.markdown.text_body import LEXER_WAIT_MS, SLICE_S, TextBody, Work
from rdchat.ui.transcript.message_column import FIRST, MessageColumn
from rdchat.ui.transcript.message_kinds import ReplyMessage
from rdchat.ui.transcript.message_parts import MessageEditor
from rdchat.ui.transcript.message_widget import MessageWidget

# The time to draw a message that a search goes to: only drawn text has hits.
_DRAWING_S = 0.03
# The shortest time between two drawings of growing text.
_FRAME_S = 1 / 30
# The time to draw the visible part when a conversation opens.
_OPENING_S = 0.03
# New text waits after a drawing for at least so many times the length of that drawing, so that the main thread can do
# other work. What one slice has left to draw does not wait.
_SHARE = 12
# The reader's position is reported at most once in this time.
_READER_MS = 700
# The diameter of the round button that jumps to the end, in pixels.
_JUMP_SIZE = 34


class SearchHits:
    """Marks the words of a search in a transcript, and goes from one to the next.

    A hit is one marked word: a text of a message, and the word's number in that text.
    """

    def __init__(self, view: MessageColumn) -> None:
        self._view = view
        # The message with the current hit; -1 for none.
        self._message_id = -1

    def mark_matches(self, matcher: WordMatcher) -> None:
        """Mark the words of a search in all messages; with a matcher without words, none."""
        self._view.matcher = matcher
        self._message_id = -1
        for widget in self._view.widgets.values():
            widget.mark_matches(matcher)

    def go_to(self, message_id: int, *, last: bool = False) -> None:
        """Go to the first or last word in a message, or to its top if none of them is drawn."""
        view = self._view
        index = view.messages.index_of(message_id)
        if previous := view.widgets.get(self._message_id):
            _unmark(previous)
        self._message_id = -1
        if index is None or not view.show_around(index):
            return
        self._message_id = message_id
        widget = view.widgets[message_id]
        until = time.perf_counter() + _DRAWING_S
        # Folded texts are drawn too, as they may have hits.
        while time.perf_counter() < until and widget.draw_more(until):
            pass
        view.lay_out()
        self._go_to(widget, len(widget.hits) - 1 if last else 0)

    def go_to_next(self, by: int) -> bool:
        """Go `by` hits on in the message, 1 or -1; return False if there is none."""
        widget = self._view.widgets.get(self._message_id)
        hits = widget.hits if widget else []
        current = [index for index, (body, number) in enumerate(hits) if body.marks.current == number]
        if widget is None or not current or not 0 <= current[0] + by < len(hits):
            return False
        self._go_to(widget, current[0] + by)
        return True

    def _go_to(self, widget: MessageWidget, index: int) -> None:
        _unmark(widget)
        # It stays empty if the words are in what is not shown, such as an address.
        rect = QRect()
        if widget.hits:
            body, number = widget.hits[index]
            widget.unfold(body)
            self._view.lay_out()
            rect = body.marks.go_to(number)
            body.scrolling.bring_into_view(rect)
            rect.translate(body.mapTo(widget, QPoint(0, 0)))
        self._view.bring_into_view(widget, rect)
        self._view.jumped.emit()


def _unmark(widget: MessageWidget) -> None:
    """Let no hit of a message be the current one; all stay marked."""
    for body in widget.bodies:
        if body.marks.current >= 0:
            body.marks.go_to(-1)


class TranscriptView(MessageColumn):
    """Messages of one conversation. It knows no controller: others give it messages, and connect to its signals."""

    # It carries a conversation's id, and the `ReadingPosition` in it or None for its end.
    reader_moved = Signal(int, object)

    def __init__(self, theme: Theme, unsent: UnsentMemory | None = None) -> None:
        super().__init__(theme, unsent or UnsentMemory())
        # When the last drawing ended, and how long to wait after it, in seconds.
        self._drawn_at = 0.0
        self._pause = _FRAME_S
        self.hits = SearchHits(self)
        # Tab goes to its messages, which show where the focus is.
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._jump = RoundButton("latest", "Jump to latest", theme, _JUMP_SIZE, self)
        self._show_more_below(False)
        self._jump.hide()
        self._jump.clicked.connect(self.scroll_to_end)
        self._reader_timer = QTimer(self, singleShot=True, interval=_READER_MS)
        self._reader_timer.timeout.connect(self._report_position)
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._draw)
        self.scrolled.connect(self._on_scrolled)
        self.jumped.connect(self._fill)
        self.verticalScrollBar().sliderReleased.connect(self._wake)
        self.work_added.connect(self._wake)
        # The new reply may be far below.
        for requested in (self.edit_submitted, self.regenerate_requested):
            requested.connect(self.scroll_to_end, Qt.ConnectionType.QueuedConnection)
        theme.changed.connect(self._restyle)

    # --- what is shown

    def set_messages(self, messages: Sequence[Message], position: ReadingPosition | None = None) -> None:
        """Show these messages. A `MessagePath` is not copied: `add_message` shows what is added to it later.

        Where the view goes:

        - another conversation: to `position`, or to the end without one;
        - the same one, with messages that have widgets already: these stay, or the end if the view was there;
        - the same one, without such messages: the last messages get the widgets.
        """
        self._report_position()
        previous = self.messages
        self.messages = MessagePath.as_path(messages)
        # Whether the two paths have a message in common.
        known = any(self.messages.index_of(each) is not None for each in previous.ids)
        indices = [self.messages.index_of(message_id) for message_id in self.widgets]
        if known and (visible := [index for index in indices if index is not None]):
            self.range.set_count(len(messages), visible, at_end=self.follows)
        else:
            self.range.show_latest(len(messages))
        if not known and position is not None and self.messages.index_of(position.message_id) is not None:
            self._return_to(position)
            return
        if not known:
            self.follows = True
        self.show_range()
        self._fill()

    def _return_to(self, position: ReadingPosition) -> None:
        """Show where the reader was: its message must be drawn as far as the position first."""
        if not self.show_around(self.messages.index_of(position.message_id) or 0):
            self.scroll_to_end()
            return
        widget = self.widgets[position.message_id]
        until = time.perf_counter() + _OPENING_S
        while widget.height() <= position.above and time.perf_counter() < until and widget.draw_more(until):
            self.lay_out()
        self.return_to(position)
        self.draw_first()

    def _fill(self) -> None:
        """Draw what is in view, and show more messages until they fill the view: each takes some milliseconds."""
        self.draw_first()
        while not self.fills_view and self.range.grow() and self.show_range():
            self.draw_first()

    def _report_position(self) -> None:
        self._reader_timer.stop()
        if self.messages:
            self.reader_moved.emit(self.messages[-1].conversation_id, self.reading_position)

    def add_message(self, message: Message) -> None:
        """Show the message that was added to the end of the path. The person's own always comes into view."""
        self._show_more_below(self._jump.isVisibleTo(self))
        inside = self.range.count_message()
        if message.role is Role.USER:
            self.scroll_to_end()
        elif inside:
            self.show_range()
            self.draw_first()

    def update_message(self, message: Message) -> None:
        """Show another state of a message of the path."""
        if widget := self.widgets.get(message.id):
            widget.show_message(message)
            self.lay_out()

    def mark_left_out(self, left_out: LeftOut) -> None:
        """Mark the images that the model does not get."""
        self.left_out = left_out
        for message_id, widget in self.widgets.items():
            for files in widget.findChildren(SentFiles):
                files.mark_left_out(left_out.get(message_id, ()))

    def show_figures(self, shows: bool) -> None:
        """Show the buttons of the figures below replies, or leave them to the menus."""
        self.shows_figures = shows
        for widget in self.widgets.values():
            if isinstance(widget, ReplyMessage):
                widget.actions_row.show_figures()

    def append_text(self, message_id: int, text: str) -> None:
        """Show the text that a reply of the path has gained; it is drawn within a thirtieth of a second."""
        message = self.messages.find_message(message_id)
        widget = self.widgets.get(message_id)
        if message is not None:
            self._show_more_below(self._jump.isVisibleTo(self))
            if isinstance(widget, ReplyMessage):
                widget.append_text(message, text)

    def set_waiting(self, message_id: int, text: str) -> None:
        """Show inside an empty reply what it waits for."""
        widget = self.widgets.get(message_id)
        if isinstance(widget, ReplyMessage):
            widget.set_waiting(text)
            self.lay_out()

    def copy_last_reply(self) -> None:
        """Put the last reply on the clipboard, as it was written."""
        replies = [widget for widget in self.widgets.values() if isinstance(widget, ReplyMessage)]
        if replies:
            replies[-1].copy()

    def focus_last(self) -> None:
        """Give the last message the keyboard."""
        if self.widgets:
            next(reversed(self.widgets.values())).body.setFocus()

    def edit(self, message_id: int) -> MessageEditor | None:
        """Open the editor of a message in view; None if the message is not there or cannot be read."""
        index = self.messages.index_of(message_id)
        if index is None or not self.show_around(index):
            return None
        widget = self.widgets[message_id]
        editor = widget.edit()
        self.bring_into_view(widget, QRect(0, 0, 1, widget.height()))
        return editor

    def quote_selection(self) -> bool:
        """Ask to quote what is selected, where the keyboard is or else last; return whether anything is."""
        bodies = [body for widget in self.widgets.values() for body in widget.bodies]
        selected = [body for body in reversed(bodies) if body.textCursor().hasSelection()]
        if selected:
            self.quote_requested.emit(as_markdown(max(selected, key=TextBody.hasFocus).selected_blocks()))
        return bool(selected)

    # --- scrolling

    def scroll_to_end(self) -> None:
        """Show the end, and follow new text there; if the last messages cannot be read, nothing changes."""
        did_follow = self.follows
        self.follows = True
        if not self.range.at_end:
            self.range.show_latest(len(self.messages))
        if self.show_range():
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
            self._fill()
        else:
            self.follows = did_follow

    def scroll_to_start(self) -> None:
        if self.messages and self.show_around(0, FIRST):
            self.verticalScrollBar().setValue(0)
            self._fill()

    def show_first(self) -> None:
        """Show the first message, and give it the keyboard."""
        self.scroll_to_start()
        if self.widgets:
            next(iter(self.widgets.values())).body.setFocus()

    def _on_scrolled(self) -> None:
        bar = self.verticalScrollBar()
        page = self.viewport().height()
        is_away = bar.maximum() - bar.value() > page // 8 or not self.range.at_end
        self._jump.setVisible(is_away and not self.follows)
        if not self._jump.isVisibleTo(self):
            self._show_more_below(False)
        if not self._reader_timer.isActive():
            self._reader_timer.start()

    def _show_more_below(self, more: bool) -> None:
        """Fill the button while there is unread text below: new text is unread where the button is visible."""
        self._jump.set_filled(more)
        self._jump.setAccessibleDescription("There is more below" if more else "")
        set_tip(self._jump, "Jump to latest: there is more below" if more else "Jump to latest")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Home:
            self.scroll_to_start()
        elif event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._jump.move((self.width() - self._jump.width()) // 2, self.height() - self._jump.height() - MEDIUM)
        self._jump.raise_()

    def hideEvent(self, event: QHideEvent) -> None:
        self._report_position()
        super().hideEvent(event)

    # --- drawing

    def _wake(self) -> None:
        """Draw soon, but no more often than thirty times a second, nor beyond a share of the main thread."""
        if not self._timer.isActive():
            due = self._drawn_at + self._pause - time.perf_counter()
            self._timer.start(max(0, round(due * 1000)))

    def draw_first(self) -> None:
        """Draw what is in view now, so that an opened conversation does not flash up empty."""
        self._draw_pending(time.perf_counter() + _OPENING_S, only_in_view=True)
        self._wake()

    def _draw(self) -> None:
        """Draw for one slice of time; then go on, or show more messages once those there are drawn."""
        started = time.perf_counter()
        remaining = self._draw_pending(started + SLICE_S)
        self._drawn_at = time.perf_counter()
        self._pause = max(_FRAME_S, (self._drawn_at - started) * _SHARE)
        if remaining is Work.READY:
            self._timer.start(0)
        elif not self.verticalScrollBar().isSliderDown() and self.range.grow():
            self.show_range()
            self._timer.start(0)
        elif remaining is Work.WAITING:
            self._timer.start(LEXER_WAIT_MS)

    def _draw_pending(self, deadline: float, only_in_view: bool = False) -> Work:
        """Draw until the deadline, what is in view first; return what is left to do."""
        remaining = Work.NONE
        drawn = False
        for widget in sorted(self.widgets.values(), key=self.distance):
            if not widget.work or (only_in_view and self.distance(widget)):
                continue
            if time.perf_counter() < deadline:
                widget.draw_until(deadline)
                drawn = True
            remaining = max(remaining, widget.work)
            if only_in_view and drawn:
                # The height was a guess until now, and decides which messages are in view.
                self.lay_out()
        if drawn:
            self.lay_out()
        return remaining

    def _restyle(self) -> None:
        self.restyle()
        self.draw_first()
