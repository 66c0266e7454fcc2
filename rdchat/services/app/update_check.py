"""Looks for a new version of rdchat once a day, if the person has agreed."""

import logging
from datetime import date
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.hub.updates import Update, newer_version
from rdchat.services.background_work import BackgroundWork
from rdchat.services.storage_watch import SettingsControl

_LOG = logging.getLogger(__name__)
# The app may stay open for days.
_LOOK_AGAIN_MS = 60 * 60 * 1000


class UpdateCheck(QObject):
    """Asks the address that the build names, on a thread. It is off until the person has agreed.

    Args:
        settings: They store the answer and the day of the last look.
        address: See `updates_address`; with an empty one there is no update check.

    Attributes:
        address: The address.
    """

    update_found = Signal(Update)

    def __init__(self, settings: SettingsControl, address: str) -> None:
        super().__init__()
        self._settings = settings
        self.address = address
        self._work = BackgroundWork("updates", self)
        self._again = QTimer(self, interval=_LOOK_AGAIN_MS)
        self._again.timeout.connect(self.look_for_update)
        if address:
            self._again.start()

    @property
    def unanswered(self) -> bool:
        """Whether the person is still to be asked."""
        return bool(self.address) and self._settings.values.looks_for_updates is None

    def keep_answer(self, look: bool) -> None:
        """Store the person's answer, and look at once if it is yes."""
        self._settings.change_values(looks_for_updates=look)
        self.look_for_update()

    @Slot()
    def look_for_update(self) -> None:
        """Look for a new version, unless that was done today or the person has not agreed.

        The day is stored before the answer comes, so a look that fails is not repeated on the same day.
        """
        settings = self._settings.values
        today = date.today().isoformat()
        if not self.address or not settings.looks_for_updates or settings.looked_for_updates == today:
            return
        self._settings.change_values(looked_for_updates=today)
        self._work.do(partial(newer_version, self.address), self._take)

    def _take(self, result: object) -> None:
        """Take a newer version, None where there is none, or the error."""
        if isinstance(result, Update):
            self.update_found.emit(result)
        elif result is not None:
            _LOG.warning("A new version could not be looked for: %s", result)

    def cancel_check(self) -> None:
        """Look no more, and drop the answer of a request under way."""
        self._again.stop()
        self._work.finish_work()
