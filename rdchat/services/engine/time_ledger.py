"""The times of replies: their stages added up, and the speed of each mode. It lives on the main thread."""

from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api import LedgerEntry, LedgerRow, Mode, Statistics, added_up, grouped_entries, ledger_rows
from rdchat.services.engine.draft_control import DraftControl


@dataclass(frozen=True, slots=True)
class ProfileCost:
    """Tokens a second of the last replies in one mode, with exact times and without."""

    exact_tps: float
    usual_tps: float


class TimeLedger(QObject):
    """The sum of the ledgers of all replies, the one under way included.

    It begins again when exact times are switched on or off, so that all its times are of one kind.

    Args:
        drafting: The draft settings, with whether times are exact.

    Attributes:
        was_reset: Whether it begins later than rdchat.
        plain_pace: Tokens a second of the loaded model without drafting, as its last reply measured it; where it did
            not, with drafting. None before there was a reply.
    """

    changed = Signal()

    def __init__(self, drafting: DraftControl) -> None:
        super().__init__(drafting)
        self._drafting = drafting
        # The stages of ended replies, and those of the reply under way. After a reset the former have what the reply
        # under way had spent by then, with a minus: 30 ms at the reset and 50 ms now are -30 and 50, so 20 ms since.
        self._before: tuple[LedgerEntry, ...] = ()
        self._running: tuple[LedgerEntry, ...] = ()
        # Number of ended replies.
        self._ended = 0
        self.was_reset = False
        # Whether the reply under way began with times of the other kind: set when the kind changes, cleared at its end.
        self._mixed = False
        # Tokens a second, by mode and by whether times were exact.
        self._rates: dict[tuple[Mode | None, bool], float] = {}
        # The mode of the last reply that was measured; None where its remote server did not say it.
        self._mode: Mode | None = Mode.OFF
        self.plain_pace: float | None = None
        drafting.exact_times_changed.connect(self._begin_other_kind)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All stages since the last reset."""
        sums = added_up((*self._before, *self._running)).values()
        return tuple(entry for entry in sums if entry.calls or entry.total_ms)

    @property
    def replies(self) -> int:
        """Number of the replies that it adds up, at least in part."""
        return self._ended + bool(self._running)

    @property
    def rows(self) -> tuple[LedgerRow, ...]:
        """The rows of the ledger, each directly followed by its parts."""
        return ledger_rows(grouped_entries(self.entries))

    @property
    def cost(self) -> ProfileCost | None:
        """The cost of exact times in the mode of the last reply; None until there was a reply with and one without."""
        exact = self._rates.get((self._mode, True))
        usual = self._rates.get((self._mode, False))
        return ProfileCost(exact, usual) if exact and usual else None

    @property
    def pace(self) -> float | None:
        """Tokens a second of the loaded model's last reply; None before there was one."""
        return self._rates.get((self._mode, self._drafting.exact_times))

    def start_counting(self) -> None:
        """Count from now on."""
        self._before = tuple(LedgerEntry(each.name, each.parent, -each.calls, -each.total_ms) for each in self._running)
        self._ended = 0
        self.was_reset = True
        self.changed.emit()

    def _begin_other_kind(self) -> None:
        """Begin again, as times are exact from now on, or no longer."""
        self._mixed = bool(self._running)
        self.start_counting()

    def add_statistics(self, statistics: Statistics) -> None:
        """Take the counters of the reply under way."""
        self._running = statistics.ledger
        self.changed.emit()

    def add_end(self, reply: Message) -> None:
        """Take the end of the reply under way: its stages join those of ended replies.

        Its speed counts only if it was completed, and all of it was measured with times of one kind.
        """
        statistics = reply.statistics
        drafting = reply.drafting
        measured = reply.status is MessageStatus.COMPLETE and bool(self._running) and not self._mixed
        if measured and statistics is not None and drafting is not None and statistics.decode_tps:
            self._mode = drafting.mode
            self._rates[drafting.mode, self._drafting.exact_times] = statistics.decode_tps
            self.plain_pace = statistics.plain_tps or statistics.decode_tps
        # Both count the reply under way too, as long as `_running` is not empty.
        self._ended = self.replies
        self._before = self.entries
        self._running = ()
        self._mixed = False
        self.changed.emit()

    def forget_rates(self) -> None:
        """Forget the speeds of the last model, after another one was loaded."""
        self._rates = {}
        self.plain_pace = None
        self.changed.emit()
