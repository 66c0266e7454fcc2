"""Parses a text that grows: only its last open block is parsed again, and never more than a bounded piece at once."""

from dataclasses import dataclass, field, replace
from typing import Any

from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, pieces
from rdchat.ui.transcript.markdown.parser import Parsed, Parser, code_line
from rdchat.ui.transcript.markdown.syntax import FENCE, OpenFence

# Work is counted in characters; lines, cells and formulas cost more than their characters do.

# Work of a step, unless a block is longer.
_STEP = 7_700
# Work of the open block; a longer one ends at once.
_MAX_OPEN = 22_600
# A longer line, in characters, is not parsed as one line.
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
    """Replace the blocks from `first` on.

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


@dataclass(slots=True)
class _Fence:
    """An open top-level code block; its lines become blocks without being parsed."""

    indent: int
    number: int
    open: OpenFence
    lines: int = 0

    def blocks(self, line: str) -> list[Block]:
        spaces = len(line) - len(line.lstrip(" "))
        return code_line(line[min(spaces, self.indent) :], self.number, self.open.language, first=not self.lines)


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
        # The tail begins at the offset, after the settled blocks and code blocks: perhaps with a numbered list item,
        # after the first two lines of a table, or joined to a paragraph. Nothing more can be settled up to `_checked`.
        self._offset = 0
        self._settled = 0
        self._codes = 0
        self._fence: _Fence | None = None
        self._number: int | None = None
        self._table = ""
        self._joined = False
        self._known = len(self._references)
        self._checked = -1
        self._last: tuple[str, Parsed] | None = None

    def advance(self, text: str, final: bool) -> Update:
        """Take one step.

        Args:
            text: Safe text (`safe_text`) that starts with the text of the step before.
            final: Whether it has ended.
        """
        update = Update(self._settled)
        self._open_fence(text, final)
        tail = (self._read_code if self._fence else self._read_blocks)(text, final, update)
        self._settled += len(update.blocks)
        update.open_code = self._fence.number if self._fence else -1
        update.settled = self._settled
        update.blocks += tail or []
        update.more = tail is None
        if final and not update.more and len(self._references) > self._known:
            # Links may use definitions that came after them.
            self._restart()
            update.more = True
        return update

    def _open_fence(self, text: str, final: bool) -> None:
        opening = None if self._fence else FENCE.match(text, self._offset)
        if opening and (opening[0].endswith("\n") or final):
            language = (opening[3].split(maxsplit=1) or [""])[0]
            self._fence = _Fence(len(opening[1]), self._codes, OpenFence(opening[2], language))
            self._codes += 1
            self._offset = opening.end()

    def _read_code(self, text: str, final: bool, update: Update) -> list[Block] | None:
        """Settle complete lines of the open code block; return the open tail, or None if there is more to do."""
        fence = self._fence
        assert fence is not None
        for _ in range(_CODE_LINES):
            end = text.find("\n", self._offset)
            complete = end >= 0 or (final and self._offset < len(text))
            line = text[self._offset : end if end >= 0 else len(text)]
            if not complete and not final:
                line = "" if fence.open.is_end(line) else line
                return fence.blocks(line) if line or not fence.lines else []
            ends = not complete or fence.open.add_line(line)
            if not ends or not fence.lines:
                update.blocks += fence.blocks("" if ends else line)
            fence.lines += 1
            self._offset = end + 1 if end >= 0 else len(text)
            if ends:
                self._fence = None
                self._checked = -1
                self._last = None
                update.closed.append(fence.number)
                return None if self._offset < len(text) else []
        return None

    def _read_blocks(self, text: str, final: bool, update: Update) -> list[Block] | None:
        """Settle what cannot change any more; return the open tail, or None if there is more to do."""
        window = ""
        source = ""
        for limit in (_STEP, _MAX_OPEN):
            window = self._window(text, limit)
            following = text[self._offset + len(window) :][:1]
            ends = final and not following and bool(window) and not window.endswith("\n")
            source = f"{window}\n" if ends else window
            if self._settle(source, following, update, longest=limit == _MAX_OPEN):
                return None
            if not following:
                break
        parsed = self._parse(source)
        if not final:
            return parsed.blocks
        self._take(parsed, len(parsed.blocks), len(window), update)
        return []

    def _window(self, text: str, limit: int) -> str:
        """Return the next lines, at least one, that take so much work at the most."""
        end = self._offset
        work = 0
        while end < len(text):
            longest = min(len(text), end + _LONGEST_LINE)
            line_end = text.find("\n", end, longest) + 1 or longest
            work += line_end - end + _LINE + _COSTLY * sum(text.count(sign, end, line_end) for sign in _COSTLY_SIGNS)
            if work > limit and end > self._offset:
                break
            end = line_end
            if text[end - 1] != "\n":
                break
        return text[self._offset : end]

    def _parse(self, source: str) -> Parsed:
        if self._last is None or self._last[0] != source:
            parsed = self._parser.parse(self._table + source, self._codes, self._references, self._number)
            if self._table:
                parsed = _without_head(parsed)
            elif self._joined and parsed.blocks and _is_paragraph(parsed.blocks[0]):
                parsed.blocks[0] = replace(parsed.blocks[0], tight=True, joined=True)
            self._last = source, parsed
        return self._last[1]

    def _settle(self, window: str, following: str, update: Update, *, longest: bool) -> bool:
        """Settle the blocks before the last one that a complete line starts; return whether there were any.

        Where more text is `following`, a single block ends where the window ends if that is the `longest` one. Tables
        and paragraphs are cut between two lines in any case, and go on in the tail.
        """
        complete = window[: window.rfind("\n") + 1]
        end = self._offset + len(complete)
        if not complete and following and longest:
            cut = pieces(window)[0]
            update.blocks.append(Block(Kind.TEXT, (Run(cut),), tight=True))
            self._offset += len(cut)
            return True
        if not complete or (end == self._checked and not following):
            return False
        self._checked = end
        parsed = self._parse(complete)
        if len(parsed.starts) > 1:
            line, count = parsed.starts[-1]
            self._take(parsed, count, _line_start(complete, line), update)
        elif parsed.last_item and parsed.last_item[0] and len(complete) > _LONG_LIST:
            line, count, number = parsed.last_item
            self._take(parsed, count, _line_start(complete, line), update)
            self._number = number
        elif following and (
            longest or all(block.kind is Kind.TABLE or _is_paragraph(block) for block in parsed.blocks)
        ):
            table = self._head_of_table(complete, parsed)
            continues = bool(parsed.blocks) and _is_paragraph(parsed.blocks[-1])
            self._take(parsed, len(parsed.blocks), len(complete), update)
            self._table = table
            self._joined = continues and (window + following)[len(complete)] != "\n"
        else:
            return False
        return True

    def _head_of_table(self, complete: str, parsed: Parsed) -> str:
        """Return the first two lines of the table that a piece ends in; nothing if it ends otherwise."""
        last = parsed.blocks[-1] if parsed.blocks else None
        if last is None or last.kind is not Kind.TABLE or last.indent or last.quotes:
            return ""
        if last.joined and len(parsed.blocks) == 1:
            return self._table
        return "\n".join([*complete[_line_start(complete, parsed.starts[-1][0]) :].split("\n", 2)[:2], ""])

    def _take(self, parsed: Parsed, count: int, length: int, update: Update) -> None:
        """Settle the first `count` blocks, whose source has `length` characters."""
        taken = parsed.blocks[:count]
        update.blocks += taken
        self._codes = max([self._codes, *(block.code + 1 for block in taken)])
        update.closed += [number for number in parsed.closed if number < self._codes]
        self._references = parsed.references
        self._number = None
        self._table = ""
        self._joined = False
        self._last = None
        self._offset += length


def _is_paragraph(block: Block) -> bool:
    return block.kind is Kind.TEXT and not (block.marker or block.indent or block.quotes)


def _without_head(parsed: Parsed) -> Parsed:
    """Return what was parsed behind the first two lines of a table, without them."""
    table, *others = parsed.blocks
    if table.kind is not Kind.TABLE:
        return replace(parsed, starts=[(max(0, line - 2), index) for line, index in parsed.starts])
    removed = 0 if table.rows[1:] else 1
    others = [*([] if removed else [replace(table, rows=table.rows[1:], joined=True)]), *others]
    starts = [(max(0, line - 2), max(0, index - removed)) for line, index in parsed.starts[removed:]]
    return replace(parsed, blocks=others, starts=starts)


def _line_start(source: str, line: int) -> int:
    return sum(len(each) + 1 for each in source.split("\n", line)[:line])
