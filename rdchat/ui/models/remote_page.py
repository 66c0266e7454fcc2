"""The Remote page: other computers, the models of the chosen one, and the sheet that adds one."""

from functools import partial

from PySide6.QtWidgets import QLineEdit, QWidget
from shiboken6 import isValid

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.remote.server_list import EXAMPLE, RemoteServer, ServerState, is_address, needs_confirmation
from rdchat.services.models.listed_model import Model
from rdchat.services.models.window_services import Models
from rdchat.services.remote_servers import RemoteServers
from rdchat.ui.models.entries import Entry
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.models.place_page import PlacePage, PlaceSheet
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import LEAVES, MACHINE, counted
from rdchat.ui.style.labels import visible_text
from rdchat.ui.style.opening import ask
from rdchat.ui.style.theme import Theme

_SERVERS_NOTE = (
    "Use models of another computer, such as one that runs rdchat serve. What you send them leaves "
    f"{MACHINE}: your messages, files and results of tools."
)
_GOES_THERE = "What you send to its models goes there: your messages, files and results of tools."
# Each row takes milliseconds to make, and some servers have hundreds of models.
_MAX_ROWS = 50
_UNENCRYPTED = "Everyone in the network between could read your chats, and the key. Use it only in a network you trust."
_FINGERPRINT = "Go on only if rdchat serve prints the same fingerprint there:\n\n{}"


class ServerSheet(PlaceSheet):
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

    def _add(self) -> None:
        self._try(self.name.text().strip(), self.address.text().strip())

    def _try(self, name: str, address: str, *, plain: bool = False, fingerprint: str = "") -> None:
        """Ask a server, after the person has confirmed what is not safe."""
        self.say("")
        if not plain and is_address(address) and needs_confirmation(address):
            accept = partial(self._try, name, address, plain=True)
            ask(self, f"Connect to {address} without encryption?", _UNENCRYPTED, "Connect", accept)
            return
        try:
            server = RemoteServer(name, address, fingerprint, plain)
            self.say(f"Asking {server.host}…", "muted")
            self._servers.add(server, self.key.text().strip(), partial(self._on_answer, server))
        except InvalidSettingError as error:
            self.say(str(error))

    def _on_answer(self, server: RemoteServer, problem: RdchatError | None) -> None:
        self.take_answer(problem)
        fingerprint = getattr(problem, "fingerprint", "")
        if fingerprint and problem is not None and isValid(self):
            accept = partial(self._try, server.name, server.address, fingerprint=fingerprint)
            ask(self, problem.message, _FINGERPRINT.format(fingerprint), "Accept", accept)


class RemotePage(PlacePage):
    """Lists the servers, and uses models of the chosen one.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        self._servers = servers = models.remote
        self.again = push_button("Look Again", "Ask the computers for their models", servers.look)
        self.remove = push_button("Remove…", "Forget the computer and its key", self._ask_to_remove)
        texts = "Other computers", "No other computers yet.", _SERVERS_NOTE, "Add a Computer…"
        super().__init__(models, links, theme, texts, self.again, self.remove)
        servers.changed.connect(self._refresh)
        self._refresh()

    def look(self) -> None:
        self._servers.look()

    def _refresh(self) -> None:
        self.show_places([_entry(state) for state in self._servers.states])

    def show_place(self, place: Entry) -> list[Model]:
        self.source.setText(place.facts)
        cards = [card for card in self._servers.cards if card.origin == place.key]
        facts = f"On {place.key} {LEAVES}"
        more = f" The menu above the chat has {counted(len(cards), 'model')} of it." if len(cards) > _MAX_ROWS else ""
        self.state.show_text(place.tip + more, "danger" if place.item.problem else "muted")
        shown = cards[:_MAX_ROWS]
        return [Model(card.name, is_installed=True, load_name=card.model or "", facts=facts) for card in shown]

    def open_sheet(self) -> None:
        ServerSheet(self._servers, self._theme, self.window()).open()

    def _ask_to_remove(self) -> None:
        server = self.chosen.server
        text = "Its key is removed from the keychain. Your chats stay."
        remove = partial(self._servers.remove, server)
        ask(self.window(), f"Remove {server.name}?", text, "Remove", remove, removes=True)


def _entry(state: ServerState) -> Entry:
    server = state.server
    count = counted(len(state.models), "model") if state.models else ""
    mark = ("Not available", "warning") if state.problem else (count, "muted")
    tip = visible_text(state.problem) or (_GOES_THERE if count else "Not asked yet.")
    return Entry(server.name, server.name, server.address, marks=(mark,), tip=tip, item=state)
