"""Finds the colours of code with Pygments: of a complete text, or of lines as they are written."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

from rdchat.ui.style.labels import utf16_length

_MAX_AGAIN = 200  # lines that are read again with each new one
_COMMENTS = {"/*": "*/", "<!--": "-->"}  # Pygments does not find these before their end is written
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


type Line = list[tuple[int, int, str]]
"""Coloured parts of a line: begin and length in UTF-16 units, and the name of a colour of `Colors`."""

type _Token = tuple[int, _TokenType, str]


def lines_of(language: str, code: str) -> list[Line]:
    """Return the coloured parts of each line; none in an unknown language."""
    lexer = _lexer(language)
    return _split(lexer.get_tokens_unprocessed(code + "\n")) if lexer else []


class GrowingCode:
    """Finds the colours of the lines of a code block as they are complete; each costs the same.

    The last line that a token begins is read again with the next ones, in the state that the lexer had there: a string
    or a comment may go on in them. Lexers whose state is not known read each line by itself.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._lexer: Lexer | None = None
        self._keeps_state = False
        self._begin, self._again = 0, list[str]()  # the first line that is read again, and the lines from there
        self._stack = ["root"]
        self._comments = dict[str, str]()
        self._comment_end = ""  # of a comment that goes on

    def read(self, lines: list[str]) -> tuple[int, list[Line]]:
        """Return the number of the first line whose colours may be new now, and the parts of the lines from there."""
        if self._lexer is None and (lexer := _lexer(self._language)):
            self._lexer, self._keeps_state = lexer, _keeps_state(lexer)
            self._comments = {
                begin: end
                for begin, end in _COMMENTS.items()
                if any(Comment in kind.split() for _, kind, _ in lexer.get_tokens_unprocessed(f"{begin} x {end}"))
            }
        if self._lexer is None:
            return 0, []
        added = "".join(f"{line}\n" for line in lines)
        begin = self._begin + len(self._again)
        self._again += lines
        if self._comment_end and self._comment_end not in added:
            return begin, _split([(0, Comment, added)])
        begin = self._begin
        return begin, _split(self._tokens("".join(f"{line}\n" for line in self._again), self._lexer))

    def _tokens(self, source: str, lexer: Lexer) -> Iterator[_Token]:
        settled, stack = len(source), self._stack
        if self._keeps_state:
            settled, self._comment_end = 0, ""
            context = LexerContext(source, 0, list(stack), len(source))
            for position, kind, text in ExtendedRegexLexer.get_tokens_unprocessed(
                cast(ExtendedRegexLexer, lexer), context=context
            ):
                if position and position == context.pos and source[position - 1] == "\n":
                    settled, stack = position, list(context.stack)
                opening = next((sign for sign in self._comments if source.startswith(sign, position)), "")
                if opening and text and (not {Comment, String} & {*kind.split()} or String.Regex in kind.split()):
                    self._comment_end = self._comments[opening]
                    yield position, Comment, source[position:]
                    break
                yield position, kind, text
            if not self._comment_end and len(self._again) > _MAX_AGAIN:
                settled = len(source)
        else:
            yield from lexer.get_tokens_unprocessed(source)
        passed = source.count("\n", 0, settled)
        self._begin, self._again, self._stack = self._begin + passed, self._again[passed:], stack


def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


def _keeps_state(lexer: Lexer) -> bool:
    """Tell whether all of a lexer's state is the stack of its rules: its rules have no functions of their own."""
    if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
        return False
    states: dict[str, list[tuple[object, Callable[..., object] | None, object]]] = getattr(lexer, "_tokens", {})
    rules = (rule for rules in states.values() for rule in rules)
    return all(
        action is None or isinstance(action, _TokenType) or action.__module__ == RegexLexer.__module__
        for _, action, _ in rules
    )


def _split(tokens: Iterable[_Token]) -> list[Line]:
    lines, column = list[Line]([[]]), 0
    for _, kind, text in tokens:
        color = next((_STYLES[each] for each in reversed(kind.split()) if each in _STYLES), "")
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
