"""What the Models window shows of another computer: its state, and its models.

`MacsPage` is for Macs that run a model together with this one, `RemotePage` for servers that run models by themselves.
`ComputerPage` and `ComputerSheet` are what both have in common.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLineEdit, QPushButton, QWidget
from shiboken6 import isValid

from rdchat.errors import InvalidSettingError, RdchatError, UntrustedCertificateError
from rdchat.inference.api import EXAMPLE, Host, ModelCard, RemoteServer, ServerState, is_address, needs_confirmation
from rdchat.services.models.fit import Model
from rdchat.services.models.macs import Macs
from rdchat.services.models.model_services import Models
from rdchat.services.servers.remote_servers import RemoteServers
from rdchat.ui.models.list_entries import Entry
from rdchat.ui.models.model_row import RowList
from rdchat.ui.models.model_texts import joined
from rdchat.ui.models.reading_pane import PageLinks, reading_area
from rdchat.ui.style import (
    LEAVES,
    MACHINE,
    MEDIUM,
    TIGHT,
    ElidedLabel,
    FormSheet,
    Theme,
    ThemedLabel,
    ask,
    column,
    push_button,
    row,
    visible_text,
)
from rdchat.wording import counted, size_text

_MACS_NOTE = (
    "Several Macs can run a model that is too large for one. Each needs the same version of rdchat, and ssh without a "
    "password. What they send each other is not encrypted: connect them by a cable, or at home. "
    "They stay awake while a model is loaded on them."
)
_SERVERS_NOTE = (
    "Use models of another computer, such as one that runs rdchat serve. What you send them leaves "
    f"{MACHINE}: your messages, files and results of tools."
)
_GOES_THERE = "What you send to its models goes there: your messages, files and results of tools."
# Each row takes milliseconds to make, and some servers have hundreds of models.
_MAX_ROWS = 50
_UNENCRYPTED = "Everyone in the network between could read your chats, and the key. Use it only in a network you trust."
_FINGERPRINT = "Go on only if rdchat serve prints the same fingerprint there:\n\n{}"


class ComputerPage(QWidget):
    """A computer with its buttons and models.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
        buttons: What can be done with the computer.

    Attributes:
        kind: The first word of their keys in the list.
        title: Their heading there.
        remove: Forgets the computer.
        rows: Its models.
        changed: Emitted if `entries` has other computers, or other facts of them.
    """

    changed = Signal()
    kind: str
    title: str
    remove: QPushButton

    def __init__(self, models: Models, links: PageLinks, theme: Theme, *buttons: QPushButton) -> None:
        super().__init__()
        self._theme = theme
        self._entry: Entry | None = None
        self.name = ElidedLabel(theme, "", points_more=5, bold=True, middle=True)
        self.source = ElidedLabel(theme, "", "muted", middle=True)
        self.state = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        self.heading = ThemedLabel(theme, "Models", "muted", -1, bold=True)
        self.rows = RowList(models, links, theme)
        head = column(self.name, self.source, MEDIUM, row(*buttons, None), self.state, spacing=TIGHT)
        column(reading_area(theme, head, column(self.heading, self.rows, spacing=TIGHT)), within=self)

    @property
    def entries(self) -> list[Entry]:
        """The computers, as entries of the list."""
        raise NotImplementedError

    @property
    def chosen(self) -> Any:
        """The chosen computer, a `Host` or a `ServerState`; the buttons are visible only while there is one."""
        assert self._entry is not None
        return self._entry.item

    def show_computer(self, computer: Entry) -> None:
        """Show one of the computers."""
        self._entry = computer
        self.name.setText(computer.title)
        models = self.models_of(computer)
        self.rows.show_models(models)
        self.heading.setVisible(bool(models))

    def models_of(self, computer: Entry) -> Sequence[Model]:
        """Show the state of a computer; return its models."""
        raise NotImplementedError

    def open_sheet(self) -> None:
        """Open the sheet that adds a computer."""
        raise NotImplementedError


class ComputerSheet(FormSheet):
    """A sheet that adds a computer."""

    def take_answer(self, problem: RdchatError | None) -> None:
        """Close the sheet, or show why nothing was added."""
        if not isValid(self):
            return  # It was closed meanwhile.
        if problem is None:
            self.done(0)
        else:
            self.show_status(visible_text(str(problem)))


class MacSheet(ComputerSheet):
    """Adds a Mac that has an address.

    Args:
        macs: The Macs.
        theme: The appearance to follow.
        window: The sheet stands in front of it.
    """

    def __init__(self, macs: Macs, theme: Theme, window: QWidget) -> None:
        self._macs = macs
        self.name = QLineEdit(placeholderText="studio.local", maxLength=255)
        self.address = QLineEdit(placeholderText="Optional", maxLength=15)
        fields = (("Name", self.name, "Its name for ssh"), ("Address", self.address, "If its name is not found"))
        super().__init__(window, theme, ("Add a Mac", _MACS_NOTE), fields)

    def submit_form(self) -> None:
        if name := self.name.text().strip():
            self.show_status(f"Looking for {visible_text(name)}…", "muted")
            self._macs.add_mac(name, self.address.text().strip(), self.take_answer)


class MacsPage(ComputerPage):
    """Checks and removes a Mac, and loads a model on all that are ready.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    kind = "mac"
    title = "Macs"

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        self._models = models
        self._macs = models.macs
        self.check = push_button(
            "Check", "Try ssh, versions, memory and the link", lambda: self._macs.check_mac(self.chosen)
        )
        self.remove = push_button("Remove", "Forget this Mac", lambda: self._macs.remove_mac(self.chosen))
        super().__init__(models, links, theme, self.check, self.remove)
        self.heading.setText("Models on all Macs that are ready")
        for changed in (self._macs.changed, models.memory.changed):
            changed.connect(self.changed)

    @property
    def entries(self) -> list[Entry]:
        return [self._entry_of(host) for host in self._macs.hosts]

    def _entry_of(self, host: Host) -> Entry:
        # The mark says that it is ready.
        text = visible_text(self._macs.status_text(host)).removeprefix("ready, ")
        marks = (("Ready", "success"),) if host in self._macs.ready else ()
        return Entry(f"mac {host.ssh}", host.ssh, text, marks=marks, tip=text, item=host)

    def models_of(self, computer: Entry) -> list[Model]:
        self.source.setText(", ".join(computer.item.ips))
        self.state.show_text(computer.facts)
        cards = [card for card in self._models.library.models if card.can_be_loaded] if self._macs.ready else []
        return [self._model(card) for card in cards]

    def _model(self, card: ModelCard) -> Model:
        facts = joined(size_text(card.disk_bytes), self._macs.fit_text(card, self._models.machine))
        return Model(card.name, is_installed=True, load_name=self._macs.address(card), facts=facts)

    def open_sheet(self) -> None:
        MacSheet(self._macs, self._theme, self.window()).open()


class ServerSheet(ComputerSheet):
    """Adds a server that answers.

    Args:
        servers: The servers.
        theme: The appearance to follow.
        window: The sheet stands in front of it.
    """

    def __init__(self, servers: RemoteServers, theme: Theme, window: QWidget) -> None:
        self._servers = servers
        self.name = QLineEdit(maxLength=24)
        self.address = QLineEdit(placeholderText=EXAMPLE)
        self.key = QLineEdit(echoMode=QLineEdit.EchoMode.Password)
        fields = (
            ("Name", self.name, "Your name for it: letters, digits and hyphens"),
            ("Address", self.address, "As rdchat serve prints it"),
            ("Key", self.key, "It goes to the keychain, and only to this address"),
        )
        super().__init__(window, theme, ("Add a Computer", _SERVERS_NOTE), fields)

    def submit_form(self) -> None:
        self._try(self.name.text().strip(), self.address.text().strip())

    def _try(self, name: str, address: str, *, plain: bool = False, fingerprint: str = "") -> None:
        """Ask a server for its models, after the person has confirmed what is not safe.

        A connection without encryption is confirmed before the server is asked. A certificate that this computer does
        not trust is known only by the answer: `_on_answer` then asks, and tries again with its fingerprint.

        Args:
            name: The person's name for it.
            address: Its address.
            plain: Whether the person accepts a connection without encryption.
            fingerprint: Of the certificate that the person accepts; empty before it is known.
        """
        self.show_status("")
        if not plain and is_address(address) and needs_confirmation(address):
            accept = partial(self._try, name, address, plain=True)
            ask(self, f"Connect to {address} without encryption?", _UNENCRYPTED, "Connect", accept)
            return
        try:
            server = RemoteServer(name, address, fingerprint, plain)
            self.show_status(f"Asking {server.host}…", "muted")
            self._servers.add_server(server, self.key.text().strip(), partial(self._on_answer, server))
        except InvalidSettingError as error:
            self.show_status(str(error))

    def _on_answer(self, server: RemoteServer, problem: RdchatError | None) -> None:
        """Show what came of adding a server; ask whether to accept its certificate, if that is the problem."""
        self.take_answer(problem)
        if isinstance(problem, UntrustedCertificateError) and isValid(self):
            accept = partial(self._try, server.name, server.address, fingerprint=problem.fingerprint)
            ask(self, problem.message, _FINGERPRINT.format(problem.fingerprint), "Accept", accept)


class RemotePage(ComputerPage):
    """A server, and the use of its models.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    kind = "server"
    title = "Other computers"

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        servers = models.remote
        self._servers = servers
        self.again = push_button("Look Again", "Ask the computers for their models", servers.ask_servers)
        self.remove = push_button("Remove…", "Forget the computer and its key", self._ask_to_remove)
        super().__init__(models, links, theme, self.again, self.remove)
        servers.changed.connect(self.changed)

    @property
    def entries(self) -> list[Entry]:
        return [_entry(state) for state in self._servers.states]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._servers.ask_servers()

    def models_of(self, computer: Entry) -> list[Model]:
        name = computer.title
        self.source.setText(computer.facts)
        cards = [card for card in self._servers.cards if card.origin == name]
        facts = f"On {name} {LEAVES}"
        more = f" The menu above the chat has {counted(len(cards), 'model')} of it." if len(cards) > _MAX_ROWS else ""
        self.state.show_text(computer.tip + more, "danger" if computer.item.problem else "muted")
        visible = cards[:_MAX_ROWS]
        return [Model(card.name, is_installed=True, load_name=card.model or "", facts=facts) for card in visible]

    def open_sheet(self) -> None:
        ServerSheet(self._servers, self._theme, self.window()).open()

    def _ask_to_remove(self) -> None:
        server = self.chosen.server
        text = "Its key is removed from the keychain. Your chats stay."
        remove = partial(self._servers.remove_server, server)
        ask(self.window(), f"Remove {server.name}?", text, "Remove", remove, removes=True)


def _entry(state: ServerState) -> Entry:
    server = state.server
    count = counted(len(state.models), "model") if state.models else ""
    mark = ("Not available", "warning") if state.problem else (count, "muted")
    tip = visible_text(state.problem) or (_GOES_THERE if count else "Not asked yet.")
    return Entry(f"server {server.name}", server.name, server.address, marks=(mark,), tip=tip, item=state)
