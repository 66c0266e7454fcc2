"""A service of the models window with a thread of its own."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from rdchat.errors import InvalidSettingError
from rdchat.hub import Tokens, find_endpoint
from rdchat.services.background_work import BackgroundWork

if TYPE_CHECKING:
    from rdchat.hub.hub_api import HubApi


class ModelService(QObject):
    """A service with a thread of its own. Lives on the main thread.

    Args:
        tokens: The person's tokens, for services that ask the hub.
        parent: The Qt parent.
    """

    changed = Signal()

    def __init__(self, tokens: Tokens | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens or Tokens()
        # Services that ask the hub get less time: closing waits for neither the hub nor a keychain.
        self._close_s = 2.0 if tokens is None else 0.5
        self._work = BackgroundWork(type(self).__name__, self)

    @property
    def host(self) -> str:
        """The name of the hub."""
        try:
            return find_endpoint().host
        except InvalidSettingError:
            return "the hub"

    def drop_requests(self) -> None:
        """Drop requests to the hub; wait a moment for work on files."""
        for work in self.findChildren(BackgroundWork):
            work.finish_work(self._close_s)

    def _hub(self) -> "HubApi":
        """Return the hub, with the person's token. For the service's thread: the keychain may ask the person."""
        from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  its client takes longer to import than the window

        return HubApi(self._tokens.access(find_endpoint()))
