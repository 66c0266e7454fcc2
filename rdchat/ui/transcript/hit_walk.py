"""Going through the words of a search, from message to message."""

import time

from rdchat.chat.search_words import WordMatcher
from rdchat.ui.transcript.cut_mark import CutMark
from rdchat.ui.transcript.message_column import MessageColumn
from rdchat.ui.transcript.message_widget import MessageWidget

_DRAWING_S = 0.03  # of a message whose words are not on the screen yet


class HitWalk:
    """The words that are marked, and the one of them that the reader is at.

    Args:
        column: Has the messages.
    """

    def __init__(self, column: MessageColumn) -> None:
        self._column = column
        self.matcher = WordMatcher("")
        self._found: int | None = None  # the message whose words are gone through

    def mark(self, matcher: WordMatcher) -> None:
        """Mark the words of a search in all messages; of a matcher without words, none."""
        self.matcher, self._found = matcher, None
        for widget in self._column.widgets():
            widget.mark(matcher)
        if self._column.mark is not None:
            self._column.mark.mark(matcher)

    def enter(self, message_id: int, *, last: bool) -> None:
        """Go to the first or last word in a message of the column, or to the message where none of them is shown."""
        self._found = message_id
        widget = self._widget
        assert widget is not None, "it is within the window"
        until = time.perf_counter() + _DRAWING_S
        while not widget.hits and time.perf_counter() < until:
            if (self._in_summary and not widget.work) or not widget.draw_more(until):
                break
        self._column.place()
        self._go_to(widget, len(widget.hits) + self._in_summary - 1 if last else 0)

    def step(self, by: int) -> bool:
        """Go to the next word in the message, or the one before; False where there is none."""
        widget = self._widget
        if widget is None:
            return False
        current = [number for number, (body, own) in enumerate(widget.hits) if body.marks.current == own]
        if (mark := self._mark) is not None and mark.current >= 0:
            current = [len(widget.hits) + mark.current]
        number = current[0] + by if current else -1
        if not 0 <= number < len(widget.hits) + self._in_summary:
            return False
        self._go_to(widget, number)
        return True

    def leave(self) -> None:
        """Be at no word."""
        if (widget := self._widget) is not None:
            widget.go_to_hit(-1)
        if (mark := self._mark) is not None:
            mark.go_to_hit(-1)
        self._found = None

    @property
    def _widget(self) -> MessageWidget | None:
        return None if self._found is None else self._column.widget_of(self._found)

    @property
    def _mark(self) -> CutMark | None:
        """The mark below the message, whose summary is gone through behind it."""
        return None if self._found is None else self._column.mark_below(self._found)

    @property
    def _in_summary(self) -> int:
        mark = self._mark
        return mark.hits if mark is not None else 0

    def _go_to(self, widget: MessageWidget, number: int) -> None:
        mark, in_text = self._mark, len(widget.hits)
        number = min(number, in_text + self._in_summary - 1)  # -1: the words are in what is not shown, as an address
        if mark is not None and number >= in_text:
            widget.go_to_hit(-1)
            self._column.bring_into_view(mark, mark.go_to_hit(number - in_text))
            return
        if mark is not None:
            mark.go_to_hit(-1)
        widget.go_to_hit(number)
        self._column.place()  # a thought may have been unfolded
        self._column.bring_into_view(widget, widget.go_to_hit(number))
