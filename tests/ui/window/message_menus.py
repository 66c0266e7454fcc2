"""What is chosen from the menus of messages."""

from PySide6.QtWidgets import QMenu

from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key
from tests.ui.transcript.conftest import button, widget_of


def texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.path]


def shown(window: MainWindow, place: int) -> MessageWidget:
    """Return the widget of a message, counted from the first one; -1 is the last."""
    message = window.conversation.transcript.messages[place]
    return widget_of(window.conversation.transcript, message.id)


def choose(window: MainWindow, place: int, words: str) -> None:
    """Choose from a message's menu with the keyboard."""
    widget = shown(window, place)
    button(widget, "More").setFocus()
    press_key(button(widget, "More"), "Space")
    (menu,) = [menu for menu in widget.findChildren(QMenu) if menu.isVisible()]
    menu.setActiveAction(next(action for action in menu.actions() if action.text() == words))
    press_key(menu, "Return")
