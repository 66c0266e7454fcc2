"""The range of messages that have widgets, which moves along a conversation of any length."""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST = 2  # messages shown at first at the end or the start; the view asks for more until they fill it
AROUND = 16  # messages shown at first around another message: more than a screen on either side
OPENED = 60  # messages shown once those are drawn
STEP = 4  # messages more when the reader comes near the first or last one
MAX = 150


@dataclass(slots=True)
class MessageRange:
    """Messages `start` to `end` of `total` are shown."""

    start: int = 0
    end: int = 0
    total: int = 0

    def show_latest(self, total: int) -> None:
        self.total = self.end = total
        self.start = max(0, total - FIRST)

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

    def keep(self, total: int, indices: Sequence[int], *, at_end: bool) -> None:
        """Take a new number of messages, and show few new ones: each takes milliseconds to make.

        Args:
            total: The new number.
            indices: Indices, in the new conversation, of messages that are shown already; one at the least.
            at_end: Whether to show the end; otherwise those messages stay.
        """
        self.total, last = total, max(indices) + 1
        if at_end and total - last > AROUND:
            self.show_latest(total)
        else:
            self.start, self.end = min(indices), total if at_end else min(total, last + STEP)

    @property
    def at_end(self) -> bool:
        return self.end == self.total

    def add(self) -> bool:
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
        before, self.start = self.start, max(0, self.start - STEP)
        self.end = min(self.end, self.start + MAX)
        return self.start < before

    def slide_down(self) -> bool:
        """Show newer messages; return whether there were any."""
        before, self.end = self.end, min(self.total, self.end + STEP)
        self.start = max(self.start, self.end - MAX)
        return self.end > before
