"""Parses a text that grows: only its last open block is parsed again, and never more than a bounded piece at once.

A block is settled when what follows cannot change it any more: it is not parsed again. A block that gets too long is
cut at a line, and goes on as a further block with `joined`, so that each step has a bound.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, pieces
from rdchat.ui.transcript.markdown.parser import Parsed, Parser, code_line
from rdchat.ui.transcript.markdown.syntax import FENCE, OpenFence

# Work is counted in characters; lines, cells and formulas cost more than their characters do.

# Work of a step, unless one block takes more.
_STEP = 7_700
# The most work of the open block; one that takes more is cut, and goes on as a further block.
_MAX_OPEN = 22_600
# The longest line that is parsed as one, in characters.
_LONGEST_LINE = 8192
# Work of a line, and of each sign that separates cells or begins a formula or a command.
_LINE = 60
_COSTLY = 25
_COSTLY_SIGNS = "|$\\"
# When an open list has more characters, all its items but the last are final.
_LONG_LIST = 1000
# Lines of code in a step.
_CODE_LINES = 100


@dataclass(slots=True)
class Update:
    """What one step changes: the blocks from `first` on are replaced.

    Attributes:
        first: Index of the first block that may differ.
        blocks: All blocks from there to the end.
        closed: Numbers of the code blocks that are complete now.
        open_code: Number of the code block that the text ends in.
        settled: Number of the blocks that cannot change any more.
        more: Whether there is text that has not been read: call again.
    """

    first: int
    blocks: list[Block] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    open_code: int = -1
    settled: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where the open tail of a text begins, and which settled block it continues.

    Attributes:
        offset: Where it begins in the text.
        first_code: The number that the next code block gets.
        number: The number of the list item that it begins with; None outside of lists.
        table: The first two lines of the table that it continues; empty for none.
        joined: Whether a paragraph that it begins with continues the block above.
    """

    offset: int = 0
    first_code: int = 0
    number: int | None = None
    table: str = ""
    joined: bool = False


@dataclass(slots=True)
class _OpenCode:
    """An open top-level code block; its lines become blocks without being parsed."""

    indent: int
    number: int
    fence: OpenFence
    lines: int = 0

    def blocks(self, line: str) -> list[Block]:
        """Return the blocks of a line, less as many spaces at its beginning as the fence has."""
        spaces = len(line) - len(line.lstrip(" "))
        return code_line(line[min(spaces, self.indent) :], self.number, self.fence.language, first=not self.lines)


class BlockStream:
    """One text as it grows.

    The source splits into a settled part, whose blocks cannot change, and an open tail that is parsed again as it
    grows. A top-level block is settled when a complete line starts another one after it.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._references: dict[str, Any] = {}
        self._restart()

    def _restart(self) -> None:
        self._tail = _Tail()
        # The number of settled blocks.
        self._settled = 0
        self._code: _OpenCode | None = None
        # The number of link definitions that were known before the first block was parsed: the second reading of a text
        # knows all of them, and finds no more, so there is no third.
        self._known = len(self._references)
        # Where the complete lines ended that `_settle` looked at last. At the end of the text, it looks again once
        # there are more of them.
        self._checked = -1
        # The tail and the source that were parsed last, with the result: steps often parse the same source again.
        self._last: tuple[_Tail, str, Parsed] | None = None

    def advance(self, text: str, final: bool) -> Update:
        """Take one step: settle blocks of the tail, or parse all of the tail if nothing there can be settled.

        The tail is a code block (`_read_code`) or anything else (`_read_blocks`). A final text with link definitions
        is read twice, as a link may stand above its definition.

        Args:
            text: Safe text (`safe_text`) that starts with the text of the step before.
            final: Whether it has ended.
        """
        update = Update(self._settled)
        self._open_code(text, final)
        read = self._read_code if self._code else self._read_blocks
        tail = read(text, final, update)
        # So far the update has only settled blocks; the open ones follow them. None says that there is more to do.
        self._settled += len(update.blocks)
        update.open_code = self._code.number if self._code else -1
        update.settled = self._settled
        update.blocks += tail or []
        update.more = tail is None
        if final and not update.more and len(self._references) > self._known:
            # Links may use definitions that come after them: read all again, with the definitions.
            self._restart()
            update.more = True
        return update

    def _open_code(self, text: str, final: bool) -> None:
        """Open a code block if the tail begins with the complete line of a fence."""
        opening = None if self._code else FENCE.match(text, self._tail.offset)
        if opening and (opening[0].endswith("\n") or final):
            language = (opening[3].split(maxsplit=1) or [""])[0]
            number = self._tail.first_code
            self._code = _OpenCode(len(opening[1]), number, OpenFence(opening[2], language))
            self._tail = _Tail(opening.end(), number + 1)

    def _read_code(self, text: str, final: bool, update: Update) -> list[Block] | None:
        """Settle complete lines of the open code block; return the open tail, or None if there is more to do.

        A line without its line feed is the open tail, unless the text is final. The fence that closes the block, or
        could become that, is no line of code; the end of a final text closes it too. A block without lines gets an
        empty one.
        """
        code = self._code
        assert code is not None
        for _ in range(_CODE_LINES):
            offset = self._tail.offset
            feed = text.find("\n", offset)
            line = text[offset : feed if feed >= 0 else len(text)]
            if feed < 0 and not final:
                line = "" if code.fence.is_end(line) else line
                return code.blocks(line) if line or not code.lines else []
            ends = offset == len(text) or code.fence.add_line(line)
            if not ends or not code.lines:
                update.blocks += code.blocks("" if ends else line)
            code.lines += 1
            self._tail = _Tail(feed + 1 if feed >= 0 else len(text), self._tail.first_code)
            if ends:
                self._code = None
                self._checked = -1
                update.closed.append(code.number)
                return None if self._tail.offset < len(text) else []
        return None

    def _read_blocks(self, text: str, final: bool, update: Update) -> list[Block] | None:
        """Settle what cannot change any more; return the open tail, or None if there is more to do."""
        # A larger window is parsed only if nothing can be settled in the usual one. Behind the loop, its variables are
        # those of the last window.
        for limit in (_STEP, _MAX_OPEN):
            window = self._window(text, limit)
            following = text[self._tail.offset + len(window) :][:1]
            # The last line of a final text counts as complete.
            ends = final and not following and bool(window) and not window.endswith("\n")
            source = f"{window}\n" if ends else window
            if self._settle(source, following, update, longest=limit == _MAX_OPEN):
                return None
            if not following:
                break
        if following:
            # Nothing was settled, so there is no line feed: one line fills the longest window. A piece of it is a text.
            piece = pieces(window)[0]
            update.blocks.append(Block(Kind.TEXT, (Run(piece),), tight=True))
            self._tail = replace(self._tail, offset=self._tail.offset + len(piece))
            return None
        parsed = self._parse(source)
        if not final:
            return parsed.blocks
        self._settle_first(parsed, len(parsed.blocks), len(window), update)
        return []

    def _window(self, text: str, limit: int) -> str:
        """Return the next lines, at least one, that take so much work at the most."""
        begin = self._tail.offset
        end = begin
        work = 0
        while end < len(text):
            longest = min(len(text), end + _LONGEST_LINE)
            line_end = text.find("\n", end, longest) + 1 or longest
            work += line_end - end + _LINE + _COSTLY * sum(text.count(sign, end, line_end) for sign in _COSTLY_SIGNS)
            if work > limit and end > begin:
                break
            end = line_end
            if text[end - 1] != "\n":
                break
        return text[begin:end]

    def _parse(self, source: str) -> Parsed:
        tail = self._tail
        if self._last is None or self._last[:2] != (tail, source):
            parsed = self._parser.parse(tail.table + source, tail.first_code, self._references, tail.number)
            if tail.table:
                parsed = _without_head(parsed)
            elif tail.joined and parsed.blocks and _is_paragraph(parsed.blocks[0]):
                parsed.blocks[0] = replace(parsed.blocks[0], tight=True, joined=True)
            self._last = tail, source, parsed
        return self._last[2]

    def _settle(self, window: str, following: str, update: Update, *, longest: bool) -> bool:
        """Settle as much as possible of a window, the beginning of the tail; return whether that was anything.

        Its complete lines are parsed, unless there are none, or no more than at the last search. The first case that
        applies:

        1. There are several top-level blocks: all but the last are settled, since a complete line begins that one.
        2. There is one long list: all its items but the last are settled.
        3. One block fills the window: it is cut behind the last complete line, and goes on in the tail. A block other
           than a table or a paragraph is cut only in the longest window.

        Args:
            window: Some lines, of which the last one may be incomplete.
            following: The first character behind the window; empty at the end of the text.
            update: Gets the settled blocks.
            longest: Whether the window has as many lines as the open block may have.
        """
        complete = window[: window.rfind("\n") + 1]
        end = self._tail.offset + len(complete)
        if not complete or (end == self._checked and not following):
            return False
        self._checked = end
        parsed = self._parse(complete)
        blocks = parsed.blocks
        number: int | None = None
        can_be_cut = longest or all(block.kind is Kind.TABLE or _is_paragraph(block) for block in blocks)
        if len(parsed.starts) > 1:
            line, count = parsed.starts[-1]
        elif parsed.last_item and parsed.last_item[0] and len(complete) > _LONG_LIST:
            line, count, number = parsed.last_item
        elif following and can_be_cut:
            next_is_blank = (window + following)[len(complete)] == "\n"
            joined = bool(blocks) and _is_paragraph(blocks[-1]) and not next_is_blank
            table = self._head_of_table(complete, parsed)
            self._settle_first(parsed, len(blocks), len(complete), update, table=table, joined=joined)
            return True
        else:
            return False
        self._settle_first(parsed, count, _line_start(complete, line), update, number=number)
        return True

    def _head_of_table(self, complete: str, parsed: Parsed) -> str:
        """Return the first two lines of the table that a piece ends in; nothing if it ends otherwise.

        The rows that follow are parsed behind these lines, without which they would not be read as a table.
        """
        last = parsed.blocks[-1] if parsed.blocks else Block(Kind.TEXT)
        if last.kind is not Kind.TABLE or last.nesting:
            return ""
        if last.joined and len(parsed.blocks) == 1:
            # The piece has only rows of the table that the tail continues: its head stands further up.
            return self._tail.table
        return "\n".join([*complete[_line_start(complete, parsed.starts[-1][0]) :].split("\n", 2)[:2], ""])

    def _settle_first(
        self,
        parsed: Parsed,
        count: int,
        length: int,
        update: Update,
        *,
        number: int | None = None,
        table: str = "",
        joined: bool = False,
    ) -> None:
        """Settle the first `count` blocks, whose source has `length` characters; the new tail begins behind it.

        `number`, `table` and `joined` are those of the new `_Tail`.
        """
        settled = parsed.blocks[:count]
        update.blocks += settled
        next_code = max([self._tail.first_code, *(block.code + 1 for block in settled)])
        update.closed += [code for code in parsed.closed if code < next_code]
        self._references = parsed.references
        self._tail = _Tail(self._tail.offset + length, next_code, number, table, joined)


def _is_paragraph(block: Block) -> bool:
    return block.kind is Kind.TEXT and not (block.marker or block.indent or block.quotes)


def _without_head(parsed: Parsed) -> Parsed:
    """Return what was parsed behind the first two lines of a table, without them.

    Line numbers are less by those two lines. The table keeps the rows below its header, and `joined` says that they
    continue the table above; without such rows the block goes, and indices are less by one.
    """
    table, *others = parsed.blocks
    if table.kind is not Kind.TABLE:
        # It is a table too large to draw, which the parser shows as text.
        return replace(parsed, starts=[(max(0, line - 2), index) for line, index in parsed.starts])
    removed = 0 if table.rows[1:] else 1
    others = [*([] if removed else [replace(table, rows=table.rows[1:], joined=True)]), *others]
    starts = [(max(0, line - 2), max(0, index - removed)) for line, index in parsed.starts[removed:]]
    return replace(parsed, blocks=others, starts=starts)


def _line_start(source: str, line: int) -> int:
    """Return where a line begins in a text, by its number from 0."""
    return sum(len(above) + 1 for above in source.split("\n", line)[:line])
