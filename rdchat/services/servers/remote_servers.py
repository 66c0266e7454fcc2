"""Adds and removes remote servers, and finds their models."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import ModelCard, RemoteServer, ServerState, remote_address
from rdchat.inference.computer_checks import accept_server, ask_servers, forget_server
from rdchat.services.background_work import BackgroundWork, FolderSearch
from rdchat.services.storage_watch import SettingsControl


class RemoteServers(QObject):
    """The remote servers of the settings.

    Signals:
        changed: Other servers, or other models of one.
    """

    changed = Signal()

    def __init__(self, settings: SettingsControl) -> None:
        super().__init__(settings)
        self._settings = settings
        # It searches the servers, not folders.
        self._search = FolderSearch(ask_servers, self)
        self._search.changed.connect(self.changed)
        self._work = BackgroundWork("remote servers", self)

    @property
    def states(self) -> tuple[ServerState, ...]:
        """The servers, each with its last answer."""
        known = {each.server: each for each in self._search.results}
        return tuple(known.get(each) or ServerState(each) for each in self._settings.values.remote_servers)

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """The models of all servers, as the lists of models have them."""
        cards = []
        for state in self.states:
            for name in state.models:
                address = remote_address(state.server.name, name)
                cards.append(ModelCard(name, address, state.server.name, Path(address)))
        return tuple(cards)

    def ask_servers(self) -> None:
        """Ask the servers for their models; `changed` follows if there are other ones."""
        if servers := self._settings.values.remote_servers:
            self._search.search_folders(servers)

    def add_server(self, server: RemoteServer, key: str, then: Callable[[RdchatError | None], object]) -> None:
        """Ask a server for its models, and store it with its key.

        Args:
            server: The server.
            key: Its key; empty for none, or the stored one.
            then: Called with the error if it was not added, else with None. The error may be about the certificate,
                which the person may accept.

        Raises:
            InvalidSettingError: If there is another server of this name.
        """
        if any(each.name == server.name for each in self._settings.values.remote_servers):
            raise InvalidSettingError(f"There is a server named {server.name}.", "Choose another name.")
        self._work.do(partial(accept_server, server, key), partial(self._on_added, server, then), then)

    def remove_server(self, server: RemoteServer) -> None:
        """Forget a server and its key."""
        others = tuple(each for each in self._settings.values.remote_servers if each.name != server.name)
        self._settings.change_values(remote_servers=others)
        self._work.do(partial(forget_server, server))
        self.changed.emit()

    def drop_requests(self) -> None:
        """Drop requests that wait for a server."""
        self._search.finish_work(0.0)
        self._work.finish_work(0.5)

    def _on_added(
        self, server: RemoteServer, then: Callable[[RdchatError | None], object], _models: tuple[str, ...]
    ) -> None:
        """Store a server that has answered with its models."""
        self._settings.change_values(remote_servers=(*self._settings.values.remote_servers, server))
        self.changed.emit()
        self.ask_servers()
        then(None)
