"""The banner over a chat that is too long, and the mark where it is cut."""

from rdchat.ui.conversation.notices import Banner
from rdchat.ui.transcript.message_parts import CutMark
from rdchat.ui.window.main_window import MainWindow
from tests.ui.shown_widgets import press_key


def press(banner: Banner, text: str) -> None:
    button = next(button for button in banner.buttons if button.text() == text)
    button.setFocus()
    press_key(button, "Space")


def mark(window: MainWindow) -> CutMark | None:
    marks = [each for each in window.conversation.transcript.findChildren(CutMark) if each.isVisibleTo(window)]
    return marks[0] if marks else None
