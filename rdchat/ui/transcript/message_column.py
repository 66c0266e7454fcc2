"""The widgets of the messages shown, one below the other in a scroll area."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from PySide6.QtCore import QPoint, QRect, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPalette, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from rdchat.chat.conversation import Message
from rdchat.chat.storage.reader_notes import ReadingPlace
from rdchat.services.text.unsent_memory import UnsentMemory
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, Theme
from rdchat.ui.transcript.cut_mark import CutMark
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.message_widget import MessageWidget

_NEAR_END = 12  # pixels from the end that still count as being there


class MessageColumn(QScrollArea):
    """Lays messages out and keeps the reader's place: the end while they are there, else the first message in view."""

    scrolled = Signal()
    resized = Signal()
    start_requested = Signal()
    end_requested = Signal()

    def __init__(
        self, make: Callable[[Message, QWidget], MessageWidget], unsent: UnsentMemory, theme: Theme, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._make = make
        self._unsent = unsent
        self._theme = theme
        self._follows = True
        self._placing = False
        self._column = QWidget(self)
        self._widgets: dict[int, MessageWidget] = {}  # in the order of the messages
        self._mark: CutMark | None = None
        self._marked: int | None = None  # the message above it
        self.setWidget(self._column)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Conversation"))
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self.verticalScrollBar().setSingleStep(24)
        self.restyle()

    def restyle(self) -> None:
        palette = QPalette(self.palette())
        palette.setColor(QPalette.ColorRole.Window, self._theme.colors.surface)
        self.setPalette(palette)
        self.viewport().setPalette(palette)
        self._column.setPalette(palette)
        if self._mark is not None:
            self._mark.restyle()

    # --- which messages are shown

    def show_messages(self, messages: Sequence[Message]) -> bool:
        """Show these messages; widgets of those shown before stay. Whether there were any such."""
        old = self._widgets
        kept = [message.id for message in messages if message.id in old]
        self._widgets = {}
        for message in messages:
            self._widgets[message.id] = old.pop(message.id) if message.id in old else self._add(message)
        for widget in old.values():
            widget.hide()
            widget.deleteLater()
        for message in messages:
            if self._widgets[message.id].message is not message:
                self._widgets[message.id].show_message(message)
        order: QWidget | None = None
        for place, widget in enumerate(self._widgets.values()):
            widget.set_last(place == len(self._widgets) - 1)
            if order:
                QWidget.setTabOrder(order, widget)
            order = widget
            if self._mark is not None and widget.message.id == self._marked:
                QWidget.setTabOrder(order, self._mark.button)
                order = self._mark.button
        return bool(kept)

    def _add(self, message: Message) -> MessageWidget:
        widget = self._make(message, self._column)
        widget.caret_moved.connect(lambda rect: self._show_caret(widget, rect))
        if edited := self._unsent.text(message.conversation_id, message.id):
            widget.resume_edit(edited)
        widget.edited.connect(partial(self._unsent.keep, message.conversation_id, message.id))
        return widget

    def set_mark(self, message_id: int | None, mark: CutMark | None) -> None:
        """Show a mark below a message in the place of an earlier one; None for none."""
        if self._mark is not None:
            self._mark.hide()
            self._mark.deleteLater()
        self._mark, self._marked = mark, message_id
        if mark is not None:
            mark.setParent(self._column)

    @property
    def mark(self) -> CutMark | None:
        """The mark below a message, in the window or not."""
        return self._mark

    def mark_below(self, message_id: int) -> CutMark | None:
        """Return the mark below a message; None where there is none."""
        return self._mark if message_id == self._marked else None

    def widget_of(self, message_id: int) -> MessageWidget | None:
        return self._widgets.get(message_id)

    @property
    def selected_body(self) -> TextBody | None:
        """The text in which something is selected: the one with the keyboard, else the last one; None without any."""
        bodies = [body for widget in self.widgets() for body in widget.bodies]
        selected = [body for body in bodies if body.textCursor().hasSelection()]
        return next((body for body in selected if body.hasFocus()), selected[-1] if selected else None)

    def focus_last(self) -> None:
        """Give the last message the keyboard."""
        if widgets := list(self.widgets()):
            widgets[-1].body.setFocus()

    def widgets(self) -> Iterator[MessageWidget]:
        yield from self._widgets.values()

    def in_order_of_need(self) -> list[MessageWidget]:
        """Return the widgets in view first, then the others by their distance from it."""
        top, bottom = self._view()

        def distance(widget: MessageWidget) -> int:
            return max(0, top - widget.geometry().bottom(), widget.y() - bottom)

        return sorted(self._widgets.values(), key=distance)

    def is_in_view(self, widget: MessageWidget) -> bool:
        top, bottom = self._view()
        return widget.geometry().bottom() >= top and widget.y() <= bottom

    def _view(self) -> tuple[int, int]:
        top = self.verticalScrollBar().value()
        return top, top + self.viewport().height()

    # --- places

    @property
    def has_room(self) -> bool:
        """Whether the messages leave a part of the view empty."""
        return self.verticalScrollBar().maximum() == 0

    def place_around(self) -> None:
        """Place every message after the person opened or closed something, and keep that where it is."""
        self._follows = False
        self.place()
        self._on_scrolled()

    def place(self) -> None:
        """Place every message, and keep the reader's place."""
        self._placing = True
        anchor = self._anchor()
        offset = anchor.y() - self.verticalScrollBar().value() if anchor else 0
        column = max(120, min(TEXT_WIDTH, self.width() - 2 * LARGE))
        left = (self.width() - column) // 2  # the scroll bar stands in the margin: nothing moves when it comes
        y = LARGE
        for message_id, widget in self._widgets.items():
            height = widget.layout_for(column)
            rect = QRect(left, y, column, height)
            if widget.geometry() != rect:
                widget.setGeometry(rect)
            if widget.isHidden():
                widget.show()  # only now: shown where it is made, it would take the mouse for its own
            y += height + SMALL
            if self._mark is not None and message_id == self._marked:
                y = self._place_mark(self._mark, left, y, column)
        if self._mark is not None:
            self._mark.setVisible(self._marked in self._widgets)
        self._column.resize(self.viewport().width(), max(y + SMALL, self.viewport().height()))
        bar = self.verticalScrollBar()
        if self._follows:
            bar.setValue(bar.maximum())
        elif anchor:
            bar.setValue(anchor.y() - offset)
        self._placing = False
        self.scrolled.emit()

    def _place_mark(self, mark: CutMark, left: int, y: int, width: int) -> int:
        height = mark.layout_for(width)
        mark.setGeometry(left, y, width, height)
        return y + height + MEDIUM

    def _anchor(self) -> MessageWidget | None:
        top = self.verticalScrollBar().value()
        # a widget that is still hidden was made just now, and has no place yet
        placed = (widget for widget in self._widgets.values() if not widget.isHidden())
        return next((widget for widget in placed if widget.geometry().bottom() > top), None)

    # --- scrolling

    @property
    def follows(self) -> bool:
        """Whether the reader is at the end, so that the view goes along with new text."""
        return self._follows

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._follows = True
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())

    @property
    def reading_place(self) -> ReadingPlace | None:
        """Where the reader is; None at the end."""
        anchor = None if self._follows else self._anchor()
        return ReadingPlace(anchor.message.id, self.verticalScrollBar().value() - anchor.y()) if anchor else None

    def return_to(self, place: ReadingPlace) -> None:
        """Show a place; its message has a widget."""
        self._follows = False
        bar = self.verticalScrollBar()
        widget = self._widgets[place.message_id]
        bar.setValue(widget.y() + min(place.above, widget.height()))
        self._follows = False  # what is below is not laid out yet: this is not the end
        self.scrolled.emit()

    def unfollow(self) -> None:
        self._follows = False

    def _on_scrolled(self) -> None:
        if not self._placing:
            bar = self.verticalScrollBar()
            self._follows = bar.value() >= bar.maximum() - _NEAR_END
            self.scrolled.emit()

    def bring_into_view(self, widget: QWidget, rect: QRect) -> None:
        """Scroll to a place in a message or a mark, a third down the page, unless it is well in view."""
        self._follows = False
        bar, page = self.verticalScrollBar(), self.viewport().height()
        top = widget.y() + rect.top()
        if not bar.value() + LARGE <= top <= bar.value() + page - LARGE - rect.height():
            bar.setValue(top - page // 3)
        self._on_scrolled()

    def _show_caret(self, widget: MessageWidget, rect: QRect) -> None:
        point = rect.center() + widget.pos()
        self.ensureVisible(point.x(), point.y(), 0, rect.height() + SMALL)

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Move the focus, and bring what has it into view (messages place themselves outside of layouts)."""
        moved = super().focusNextPrevChild(forward)
        focused = self.focusWidget()
        if moved and focused and self._column.isAncestorOf(focused) and focused.height() < self.viewport().height():
            place = focused.mapTo(self._column, QPoint(0, 0))
            self.ensureVisible(place.x(), place.y() + focused.height() // 2, 0, focused.height())
        return moved

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._placing = True  # the scroll bar moves when its range shrinks; the reader did not move it
        super().resizeEvent(event)
        self._placing = False
        self.resized.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Home:
            self.start_requested.emit()
        elif event.key() == Qt.Key.Key_End:
            self.end_requested.emit()
        else:
            super().keyPressEvent(event)
