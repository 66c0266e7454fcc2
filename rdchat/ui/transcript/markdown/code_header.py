"""The header of a code block: its language, and buttons to wrap, save and copy the code."""

import re
from functools import lru_cache
from pathlib import Path

from pygments.lexers import get_all_lexers
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QMessageBox, QWidget

from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import row
from rdchat.ui.look.opening import ask_to_save
from rdchat.ui.look.plain_text import message_box
from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme

# names and suffixes that Pygments lacks, or that differ from what people write
_LANGUAGES = {
    "console": ("Console", ".txt"), "csv": ("CSV", ".csv"), "r": ("R", ".r"), "sh": ("Shell", ".sh"),
    "shell": ("Shell", ".sh"), "svg": ("SVG", ".svg"), "text": ("Text", ".txt"), "txt": ("Text", ".txt"),
    "yml": ("YAML", ".yml"), "zsh": ("Zsh", ".zsh"),
}  # fmt: skip
_NAMED = {"dockerfile": "Dockerfile", "docker": "Dockerfile", "makefile": "Makefile", "make": "Makefile"}
# a name that the code gives itself in its first line: "# app/main.py", "// index.js", "<!-- page.html -->"
_OWN_NAME = re.compile(
    r"\s*(?:#|//|--|/\*|<!--|;|%)\s*(?:file(?:name)?:\s*)?(?:[\w.-]+/)*([\w-][\w.-]*\.\w{1,8})\s*(?:\*/|-->)?\s*$"
)
_FENCE_NAME = re.compile(r"(?:.*[:/=])?\"?([\w-][\w.-]*\.\w{1,8})\"?$")


class CodeHeader(QWidget):
    """The language and the buttons of a code block, above its first line."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._label = ThemedLabel(theme, "", "muted", -1)
        self._label.setForegroundRole(QPalette.ColorRole.WindowText)  # the viewport below has another
        self.copy_button = CopyButton(self.tr("Copy code"), theme, self)
        self.wrap_button = IconButton("wrap", self.tr("Wrap long lines"), theme, self)
        self.save_button = IconButton("save", self.tr("Save code as a file…"), theme, self)
        buttons = self.wrap_button, self.save_button, self.copy_button
        row(self._label, None, *buttons, within=self, spacing=0, margins=(MEDIUM, 0, TIGHT, 0))

    def show_language(self, language: str) -> None:
        """Show the language written after the fence, which may grow letter by letter."""
        self._label.setText(_language(language)[0][:40] or self.tr("Code"))

    def show_wrapped(self, wraps: bool) -> None:
        """Let the button offer the opposite of the state: to break long lines, or to let them run on."""
        name = self.tr("Don't wrap long lines") if wraps else self.tr("Wrap long lines")
        if self.wrap_button.accessibleName() != name:
            self.wrap_button.show_as("no_wrap" if wraps else "wrap", name)


def file_name(language: str, code: str) -> str:
    """Return the name in the code's first line or behind the fence, else one with the language's suffix."""
    own = _OWN_NAME.match(code[:300].partition("\n")[0]) or _FENCE_NAME.match(language)
    if own:
        return own[1]
    return _NAMED.get(language.lower()) or f"code{_language(language)[1]}"


@lru_cache(256)
def _language(written: str) -> tuple[str, str]:
    """Return the name of a language and the suffix of its files."""
    if found := _LANGUAGES.get(written.lower()):
        return found
    for name, aliases, patterns, _ in get_all_lexers(plugins=False):
        if written.lower() in aliases:
            return name, next((each[1:] for each in patterns if re.fullmatch(r"\*\.\w+", each)), ".txt")
    return written, ".txt"


def ask_and_save(code: str, language: str, parent: QWidget) -> None:
    """Ask where the code goes and write it there."""
    name = file_name(language, code)
    ask_to_save(parent.window(), _tr("Save code"), name, [], lambda path: _save(Path(path), code, parent))


def _save(path: Path, code: str, parent: QWidget) -> None:
    try:
        path.write_text(code if code.endswith("\n") else f"{code}\n", encoding="utf-8", newline="\n")
    except OSError as error:
        failed, why = _tr("%s cannot be written.") % path.name, error.strerror or str(error)
        box = message_box(QMessageBox.Icon.Warning, failed, why, title=_tr("Save code"), parent=parent.window())
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.open()


def _tr(text: str) -> str:
    return QCoreApplication.translate("CodeSaving", text)
