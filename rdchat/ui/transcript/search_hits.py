"""Goes through the words of a search, from one message to the next."""

import time

from PySide6.QtCore import QPoint, QRect

from rdchat.chat.search_words import WordMatcher
from rdchat.ui.transcript.message_column import MessageColumn
from rdchat.ui.transcript.message_widget import MessageWidget

_DRAWING_S = 0.03  # for a message whose words are not drawn yet


class SearchHits:
    """The words that are marked, and the one of them that the reader is at.

    Args:
        column: Has the messages.
    """

    def __init__(self, column: MessageColumn) -> None:
        self._column = column
        self._message_id = -1  # the message whose words are gone through

    def mark(self, matcher: WordMatcher) -> None:
        """Mark the words of a search in all messages; with a matcher without words, none."""
        self._column.matcher, self._message_id = matcher, -1
        for widget in self._column.widgets.values():
            widget.mark(matcher)

    def enter(self, message_id: int, *, last: bool) -> None:
        """Go to the first or last word in a message that is shown, or to its top if none of them is drawn."""
        self._message_id = message_id
        widget = self._column.widgets[message_id]
        until = time.perf_counter() + _DRAWING_S
        while time.perf_counter() < until and (widget.work or not widget.hits) and widget.draw_more(until):
            pass
        self._column.place()
        self._go_to(widget, len(widget.hits) - 1 if last else 0)

    def step(self, by: int) -> bool:
        """Go to the next word in the message, or the one before; return False if there is none."""
        widget = self._column.widgets.get(self._message_id)
        hits = widget.hits if widget else []
        current = [number for number, (body, own) in enumerate(hits) if body.marks.current == own]
        if widget is None or not current or not 0 <= current[0] + by < len(hits):
            return False
        self._go_to(widget, current[0] + by)
        return True

    def leave(self) -> None:
        """Unmark the current word."""
        if widget := self._column.widgets.get(self._message_id):
            _leave(widget)
        self._message_id = -1

    def _go_to(self, widget: MessageWidget, number: int) -> None:
        _leave(widget)
        if not widget.hits:  # the words are in what is not shown, such as an address
            self._column.bring_into_view(widget, QRect())
            return
        body, own = widget.hits[number]
        widget.unfold(body)
        self._column.place()
        rect = body.marks.go_to(own)
        body.scrolling.bring_into_view(rect)
        self._column.bring_into_view(widget, rect.translated(body.mapTo(widget, QPoint(0, 0))))


def _leave(widget: MessageWidget) -> None:
    for body in widget.bodies:
        if body.marks.current >= 0:
            body.marks.go_to(-1)
