"""Colours code, line by line while it is written and once more when it is complete.

A child process finds the colours; the main thread sets them in short steps.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from PySide6.QtGui import QTextBlock, QTextDocument, QTextLayout

from rdchat.chat.rendering.code_colours import READER, GrowingCode, Line, lines_of
from rdchat.ui.style import Colors, text_look
from rdchat.work import Job

# Code with a line of more characters, or with more lines, stays in one colour.
_LONGEST_LINE = 2000
_MAX_LINES = 5000


@dataclass(slots=True)
class _CodeBlock:
    """A code block that is being coloured.

    Attributes:
        first: The block of its first line.
        read: Number of lines that the lexer was given.
        job: Finds the colours; its result is that of `GrowingCode.read_lines`.
        done: Number of the job's lines that the document shows.
        lines: The colours that each line has now.
        closed: Whether the code is complete.
    """

    first: QTextBlock
    lexer: GrowingCode
    read: int = 0
    job: Job[tuple[int, list[Line]] | None] | None = None
    done: int = 0
    lines: list[Line] = field(default_factory=list)
    closed: bool = False


class CodeHighlighter:
    """Colours the code blocks of one document, line by line as they are written, and again once each is complete."""

    def __init__(self, document: QTextDocument) -> None:
        self._document = document
        self._codes: dict[int, _CodeBlock] = {}

    def clear(self) -> None:
        self._codes.clear()

    def grow(self, number: int, language: str, first: QTextBlock, lines: Callable[[int], list[str]]) -> None:
        """Ask for the complete lines of an open code block to be coloured.

        Args:
            number: The code block's number.
            language: As it is written.
            first: The block of its first line.
            lines: Returns the complete lines from a number on.
        """
        code = self._code(number, language, first)
        if language and code.job is None and code.read <= _MAX_LINES and (added := lines(code.read)):
            # An overlong line counts as too many lines: no more of the block is coloured.
            code.read += len(added) if max(map(len, added)) <= _LONGEST_LINE else _MAX_LINES + 1
            if code.read <= _MAX_LINES:
                # It must not keep `code`, with which it ends.
                lexer = code.lexer
                code.job = READER.ask(language, lambda: lexer.read_lines(added))
                code.done = 0

    def add_code(self, number: int, language: str, first: QTextBlock, lines: list[str]) -> None:
        """Ask for a complete code block to be coloured; its lines are consecutive blocks from `first` on.

        It is read anew as a whole. One without a language, or too large, keeps the colours that it has.
        """
        if language and len(lines) <= _MAX_LINES and max(map(len, lines), default=0) <= _LONGEST_LINE:
            code = self._code(number, language, first)
            source = "\n".join(lines)
            code.job = READER.ask(language, lambda: (0, lines_of(language, source)))
            code.done = 0
            code.closed = True
        else:
            self._codes.pop(number, None)

    def _code(self, number: int, language: str, first: QTextBlock) -> _CodeBlock:
        code = self._codes.setdefault(number, _CodeBlock(first, GrowingCode(language)))
        code.first = first
        return code

    @property
    def pending(self) -> bool:
        return any(code.job for code in self._codes.values())

    def colour_lines(self, colors: Colors, deadline: float) -> bool:
        """Colour lines until `deadline` (`time.perf_counter`), at least one; return whether more can be done at once.

        Formats of the layout are set, as QSyntaxHighlighter does: selections and text stay as they are.
        """
        for number, code in list(self._codes.items()):
            if code.job is None or not code.job.ended:
                continue
            found = code.job.result()
            if found is None:
                # No more of the block is coloured until it is complete.
                code.read = _MAX_LINES + 1
            elif not self._show_colors(code, *found, colors, deadline):
                return True
            code.job = None
            if code.closed:
                del self._codes[number]
        return False

    def _show_colors(self, code: _CodeBlock, begin: int, lines: list[Line], colors: Colors, deadline: float) -> bool:
        """Set the formats of lines whose colours have changed; return whether all lines are done."""
        changed: list[QTextBlock] = []
        while code.done < len(lines) and not (changed and time.perf_counter() >= deadline):
            number = begin + code.done
            line = lines[code.done]
            code.done += 1
            if code.lines[number : number + 1] == [line]:
                continue
            code.lines[number : number + 1] = [line]
            changed.append(self._document.findBlockByNumber(code.first.blockNumber() + number))
            changed[-1].layout().setFormats([_span(*part, colors) for part in line])
        if changed:
            start = changed[0].position()
            self._document.markContentsDirty(start, changed[-1].position() + changed[-1].length() - start)
        return code.done == len(lines)


def _span(start: int, length: int, color: str, colors: Colors) -> QTextLayout.FormatRange:
    span = QTextLayout.FormatRange()
    span.start = start
    span.length = length
    span.format = text_look(getattr(colors, color))
    return span
