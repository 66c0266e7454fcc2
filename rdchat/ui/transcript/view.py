"""The transcript: what the window sees of it."""

import time
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from rdchat.chat.context_cuts import cut_of
from rdchat.chat.conversation import Message
from rdchat.chat.message_path import MessagePath
from rdchat.chat.reading_places import ReadingPlace
from rdchat.chat.search_words import WordMatcher
from rdchat.errors import StorageError
from rdchat.inference.api.requests import Role
from rdchat.services.text.unsent_memory import UnsentMemory
from rdchat.ui.look.buttons import JumpButton
from rdchat.ui.look.theme import MEDIUM, Theme
from rdchat.ui.transcript.copying.markdown_text import as_markdown
from rdchat.ui.transcript.cut_mark import CutMark
from rdchat.ui.transcript.hit_walk import HitWalk
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.text_body import Work
from rdchat.ui.transcript.message_column import MessageColumn
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.message_window import MOST, STEP, MessageWindow
from rdchat.ui.transcript.person_message import PersonMessage
from rdchat.ui.transcript.reply_message import ReplyMessage

_FRAME_S = 1 / 30  # growing text is drawn at most this often
_SLICE_S = 0.008  # drawing of finished messages per turn of the event loop
_OPENING_S = 0.03  # and of those first in view when a conversation opens
_SHARE = 12  # drawing growing text takes at most one part in so many of the main thread
_LEXER_WAIT_S = 0.05
_READER_MS = 700  # after the reader stopped moving, their place is told
_PRELOAD_MS = 1500  # after the window has come up


class TranscriptView(QWidget):
    """Messages of one conversation. It knows no controller: it is told what to show, and says what is wanted."""

    edit_submitted = Signal(int, str)
    regenerate_requested = Signal(int)
    regenerate_with_requested = Signal(int)
    continue_requested = Signal(int)
    alternative_requested = Signal(int, int)
    tokens_requested = Signal(int)
    quote_requested = Signal(str)
    compare_requested = Signal(int)
    delete_requested = Signal(int)
    branch_requested = Signal(int)
    cut_undo_requested = Signal(int)
    file_requested = Signal(object)  # an `AttachedFile`
    reading_failed = Signal(StorageError)  # messages that were to come into view
    reader_moved = Signal(int, object)  # a conversation's id, and the `ReadingPlace` in it or None for its end

    def __init__(self, theme: Theme, parent: QWidget | None = None, unsent: UnsentMemory | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._library = LexerLibrary()
        QTimer.singleShot(_PRELOAD_MS, self, self._library.preload)
        self._messages = MessagePath()
        self._window = MessageWindow()
        self._slides = False
        self._drawn_at, self._pause = 0.0, _FRAME_S
        self._cut: Message | None = None  # the last message that the model is not told
        self._column = MessageColumn(self._make_widget, unsent or UnsentMemory(), theme, self)
        self._hits = HitWalk(self._column)
        self._jump = JumpButton(theme, self)
        self._jump.hide()
        self._reader_timer = QTimer(self, singleShot=True, interval=_READER_MS)
        self._reader_timer.timeout.connect(self._tell_place)
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._draw)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._column)
        self._jump.clicked.connect(self.scroll_to_end)
        self._column.scrolled.connect(self._on_scrolled)
        self._column.resized.connect(self._column.place)
        self._column.start_requested.connect(self.scroll_to_start)
        self._column.end_requested.connect(self.scroll_to_end)
        theme.changed.connect(self._restyle)

    # --- what is shown

    def set_messages(self, messages: Sequence[Message], place: ReadingPlace | None = None) -> None:
        """Show these messages, at a place or the end; where some were shown before, the reader keeps their place."""
        self._tell_place()
        before, self._messages = self._messages, MessagePath.of(messages)
        known = self._messages.has_any(before)
        shown = (self._messages.place_of(widget.message.id) for widget in self._column.widgets())
        kept = [each for each in shown if each is not None]
        if known and kept:
            self._window.keep(len(messages), kept, at_end=self._column.follows)
        else:
            self._window.show_latest(len(messages))
        self._show_window()
        if not known and place is not None and self._messages.place_of(place.message_id) is not None:
            self._return_to(place)
        elif not known:
            self._column.follow()
        self._draw_first()
        while self._column.follows and self._column.has_room and self._window.grow() and self._show_window():
            self._draw_first()  # no more than come into view: each takes some milliseconds

    def _return_to(self, place: ReadingPlace) -> None:
        self._column.unfollow()
        self._window.show_around(self._messages.place_of(place.message_id) or 0)
        if not self._show_window():
            self.scroll_to_end()
            return
        widget = self._column.widget_of(place.message_id)
        assert widget is not None, "it is within the window"
        until = time.perf_counter() + _OPENING_S
        while widget.height() <= place.above and time.perf_counter() < until and widget.draw_more(until):
            self._column.place()
        self._column.return_to(place)

    def _tell_place(self) -> None:
        """Say where the reader is, some time after they moved."""
        self._reader_timer.stop()
        if self._messages:
            self.reader_moved.emit(self._messages[-1].conversation_id, self._column.reading_place)

    def add_message(self, message: Message) -> None:
        """Show one message more at the end. The person's own always comes into view."""
        self._messages.append(message)
        self._jump.show_more(self._jump.isVisibleTo(self))
        inside = self._window.add()
        if message.role is Role.USER:
            if not inside:
                self._window.show_latest(len(self._messages))
            self._column.follow()
            inside = True
        if inside:
            self._show_window()
            self._draw_first()

    def update_message(self, message: Message) -> None:
        """Show another state of a message."""
        self._messages.put(message)
        widget = self._column.widget_of(message.id)
        if widget:
            widget.show_message(message)
            self._column.place()

    def append_text(self, message_id: int, text: str) -> None:
        """Add characters to a reply that is being written, as `show_growth` does."""
        message = self._messages.find(message_id)
        if message is not None:
            self.show_growth(replace(message, text=message.text + text))

    def show_growth(self, message: Message) -> None:
        """Show a reply that is being written with more text; it is drawn within a thirtieth of a second."""
        if self._messages.place_of(message.id) is None:
            return
        self._messages.put(message)
        self._jump.show_more(self._jump.isVisibleTo(self))
        widget = self._column.widget_of(message.id)
        if widget:
            widget.show_message(message)

    def set_waiting(self, message_id: int, text: str) -> None:
        """Say inside an empty reply what it waits for."""
        widget = self._column.widget_of(message_id)
        if isinstance(widget, ReplyMessage):
            widget.set_waiting(text)
            self._column.place()

    def copy_last_reply(self) -> None:
        """Put the last reply on the clipboard, as it was written."""
        for widget in reversed(list(self._column.widgets())):
            if widget.message.role is Role.ASSISTANT:
                widget.copy()
                return

    def focus_last(self) -> None:
        """Give the last message the keyboard."""
        self._column.focus_last()

    def quote_selection(self) -> bool:
        """Have what is selected in a message quoted; False where nothing is."""
        body = self._column.selected_body
        if body is not None:
            self.quote_requested.emit(as_markdown(body.selected_blocks()))
        return body is not None

    def scroll_to_end(self) -> None:
        if not self._window.at_end:
            self._window.show_latest(len(self._messages))
            self._show_window()
        self._column.follow()
        self._draw_first()

    def scroll_to_start(self) -> None:
        self._column.unfollow()
        self._window.show_around(0)
        self._show_window()
        self._column.verticalScrollBar().setValue(0)
        self._draw_first()

    def hideEvent(self, event: QHideEvent) -> None:
        self._tell_place()
        super().hideEvent(event)

    # --- words that are searched for

    def mark(self, matcher: WordMatcher) -> None:
        """Mark the words of a search in all messages; of a matcher without words, none."""
        self._hits.mark(matcher)

    def show_hit(self, message_id: int, *, last: bool = False) -> None:
        """Go to the first or last word of a search in a message, or to the message where none of them is shown."""
        place = self._messages.place_of(message_id)
        if place is None:
            return
        self._hits.leave()
        self._column.unfollow()
        self._window.show_around(place)
        if self._show_window():
            self._hits.enter(message_id, last=last)
            self._draw_first()

    def step_hit(self, by: int) -> bool:
        """Go to the next word in the message that was gone to, or the one before; False where there is none."""
        found = self._hits.step(by)
        if found:
            self._draw_first()
        return found

    # --- the window of widgets

    def _show_window(self) -> bool:
        """Show the messages of the window; where they cannot be read, those shown before stay."""
        try:
            messages = self._messages.read(self._window.start, self._window.end)
            self._show_cut()
        except StorageError as error:
            self.reading_failed.emit(error)
            return False
        self._column.show_messages(messages)
        self._column.place()
        return True

    def _show_cut(self) -> None:
        """Draw a line below the last message that the model is not told."""
        cut = cut_of(self._messages)
        if cut is self._cut:
            return
        self._cut = cut
        if cut is None or cut.context_cut is None:
            self._column.set_mark(None, None)
            return
        above = self._messages.cut_place + 1
        mark = CutMark(cut.context_cut, above, theme=self._theme, library=self._library)
        mark.undo_requested.connect(lambda: self.cut_undo_requested.emit(cut.id))
        mark.mark(self._hits.matcher)
        self._column.set_mark(cut.id, mark)

    def _make_widget(self, message: Message, parent: QWidget) -> MessageWidget:
        kind = PersonMessage if message.role is Role.USER else ReplyMessage
        widget = kind(message, self._theme, self._library, parent)
        widget.edit_submitted.connect(self.edit_submitted)
        widget.regenerate_requested.connect(self.regenerate_requested)
        widget.regenerate_with_requested.connect(self.regenerate_with_requested)
        widget.continue_requested.connect(self.continue_requested)
        widget.alternative_requested.connect(self.alternative_requested)
        widget.tokens_requested.connect(self.tokens_requested)
        widget.quote_requested.connect(self.quote_requested)
        widget.compare_requested.connect(self.compare_requested)
        widget.delete_requested.connect(self.delete_requested)
        widget.branch_requested.connect(self.branch_requested)
        widget.file_requested.connect(self.file_requested)
        for asked in (widget.edit_submitted, widget.regenerate_requested):
            asked.connect(self.scroll_to_end)  # after what answers it above: it may stand far below the old version
        widget.height_changed.connect(self._column.place_around)
        widget.work_added.connect(self._wake)
        widget.mark(self._hits.matcher)
        self._wake()
        return widget

    def _on_scrolled(self) -> None:
        if not self._slides:  # showing other messages scrolls as well
            self._slides = True
            for _ in range(MOST // STEP):
                if not self._slide():
                    break
            self._slides = False
        bar = self._column.verticalScrollBar()
        page = self._column.viewport().height()
        away = bar.maximum() - bar.value() > page // 8 or not self._window.at_end
        self._jump.setVisible(away and not self._column.follows)
        if not self._jump.isVisibleTo(self):
            self._jump.show_more(False)
        if not self._reader_timer.isActive():
            self._reader_timer.start()

    def _slide(self) -> bool:
        """Show other messages where the reader is near the first or last of those shown; whether that was so."""
        bar, before = self._column.verticalScrollBar(), replace(self._window)
        near = self._column.viewport().height() // 2
        slid = False
        if bar.value() < near and not self._column.follows:
            slid = self._window.slide_up()
        elif bar.maximum() - bar.value() < near and not self._window.at_end:
            slid = self._window.slide_down()
            self._column.unfollow()
        if slid and not self._show_window():
            self._window, slid = before, False  # they cannot be read
        return slid

    # --- drawing

    def _wake(self) -> None:
        """Draw soon, but no more often than thirty times a second, nor beyond a share of the main thread."""
        if not self._timer.isActive():
            due = self._drawn_at + self._pause - time.perf_counter()
            self._timer.start(max(0, round(due * 1000)))

    def _draw_first(self) -> None:
        """Draw what is in view now, so that an opened conversation does not flash up empty."""
        self._draw_pending(time.perf_counter() + _OPENING_S, only_in_view=True)
        self._wake()

    def _draw(self) -> None:
        started = time.perf_counter()
        left = self._draw_pending(started + _SLICE_S)
        self._drawn_at = time.perf_counter()
        self._pause = max(_FRAME_S, (self._drawn_at - started) * _SHARE)
        if left is Work.READY:
            self._timer.start(0)
        elif self._window.grow():
            self._show_window()
            self._timer.start(0)
        elif left is Work.WAITING:
            self._timer.start(round(_LEXER_WAIT_S * 1000))

    def _draw_pending(self, deadline: float, only_in_view: bool = False) -> Work:
        """Draw until the deadline, what is in view first; return what is left to do."""
        left, drawn = Work.NONE, False
        for widget in self._column.in_order_of_need():
            if not widget.work or (only_in_view and not self._column.is_in_view(widget)):
                continue
            while time.perf_counter() < deadline and widget.work is Work.READY:
                widget.advance(deadline)
                drawn = True
            if widget.work is Work.WAITING and time.perf_counter() < deadline:
                widget.advance(deadline)
                drawn = True  # a formula that came is higher than its source
            left = max(left, widget.work)
            if only_in_view and drawn:
                self._column.place()  # heights guessed so far decide what is in view
        if drawn:
            self._column.place()
        return left

    def _restyle(self) -> None:
        self._column.restyle()
        for widget in self._column.widgets():
            widget.restyle()
        self._draw_first()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._jump.move((self.width() - self._jump.width()) // 2, self.height() - self._jump.height() - MEDIUM)
        self._jump.raise_()
