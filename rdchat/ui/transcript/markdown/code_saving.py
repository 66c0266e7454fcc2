"""Saves a code block of a message as a file."""

import re
from pathlib import Path

from pygments.lexers import get_all_lexers
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from rdchat.ui.look.plain_text import message_box

_DELETE_ON_CLOSE = Qt.WidgetAttribute.WA_DeleteOnClose
# the names languages go by in a fence, where the first pattern that Pygments lists is not what one writes today
_SUFFIXES = {
    "bash": ".sh", "c++": ".cpp", "c": ".c", "cpp": ".cpp", "csharp": ".cs", "cs": ".cs", "console": ".txt",
    "css": ".css",     "csv": ".csv",
    "diff": ".diff", "html": ".html", "ini": ".ini", "java": ".java", "javascript": ".js", "js": ".js",
    "json": ".json", "jsx": ".jsx", "kotlin": ".kt", "latex": ".tex", "markdown": ".md", "md": ".md", "objc": ".m",
    "php": ".php", "py": ".py", "python": ".py", "r": ".r", "rb": ".rb", "ruby": ".rb", "rs": ".rs", "rust": ".rs",
    "sh": ".sh", "shell": ".sh", "sql": ".sql", "svg": ".svg", "swift": ".swift", "tex": ".tex", "text": ".txt",
    "toml": ".toml", "ts": ".ts", "tsx": ".tsx", "txt": ".txt", "typescript": ".ts", "xml": ".xml", "yaml": ".yaml",
    "yml": ".yml", "zsh": ".zsh",
}  # fmt: skip
_NAMED = {"dockerfile": "Dockerfile", "docker": "Dockerfile", "makefile": "Makefile", "make": "Makefile"}
# a name that the code gives itself in its first line: "# app/main.py", "// index.js", "<!-- page.html -->"
_OWN_NAME = re.compile(
    r"\s*(?:#|//|--|/\*|<!--|;|%)\s*(?:file(?:name)?:\s*)?(?:[\w.-]+/)*([\w-][\w.-]*\.\w{1,8})\s*(?:\*/|-->)?\s*$"
)
_FENCE_NAME = re.compile(r"(?:.*[:/=])?\"?([\w-][\w.-]*\.\w{1,8})\"?$")


def file_name(language: str, code: str) -> str:
    """Return a fitting name: that in the code's first line or behind the fence, else one with the language's suffix."""
    own = _OWN_NAME.match(code[:300].partition("\n")[0]) or _FENCE_NAME.match(language)
    if own:
        return own[1]
    language = language.lower()
    return _NAMED.get(language) or f"code{_SUFFIXES.get(language) or _known_suffix(language)}"


def _known_suffix(language: str) -> str:
    for _, aliases, patterns, _ in get_all_lexers(plugins=False):
        if language in aliases:
            return next((pattern[1:] for pattern in patterns if re.fullmatch(r"\*\.\w+", pattern)), ".txt")
    return ".txt"


def ask_and_save(code: str, language: str, parent: QWidget) -> QFileDialog:
    """Ask where the code goes and write it there; return the dialog, which is open."""
    dialog = QFileDialog(parent.window(), _tr("Save code"), str(Path.home() / file_name(language, code)))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setAttribute(_DELETE_ON_CLOSE)
    dialog.fileSelected.connect(lambda path: _save(Path(path), code, parent))
    dialog.open()
    return dialog


def _save(path: Path, code: str, parent: QWidget) -> None:
    try:
        path.write_text(code if code.endswith("\n") else f"{code}\n", encoding="utf-8", newline="\n")
    except OSError as error:
        failed, why = _tr("%s cannot be written.") % path.name, error.strerror or str(error)
        box = message_box(QMessageBox.Icon.Warning, failed, why, title=_tr("Save code"), parent=parent.window())
        box.setAttribute(_DELETE_ON_CLOSE)
        box.open()


def _tr(text: str) -> str:
    return QCoreApplication.translate("CodeSaving", text)
