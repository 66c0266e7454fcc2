"""The pages of the Help menu: what drafting is, and the keyboard shortcuts."""

from collections.abc import Sequence
from importlib import resources

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from rdchat.ui.look.labels import Ground
from rdchat.ui.look.layouts import column, scrolled
from rdchat.ui.look.opening import SideWindow
from rdchat.ui.look.theme import LARGE, Theme
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_view import TextView

_ELSEWHERE = (
    ("Message field", (("Send", "Return"), ("New line", "Shift+Return"))),
    ("Lists of chats and models", (("Open", "Return"), ("Delete", "Delete"))),
    ("Any window beside the main one", (("Close it", "Esc"),)),
)


class HelpWindow(SideWindow):
    """A page of Markdown that scrolls.

    Args:
        title: The window's title.
        text: Markdown.
        theme: The appearance to follow.
        parent: The main window.
    """

    def __init__(self, title: str, text: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(title, (600, 680), (360, 300), parent)
        self.text = TextView(MarkdownParser(), theme, title)
        page = Ground(theme, "surface")
        column(self.text, None, within=page, margins=LARGE)
        area = scrolled(page)
        area.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # the keyboard scrolls
        area.setAccessibleName(title)
        column(area, within=self)
        area.setFocus()
        self.text.set_text(text)


def about_drafting() -> str:
    """Return the page that explains drafting, in Markdown."""
    return resources.files("rdchat.ui").joinpath("resources/drafting.md").read_text(encoding="utf-8")


def shortcuts_text(menus: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> str:
    """Return a table of keys for each menu, in Markdown.

    Args:
        menus: The title of each menu, with the name and the keys of its entries.
    """
    tables = (
        f"## {title}\n\n| Command | Keys |\n|---|---|\n" + "\n".join(f"| {name} | {keys} |" for name, keys in entries)
        for title, entries in (*menus, *_ELSEWHERE)
    )
    return "\n\n".join(tables)
