"""Makes and places the widgets of a conversation's messages, and keeps the reader's position.

A conversation may have thousands of messages and a widget is costly, so only a range of them has widgets:
`MessageRange` says which, and moves as the reader scrolls. Heights and distances are in device-independent pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QPoint, QRect, Qt, Signal
from PySide6.QtGui import QPalette, QResizeEvent
from PySide6.QtWidgets import QFrame, QWidget

from rdchat.chat.conversation import Message, MessagePath, ReadingPosition, call_of
from rdchat.chat.storage import WordMatcher
from rdchat.errors import StorageError
from rdchat.inference.api import Role
from rdchat.services.chat.unsent_memory import UnsentMemory
from rdchat.ui.style import LARGE, SMALL, TEXT_WIDTH, Theme, discard, set_role
from rdchat.ui.transcript.message_kinds import PersonMessage, ReplyMessage, ToolMessage
from rdchat.ui.transcript.message_parts import EDGE, MessageArea
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.pending_calls import PendingCalls

FIRST = 2
"""Messages that get widgets at first at the end or the start; the view asks for more until they fill it."""
AROUND = 16
"""Messages that get widgets at first around another message: more than a screen on either side."""
OPENED = 60
"""Messages that have widgets once the first ones are drawn and the main thread has time."""
STEP = 4
"""Messages added when the reader comes near the first or last one."""
MAX = 150
"""The most messages that have widgets at a time."""

# The pixels from the end at which the reader still counts as being there.
_NEAR_END = 12
# The column's height limit in pixels, because Qt's widgets end at 2**24.
_HIGHEST = 16_000_000


@dataclass(slots=True)
class MessageRange:
    """The messages that have widgets, which the methods call shown: indices `start` to `end` of `total`."""

    start: int = 0
    end: int = 0
    total: int = 0

    def show_latest(self, total: int) -> None:
        """Show the last messages of this number."""
        self.total = total
        self.show_from(total - FIRST, FIRST)

    def show_around(self, index: int, limit: int = AROUND) -> None:
        """Show a message and those around it, up to a limit; nothing changes if it is shown already."""
        if not self.start <= index < self.end:
            self.show_from(index - limit // 2, limit)

    def show_from(self, index: int, count: int) -> None:
        """Show a message and those behind it, `count` in all."""
        self.start = max(0, min(index, self.total - count))
        self.end = min(self.total, self.start + count)

    def grow(self) -> bool:
        """Show a few messages more on either side, up to `OPENED`; return whether that changed anything."""
        room = OPENED - (self.end - self.start)
        before = self.start, self.end
        if room > 0:
            self.end = min(self.total, self.end + min(FIRST, room))
            self.start = max(0, self.start - FIRST, self.end - OPENED)
        return (self.start, self.end) != before

    def set_count(self, total: int, indices: Sequence[int], *, at_end: bool) -> None:
        """Take a new number of messages, and show few new ones: each takes milliseconds to make.

        Args:
            total: The new number.
            indices: Indices, in the new conversation, of messages that are shown already; one at the least.
            at_end: Whether to show the end; otherwise those messages stay.
        """
        self.total = total
        last = max(indices) + 1
        if at_end and total - last > AROUND:
            self.show_latest(total)
        else:
            self.start = min(indices)
            self.end = total if at_end else min(total, last + STEP)

    @property
    def at_end(self) -> bool:
        return self.end == self.total

    def count_message(self) -> bool:
        """Count one message more at the end; return whether it is shown."""
        inside = self.at_end
        self.total += 1
        if inside:
            self.end += 1
            if self.end - self.start > MAX:
                self.start += STEP
        return inside

    def slide_up(self) -> bool:
        """Show older messages; return whether there were any."""
        before = self.start
        self.start = max(0, self.start - STEP)
        self.end = min(self.end, self.start + MAX)
        return self.start < before

    def slide_down(self) -> bool:
        """Show newer messages; return whether there were any."""
        before = self.end
        self.end = min(self.total, self.end + STEP)
        self.start = max(self.start, self.end - MAX)
        return self.end > before


class MessageColumn(MessageArea):
    """Lays messages out, one below the other, and keeps the view at the end, or else at the first visible message.

    The scroll bar stands for the whole conversation: messages without a widget count as high as those with one are on
    average. Where it is moved beyond these, other messages get widgets.

    Attributes:
        messages: The conversation.
        range: The messages that have widgets.
        widgets: The widgets by message id, in the order of the messages.
        follows: Whether the reader is at the end, so that the view scrolls along with new text.
        pending: What stands below the last message; None for nothing.
        matcher: Finds the words of a search, which are marked in all messages.
    """

    # It is emitted when the messages are laid out, too.
    scrolled = Signal()
    # The view has moved to messages that may not be drawn yet.
    jumped = Signal()
    reading_failed = Signal(StorageError)

    def __init__(self, theme: Theme, unsent: UnsentMemory) -> None:
        super().__init__(theme)
        self.messages = MessagePath()
        self.range = MessageRange()
        self.widgets: dict[int, MessageWidget] = {}
        self.follows = True
        self.matcher = WordMatcher("")
        self.pending: PendingCalls | None = None
        self._unsent = unsent
        # The range that the widgets are of: `range` may be ahead of it until `show_range` is called.
        self._visible_range = replace(self.range)
        # The edges of the widgets, in the column.
        self._top = 0
        self._bottom = 0
        # The mean height of a message; 0 where all have widgets. `show_range` sets it to 0, and the next `lay_out`
        # measures it, once.
        self._average = 0.0
        # Whether the scroll bar moves for the layout, not because the reader scrolls. Who sets it calls `lay_out`,
        # which clears it.
        self._placing = False
        # Whether the range is being changed, which scrolls as well: it must not be changed again for that.
        self._slides = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Chat")
        self.verticalScrollBar().valueChanged.connect(self._on_value_changed)
        self.verticalScrollBar().setSingleStep(24)
        self.edited.connect(lambda message, text: unsent.save_text(message.conversation_id, message.id, text))
        self.height_changed.connect(self._anchor_around)
        self.caret_moved.connect(
            lambda rect: self.ensureVisible(rect.center().x(), rect.center().y(), 0, rect.height() + SMALL)
        )
        self._recolor()

    def restyle(self) -> None:
        """Follow the theme."""
        self._recolor()
        for widget in self.widgets.values():
            widget.restyle()

    def _recolor(self) -> None:
        for widget in (self, self.viewport(), self.column):
            set_role(widget, QPalette.ColorRole.Window, self.theme.colors.surface)

    # --- which messages are shown

    def show_range(self) -> bool:
        """Give the messages of the range widgets, and lay them out; if they cannot be read, nothing changes."""
        try:
            messages = self.messages.read_messages(self.range.start, self.range.end)
        except StorageError as error:
            self.range = replace(self._visible_range, total=self.range.total)
            self.reading_failed.emit(error)
            return False
        self._visible_range = replace(self.range)
        # Below these a line says that the model does not get what is above, or gets results of tools shortened. The
        # second line is left out where it would stand above the first.
        marked = {self.messages.cut_index, max(self.messages.shortened_index, self.messages.cut_index)}
        old = self.widgets
        self.widgets = {}
        for message in messages:
            self.widgets[message.id] = old.pop(message.id) if message.id in old else self._make_widget(message)
        self._placing = True
        value = self.verticalScrollBar().value()
        discard(*old.values())
        # The focus may have left a message, and Qt scrolled after it.
        self.verticalScrollBar().setValue(value)
        above: QWidget | None = None
        for index, message in enumerate(messages, self.range.start):
            widget = self.widgets[message.id]
            if widget.message is not message:
                widget.show_message(message)
            widget.show_cut(message.context_cut if index in marked else None, index + 1)
            widget.set_last(message is messages[-1])
            if above:
                QWidget.setTabOrder(above, widget)
            above = widget
        self._average = 0.0
        self.lay_out()
        return True

    def show_around(self, index: int, limit: int = AROUND) -> bool:
        """Show a message, by its index in the conversation, and those around it; return False if it cannot be read.

        The view leaves the end: `follows` is false from here on, unless the message cannot be read.
        """
        did_follow = self.follows
        self.follows = False
        message_id = self.messages.ids[index]
        is_new = message_id not in self.widgets
        self.range.show_around(index, limit)
        self._slides = True
        is_read = self.show_range()
        if is_read and is_new:
            self.verticalScrollBar().setValue(self.widgets[message_id].y())
        self._slides = False
        self.follows = did_follow and not is_read
        return is_read

    def show_pending(self, pending: PendingCalls) -> None:
        """Show the calls that wait below the last message."""
        self.pending = pending
        pending.setParent(self.column)
        pending.changed.connect(self.lay_out)

    def _make_widget(self, message: Message) -> MessageWidget:
        widget: MessageWidget
        if message.role is Role.TOOL:
            widget = ToolMessage(message, call_of(self.messages, message), self)
        else:
            widget = (PersonMessage if message.role is Role.USER else ReplyMessage)(message, self)
        if edited := self._unsent.unsent_text(message.conversation_id, message.id):
            widget.resume_edit(edited)
        widget.mark_matches(self.matcher)
        self.work_added.emit()
        return widget

    def _slide(self) -> None:
        """Give more messages widgets if the reader is near the first or last one that has one, or far from them.

        A view wholly above or below the widgets jumps to where the scroll bar stands. Otherwise, as long as there are
        more messages: older ones while less than half a page stands above the view and it does not follow the end, else
        newer ones while less than half a page stands below it.
        """
        bar = self.verticalScrollBar()
        near = self.viewport().height() // 2
        if self._average and not self._top - 2 * near < bar.value() < self._bottom:
            self._jump_to(bar.value())
            return
        for _ in range(MAX // STEP):
            if bar.value() - self._top < near and not self.follows:
                slid = self.range.slide_up()
            else:
                slid = self._bottom - bar.value() < 3 * near and self.range.slide_down()
            if not slid or not self.show_range():
                break

    def _jump_to(self, value: int) -> None:
        """Show the message that the scroll bar stands at; if it cannot be read, go back to those shown."""
        bar = self.verticalScrollBar()
        # Messages without a widget count as high as the average. The fraction is how far down the message to show.
        index_above = value / self._average
        index_below = self.range.end + (value - self._bottom) / self._average
        index = min(index_above if value < self._top else index_below, self.range.total - 1)
        self.follows = value >= bar.maximum() - _NEAR_END
        if self.follows:
            self.range.show_latest(self.range.total)
        else:
            self.range.show_from(int(index), min(round(bar.pageStep() / self._average) + 1, AROUND))
        if not self.show_range():
            self.follows = False
            bar.setValue(max(self._top, min(value, self._bottom - bar.pageStep())))
            return
        if not self.follows:
            widget = self.widgets[self.messages.ids[int(index)]]
            bar.setValue(widget.y() + round(index % 1 * widget.height()))
        self.jumped.emit()

    @property
    def fills_view(self) -> bool:
        """Whether what is laid out covers the view."""
        top = self.verticalScrollBar().value()
        return self._top <= top and top + self.viewport().height() <= self._bottom

    def distance(self, widget: MessageWidget) -> int:
        """Return how many pixels a widget is away from the view."""
        top = self.verticalScrollBar().value()
        return max(0, top - widget.geometry().bottom(), widget.y() - top - self.viewport().height())

    # --- layout

    def _anchor_around(self) -> None:
        """Lay out after the person opened or closed a part of a message, and keep the message where it is."""
        self.follows = False
        self.lay_out()
        self._on_value_changed()

    def lay_out(self) -> None:
        """Lay every message out, and keep the reader's position: the end, or the first message in view."""
        self._placing = True
        bar = self.verticalScrollBar()
        anchor = self._anchor()
        offset = anchor.y() - bar.value() if anchor else 0
        text_width = max(120, min(TEXT_WIDTH, self.width() - 2 * LARGE))
        # The scroll bar stands in the margin: nothing moves when it comes.
        left = (self.width() - text_width) // 2 - EDGE
        width = text_width + 2 * EDGE
        heights = [widget.layout_for(width) for widget in self.widgets.values()]
        self._average = self._average or self._mean_height(heights)
        self._top = round(self.range.start * self._average)
        self._bottom = self._place_widgets(QRect(left, self._top + LARGE, width, 0), heights) + SMALL
        below = round((self.range.total - self.range.end) * self._average)
        self.column.resize(self.viewport().width(), max(self._bottom + below, self.viewport().height()))
        if self.follows:
            bar.setValue(bar.maximum())
        elif anchor:
            bar.setValue(anchor.y() - offset)
        self._placing = False
        self._report_scroll()

    def _mean_height(self, heights: Sequence[int]) -> float:
        """Return the mean height of the messages with a widget, less if the column would get too high; 0 if all have.

        A message counts with the room below it.
        """
        others = self.range.total - len(heights)
        if not heights or not others:
            return 0.0
        height_of_all = sum(heights) + sum(widget.room_below for widget in self.widgets.values())
        return min(height_of_all / len(heights), (_HIGHEST - height_of_all) / others)

    def _place_widgets(self, rect: QRect, heights: Sequence[int]) -> int:
        """Place the widgets one below the other, and the calls that wait below them; return where they end.

        `rect` has their left edge, the top of the first one, and their width.
        """
        for widget, height in zip(self.widgets.values(), heights, strict=True):
            rect.setHeight(height)
            if widget.geometry() != rect:
                widget.setGeometry(rect)
            if widget.isHidden():
                # A widget that is shown where it is made would take the mouse for its own.
                widget.show()
            rect.translate(0, height + widget.room_below)
        if self.pending is None:
            return rect.y()
        rect.setHeight(self.pending.layout_for(rect.width()) if self.range.at_end else 0)
        self.pending.setVisible(rect.height() > 0)
        self.pending.setGeometry(rect)
        return rect.y() + rect.height()

    def _anchor(self) -> MessageWidget | None:
        """Return the first message in view, which keeps its position when those above get another height."""
        top = self.verticalScrollBar().value()
        # A widget that is still hidden was made just now, and has no geometry yet.
        widgets = [widget for widget in self.widgets.values() if not widget.isHidden()]
        return next((each for each in widgets if each.geometry().bottom() > top), widgets[-1] if widgets else None)

    @property
    def reading_position(self) -> ReadingPosition | None:
        """Where the reader is; None at the end."""
        anchor = None if self.follows else self._anchor()
        return ReadingPosition(anchor.message.id, self.verticalScrollBar().value() - anchor.y()) if anchor else None

    # --- scrolling

    def return_to(self, position: ReadingPosition) -> None:
        """Scroll to a position, whose message has a widget already."""
        widget = self.widgets[position.message_id]
        self.verticalScrollBar().setValue(widget.y() + min(position.above, widget.height()))
        # The messages below are not laid out yet: this is not the end.
        self.follows = False
        self._report_scroll()

    def bring_into_view(self, widget: QWidget, rect: QRect) -> None:
        """Scroll to a part of a message, a third down the page, unless it is well in view."""
        self.follows = False
        bar = self.verticalScrollBar()
        page = self.viewport().height()
        top = widget.y() + rect.top()
        if not bar.value() + LARGE <= top <= bar.value() + page - LARGE - rect.height():
            bar.setValue(top - page // 3)
        self._on_value_changed()

    def _on_value_changed(self) -> None:
        if not self._placing:
            bar = self.verticalScrollBar()
            self.follows = self.range.at_end and bar.value() >= bar.maximum() - _NEAR_END
            self._report_scroll()

    def _report_scroll(self) -> None:
        # Showing other messages scrolls as well.
        if not self._slides:
            self._slides = True
            self._slide()
            self._slides = False
        self.scrolled.emit()

    def show_focused(self, focused: QWidget) -> None:
        """Bring what has the focus into view: Qt would only do so for widgets in a layout."""
        if self.column.isAncestorOf(focused) and focused.height() < self.viewport().height():
            corner = focused.mapTo(self.column, QPoint(0, 0))
            self.ensureVisible(corner.x(), corner.y() + focused.height() // 2, 0, focused.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        # The scroll bar moves when its range shrinks, without the reader's doing.
        self._placing = True
        super().resizeEvent(event)
        self.lay_out()
