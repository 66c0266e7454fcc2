"""The app's item in the menu bar, or in the system tray: what the model does, and ways into the app."""

from functools import partial

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from rdchat import host
from rdchat.chat.settings import Settings
from rdchat.inference.api import Statistics
from rdchat.services.app.start_request import StartRequest
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style import OpenMenu, add_action, app_icon, line_icon, rate, show_in_front
from rdchat.ui.window.commands import Commands

_RECENT = 5
_NOTIFIED_MS = 15_000
_BOUNCE_MS = 1000


class MenuBarItem(QSystemTrayIcon):
    """The item, visible while the settings say so, and during a notification. Not yet tried on a Mac.

    Args:
        commands: Carries out the actions.
        window: The main window.
    """

    def __init__(self, commands: Commands, window: QWidget) -> None:
        super().__init__(window)
        self._commands = commands
        self._controller = commands.controller
        self._window = window
        self._statistics = Statistics()
        # The id of the last notification's chat.
        self._notified = 0
        self.messageClicked.connect(lambda: commands.open_chat(self._notified))
        icon = line_icon("menu_bar", QColor(Qt.GlobalColor.black)) if host.MACOS else app_icon()
        # macOS draws a template in the colour of the menu bar; the colours of other trays are not known.
        icon.setIsMask(host.MACOS)
        self.setIcon(icon)
        self.menu = OpenMenu(self._fill, window)
        # macOS may open an empty menu without asking for its entries.
        self._fill()
        self.setContextMenu(self.menu)
        settings = self._controller.settings
        self._controller.replies.statistics_changed.connect(self._note_statistics)
        # Whether the settings had the item on when `_follow` was called last.
        self._was_on = False
        settings.changed.connect(self._follow)
        self._follow(settings.values)

    def _follow(self, settings: Settings) -> None:
        self.setVisible(settings.menu_bar_item)
        if not settings.menu_bar_item and self._was_on and self._window.isHidden() and not host.MACOS:
            # The window was closed to the item, and nothing else would bring it back.
            self._window.show()
        self._was_on = settings.menu_bar_item

    def notify(self, text: str, chat_id: int) -> None:
        """Show a notification about a chat, and mark the app in the Dock or the task bar.

        Args:
            text: A sentence; other people may see it, so it quotes nothing.
            chat_id: Opened when the person clicks on it.
        """
        # Without a limit the Dock's icon bounces until the person comes.
        QApplication.alert(self._window, _BOUNCE_MS)
        if self.isSystemTrayAvailable():
            self._notified = chat_id
            # Qt shows a notification only of a visible item; afterwards it is hidden again if the settings say so.
            self.show()
            self.showMessage("rdchat", text, app_icon())
            QTimer.singleShot(_NOTIFIED_MS, self, lambda: self._follow(self._controller.settings.values))

    def _note_statistics(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def _state_text(self) -> str:
        status = self._controller.status.value
        speed = self._statistics.decode_tps if status.state is EngineState.WRITING else None
        parts = self._controller.model_slot.name, status.text, f"{rate(speed)} tokens/s" if speed else ""
        return "  ·  ".join(filter(None, parts))

    def _fill(self) -> None:
        menu = self.menu
        controller = self._controller
        add_action(menu, self._state_text(), lambda: None).setEnabled(False)
        add_action(menu, "Stop Reply", controller.replies.stop_replies).setEnabled(bool(controller.replies.live))
        menu.addSeparator()
        add_action(menu, "Quick Window", partial(self._commands.carry_out, StartRequest(quick=True)))
        menu.addSeparator()
        for chat in controller.chats.newest(_RECENT):
            add_action(menu, chat.title, partial(self._commands.open_chat, chat.id))
        menu.addSeparator()
        server = controller.server
        name = " · ".join(filter(None, ("Server", server.address)))
        add_action(menu, name, partial(server.set_on, not server.on), chosen=server.on, tip=server.problem)
        menu.addSeparator()
        add_action(menu, "Open rdchat", partial(show_in_front, self._window))
        add_action(menu, "Quit rdchat", self._commands.quit)
