"""Colours code, line by line while it is written and once more when it is complete.

Pygments finds the colours on a thread of this module, because that and importing a lexer take long; the main thread
sets them in short steps.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound
from PySide6.QtGui import QTextBlock, QTextDocument, QTextLayout

from rdchat.ui.style import Colors, text_look, utf16_length
from rdchat.work import Job, SerialThread

# The most lines that are read again with each new line. Where a string or a comment goes on longer, they are not.
_MAX_AGAIN = 200
# Begin and end of comments that Pygments does not find before their end is written.
_COMMENTS = {"/*": "*/", "<!--": "-->"}
# The Pygments token types of each colour of `Colors`.
_COLORS: dict[str, tuple[_TokenType, ...]] = {
    "keyword": (Keyword, Operator.Word),
    "name": (Name.Function, Name.Class, Name.Tag, Generic.Heading),
    "builtin": (Name.Decorator, Name.Builtin, Name.Attribute, Name.Constant),
    "string": (String,),
    "number": (Number, Keyword.Constant, Literal),
    "comment": (Comment, Generic.Prompt),
    "inserted": (Generic.Inserted,),
    "deleted": (Generic.Deleted,),
}
_COLOR_OF = {kind: color for color, kinds in _COLORS.items() for kind in kinds}
type Line = list[tuple[int, int, str]]
"""Coloured parts of a line: begin and length in UTF-16 units, and the name of a colour of `Colors`."""

# Position in the source, type and text.
type _Token = tuple[int, _TokenType, str]

# Code with a line of more characters, or with more lines, stays in one colour.
_LONGEST_LINE = 2000
_MAX_LINES = 5000
# A thread of its own: importing a lexer takes up to 34 ms.
_THREAD = SerialThread("lexers")


def lines_of(language: str, code: str) -> list[Line]:
    """Return the coloured parts of each line; none in an unknown language."""
    lexer = _lexer(language)
    return _coloured_lines(lexer.get_tokens_unprocessed(code + "\n")) if lexer else []


class GrowingCode:
    """Finds the colours of the lines of a code block as they are complete; each costs the same.

    The last line that a token begins is read again with the next ones, in the state that the lexer had there: a string
    or a comment may go on in them. Lexers whose state is not known read each line by itself.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._lexer: Lexer | None = None
        self._keeps_state = False
        # The lines to be read again, the number of the first one, and the lexer's state where it begins.
        self._again = list[str]()
        self._begin = 0
        self._stack = ["root"]
        # Those of `_COMMENTS` that the language has, and the end of the one that goes on; empty for none.
        self._comments = dict[str, str]()
        self._comment_end = ""

    def read_lines(self, lines: list[str]) -> tuple[int, list[Line]]:
        """Return the number of the first line whose colours may be new now, and the parts of the lines from there.

        Such as `(3, [[(0, 3, "keyword")], []])`: line 3 begins with a keyword of three letters, line 4 has no colours.

        Args:
            lines: The lines that are complete since the last call. They are read with those that are to be read again,
                unless they are all inside a comment whose end is not written yet.
        """
        if self._lexer is None and (lexer := _lexer(self._language)):
            self._lexer = lexer
            self._keeps_state = _keeps_state(lexer)
            self._comments = {
                begin: end
                for begin, end in _COMMENTS.items()
                if any(Comment in kind.split() for _, kind, _ in lexer.get_tokens_unprocessed(f"{begin} x {end}"))
            }
        if self._lexer is None:
            return 0, []
        added = "".join(f"{line}\n" for line in lines)
        # Reading moves `_begin` on.
        begin = self._begin
        if not self._keeps_state:
            self._begin += len(lines)
            return begin, _coloured_lines(self._lexer.get_tokens_unprocessed(added))
        before = self._again
        self._again = before + lines
        if self._comment_end and self._comment_end not in added:
            return begin + len(before), _coloured_lines([(0, Comment, added)])
        return begin, _coloured_lines(self._read_again(cast(ExtendedRegexLexer, self._lexer)))

    def _read_again(self, lexer: ExtendedRegexLexer) -> list[_Token]:
        """Return the tokens of the lines in `_again`, and drop the lines that need not be read again.

        An open comment is one token up to the end. `lexer` is a `RegexLexer` in truth: it is read by the method of
        `ExtendedRegexLexer`, which applies the same rules, but keeps its state in a context that can be read.
        """
        source = "".join(f"{line}\n" for line in self._again)
        tokens = list[_Token]()
        # Where the lines end that need not be read again, and the state there: at the last line that a token begins.
        settled = 0
        stack = self._stack
        self._comment_end = ""
        context = LexerContext(source, 0, list(stack), len(source))
        for position, kind, text in ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context):
            # `context` has the state before a rule's match; the later tokens of the same match stand behind its `pos`.
            if position and position == context.pos and source[position - 1] == "\n":
                settled = position
                stack = list(context.stack)
            opening = next((sign for sign in self._comments if source.startswith(sign, position)), "")
            if opening and text and not _is_in_text(kind):
                # The lexer took the sign for something else, since the end is not written yet.
                self._comment_end = self._comments[opening]
                tokens.append((position, Comment, source[position:]))
                break
            tokens.append((position, kind, text))
        if not self._comment_end and len(self._again) > _MAX_AGAIN:
            settled = len(source)
        settled_lines = source.count("\n", 0, settled)
        self._begin += settled_lines
        self._again = self._again[settled_lines:]
        self._stack = stack
        return tokens


def _is_in_text(kind: _TokenType) -> bool:
    """Whether a token is in a comment or a string, where no comment begins; a regular expression is not one."""
    wider = kind.split()
    return (Comment in wider or String in wider) and String.Regex not in wider


def _lexer(language: str) -> Lexer | None:
    """Return the lexer of a language; None for an unknown one."""
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


def _keeps_state(lexer: Lexer) -> bool:
    """Return whether all of a lexer's state is the stack of its rules: its rules have no functions of their own."""
    if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
        return False
    states: dict[str, list[tuple[object, Callable[..., object] | None, object]]] = getattr(lexer, "_tokens", {})
    rules = (rule for rules in states.values() for rule in rules)
    return all(
        action is None or isinstance(action, _TokenType) or action.__module__ == RegexLexer.__module__
        for _, action, _ in rules
    )


def _coloured_lines(tokens: Iterable[_Token]) -> list[Line]:
    """Return the coloured parts of each line; neighbours of the same colour become one part."""
    lines = list[Line]([[]])
    column = 0
    for _, kind, text in tokens:
        # A type without a colour of its own has that of the next wider type.
        color = next((_COLOR_OF[wider] for wider in reversed(kind.split()) if wider in _COLOR_OF), "")
        for index, part in enumerate(text.split("\n")):
            if index:
                lines.append([])
                column = 0
            length = utf16_length(part)
            if color and length:
                begin, size, before = lines[-1][-1] if lines[-1] else (0, 0, "")
                if (begin + size, before) == (column, color):
                    lines[-1][-1] = begin, size + length, color
                else:
                    lines[-1].append((column, length, color))
            column += length
    return lines[:-1]


@dataclass(slots=True)
class _CodeBlock:
    """A code block that is being coloured.

    Attributes:
        first: The block of its first line.
        read: Number of lines that the lexer was given.
        job: Finds the colours; it returns the number of the first line, and the lines from there.
        done: Number of the job's lines that the document shows.
        lines: The colours that each line has now.
        closed: Whether the code is complete.
    """

    first: QTextBlock
    lexer: GrowingCode
    read: int = 0
    job: Job[tuple[int, list[Line]]] | None = None
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
        if code.job is None and code.read <= _MAX_LINES and (added := lines(code.read)):
            # An overlong line counts as too many lines: no more of the block is coloured.
            code.read += len(added) if max(map(len, added)) <= _LONGEST_LINE else _MAX_LINES + 1
            if code.read <= _MAX_LINES:
                code.job = _THREAD.do(lambda _job: code.lexer.read_lines(added))
                code.done = 0

    def add_code(self, number: int, language: str, first: QTextBlock, lines: list[str]) -> None:
        """Ask for a complete code block to be coloured; its lines are consecutive blocks from `first` on.

        It is read anew as a whole. One without a language, or too large, keeps the colours that it has.
        """
        if language and len(lines) <= _MAX_LINES and max(map(len, lines), default=0) <= _LONGEST_LINE:
            code = self._code(number, language, first)
            source = "\n".join(lines)
            code.job = _THREAD.do(lambda _job: (0, lines_of(language.lower(), source)))
            code.done = 0
            code.closed = True
        else:
            self._codes.pop(number, None)

    def _code(self, number: int, language: str, first: QTextBlock) -> _CodeBlock:
        code = self._codes.setdefault(number, _CodeBlock(first, GrowingCode(language.lower())))
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
            if not self._show_colors(code, *code.job.result(), colors, deadline):
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
