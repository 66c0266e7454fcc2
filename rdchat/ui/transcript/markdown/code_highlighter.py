"""Colours code with Pygments, a few milliseconds at a time; lexers are imported off the main thread."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType
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


_THREAD = SerialThread("lexers")  # importing a lexer takes up to 34 ms


@lru_cache(_MOST_KEPT)
def find_lexer(language: str) -> Job[Lexer | None]:
    """Return the job that imports a language's lexer; its result is None if there is no such lexer."""
    return _THREAD.do(lambda _job: _lexer(language))


def preload_lexers() -> None:
    """Import common lexers in the background."""
    for language in COMMON:
        find_lexer(language)


def _lexer(language: str) -> Lexer | None:
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    list(lexer.get_tokens_unprocessed("x"))  # compiles its regular expressions
    return lexer


@dataclass(slots=True)
class _CodeBlock:
    """A code block that waits to be coloured, or is being coloured."""

    language: str
    first: QTextBlock
    lines: list[str]
    coloured: Iterator[int] | None = None  # numbers of the lines as they are done


class CodeHighlighter:
    """Colours the code blocks of one document, once each is complete."""

    def __init__(self, document: QTextDocument) -> None:
        self._document = document
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
        """Colour complete code until `deadline` (`time.perf_counter`); return whether more can be done at once."""
        for code in [code for code in self._waiting if find_lexer(code.language).ended]:
            if not self._run(code, colors, deadline):
                return True
            self._waiting.remove(code)
        return False

    def _run(self, code: _CodeBlock, colors: Colors, deadline: float) -> bool:
        """Colour lines of one code block until the deadline; return whether it is done."""
        lexer = find_lexer(code.language).result()
        if lexer is None:
            return True
        code.coloured = code.coloured or self._lines(code, lexer, colors)
        done = []
        for line in code.coloured:
            done.append(line)
            if time.perf_counter() >= deadline:
                break
        else:
            code.coloured = None
        if done and (last := self._block(code, done[-1])).isValid():
            start = self._block(code, done[0]).position()
            self._document.markContentsDirty(start, last.position() + last.length() - start)
        return code.coloured is None

    def _block(self, code: _CodeBlock, line: int) -> QTextBlock:
        return self._document.findBlockByNumber(code.first.blockNumber() + line)

    def _lines(self, code: _CodeBlock, lexer: Lexer, colors: Colors) -> Iterator[int]:
        """Colour line by line, as QSyntaxHighlighter does: selections and text stay as they are."""
        line, column, formats = 0, 0, list[QTextLayout.FormatRange]()  # the column in UTF-16 units
        for _, kind, text in lexer.get_tokens_unprocessed("\n".join(code.lines) + "\n"):
            color = _color(kind, colors)
            for place, part in enumerate(text.split("\n")):
                if place:
                    self._block(code, line).layout().setFormats(formats)
                    yield line
                    line, column, formats = line + 1, 0, []
                length = len(part) + sum(character > "\uffff" for character in part)
                if color and length:
                    formats.append(_span(column, length, color))
                column += length


def _span(start: int, length: int, color: QColor) -> QTextLayout.FormatRange:
    span = QTextLayout.FormatRange()
    span.start, span.length = start, length
    look = QTextCharFormat()
    look.setForeground(color)
    span.format = look
    return span


def _color(kind: _TokenType, colors: Colors) -> QColor | None:
    """Return the colour of a kind of token, or of the nearest kind above it."""
    style = next((_STYLES[each] for each in reversed(kind.split()) if each in _STYLES), None)
    return QColor(getattr(colors, style)) if style else None
