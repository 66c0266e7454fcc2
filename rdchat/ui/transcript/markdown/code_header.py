"""The bar over a code block: its language, and what one does with it."""

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QWidget

from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme
from rdchat.ui.transcript.markdown.backgrounds import Backgrounds
from rdchat.ui.transcript.markdown.code_saving import ask_and_save
from rdchat.ui.transcript.markdown.document_writer import CodeSpan, DocumentWriter
from rdchat.ui.transcript.markdown.text_formats import code_header_height

_MOST_HEADERS = 100  # code blocks beyond these have no header: each is a widget with buttons

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

    def __init__(self, language: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._label = ThemedLabel(theme, "", "muted", -1)
        self.show_language(language)
        self._label.setForegroundRole(QPalette.ColorRole.WindowText)  # the viewport below has another
        self.copy_button = CopyButton(self.tr("Copy code"), theme, self)
        self._wraps: bool | None = None
        self.wrap_button = IconButton("wrap", "", theme, self)
        self.save_button = IconButton("save", self.tr("Save code as a file…"), theme, self)
        self.show_wrapped(False)
        row = QHBoxLayout(self)
        row.setSpacing(0)
        row.setContentsMargins(MEDIUM, 0, TIGHT, 0)
        row.addWidget(self._label)
        row.addStretch()
        for button in (self.wrap_button, self.save_button, self.copy_button):
            row.addWidget(button)

    def show_language(self, language: str) -> None:
        """Name the language as written after the fence, which may come letter by letter."""
        self._label.setText(_NAMES.get(language.lower(), language[:40]) or self.tr("Code"))

    def show_wrapped(self, wraps: bool) -> None:
        """Say what the button does next: break long lines, or let them run on."""
        if wraps != self._wraps:
            self._wraps = wraps
            name = self.tr("Don't wrap long lines") if wraps else self.tr("Wrap long lines")
            self.wrap_button.show_as("no_wrap" if wraps else "wrap", name)


class CodeHeaders(QObject):
    """The headers of one document, by the numbers of its code blocks."""

    wrap_requested = Signal(int, bool)

    def __init__(self, writer: DocumentWriter, grounds: Backgrounds, theme: Theme, viewport: QWidget) -> None:
        super().__init__(viewport)
        self._writer, self._backgrounds, self._theme, self._viewport = writer, grounds, theme, viewport
        self._headers: dict[int, CodeHeader] = {}

    def place(self, first: int, width: int) -> None:
        """Lay a header over each code block; those that end before the block `first` are in their place."""
        spans = self._writer.code_spans
        for number in [number for number in self._headers if number not in spans]:
            self._headers.pop(number).deleteLater()
        for number, span in spans.items():
            header = self._headers.get(number)
            if (header and span.last < first) or (header is None and len(self._headers) >= _MOST_HEADERS):
                continue
            if header is None:
                header = self._headers[number] = self._make(number, span)
            header.show_language(span.language)
            header.show_wrapped(number in self._writer.wrapped)
            ground = self._backgrounds.code(span, width).toRect()
            top, height = TIGHT // 2, code_header_height(self._theme) - TIGHT // 2
            header.setGeometry(ground.left(), ground.top() + top, ground.width(), height)

    def _make(self, number: int, span: CodeSpan) -> CodeHeader:
        header = CodeHeader(span.language, self._theme, self._viewport)
        header.copy_button.copy_requested.connect(lambda: header.copy_button.copy(self._writer.code_text(number)))
        header.save_button.clicked.connect(lambda: self._save(number))
        header.wrap_button.clicked.connect(lambda: self.wrap_requested.emit(number, number not in self._writer.wrapped))
        header.show()
        return header

    def _save(self, number: int) -> None:
        ask_and_save(self._writer.code_text(number), self._writer.code_spans[number].language, self._viewport)

    def displaced(self, width: int) -> bool:
        """Whether a header is not over its code: text above it was laid out anew."""
        for number in {next(iter(self._headers), -1), next(reversed(self._headers), -1)} - {-1}:
            span = self._writer.code_spans.get(number)
            top = self._backgrounds.code(span, width).toRect().top() if span else 0
            if span is None or self._headers[number].y() != top + TIGHT // 2:
                return True
        return False
