"""`SettingsPage`, a form whose fields show one setting each and change it at once, and the Serve and Notes pages.

The Settings window builds its other pages from `SettingsPage` too. The Serve page has the lines to enter in a coding
agent (`AgentSetup`), from `resources/agents.toml`.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from typing import Any

from PySide6.QtCore import QSignalBlocker, Slot
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFormLayout,
    QLayout,
    QLineEdit,
    QListWidget,
    QPlainTextEdit,
    QSpacerItem,
    QSpinBox,
    QWidget,
)

from rdchat.chat.settings import Settings
from rdchat.errors import InvalidSettingError
from rdchat.inference.api import ModelInfo
from rdchat.server.server_settings import host_names
from rdchat.services.servers.server_control import ServerControl
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.settings.note_list import NoteList
from rdchat.ui.style import (
    MEDIUM,
    SMALL,
    CopyButton,
    ElidedLabel,
    Part,
    SearchField,
    SectionHead,
    Theme,
    ThemedLabel,
    add_row,
    ask,
    choice_box,
    form_layout,
    push_button,
    row,
    small_text,
    text_field,
)

_TEXT = resources.files("rdchat.ui").joinpath("resources/agents.toml").read_text(encoding="utf-8")
AGENTS: Mapping[str, Mapping[str, str]] = {agent["name"]: agent for agent in tomllib.loads(_TEXT)["agent"]}
"""By name: `where` the lines go, the `lines` with fields to fill in, and the version with which they were `tried`."""
# A field in an agent's lines.
_FIELD = re.compile(r"\{(url|key|model|context)\}")
_LINES = 7
_NOT_TRIED = "Not yet tried with the agent itself."
type Change = Callable[..., object]
"""Changes settings, given as keyword arguments by their names."""
_LABELS_WIDTH = 130
_NOTE_WIDTH = 430
_PURPOSE = (
    "Coding agents, editors and scripts on this computer can use the loaded model, as they would use OpenAI's or "
    "Anthropic's. A remote model is not passed on. Nothing that they send is stored."
)
_PATHS = "Programs made for Anthropic take the address without /v1."
_MODEL = "The name by which programs call the loaded model."
_HIDDEN_KEY = "\N{BULLET}" * 16
_NETWORK = "Let other computers connect?"
_NETWORK_MEANS = (
    "Other computers on this network can use the model with the key. What they send is not encrypted, so do this only "
    "in a network that you trust."
)
_NEW_KEY = "Make a new key?"
_NEW_KEY_MEANS = "Programs that have the old key cannot use the model until they get the new one."
_RESTART = "Restart the server?"
_RESTART_MEANS = "This setting takes effect when the server restarts."
_SUBSTITUTES = (
    "If a request names a model that is not on this computer, the loaded model answers. If this is off, the request is"
    " refused."
)
_HOSTS = (
    "Other names of this computer that programs use, separated by commas, such as host.docker.internal for programs in "
    "Docker."
)
_AGENTS = "What to enter in a coding agent so that it uses this server."
_LOADS = "If a request names another model on this computer, that model is loaded, and your chats use it too."
_NOTES = "Facts for all chats of a project. “Remember that …” in a question proposes one. Larger models propose some."
_EVERYWHERE = "Notes that you keep there go to all chats."
_NOTES_LIMIT = "If the notes have more, the oldest are left out."


class SettingsPage(QWidget):
    """A form of settings; what few people change is in further forms, each below a heading that unfolds it.

    Args:
        theme: The appearance to follow.
        change: Changes settings by their names.

    Attributes:
        folds: The headings, by their names.
    """

    def __init__(self, theme: Theme, change: Change) -> None:
        super().__init__()
        self._theme = theme
        self._change = change
        self._form = form_layout(self, spacing=(MEDIUM, SMALL))
        # The fields of all forms stand in line.
        self._form.setItem(0, QFormLayout.ItemRole.LabelRole, QSpacerItem(_LABELS_WIDTH, 0))
        self.folds: dict[str, SectionHead] = {}
        # Each field with the name of its setting, and what shows a value in it.
        self._bound: list[tuple[QWidget, str, Callable[[Any], object]]] = []

    def show_settings(self, settings: Settings) -> None:
        """Show the settings in the fields that are bound to them."""
        for page in self.findChildren(SettingsPage):
            page.show_settings(settings)
        for field, name, show in self._bound:
            with QSignalBlocker(field):
                show(getattr(settings, name))

    def add_fold(self, name: str, page: "SettingsPage") -> None:
        """Add a page below a heading, folded."""
        head = SectionHead(name)
        head.toggled.connect(page.setVisible)
        head.setChecked(False)
        self.folds[name] = head
        for widget in (head, page):
            self._form.addRow(widget)

    def add_field(self, name: str, field: QWidget, explanation: str, line: QLayout | None = None) -> None:
        """Add a row with a field; see `add_row`."""
        add_row(self._form, name, field, explanation, line)

    def add_line(self, *parts: Part, name: str = "") -> None:
        """Add a row of parts, perhaps with a label, without a tooltip."""
        self._form.addRow(name, row(*parts))

    def add_list(self, name: str, spoken: str) -> QListWidget:
        """Add a list; `spoken` is its name for screen readers."""
        entries = QListWidget()
        entries.setAccessibleName(spoken)
        entries.setFixedHeight(190)
        entries.setSpacing(2)
        self.add_line(entries, name=name)
        return entries

    def add_note(self, text: str = "", color: str = "muted") -> ThemedLabel:
        """Add a small text as wide as the fields, and return its label; without a text it is hidden."""
        label = small_text(self._theme, text, color)
        label.setFixedWidth(_NOTE_WIDTH)
        self._form.addRow("", label)
        if not text:
            label.hide()
        return label

    def add_check_box(self, name: str, text: str, setting: str, explanation: str) -> QCheckBox:
        """Add a row with a check box for a setting."""
        field = QCheckBox(text)
        self._bind(field, field.toggled, setting, lambda value: field.setChecked(bool(value)))
        self.add_field(name, field, explanation)
        return field

    def add_number(
        self,
        name: str,
        setting: str,
        limits: tuple[int, int],
        explanation: str,
        *extras: Part,
        suffix: str = "",
    ) -> QSpinBox:
        """Add a row with a field for a whole number from the first to the last of `limits`, and parts beside it."""
        field = QSpinBox(minimum=limits[0], maximum=limits[1], suffix=suffix)
        # While 8817 is typed, 8 is not a value.
        field.setKeyboardTracking(False)
        self._bind(field, field.valueChanged, setting, field.setValue)
        self.add_field(name, field, explanation, row(field, *extras) if extras else None)
        return field

    def add_choice[K](self, name: str, setting: str, texts: dict[K, str], explanation: str) -> QComboBox:
        """Add a row with a combo box for a setting whose values have these texts."""
        field = combo_box(texts, lambda value: self._change(**{setting: value}))
        self._bound.append((field, setting, lambda value: field.setCurrentIndex(field.findData(value))))
        self.add_field(name, field, explanation)
        return field

    def _bind(self, field: QWidget, changed: Any, setting: str, show: Callable[[Any], object]) -> None:
        """Have a field show a setting, and change it with the signal `changed`."""
        changed.connect(lambda value: self._change(**{setting: value}))
        self._bound.append((field, setting, show))


def combo_box[K](texts: dict[K, str], change: Callable[[K], object]) -> QComboBox:
    """Return a combo box of values with their texts that calls `change` with the chosen value."""
    combo = choice_box("", "", ((text, value) for value, text in texts.items()), letters=0)
    # The combo box would give back a plain string or number for a member of an enum.
    values = tuple(texts)
    combo.currentIndexChanged.connect(lambda index: change(values[index]))
    return combo


class AgentSetup(SettingsPage):
    """Shows the lines for one agent; the key is hidden in them until they are copied."""

    def __init__(self, theme: Theme, change: Change) -> None:
        super().__init__(theme, change)
        # What stands for the fields of the lines. Without a model its name is empty, which hides the lines; the length
        # of the last model's context stays here.
        self._values = {"url": "", "key": "", "model": "", "context": ""}
        self.agent = choice_box("", "", ((name, name) for name in AGENTS), letters=0)
        self.agent.currentIndexChanged.connect(self._show)
        self.where = small_text(theme)
        self.lines = text_field(_LINES, "Shown while the server is on and a model is loaded.", "Lines for the agent")
        self.lines.setReadOnly(True)
        self.lines.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.lines.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.copy_lines = CopyButton("Copy the lines, with the key", theme, lambda: self._filled(self._values))
        self.add_field("Agent", self.agent, _AGENTS, row(self.agent, None, self.copy_lines))
        self.add_line(self.where)
        self.add_line(self.lines)

    def show_values(self, **values: str) -> None:
        """Show the lines with new values of some fields; nothing is shown without an address, a key and a model.

        The key is hidden in what is shown; the copy button copies it.
        """
        self._values |= values
        self._show()

    def _show(self) -> None:
        agent = AGENTS[self.agent.currentText()]
        self.where.setText(agent["where"] if "tried" in agent else f"{agent['where']} {_NOT_TRIED}")
        is_ready = all(self._values.values())
        self.lines.setPlainText(self._filled(self._values | {"key": _HIDDEN_KEY}) if is_ready else "")
        self.copy_lines.setEnabled(is_ready)

    def _filled(self, values: Mapping[str, str]) -> str:
        return _FIELD.sub(lambda field: values[field[1]], AGENTS[self.agent.currentText()]["lines"].strip())


class ServerPage(SettingsPage):
    """The page of the server that lets other programs use the loaded model.

    Args:
        server: The server.
        theme: The appearance to follow.
        change: Changes settings by their names.
    """

    def __init__(self, server: ServerControl, theme: Theme, change: Change) -> None:
        super().__init__(theme, change)
        self._server = server
        # The stored settings: what typed host names are compared with, and what the fields show again while a question
        # about a change is open.
        self._settings = Settings()
        self.on = QCheckBox("Let other programs use the model")
        self.on.toggled.connect(server.set_on)
        self.add_field("Server", self.on, _PURPOSE)
        self.problem = self.add_note(color="danger")
        self.network_note = self.add_note(color="warning")
        tip = "The server is on whenever rdchat is open."
        self.at_start = self.add_check_box("", "Start with rdchat", "server_at_start", tip)
        self.add_note(_PURPOSE)
        self.address = ThemedLabel(theme)
        self.copy_address = CopyButton("Copy the address", theme, self.address.text)
        self.add_line(self.address, self.copy_address, None, name="Address")
        self.add_note(_PATHS)
        self.key = ThemedLabel(theme)
        self.copy_key = CopyButton("Copy the key", theme, lambda: server.key)
        self.new_key = push_button("New Key…", _NEW_KEY_MEANS, self._ask_for_new_key)
        self.add_line(self.key, self.copy_key, None, self.new_key, name="Key")
        self.model = ElidedLabel(theme, middle=True)
        self.copy_model = CopyButton("Copy the model's name", theme, self.model.text)
        self.add_field("Model", self.model, _MODEL, row((self.model, 1), self.copy_model))
        self.agents = AgentSetup(theme, change)
        self.add_fold("Coding Agents", self.agents)
        options = SettingsPage(theme, self._restart)
        tip = "Change it if another program uses this one."
        self.port = options.add_number("Port", "server_port", (1, 2**16 - 1), tip, None)
        self.hosts = QLineEdit()
        self.hosts.editingFinished.connect(self._choose_hosts)
        options.add_field("Host names", self.hosts, _HOSTS)
        self.wrong_host = options.add_note(color="danger")
        option = partial(options.add_check_box, "")
        self.loads = option("Requests may load other models", "server_loads_models", _LOADS)
        self.substitutes = option("Answer for models that are not installed", "server_substitutes_models", _SUBSTITUTES)
        self.network = option("Other computers may connect", "server_on_network", _NETWORK_MEANS)
        self.add_fold("Server Options", options)
        server.changed.connect(self._show_server)
        self._show_server()

    def show_settings(self, settings: Settings) -> None:
        super().show_settings(settings)
        self._settings = settings
        self.hosts.setText(", ".join(settings.server_hosts))
        self.wrong_host.show_text("")
        # The text up to its advice, which comes too late here.
        self.network_note.show_text(_NETWORK_MEANS.partition(",")[0] + "." if settings.server_on_network else "")

    def show_model(self, info: ModelInfo | None) -> None:
        """Show the name by which programs call the loaded model."""
        self.model.setText(info.name if info else "No model is loaded.")
        self.copy_model.setEnabled(info is not None)
        model = {"model": info.name, "context": str(info.context_length)} if info else {"model": ""}
        self.agents.show_values(**model)

    @Slot()
    def _show_server(self) -> None:
        """Show whether the server runs, and its address and key while it does."""
        server = self._server
        with QSignalBlocker(self.on):
            self.on.setChecked(server.on)
        self.problem.show_text(server.problem)
        runs = bool(server.address)
        starting = "Starting…" if server.on else ""
        self.address.setText(f"{server.address}/v1" if runs else starting or "The server is off.")
        self.key.setText(_HIDDEN_KEY if runs else starting or "Shown while the server is on.")
        for label, button in ((self.address, self.copy_address), (self.key, self.copy_key)):
            label.set_color("text" if runs else "muted")
            button.setEnabled(runs)
        self.new_key.setEnabled(runs)
        self.agents.show_values(url=server.address, key=server.key)

    @property
    def _ends(self) -> str:
        """What a start of the server would interrupt; empty if nothing runs."""
        return " The reply that a program is getting now ends." if self._server.facts.running else ""

    def _restart(self, **values: object) -> None:
        """Change settings that make the server start again.

        Ask first if that ends a reply, or lets other computers connect.
        """
        opens = values.get("server_on_network") is True
        if not opens and not self._ends:
            self._change(**values)
            return
        question = (_NETWORK, _NETWORK_MEANS, "Let Them Connect") if opens else (_RESTART, _RESTART_MEANS, "Restart")
        # The old settings are shown until the answer.
        self.show_settings(self._settings)
        ask(self, question[0], f"{question[1]}{self._ends}", question[2], lambda: self._change(**values))

    def _ask_for_new_key(self) -> None:
        ask(self, _NEW_KEY, f"{_NEW_KEY_MEANS}{self._ends}", "Make a New Key", self._server.renew_key)

    @Slot()
    def _choose_hosts(self) -> None:
        """Store the typed names of this computer if they are valid and new."""
        try:
            names = host_names(name for name in self.hosts.text().split(",") if name.strip())
        except InvalidSettingError as error:
            self.wrong_host.show_text(str(error))
            return
        if names != self._settings.server_hosts:
            self._restart(server_hosts=names)
        else:
            # Names that are written in another way, but mean the same, are shown as stored, without an earlier error.
            self.show_settings(self._settings)


class NotesPage(SettingsPage):
    """Lists the notes that the person has kept, the newest first.

    Args:
        theme: The appearance to follow.
        controller: Has the notes and the settings.
    """

    def __init__(self, theme: Theme, controller: ChatController) -> None:
        super().__init__(theme, controller.settings.change_values)
        self.add_note(_NOTES)
        self.add_check_box("Notes", "Also in chats outside of projects", "notes_everywhere", _EVERYWHERE)
        self.add_number("At most", "notes_tokens", (1, 99_999), _NOTES_LIMIT, suffix=" tokens")
        self.search = SearchField(theme, "Search", "Search notes")
        self.add_line(self.search)
        self.notes = NoteList(theme, controller)
        self.search.textChanged.connect(self.notes.search)
        self.add_line(self.notes, name="Kept")
