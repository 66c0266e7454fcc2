"""The windows beside the main one: each is imported and built when it is first asked for, then kept."""

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from rdchat.services.chat_controller import ChatController
from rdchat.ui.theme import Theme

if TYPE_CHECKING:
    from rdchat.ui.benchmark import BenchmarkWindow
    from rdchat.ui.drafts import DraftsWindow
    from rdchat.ui.ledger import LedgerWindow
    from rdchat.ui.race import RaceWindow


class Windows:
    """What the Draft and View menus open.

    Args:
        controller: What the windows follow.
        theme: The appearance to follow.
        parent: The main window, which they stay above and close with.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget) -> None:
        self._controller, self._theme, self._parent = controller, theme, parent

    @cached_property
    def ledger(self) -> "LedgerWindow":
        """The time ledger."""
        from rdchat.ui.ledger import LedgerWindow  # noqa: PLC0415

        return LedgerWindow(self._controller.time_ledger, self._controller.drafting, self._theme, self._parent)

    @cached_property
    def drafts(self) -> "DraftsWindow":
        """A reply's tokens and draft trees."""
        from rdchat.ui.drafts import DraftsWindow  # noqa: PLC0415

        return DraftsWindow(self._controller.traces, self._theme, self._parent)

    def show_tokens(self, message_id: int) -> None:
        """Show how a reply came about."""
        self.drafts.show_reply(message_id)

    @cached_property
    def race(self) -> "RaceWindow":
        """Drafting against plain decoding."""
        from rdchat.ui.race import RaceWindow  # noqa: PLC0415

        return RaceWindow(self._controller, self._theme, self._parent)

    @cached_property
    def benchmark(self) -> "BenchmarkWindow":
        """Ways of drafting on many prompts."""
        from rdchat.ui.benchmark import BenchmarkWindow  # noqa: PLC0415

        return BenchmarkWindow(self._controller, self._theme, self._parent)


def show_in_front(window: QWidget) -> None:
    """Show a window over the others and give it the keyboard."""
    window.show()
    window.raise_()
    window.activateWindow()
