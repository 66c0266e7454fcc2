"""Servers of tools in the window: their page in Settings, and the popover that switches them for one chat.

A server is a program or an address that has tools, such as an MCP server; two are built in. One that was never started
is confirmed by the person first.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import shorten

from PySide6.QtCore import QSignalBlocker, Qt, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from rdchat.errors import InvalidSettingError, RdchatError, file_errors
from rdchat.files import opened
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.servers.tool_servers import ServerState, ToolServers
from rdchat.tools.built_in import FOLDER, server_title
from rdchat.tools.definitions import ToolServer
from rdchat.tools.secret_values import KEY_NAME
from rdchat.ui.settings.settings_pages import Change, SettingsPage
from rdchat.ui.style import (
    LARGE,
    MACHINE,
    MEDIUM,
    WIDTH,
    Answer,
    CodeField,
    ElidedLabel,
    FileMode,
    FormSheet,
    IconButton,
    Popover,
    Sheet,
    Theme,
    ThemedLabel,
    ask,
    ask_to_open,
    column,
    listed,
    nothing,
    open_beside,
    push_button,
    row,
    small_text,
    text_field,
    tip_text,
    visible_text,
)
from rdchat.wording import counted

LEAVES = f"Data leaves {MACHINE}."
_NOTE = "Models can call tools that are on here and in the chat. Each call asks you first."
# Most lines of a stranger's text in a sheet, before it scrolls.
_LINES = 14
# So many bytes of an imported file are read: one more than `import_servers` accepts.
_MAX_IMPORT = 1_000_001
_SHOWN_PROBLEMS = 5
_SHOWN_FOLDERS = 30
_TARGET = "Command, or https:// address"
_VALUES = "NAME=value, one a line"
_KEYS_TIP = (
    "Secret variables of a program, or headers for an address. They go to the keychain and are not shown again: a line "
    "with the name alone keeps the value. ••• replaces them in what the server sends."
)
_TICK = "Tick what is secret: it goes to the keychain, and ••• replaces it in what the server sends."
_PROGRAM = "This program runs with your rights: it can read and change your files. Start it only if you trust it."
_ADDRESS = "The server at this address gets what the model writes in calls. Connect to it only if you trust it."
_REMOVED = "Its keys are removed from the keychain. Results in your chats stay."
_JSON = ("Servers (*.json)",)
# Size of the popover's tree, and width of its column of names.
_SIZE = (320, 200)
_NAMES = 150
# Longest line of an imported variable, in letters.
_LETTERS = 60
# Tools that the line at the message field names.
_NAMED = 3
# Role of the name of a server or tool in the tree.
_KEY = Qt.ItemDataRole.UserRole
_NONE = "No tool is on in Settings. rdchat has two: one reads a folder, one tells the time. You can add others."
_UNTRAINED = "This model was not trained to call tools."
type Save = Callable[[ToolServer, Mapping[str, str]], object]
"""Stores a server, with new values of its secrets by their names."""


def state_text(server: ToolServer, state: ServerState) -> str:
    """Return what a server does, in words."""
    if not server.enabled:
        return "Off"
    match state.status:
        case "starting":
            return "Starting…"
        case "failed":
            return f"Failed: {state.problem}"
        case "running":
            left_out = f", {len(state.tool_problems)} cannot be used" if state.tool_problems else ""
            return f"{counted(len(state.definitions), 'tool')}{left_out}"
    return "Starts when needed"


def target_text(server: ToolServer) -> str:
    """Return the command or the address of a server; of a built-in one, its folder or what it does."""
    if server.is_built_in:
        chosen = "".join(server.command[1:]) or "No folder is chosen."
        return chosen if server.command[0] == FOLDER else "The date and the time, in any time zone."
    return server.url or shlex.join(server.command)


class ToolServerSheet(FormSheet):
    """A sheet that adds or edits a server.

    Args:
        server: The server to edit; None for a new one.
        taken: Names of other servers.
        theme: The appearance to follow.
        parent: The window of the sheet.
        save: Takes the server, and the new values of its secrets.

    A key is a secret variable of a program or a header for an address; its value is never shown again. A line with a
    name alone keeps the value. What an earlier version imported as a key is none once it is written under Variables.
    """

    def __init__(self, server: ToolServer | None, taken: set[str], theme: Theme, parent: QWidget, save: Save) -> None:
        self._server = server
        self._taken = taken
        self._save_server = save
        self.name = QLineEdit(server.name if server else "", maxLength=24)
        self.name.setReadOnly(server is not None)
        self.target = QLineEdit(visible_text(target_text(server)) if server else "", placeholderText=_TARGET)
        self.values = text_field(3, _VALUES)
        self.variables = text_field(3, _VALUES)
        if server:
            self.values.setPlainText("\n".join(server.secrets))
            self.variables.setPlainText("\n".join(map("=".join, server.environment.items())))
        fields = (
            ("Name", self.name, "Letters, digits and hyphens. Names of its tools begin with it."),
            ("Source", self.target, "A command such as uvx mcp-server-fetch, or an address."),
            ("Keys", self.values, _KEYS_TIP),
            ("Variables", self.variables, "Other variables of a program, stored in the settings."),
        )
        title, accept = (f"Edit {server.name}", "Save") if server else ("Add Tools", "Add")
        super().__init__(parent, theme, (title, ""), fields, small_text(theme, _KEYS_TIP), accept=accept)

    def submit_form(self) -> None:
        try:
            server = self._read()
        except InvalidSettingError as error:
            self.show_status(str(error))
        else:
            self.done(0)
            self._save_server(*server)

    def _read(self) -> tuple[ToolServer, dict[str, str]]:
        """Return the server and new values of its secrets; raise InvalidSettingError if something is wrong.

        A server that is edited stays on or off, and confirmed or not. With another source it counts as new: off, and
        not confirmed.
        """
        old = self._server
        target = self.target.text().strip()
        name = self.name.text().strip()
        if name in self._taken:
            raise InvalidSettingError(f"There are tools named {name} already.", "Choose another name.")
        keys = _lines(self.values)
        variables = _lines(self.variables)
        missing = [key for key, sign, _ in keys if not sign and (old is None or key not in old.secrets)]
        missing += [key for key, sign, _ in variables if not sign]
        if missing:
            raise InvalidSettingError(f"{missing[0]} has no value.", _VALUES)
        server = old
        # The field shows the source by `visible_text`, so this is how it is known to be unchanged.
        if server is None or target != visible_text(target_text(server)):
            try:
                is_address = target.startswith(("https://", "http://"))
                command = () if is_address else tuple(shlex.split(target))
            except ValueError as error:
                raise InvalidSettingError("The command has a quote that does not end.") from error
            server = ToolServer(name, command, target if is_address else "")
        if server.url and variables:
            raise InvalidSettingError("An address has no variables.", "Write its headers under Keys.")
        secrets = {key: value.strip() for key, sign, value in keys if sign}
        names = tuple(dict.fromkeys(key for key, _, _ in keys))
        environment = {key: value for key, _, value in variables}
        return replace(server, environment=environment, secrets=names, keys_chosen=True), secrets


def _lines(field: QPlainTextEdit) -> list[tuple[str, str, str]]:
    """Return the name of each line, its `=`, and its value."""
    lines = (line.partition("=") for line in field.toPlainText().splitlines() if line.strip())
    return [(name.strip(), sign, value) for name, sign, value in lines]


class ToolsPage(SettingsPage):
    """Lists the servers with a switch and a state each; the fields below the list are about the chosen one."""

    def __init__(self, theme: Theme, change: Change, servers: ToolServers) -> None:
        super().__init__(theme, change)
        self._servers = servers
        self.target = ElidedLabel(theme, "", "muted", middle=True)
        self.edit = push_button("Edit…", act=self._edit)
        self.remove = push_button("Remove…", act=self._ask_to_remove)
        self.output = push_button("Error Output", "Show what it wrote to its standard error", self._show_output)
        add = push_button("Add Tools…", act=partial(self._open_sheet, None))
        read = push_button("Import…", "Read a list of Claude Desktop or LM Studio", self._ask_for_file)
        self.add_note(_NOTE)
        self.list = self.add_list("Tools", "Tools")
        # What is about the chosen one comes last, so that nothing moves where it has less.
        self.add_line(add, read, None)
        self.result = self.add_note()
        self.add_line(self.target)
        self.problem = self.add_note(color="danger")
        self.add_line(self.edit, self.remove, self.output, None)
        self.path = self.add_note()
        self.list.currentRowChanged.connect(self._show_server)
        self.list.itemChanged.connect(self._on_switched)
        servers.changed.connect(self.show_servers)
        self.show_servers()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._servers.login_path:
            self._servers.read_login_path()

    @Slot()
    def show_servers(self) -> None:
        """Show the servers as they are now."""
        servers = self._servers.servers
        chosen = self.list.currentRow()
        with QSignalBlocker(self.list):
            if self.list.count() != len(servers):
                self.list.clear()
                self.list.addItems([server_title(server.name) for server in servers])
                self.list.setCurrentRow(min(max(chosen, 0), len(servers) - 1))
            for index, server in enumerate(servers):
                item = self.list.item(index)
                state = state_text(server, self._servers.server_state(server.name))
                mark = f" · {LEAVES}" if server.is_remote else ""
                item.setText(f"{server_title(server.name)}\n{shorten(visible_text(state), 60, placeholder='…')}{mark}")
                item.setCheckState(Qt.CheckState.Checked if server.enabled else Qt.CheckState.Unchecked)
        path = self._servers.login_path
        # A line breaks between two folders, not within one.
        folders = visible_text(listed(path.split(":"), _SHOWN_FOLDERS)).replace("/", "/\N{WORD JOINER}")
        self.path.show_text(f"Programs are looked for in {folders}." if path else "")
        self._show_server()

    @property
    def _chosen(self) -> ToolServer:
        return self._servers.servers[max(self.list.currentRow(), 0)]

    def _show_server(self) -> None:
        server = self._chosen
        state = self._servers.server_state(server.name)
        self.target.setText(visible_text(target_text(server)))
        self.problem.show_text(visible_text(state.problem or " ".join(state.tool_problems[:_SHOWN_PROBLEMS])))
        # The buttons stay where they are when another server is chosen.
        self.edit.setEnabled(server.command[:1] == (FOLDER,) or not server.is_built_in)
        self.remove.setEnabled(not server.is_built_in)
        self.output.setEnabled(bool(state.error_output))

    def _on_switched(self, item: QListWidgetItem) -> None:
        server = self._servers.servers[self.list.row(item)]
        # `_switch` may ask for the folder of the current row's server.
        self.list.setCurrentItem(item)
        self._switch(server, item.checkState() is Qt.CheckState.Checked)
        # Until a question is answered, the switch is off.
        self.show_servers()

    def _switch(self, server: ToolServer, on: bool) -> None:
        """Switch a server on or off; ask for the folder or for consent first, where that is missing."""
        if on and server.command == (FOLDER,):
            self._choose_folder()
        elif on and not server.confirmed:
            kind = "Connect" if server.url else "Start"
            note = _ADDRESS if server.url else _PROGRAM
            title = f"{'Connect to' if server.url else 'Start'} “{server.name}”?"
            agreed = partial(self._put, replace(server, enabled=True, confirmed=True))
            self._show_text(title, server.source_text, note, ("Cancel", nothing), (kind, agreed))
        elif on is not server.enabled:
            self._put(replace(server, enabled=on))

    def _show_text(self, title: str, text: str, note: str, *answers: Answer) -> None:
        """Show a stranger's text in a sheet; the first answer is the default."""
        field = CodeField(self._theme, title, _LINES)
        field.show_code(text)
        field.fit(WIDTH)
        sheet = Sheet(self.window(), self._theme, title, note, answers, parts=[field])
        sheet.buttons[0].setDefault(True)
        sheet.buttons[0].setFocus()
        sheet.open()

    def _put(self, server: ToolServer, secrets: Mapping[str, str] | None = None) -> None:
        """Store a server, and start it if it is on; None keeps the secrets."""
        self._servers.put(server, secrets)
        self._servers.start_server(server.name)

    def _edit(self) -> None:
        """Change the chosen server: of the one that reads a folder, only that can be changed."""
        if self._chosen.command[:1] == (FOLDER,):
            self._choose_folder()
        else:
            self._open_sheet(self._chosen)

    def _choose_folder(self) -> None:
        server = self._chosen

        def choose(paths: list[str]) -> None:
            # The folder's tools refuse a link, which may lead elsewhere later.
            folder = str(Path(paths[0]).resolve())
            self._put(replace(server, command=(FOLDER, folder), enabled=True, confirmed=True))

        ask_to_open(self.window(), "Choose a Folder", FileMode.Directory, choose, accept="Choose")

    def _open_sheet(self, server: ToolServer | None) -> None:
        """Open the sheet that edits a server, or adds one; a new program or address is confirmed after it."""
        taken = {each.name for each in self._servers.servers if server is None or each.name != server.name}

        def save(saved: ToolServer, secrets: Mapping[str, str]) -> None:
            self._put(saved, secrets)
            if server is None:
                self.list.setCurrentRow(self.list.count() - 1)
            if not saved.confirmed:
                self._switch(saved, on=True)

        ToolServerSheet(server, taken, self._theme, self.window(), save).open()

    def _ask_to_remove(self) -> None:
        name = self._chosen.name
        ask(self, f"Remove {name}?", _REMOVED, "Remove", partial(self._servers.remove_server, name), removes=True)

    def _show_output(self) -> None:
        name = self._chosen.name
        self._show_text(
            f"Error Output of {name}", self._servers.server_state(name).error_output, "", ("Close", nothing)
        )

    def _ask_for_file(self) -> None:
        ask_to_open(self.window(), "Import Tools", FileMode.ExistingFile, self.import_file, _JSON, accept="Import")

    def import_file(self, paths: list[str]) -> None:
        """Add the servers of a file once the person has said what is secret; say what was not understood."""
        path = Path(paths[0])
        try:
            with file_errors(f"{path.name} cannot be read", "Choose another file."), opened(path) as file:
                text = file.read(_MAX_IMPORT).decode("utf-8-sig", "replace")
            imported = self._servers.read_servers(text)
        except RdchatError as error:
            self.result.show_text(str(error))
            return
        boxes = QListWidget()
        boxes.setAccessibleName("Variables")
        for server, name in imported.optional:
            is_key = KEY_NAME.match(name)
            value = "" if is_key else f"={imported.secrets[server][name]}"
            item = QListWidgetItem(visible_text(f"{server}: {name}{value}"[:_LETTERS]), boxes)
            item.setCheckState(Qt.CheckState.Checked if is_key else Qt.CheckState.Unchecked)

        def add() -> None:
            unticked = Qt.CheckState.Unchecked
            plain = {each for row, each in enumerate(imported.optional) if boxes.item(row).checkState() is unticked}
            self._servers.import_servers(imported, plain)
            added = f"Imported the tools of {counted(len(imported.servers), 'server')}, off until you switch them on."
            self.result.show_text(visible_text(" ".join([added, *imported.problems])))

        if imported.optional:
            answers = ("Cancel", nothing), ("Import", add)
            Sheet(self.window(), self._theme, "Import Tools", _TICK, answers, parts=[boxes]).open()
        else:
            add()


class ChatToolsPopover(Popover):
    """Switches servers on in the open chat, and some of their tools off; its button shows whether one is on.

    Args:
        chat: The open chat.
        servers: The servers.
        model: The loaded model.
        button: Opens it.
        theme: The appearance to follow.

    Attributes:
        settings_requested: The person wants to set servers up.
        items: The switches, by the names of servers and the full names of tools.
        line: Says that the model was not trained to call the tools that are on; it stands at the message field.
    """

    def __init__(
        self, chat: OpenChat, servers: ToolServers, model: ModelSlot, button: IconButton, theme: Theme
    ) -> None:
        super().__init__(theme, "window", button)
        self._chat = chat
        self._servers = servers
        self._model = model
        self._button = button
        button.clicked.connect(self._open)
        self.items: dict[str, QTreeWidgetItem] = {}
        self.tree = QTreeWidget(columnCount=2)
        self.tree.setHeaderHidden(True)
        self.tree.setAccessibleName("Tools of this chat")
        self.tree.setFixedSize(*_SIZE)
        self.tree.setColumnWidth(0, _NAMES)
        self.tree.itemChanged.connect(self._switch)
        self.note = small_text(theme)
        self.line = small_text(theme, "", "warning")
        self.settings = push_button("Tool Settings…")
        self.settings.clicked.connect(self.close)
        parts = ThemedLabel(theme, "Tools", bold=True), self.tree, self.note, row(None, self.settings)
        column(*parts, within=self, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        for changed in (chat.opened, chat.options_changed, servers.changed, model.loaded, model.load_started):
            # Later: Qt may be about to use the item that was switched.
            changed.connect(self.show_tools, Qt.ConnectionType.QueuedConnection)
        self.show_tools()

    def _open(self) -> None:
        open_beside(self, self._button)
        self.tree.setFocus()

    def show_tools(self) -> None:
        """Show which servers and tools there are, and which are on."""
        own = self._chat.conversation.own
        chosen = self._chat.replies.order.tools(self._chat.conversation)
        tree = self.tree
        usable = self._servers.usable
        # The items are made again, so what is unfolded and current is taken over by its key.
        unfolded = {key for key, item in self.items.items() if item.isExpanded()}
        current = {key for key, item in self.items.items() if item.isSelected()}
        self.items = {}
        with QSignalBlocker(tree):
            tree.clear()
            for server in usable:
                state = self._servers.server_state(server.name)
                on = server.name in chosen
                item = self._add(tree.invisibleRootItem(), server.name, server_title(server.name), on, current)
                item.setText(1, visible_text(state_text(server, state)))
                item.setToolTip(1, tip_text(state_text(server, state)))
                # Its tools can be switched off only while the server is on.
                for tool in state.definitions if on else ():
                    child = self._add(item, tool.full_name, tool.name, tool.full_name not in own.tools_off, current)
                    child.setToolTip(0, tip_text(visible_text(tool.description)))
                item.setExpanded(server.name in unfolded)
        used = [server_title(server.name) for server in usable if server.name in chosen]
        name, color = ("Tools, on in this chat", "accent") if used else ("Tools", "muted")
        self._button.show_as("tools", name, color)
        remote = [server.name for server in usable if server.is_remote and server.name in chosen]
        untrained = self._model.info is not None and not self._model.info.trained_for_tools
        notes = _UNTRAINED if untrained else "", f"{', '.join(remote)}: {LEAVES}" if remote else ""
        self.note.show_text("\n".join(filter(None, notes)) if usable else _NONE)
        may_not_call = f"{_UNTRAINED} It may answer without {listed(used, _NAMED)}."
        self.line.show_text(visible_text(may_not_call) if untrained and used else "")
        tree.setVisible(bool(usable))

    def _add(self, above: QTreeWidgetItem, key: str, name: str, on: bool, current: set[str]) -> QTreeWidgetItem:
        """Add the switch of a server or a tool below another item; it becomes current if its key was."""
        item = QTreeWidgetItem(above, [visible_text(name)])
        self.items[key] = item
        item.setData(0, _KEY, key)
        item.setCheckState(0, Qt.CheckState.Checked if on else Qt.CheckState.Unchecked)
        if key in current:
            self.tree.setCurrentItem(item)
        return item

    def _switch(self, item: QTreeWidgetItem) -> None:
        """Store a switch: a chat has the names of servers that are on, and of their tools that are off.

        So the name is added if a server goes on or a tool off, and removed in the other two cases.
        """
        chat = self._chat
        servers = chat.replies.order.tools(chat.conversation)
        tools_off = chat.conversation.own.tools_off
        key = item.data(0, _KEY)
        is_on = item.checkState(0) is Qt.CheckState.Checked
        is_server = item.parent() is None
        names = [each for each in (servers if is_server else tools_off) if each != key]
        if is_on is is_server:
            names.append(key)
        if not is_server:
            chat.set_tools(servers, names)
            return
        chat.set_tools(names, tools_off)
        if is_on:
            self._servers.start_server(key)
