"""Goes through the words of a search, from one message to the next."""

import time

from PySide6.QtCore import QPoint, QRect

from rdchat.chat.storage.search import WordMatcher
from rdchat.ui.transcript.message_column import MessageColumn
from rdchat.ui.transcript.message_widget import MessageWidget

_DRAWING_S = 0.03  # for a message whose words are not drawn yet


class SearchHits:
    """The words that are marked in a transcript, and the one of them that the reader is at."""

    def __init__(self, view: MessageColumn) -> None:
        self._view = view
        self._message_id = -1

    def mark(self, matcher: WordMatcher) -> None:
        """Mark the words of a search in all messages; with a matcher without words, none."""
        self._view.matcher, self._message_id = matcher, -1
        for widget in self._view.widgets.values():
            widget.mark(matcher)

    def show(self, message_id: int, *, last: bool = False) -> None:
        """Go to the first or last word in a message, or to its top if none of them is drawn."""
        view, index = self._view, self._view.messages.index_of(message_id)
        if before := view.widgets.get(self._message_id):
            _unmark(before)
        self._message_id = -1
        if index is None or not view.show_around(index):
            return
        self._message_id, widget = message_id, view.widgets[message_id]
        until = time.perf_counter() + _DRAWING_S
        while time.perf_counter() < until and (widget.work or not widget.hits) and widget.draw_more(until):
            pass
        view.lay_out()
        self._go_to(widget, len(widget.hits) - 1 if last else 0)

    def step(self, by: int) -> bool:
        """Go to the next word in the message, or the one before; return False if there is none."""
        widget = self._view.widgets.get(self._message_id)
        hits = widget.hits if widget else []
        current = [number for number, (body, own) in enumerate(hits) if body.marks.current == own]
        if widget is None or not current or not 0 <= current[0] + by < len(hits):
            return False
        self._go_to(widget, current[0] + by)
        return True

    def _go_to(self, widget: MessageWidget, number: int) -> None:
        _unmark(widget)
        # It stays empty if the words are in what is not shown, such as an address.
        rect = QRect()
        if widget.hits:
            body, own = widget.hits[number]
            widget.unfold(body)
            self._view.lay_out()
            rect = body.marks.go_to(own)
            body.scrolling.bring_into_view(rect)
            rect.translate(body.mapTo(widget, QPoint(0, 0)))
        self._view.bring_into_view(widget, rect)
        self._view.jumped.emit()


def _unmark(widget: MessageWidget) -> None:
    for body in widget.bodies:
        if body.marks.current >= 0:
            body.marks.go_to(-1)
