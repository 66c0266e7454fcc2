"""The child `lexers`: finds the colours of code with Pygments, for `code_colours`.

It has no state, so that a kill loses nothing. Pygments takes exponential time for some texts, so a timer ends what
takes too long: `re` looks for signals while it searches.
"""

import signal
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, cast

from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import find_lexer_class_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

from rdchat.chat.rendering.code_colours import Line
from rdchat.wording import utf16_length
from rdchat.work import Job, StopWork, serve

# The most lines that are read again with each new line. Where a string or a comment goes on longer, they are not.
_MAX_AGAIN = 200
# Code that is nested more deeply stays plain: the stack is sent with each line.
_DEEPEST = 1000
# Begin and end of comments that Pygments does not find before their end is written.
_COMMENTS = {"/*": "*/", "<!--": "-->"}
# The Pygments token types of each colour.
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

# Position in the source, type and text.
type _Token = tuple[int, _TokenType, str]


def main() -> int:
    """Answer requests until the parent ends."""
    signal.signal(signal.SIGPROF, _end_reading)
    return serve({"read": read_code})


def _end_reading(*_signal: object) -> None:
    raise StopWork


def read_code(_job: Job[Any], language: str, lines: list[str], stack: list[str], seconds: float) -> object:
    """Return the fields of a `ReadLines`; no lines in an unknown language. Raise StopWork if reading takes too long.

    Args:
        language: An alias of Pygments.
        lines: Complete lines.
        stack: The lexer's state where they begin; empty for the whole code, which is read as Pygments does it.
        seconds: Limit of processor time.
    """
    kind = _lexer_class(language)
    if kind is None:
        return [], len(lines), stack, ""
    # Some lexers keep what they have read, so each request has a new one.
    lexer = kind()
    source = "".join(f"{line}\n" for line in lines)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        if stack and _keeps_state(kind):
            return _read_on(cast(ExtendedRegexLexer, lexer), source, stack)
        return _coloured_lines(lexer.get_tokens_unprocessed(source)), len(lines), stack, ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _read_on(lexer: ExtendedRegexLexer, source: str, stack: list[str]) -> object:
    """Read from the state where a source begins, and find the lines at its end that are to be read again.

    An open comment is one token up to the end. `lexer` is a `RegexLexer` in truth: it is read by the method of
    `ExtendedRegexLexer`, which applies the same rules, but keeps its state in a context that can be read.
    """
    comments = _comments_of(type(lexer))
    tokens = list[_Token]()
    # Where the lines end that need not be read again, and the state there: at the last line that a token begins.
    settled = 0
    comment_end = ""
    context = LexerContext(source, 0, list(stack), len(source))
    for position, kind, text in ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context):
        # `context` has the state before a rule's match; the later tokens of the same match stand behind its `pos`.
        if position and position == context.pos and source[position - 1] == "\n":
            settled = position
            stack = list(context.stack)
        opening = next((sign for sign in comments if source.startswith(sign, position)), "")
        if opening and text and not _is_in_text(kind):
            # The lexer took the sign for something else, since the end is not written yet.
            comment_end = comments[opening]
            tokens.append((position, Comment, source[position:]))
            break
        tokens.append((position, kind, text))
    if len(stack) > _DEEPEST:
        raise StopWork
    if not comment_end and source.count("\n") > _MAX_AGAIN:
        settled = len(source)
    return _coloured_lines(tokens), source.count("\n", 0, settled), stack, comment_end


def _is_in_text(kind: _TokenType) -> bool:
    """Whether a token is in a comment or a string, where no comment begins; a regular expression is not one."""
    wider = kind.split()
    return (Comment in wider or String in wider) and String.Regex not in wider


@lru_cache(256)
def _lexer_class(language: str) -> type[Lexer] | None:
    """Return the lexer of a language; None for an unknown one."""
    try:
        return find_lexer_class_by_name(language)
    except ClassNotFound:
        return None


@cache
def _comments_of(kind: type[Lexer]) -> dict[str, str]:
    """Return those of `_COMMENTS` that a language has."""
    return {
        begin: end
        for begin, end in _COMMENTS.items()
        if any(Comment in kind.split() for _, kind, _ in kind().get_tokens_unprocessed(f"{begin} x {end}"))
    }


@cache
def _keeps_state(kind: type[Lexer]) -> bool:
    """Return whether all of a lexer's state is the stack of its rules: its rules have no functions of their own."""
    if not issubclass(kind, RegexLexer) or issubclass(kind, ExtendedRegexLexer):
        return False
    states: dict[str, list[tuple[object, Callable[..., object] | None, object]]] = getattr(kind, "_tokens", {})
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
