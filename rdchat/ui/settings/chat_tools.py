"""The popover with switches for one chat's servers of tools, and their tools."""

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtWidgets import QTreeWidget, QTreeWidgetItem

from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.tools.tool_servers import ToolServers
from rdchat.tools.built_in import server_title
from rdchat.ui.settings.tools_page import LEAVES, state_text
from rdchat.ui.style.buttons import IconButton, push_button
from rdchat.ui.style.formatting import listed
from rdchat.ui.style.labels import Popover, ThemedLabel, tip_text, visible_text
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.opening import open_beside
from rdchat.ui.style.theme import LARGE, MEDIUM, Theme

_SIZE = (320, 200)
_NAMES = 150
# Tools that the line at the message field names.
_NAMED = 3
_KEY = Qt.ItemDataRole.UserRole
_NONE = "No tool is on in Settings. Tools read files, search the web, or use other programs."
_UNTRAINED = "This model was not trained to call tools."


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
        self.note = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.line = ThemedLabel(theme, "", "warning", -1, wraps=True)
        self.settings = push_button("Tool Settings…")
        self.settings.clicked.connect(self.close)
        parts = ThemedLabel(theme, "Tools", bold=True), self.tree, self.note, row(None, self.settings)
        column(*parts, within=self, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        for changed in (chat.opened, chat.options_changed, servers.changed, model.loaded, model.load_started):
            # Later: Qt may be about to use the item that was switched.
            changed.connect(self.refresh, Qt.ConnectionType.QueuedConnection)
        self.refresh()

    def _open(self) -> None:
        open_beside(self, self._button)
        self.tree.setFocus()

    def refresh(self) -> None:
        """Show which servers and tools there are, and which are on."""
        own = self._chat.conversation.own
        tree = self.tree
        usable = self._servers.usable
        unfolded = {key for key, item in self.items.items() if item.isExpanded()}
        current = {key for key, item in self.items.items() if item.isSelected()}
        self.items = {}
        with QSignalBlocker(tree):
            tree.clear()
            for server in usable:
                state = self._servers.state(server.name)
                on = server.name in own.tools
                item = self._add(tree.invisibleRootItem(), server.name, server_title(server.name), on, current)
                item.setText(1, visible_text(state_text(server, state)))
                item.setToolTip(1, tip_text(state_text(server, state)))
                for tool in state.definitions if on else ():
                    child = self._add(item, tool.full_name, tool.name, tool.full_name not in own.tools_off, current)
                    child.setToolTip(0, tip_text(visible_text(tool.description)))
                item.setExpanded(server.name in unfolded)
        used = [server_title(server.name) for server in usable if server.name in own.tools]
        name, color = ("Tools, on in this chat", "accent") if used else ("Tools", "muted")
        self._button.show_as("tools", name, color)
        remote = [server.name for server in usable if server.is_remote and server.name in own.tools]
        untrained = self._model.info is not None and not self._model.info.trained_for_tools
        notes = _UNTRAINED if untrained else "", f"{', '.join(remote)}: {LEAVES}" if remote else ""
        self.note.show_text("\n".join(filter(None, notes)) if usable else _NONE)
        may_not_call = f"{_UNTRAINED} It may answer without {listed(used, _NAMED)}."
        self.line.show_text(visible_text(may_not_call) if untrained and used else "")
        tree.setVisible(bool(usable))

    def _add(self, above: QTreeWidgetItem, key: str, name: str, on: bool, current: set[str]) -> QTreeWidgetItem:
        item = self.items[key] = QTreeWidgetItem(above, [visible_text(name)])
        item.setData(0, _KEY, key)
        item.setCheckState(0, Qt.CheckState.Checked if on else Qt.CheckState.Unchecked)
        if key in current:
            self.tree.setCurrentItem(item)
        return item

    def _switch(self, item: QTreeWidgetItem) -> None:
        own = self._chat.conversation.own
        key = item.data(0, _KEY)
        is_server = item.parent() is None
        is_on = item.checkState(0) is Qt.CheckState.Checked
        named = own.tools if is_server else own.tools_off
        named = (*(each for each in named if each != key), *([key] if is_on is is_server else []))
        if is_server:
            self._chat.set_tools(named, own.tools_off)
            if is_on:
                self._servers.start(key)
        else:
            self._chat.set_tools(own.tools, named)
