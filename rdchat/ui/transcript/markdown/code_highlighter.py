"""Colours code with Pygments, a few milliseconds at a time; lexers are imported off the main thread."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, Token, _TokenType
from pygments.util import ClassNotFound
from PySide6.QtGui import QColor, QTextBlock, QTextCharFormat, QTextDocument, QTextLayout

from rdchat.ui.look.theme import Colors
from rdchat.work.job import Job
from rdchat.work.serial_thread import SerialThread

COMMON = ("python", "bash", "javascript", "typescript", "json", "html", "css", "c", "cpp", "java", "rust", "go",
          "swift", "sql", "yaml", "console", "diff")  # fmt: skip
_LONGEST_LINE, _MOST_LINES = 2000, 5000  # beyond these, code stays in one colour
_MOST_KEPT = 256  # lexers: replies can name any number of languages

_STYLES: dict[_TokenType, str] = {
    Keyword: "keyword",
    Operator.Word: "keyword",
    Name.Function: "name",
    Name.Class: "name",
    Name.Tag: "name",
    Name.Decorator: "builtin",
    Name.Builtin: "builtin",
    Name.Attribute: "builtin",
    Name.Constant: "builtin",
    String: "string",
    Number: "number",
    Keyword.Constant: "number",
    Literal: "number",
    Comment: "comment",
    Generic.Inserted: "inserted",
    Generic.Deleted: "deleted",
    Generic.Prompt: "comment",
    Generic.Heading: "name",
}


class LexerLibrary:
    """Lexers by language name. Importing one takes up to 34 ms, so a thread of its own does it."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job[Lexer | None]] = {}
        self._thread = SerialThread("lexers")

    def preload(self) -> None:
        """Import common lexers in the background."""
        for language in COMMON:
            self.find(language)

    def find(self, language: str) -> Job[Lexer | None]:
        """Return the job that imports the language's lexer; its result is None if there is no such lexer."""
        if language not in self._jobs:
            self._jobs[language] = self._thread.do(lambda _job: _lexer(language))
        return self._jobs[language]


@lru_cache(_MOST_KEPT)
def _lexer(language: str) -> Lexer | None:
    """Return a language's lexer, or None; one for all windows, for it keeps nothing of what it reads."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    list(lexer.get_tokens_unprocessed("x"))  # compiles its regular expressions
    return lexer


@dataclass(slots=True)
class _CodeBlock:
    """A code block being coloured, line by line."""

    language: str
    first: QTextBlock
    lines: list[str]
    tokens: Iterator[tuple[int, _TokenType, str]] | None = None
    line: int = 0
    column: int = 0  # in UTF-16 units
    formats: list[QTextLayout.FormatRange] = field(default_factory=list)  # of that line


class CodeHighlighter:
    """Colours the code blocks of one document, once each is complete."""

    def __init__(self, document: QTextDocument, library: LexerLibrary) -> None:
        self._document = document
        self._library = library
        self._waiting: list[_CodeBlock] = []

    def clear(self) -> None:
        self._waiting.clear()

    def add(self, language: str, first: QTextBlock, lines: list[str]) -> None:
        """Ask for a code block to be coloured; its lines are consecutive blocks from `first` on."""
        if language and len(lines) <= _MOST_LINES and max(map(len, lines), default=0) <= _LONGEST_LINE:
            self._waiting.append(_CodeBlock(language.lower(), first, lines))

    @property
    def pending(self) -> bool:
        return bool(self._waiting)

    def advance(self, colors: Colors, deadline: float) -> bool:
        """Work until `deadline` (`time.perf_counter`). Whether more can be done at once."""
        for code in self._ready:
            if not self._run(code, colors, deadline):
                return True
            self._waiting.remove(code)
            if time.perf_counter() >= deadline:
                break
        return bool(self._ready)

    @property
    def _ready(self) -> list[_CodeBlock]:
        """The code blocks whose lexers have been imported."""
        return [code for code in self._waiting if self._library.find(code.language).ended]

    def _run(self, code: _CodeBlock, colors: Colors, deadline: float) -> bool:
        """Tokenise and colour one code block until the deadline; return whether it is done."""
        lexer = self._library.find(code.language).result()
        if lexer is None:
            return True
        if code.tokens is None:
            code.tokens = lexer.get_tokens_unprocessed("\n".join(code.lines) + "\n")
        begin, done = code.line, True
        for count, (_, kind, text) in enumerate(code.tokens):
            self._colour(code, _color(kind, colors), text)
            if count % 16 == 0 and time.perf_counter() >= deadline:
                done = False
                break
        first, last = self._block(code, begin), self._block(code, code.line - 1)
        if last.isValid() and code.line > begin:
            self._document.markContentsDirty(first.position(), last.position() + last.length() - first.position())
        return done

    def _block(self, code: _CodeBlock, line: int) -> QTextBlock:
        return self._document.findBlockByNumber(code.first.blockNumber() + line)

    def _colour(self, code: _CodeBlock, color: QColor | None, text: str) -> None:
        """Lay a token's colour over its lines, as QSyntaxHighlighter does: selections and text stay as they are."""
        for place, part in enumerate(text.split("\n")):
            if place:
                self._block(code, code.line).layout().setFormats(code.formats)
                code.line, code.column, code.formats = code.line + 1, 0, []
            length = len(part) + sum(character > "\uffff" for character in part)
            if color and length:
                code.formats.append(_span(code.column, length, color))
            code.column += length


def _span(start: int, length: int, color: QColor) -> QTextLayout.FormatRange:
    span = QTextLayout.FormatRange()
    span.start, span.length = start, length
    look = QTextCharFormat()
    look.setForeground(color)
    span.format = look
    return span


def _color(kind: _TokenType, colors: Colors) -> QColor | None:
    while kind is not Token:
        name = _STYLES.get(kind)
        if name:
            return QColor(getattr(colors, name))
        if kind.parent is None:
            break
        kind = kind.parent
    return None
