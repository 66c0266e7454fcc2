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

from rdchat.ui.look.theme import SyntaxColors
from rdchat.work.job import Job
from rdchat.work.serial_thread import SerialThread

COMMON = ("python", "bash", "javascript", "typescript", "json", "html", "css", "c", "cpp", "java", "rust", "go",
          "swift", "sql", "yaml", "console", "diff")  # fmt: skip
_LONGEST_LINE, _MOST_LINES = 2000, 5000  # beyond these, code stays in one colour
_LINES_AT_ONCE = 100
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
class _Job:
    """One code block being coloured: spans of (line, start, length, colour) are collected, then shown."""

    language: str
    first: QTextBlock
    lines: list[str]
    tokens: Iterator[tuple[int, _TokenType, str]] | None = None
    line: int = 0
    column: int = 0
    shown: int = 0
    spans: dict[int, list[tuple[int, int, QColor]]] = field(default_factory=dict)


class CodeHighlighter:
    """Colours the code blocks of one document, once each is complete."""

    def __init__(self, document: QTextDocument, library: LexerLibrary) -> None:
        self._document = document
        self._library = library
        self._jobs: list[_Job] = []

    def clear(self) -> None:
        self._jobs.clear()

    def add(self, language: str, first: QTextBlock, lines: list[str]) -> None:
        """Ask for a code block to be coloured; its lines are consecutive blocks from `first` on."""
        if language and len(lines) <= _MOST_LINES and max(map(len, lines), default=0) <= _LONGEST_LINE:
            self._jobs.append(_Job(language.lower(), first, lines))

    @property
    def pending(self) -> bool:
        return bool(self._jobs)

    def advance(self, colors: SyntaxColors, deadline: float) -> bool:
        """Work until `deadline` (`time.perf_counter`). Whether more can be done at once."""
        for job in self._ready:
            if not self._run(job, colors, deadline):
                return True
            self._jobs.remove(job)
            if time.perf_counter() >= deadline:
                break
        return bool(self._ready)

    @property
    def _ready(self) -> list[_Job]:
        """The code blocks whose lexers have been imported."""
        return [job for job in self._jobs if self._library.find(job.language).ended]

    def _run(self, job: _Job, colors: SyntaxColors, deadline: float) -> bool:
        """Tokenise and colour one job until the deadline. Whether it is done."""
        lexer = self._library.find(job.language).result()
        if lexer is None:
            return True
        if job.tokens is None:
            job.tokens = lexer.get_tokens_unprocessed("\n".join(job.lines) + "\n")
        for count, (_, kind, text) in enumerate(job.tokens):
            self._collect(job, _color(kind, colors), text)
            if count % 16 == 0 and time.perf_counter() >= deadline:
                return False
        while job.shown < len(job.lines):
            self._show(job)
            if time.perf_counter() >= deadline:
                return False
        return True

    def _collect(self, job: _Job, color: QColor | None, text: str) -> None:
        for place, part in enumerate(text.split("\n")):
            if place:
                job.line += 1
                job.column = 0
            length = len(part) + sum(character > "\uffff" for character in part)
            if color and length:
                job.spans.setdefault(job.line, []).append((job.column, length, color))
            job.column += length

    def _show(self, job: _Job) -> None:
        """Lay the colours over the next lines, as QSyntaxHighlighter does: selections and text stay as they are."""
        block = self._document.findBlockByNumber(job.first.blockNumber() + job.shown)
        first, end = block.position(), block.position()
        for line in range(job.shown, min(job.shown + _LINES_AT_ONCE, len(job.lines))):
            block.layout().setFormats([_span(*span) for span in job.spans.get(line, [])])
            end = block.position() + block.length()
            block = block.next()
        self._document.markContentsDirty(first, end - first)
        job.shown += _LINES_AT_ONCE


def _span(start: int, length: int, color: QColor) -> QTextLayout.FormatRange:
    span = QTextLayout.FormatRange()
    span.start, span.length = start, length
    look = QTextCharFormat()
    look.setForeground(color)
    span.format = look
    return span


def _color(kind: _TokenType, colors: SyntaxColors) -> QColor | None:
    while kind is not Token:
        name = _STYLES.get(kind)
        if name:
            return QColor(getattr(colors, name))
        if kind.parent is None:
            break
        kind = kind.parent
    return None
