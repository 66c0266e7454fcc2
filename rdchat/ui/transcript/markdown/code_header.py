"""The bar over a code block: its language, and Copy."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from rdchat.ui.look.buttons import CopyButton
from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme, control_font

_NAMES = {
    "bash": "Bash", "c": "C", "c++": "C++", "cpp": "C++", "cs": "C#", "csharp": "C#", "css": "CSS", "go": "Go",
    "html": "HTML", "java": "Java", "javascript": "JavaScript", "js": "JavaScript", "json": "JSON", "jsx": "JSX",
    "kotlin": "Kotlin", "markdown": "Markdown", "md": "Markdown", "objc": "Objective-C", "php": "PHP",
    "py": "Python", "python": "Python", "rb": "Ruby", "ruby": "Ruby", "rs": "Rust", "rust": "Rust", "sh": "Shell",
    "shell": "Shell", "sql": "SQL", "swift": "Swift", "toml": "TOML", "ts": "TypeScript", "tsx": "TSX",
    "typescript": "TypeScript", "xml": "XML", "yaml": "YAML", "yml": "YAML", "zsh": "Zsh",
}  # fmt: skip


class CodeHeader(QWidget):
    """Lies over the document, above a code block's first line."""

    copy_requested = Signal()

    def __init__(self, language: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._label = QLabel(self, textFormat=Qt.TextFormat.PlainText)
        self.show_language(language)
        self._label.setForegroundRole(QPalette.ColorRole.WindowText)  # the viewport below has another
        self._label.setFont(control_font(-1))
        self._button = CopyButton(self.tr("Copy code"), theme, self)
        self._button.copy_requested.connect(self.copy_requested)
        row = QHBoxLayout(self)
        row.setContentsMargins(MEDIUM, 0, TIGHT, 0)
        row.addWidget(self._label)
        row.addStretch()
        row.addWidget(self._button)
        self.restyle()

    def show_language(self, language: str) -> None:
        """Name the language as written after the fence, which may come letter by letter."""
        self._label.setText(_NAMES.get(language.lower(), language[:40]) or self.tr("Code"))

    def copy(self, code: str) -> None:
        self._button.copy(code)

    def restyle(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.WindowText, self._theme.colors.muted)
        self._label.setPalette(palette)
        self._button.restyle()
