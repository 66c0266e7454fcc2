"""The settings of the server for other programs. They apply at once."""

from collections.abc import Callable

from PySide6.QtCore import QSignalBlocker, Qt, Slot
from PySide6.QtWidgets import QCheckBox, QLineEdit, QSpinBox, QWidget

from rdchat.chat.settings import Settings
from rdchat.errors import InvalidSettingError
from rdchat.server.settings import host_names
from rdchat.services.server.server_control import ServerControl
from rdchat.ui.style.buttons import CopyButton, push_button
from rdchat.ui.style.labels import ElidedLabel, PlainLabel, ThemedLabel, set_tip
from rdchat.ui.style.layouts import add_row, form_layout, row
from rdchat.ui.style.opening import ask
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, Theme

_ABOUT = (
    "Coding agents, editors and scripts on this computer can use the loaded model, as they would use OpenAI's or "
    "Anthropic's. Nothing that they send is stored."
)
_PATHS = "Programs made for Anthropic take the address without /v1."
_MODEL = "The name by which programs call the loaded model."
_NOTE_WIDTH = 390  # pixels
_HIDDEN_KEY = "\N{BULLET}" * 16
_NETWORK = "Let other computers connect?"
_NETWORK_MEANS = (
    "Other computers on this network can use the model with the key. What they send is not encrypted, so do this only "
    "in a network that you trust."
)
_NEW_KEY = "Make a new key?"
_NEW_KEY_MEANS = "Programs that have the old key cannot use the model until they get the new one."
_RESTART = "Restart the server?"
_RESTART_MEANS = "The server restarts to follow this setting."
_SUBSTITUTES = "If a request names a model that is not on this computer, the loaded model answers. Off refuses it."
_HOSTS = (
    "Other names of this computer that programs use, separated by commas, such as host.docker.internal for programs in "
    "Docker."
)
_LOADS = "If a request names another model on this computer, that model is loaded, and your chats use it too."


class ServerPage(QWidget):
    """A page of the settings window.

    Args:
        server: The server.
        theme: The appearance to follow.
        change: Changes settings by their names.
    """

    def __init__(self, server: ServerControl, theme: Theme, change: Callable[..., object]) -> None:
        super().__init__()
        self.setMinimumWidth(500)
        self._server, self._change = server, change
        self._settings = Settings()
        self.on = QCheckBox("Let other programs use the model")
        self.on.toggled.connect(server.set_on)
        self.problem = _note(theme, "", "danger")
        self.address, self.copy_address = ThemedLabel(theme), CopyButton("Copy the address", theme)
        self.copy_address.clicked.connect(lambda: self.copy_address.copy(self.address.text()))
        self.model = ElidedLabel(theme, mode=Qt.TextElideMode.ElideMiddle)
        self.copy_model = CopyButton("Copy the model's name", theme)
        self.copy_model.clicked.connect(lambda: self.copy_model.copy(self.model.text()))
        self.key, self.copy_key = ThemedLabel(theme), CopyButton("Copy the key", theme)
        self.copy_key.clicked.connect(lambda: self.copy_key.copy(server.key))
        self.new_key = push_button("New Key…", _NEW_KEY_MEANS, self._ask_for_new_key)
        self.port = QSpinBox(minimum=1, maximum=2**16 - 1)
        self.port.setKeyboardTracking(False)  # of 8817, the 8 is not a port
        self.port.setGroupSeparatorShown(False)
        self.port.valueChanged.connect(lambda port: self._restart(server_port=port))
        self.hosts = QLineEdit()
        self.hosts.editingFinished.connect(self._choose_hosts)
        self.wrong_host = _note(theme, "", "danger")
        self.at_start = QCheckBox("Start with rdchat")
        self.at_start.toggled.connect(lambda on: change(server_at_start=on))
        self.loads = QCheckBox("Requests may load other models")
        self.loads.toggled.connect(lambda on: self._restart(server_loads_models=on))
        self.substitutes = QCheckBox("Answer for models that are not installed")
        self.substitutes.toggled.connect(lambda on: self._restart(server_substitutes_models=on))
        self.network = QCheckBox("Other computers may connect")
        self.network.toggled.connect(self._choose_network)
        self._lay_out(theme)
        server.changed.connect(self._show_server)
        self._show_server()

    def show_settings(self, settings: Settings) -> None:
        """Show the settings."""
        self._settings = settings
        for field, on in (
            (self.at_start, settings.server_at_start),
            (self.loads, settings.server_loads_models),
            (self.substitutes, settings.server_substitutes_models),
            (self.network, settings.server_on_network),
        ):
            with QSignalBlocker(field):
                field.setChecked(on)
        with QSignalBlocker(self.port):
            self.port.setValue(settings.server_port)
        self.hosts.setText(", ".join(settings.server_hosts))
        self.wrong_host.show_text("")
        self.network_note.show_text(_NETWORK_MEANS.partition(",")[0] + "." if settings.server_on_network else "")

    def show_model(self, name: str | None) -> None:
        """Show the name by which programs call the loaded model."""
        self.model.setText(name or "No model is loaded.")
        self.copy_model.setEnabled(name is not None)

    def _lay_out(self, theme: Theme) -> None:
        form = form_layout(self, spacing=(MEDIUM, SMALL), margin=LARGE)
        self.network_note = _note(theme, "", "warning")
        add_row(form, "Server", self.on, _ABOUT)
        form.addRow("", self.problem)
        form.addRow("", _note(theme, _ABOUT))
        for button in (self.copy_address, self.copy_key, self.copy_model):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        form.addRow(PlainLabel("Address"), row(self.address, self.copy_address, None))
        form.addRow("", _note(theme, _PATHS))
        form.addRow(PlainLabel("Key"), row(self.key, self.copy_key, None, self.new_key))
        add_row(form, "Model", self.model, _MODEL, row((self.model, 1), self.copy_model))
        add_row(form, "Port", self.port, "Change it if another program uses this one.", row(self.port, None))
        add_row(form, "Host names", self.hosts, _HOSTS)
        form.addRow("", self.wrong_host)
        add_row(form, "Options", self.at_start, "The server is on whenever rdchat is open.")
        for field, tip in ((self.loads, _LOADS), (self.substitutes, _SUBSTITUTES), (self.network, _NETWORK_MEANS)):
            set_tip(field, tip)
            field.setAccessibleDescription(tip)
            form.addRow("", field)
        form.addRow("", self.network_note)

    @Slot()
    def _show_server(self) -> None:
        server = self._server
        with QSignalBlocker(self.on):
            self.on.setChecked(server.on)
        self.problem.show_text(server.problem)
        runs, waits = bool(server.address), server.on and not server.address
        self.address.setText(f"{server.address}/v1" if runs else "Starting…" if waits else "The server is off.")
        self.key.setText(_HIDDEN_KEY if runs else "Starting…" if waits else "Shown while the server is on.")
        for label, button in ((self.address, self.copy_address), (self.key, self.copy_key)):
            label.set_color("text" if runs else "muted")
            button.setEnabled(runs)
        self.new_key.setEnabled(runs)

    @property
    def _ends(self) -> str:
        """What a start of the server ends; empty where nothing runs."""
        return " The reply that a program is getting now ends." if self._server.facts.running else ""

    def _restart(self, **values: object) -> None:
        """Change settings with which the server starts again; ask first where that ends a reply."""
        if not self._ends:
            self._change(**values)
            return
        self.show_settings(self._settings)  # until the answer
        ask(self, _RESTART, f"{_RESTART_MEANS}{self._ends}", "Restart", lambda: self._change(**values))

    def _ask_for_new_key(self) -> None:
        ask(self, _NEW_KEY, f"{_NEW_KEY_MEANS}{self._ends}", "Make a New Key", self._server.renew_key)

    @Slot()
    def _choose_hosts(self) -> None:
        try:
            names = host_names(name for name in self.hosts.text().split(",") if name.strip())
        except InvalidSettingError as error:
            self.wrong_host.show_text(str(error))
            return
        if names != self._settings.server_hosts:
            self._restart(server_hosts=names)
        else:
            self.show_settings(self._settings)

    def _choose_network(self, on: bool) -> None:
        if not on:
            self._restart(server_on_network=False)
            return
        with QSignalBlocker(self.network):
            self.network.setChecked(False)  # until the answer
        means = f"{_NETWORK_MEANS}{self._ends}"
        ask(self, _NETWORK, means, "Let Them Connect", lambda: self._change(server_on_network=True))


def _note(theme: Theme, text: str, color: str = "muted") -> ThemedLabel:
    """Return a small text that takes the width of the fields."""
    label = ThemedLabel(theme, text, color, -1, wraps=True)
    label.setFixedWidth(_NOTE_WIDTH)
    return label
