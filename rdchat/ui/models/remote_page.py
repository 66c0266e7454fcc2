"""The Remote page: servers whose models can be chosen, and the form that adds one."""

from functools import partial

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLineEdit, QListWidget, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.remote.server_list import EXAMPLE, RemoteServer, ServerState, is_address, needs_confirmation
from rdchat.services.chat.remote_servers import RemoteServers
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import MACHINE, counted
from rdchat.ui.style.labels import ThemedLabel, visible_text
from rdchat.ui.style.layouts import add_row, column, form_layout, row
from rdchat.ui.style.opening import ask
from rdchat.ui.style.theme import LARGE, SMALL, Theme

_NOTE = (
    f"Models of another computer, such as one that runs rdchat serve. What you send them leaves {MACHINE}: your "
    "messages, files and results of tools. Choose one from the menu above the chat."
)
_UNENCRYPTED = "Everyone in the network between could read your chats, and the key. Use it only in a network you trust."
_FINGERPRINT = "Go on only if rdchat serve prints the same fingerprint there:\n\n{}"


def state_text(state: ServerState) -> str:
    """Return what a server answered, in words."""
    models = counted(len(state.models), "model") if state.models else state.problem or "Not asked yet"
    return f"{state.server.name}  ·  {state.server.address}\n{visible_text(models)}"


class RemotePage(QWidget):
    """Lists the servers, adds one that answers, and removes the chosen one."""

    def __init__(self, servers: RemoteServers, theme: Theme) -> None:
        super().__init__()
        self._servers = servers
        self.list = QListWidget()
        self.list.setWordWrap(True)
        self.list.setSpacing(2)
        self.list.setAccessibleName("Remote servers")
        self.remove = push_button("Remove…", "Forget the server and its key", self._ask_to_remove)
        self.again = push_button("Look Again", "Ask the servers for their models", servers.look)
        self.name, self.address = QLineEdit(maxLength=24), QLineEdit(placeholderText=EXAMPLE)
        self.key = QLineEdit(echoMode=QLineEdit.EchoMode.Password)
        self.add = push_button("Add", "Ask the server for its models, and remember it", self._add)
        self.result = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        form = form_layout()
        add_row(form, "Name", self.name, "Your name for it: letters, digits and hyphens")
        add_row(form, "Address", self.address, "As the server prints it")
        add_row(form, "Key", self.key, "It goes to the keychain, and only to this address")
        for field in (self.name, self.address, self.key):
            # Queued: the key would also answer the question that follows.
            field.returnPressed.connect(self._add, Qt.ConnectionType.QueuedConnection)
        note = ThemedLabel(theme, _NOTE, "muted", wraps=True)
        title = ThemedLabel(theme, "Add a Server", bold=True)
        buttons, ends = row(self.remove, self.again, None), row(self.add, (self.result, 1))
        column(note, (self.list, 1), buttons, SMALL, title, form, ends, within=self, margins=LARGE)
        servers.changed.connect(self._refresh)
        self._refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._servers.look()

    def _refresh(self) -> None:
        states, chosen = self._servers.states, max(self.list.currentRow(), 0)
        with QSignalBlocker(self.list):
            self.list.clear()
            self.list.addItems([state_text(each) for each in states])
            self.list.setCurrentRow(min(chosen, len(states) - 1))
        for button in (self.remove, self.again):
            button.setEnabled(bool(states))

    def _add(self) -> None:
        self.result.show_text("")
        self._try(self.name.text().strip(), self.address.text().strip())

    def _try(self, name: str, address: str, *, plain: bool = False, fingerprint: str = "") -> None:
        """Ask a server, after the person has confirmed what is not safe."""
        if not plain and is_address(address) and needs_confirmation(address):
            accept = partial(self._try, name, address, plain=True)
            ask(self.window(), f"Connect to {address} without encryption?", _UNENCRYPTED, "Connect", accept)
            return
        try:
            server = RemoteServer(name, address, fingerprint, plain)
            self._servers.add(server, self.key.text().strip(), partial(self._on_answer, server))
        except InvalidSettingError as error:
            self.result.show_text(str(error), "danger")
            return
        self.result.show_text(f"Asking {server.host}…", "muted")
        self.add.setEnabled(False)

    def _on_answer(self, server: RemoteServer, problem: RdchatError | None) -> None:
        self.add.setEnabled(True)
        if problem is None:
            self.result.show_text(f"{server.name} is added. Its models are in the menu above the chat.", "success")
            for field in (self.name, self.address, self.key):
                field.clear()
            return
        self.result.show_text(visible_text(str(problem)), "danger")
        if fingerprint := getattr(problem, "fingerprint", ""):
            accept = partial(self._try, server.name, server.address, fingerprint=fingerprint)
            ask(self.window(), problem.message, _FINGERPRINT.format(fingerprint), "Accept", accept)

    def _ask_to_remove(self) -> None:
        server = self._servers.states[max(self.list.currentRow(), 0)].server
        text = "Its key is removed from the keychain. Your chats stay."
        ask(
            self.window(), f"Remove {server.name}?", text, "Remove", partial(self._servers.remove, server), removes=True
        )
