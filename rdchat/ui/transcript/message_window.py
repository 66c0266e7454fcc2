"""Which messages have widgets: a window that slides over a conversation of any length."""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST = 2  # messages shown at once when a conversation opens; the view asks for more where they leave it empty
AROUND = 16  # and where it opens in its midst: more than a screen of them on either side
OPENED = 60  # and as soon as those are drawn
_GROWTH = 2
STEP = 10
MOST = 150


@dataclass(slots=True)
class MessageWindow:
    """Places `start` to `end` of the `total` messages are shown."""

    start: int = 0
    end: int = 0
    total: int = 0

    def show_latest(self, total: int) -> None:
        self.total = self.end = total
        self.start = max(0, total - FIRST)

    def show_around(self, place: int) -> None:
        """Show a message and some on either side of it; nothing changes where it is shown already."""
        if not self.start <= place < self.end:
            self.start = max(0, min(place - AROUND // 2, self.total - AROUND))
            self.end = min(self.total, self.start + AROUND)

    def grow(self) -> bool:
        """Show a few messages more above, up to `OPENED`; whether that changed anything."""
        if self.start == 0 or self.end - self.start >= OPENED:
            return False
        self.start = max(0, self.start - _GROWTH, self.end - OPENED)
        return True

    def keep(self, total: int, kept: Sequence[int], *, at_end: bool) -> None:
        """Take a new number of messages, and show few that were not shown before: each takes milliseconds to make.

        Args:
            total: The new number.
            kept: Places, in the new conversation, of messages that are shown already; one at least.
            at_end: The end is to be shown; otherwise those messages stay.
        """
        self.total, last = total, max(kept) + 1
        if at_end and total - last > AROUND:
            self.show_latest(total)
        else:
            self.start, self.end = min(kept), total if at_end else min(total, last + STEP)

    @property
    def at_end(self) -> bool:
        return self.end == self.total

    def add(self) -> bool:
        """Count one message more at the end; whether it is inside the window."""
        inside = self.at_end
        self.total += 1
        if inside:
            self.end += 1
            if self.end - self.start > MOST:
                self.start += STEP
        return inside

    def slide_up(self) -> bool:
        """Show older messages; whether there were any."""
        if self.start == 0:
            return False
        self.start = max(0, self.start - STEP)
        self.end = min(self.end, self.start + MOST)
        return True

    def slide_down(self) -> bool:
        """Show newer messages; whether there were any."""
        if self.at_end:
            return False
        self.end = min(self.total, self.end + STEP)
        self.start = max(self.start, self.end - MOST)
        return True
