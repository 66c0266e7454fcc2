"""Messages and their menus in a window, and its banners."""

from rdchat.ui.conversation.notices import Banner
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.transcript.conftest import choose_in_menu, widget_of


def texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.path]


def shown(window: MainWindow, place: int) -> MessageWidget:
    """Return the widget of a message, counted from the first one; -1 is the last."""
    message = window.conversation.transcript.messages[place]
    return widget_of(window.conversation.transcript, message.id)


def choose(window: MainWindow, place: int, words: str) -> None:
    choose_in_menu(shown(window, place), words)


def banners_of(window: MainWindow) -> list[str]:
    """Return what the visible banners say."""
    return [banner.accessibleName() for banner in window.findChildren(Banner) if banner.isVisible()]
