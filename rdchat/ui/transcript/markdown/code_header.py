"""The bar over a code block: its language, and what one does with it."""

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QWidget

from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import MEDIUM, TIGHT, Theme, control_font
from rdchat.ui.transcript.markdown.document_writer import CodeSpan, DocumentWriter
from rdchat.ui.transcript.markdown.grounds import Grounds
from rdchat.ui.transcript.markdown.metrics import code_header_height

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

    copy_requested = Signal()
    save_requested = Signal()
    wrap_requested = Signal(bool)

    def __init__(self, language: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._label = PlainLabel(parent=self)
        self.show_language(language)
        self._label.setForegroundRole(QPalette.ColorRole.WindowText)  # the viewport below has another
        self._label.setFont(control_font(-1))
        self._button = CopyButton(self.tr("Copy code"), theme, self)
        self._button.copy_requested.connect(self.copy_requested)
        self._wraps = False
        self._wrap = IconButton("wrap", "", theme, self)
        self._wrap.clicked.connect(lambda: self.wrap_requested.emit(not self._wraps))
        self._save = IconButton("save", self.tr("Save code as a file…"), theme, self)
        self._save.clicked.connect(self.save_requested)
        self.show_wrapped(False)
        row = QHBoxLayout(self)
        row.setSpacing(0)
        row.setContentsMargins(MEDIUM, 0, TIGHT, 0)
        row.addWidget(self._label)
        row.addStretch()
        for button in (self._wrap, self._save, self._button):
            row.addWidget(button)
        self.restyle()

    def show_language(self, language: str) -> None:
        """Name the language as written after the fence, which may come letter by letter."""
        self._label.setText(_NAMES.get(language.lower(), language[:40]) or self.tr("Code"))

    def show_wrapped(self, wraps: bool) -> None:
        """Say what the button does next: break long lines, or let them run on."""
        if self._wrap.accessibleName() and wraps == self._wraps:
            return
        self._wraps = wraps
        if wraps:
            self._wrap.show_as("no_wrap", self.tr("Don't wrap long lines"))
        else:
            self._wrap.show_as("wrap", self.tr("Wrap long lines"))

    def copy(self, code: str) -> None:
        self._button.copy(code)

    def restyle(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.WindowText, self._theme.colors.muted)
        self._label.setPalette(palette)
        for button in (self._wrap, self._save, self._button):
            button.restyle()


class CodeHeaders(QObject):
    """The headers of one document, by the numbers of its code blocks."""

    copy_requested = Signal(int)
    save_requested = Signal(int)
    wrap_requested = Signal(int, bool)

    def __init__(self, writer: DocumentWriter, grounds: Grounds, theme: Theme, viewport: QWidget) -> None:
        super().__init__(viewport)
        self._writer, self._grounds, self._theme, self._viewport = writer, grounds, theme, viewport
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
            ground = self._grounds.code(span, width).toRect()
            top, height = TIGHT // 2, code_header_height(self._theme) - TIGHT // 2
            header.setGeometry(ground.left(), ground.top() + top, ground.width(), height)

    def _make(self, number: int, span: CodeSpan) -> CodeHeader:
        header = CodeHeader(span.language, self._theme, self._viewport)
        header.copy_requested.connect(lambda: self.copy_requested.emit(number))
        header.save_requested.connect(lambda: self.save_requested.emit(number))
        header.wrap_requested.connect(lambda wrap: self.wrap_requested.emit(number, wrap))
        header.show()
        return header

    def displaced(self, width: int) -> bool:
        """Whether a header is not over its code: text above it was laid out anew."""
        for number in {next(iter(self._headers), -1), next(reversed(self._headers), -1)} - {-1}:
            span = self._writer.code_spans.get(number)
            top = self._grounds.code(span, width).toRect().top() if span else 0
            if span is None or self._headers[number].y() != top + TIGHT // 2:
                return True
        return False

    def copy(self, number: int, code: str) -> None:
        """Put a code block's text on the clipboard, and say so."""
        self._headers[number].copy(code)
