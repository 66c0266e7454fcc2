"""Turns growing text into blocks, a bounded step at a time: what cannot change any more is never parsed again."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, pieces
from rdchat.ui.transcript.markdown.parser import FENCE, Parsed, Parser, code_line

# characters and lines
STEP = 4096, 60  # parsed in a step, unless a block is longer
LONGEST_OPEN = 8192, 240  # of a block that stays open; a longer one is closed where it stands
_LONG_LIST = 2048, 40  # of an open list whose items but the last are settled
_MOST_CELLS = 160  # in what is parsed at once, as far as a line's end allows
_MOST_FORMULAS = 80  # written in a step, as far as a block's end allows: each takes up to half a millisecond
_LINES_A_STEP = 100


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the blocks from `first` on.

    Attributes:
        first: Place of the first block that may differ.
        blocks: All blocks from there to the end.
        closed: Code blocks that are complete now.
        more: There is text that has not been looked at: call again.
    """

    first: int
    blocks: list[Block]
    closed: list[int]
    more: bool


@dataclass(slots=True)
class _Fence:
    """An open top-level code block; its lines go straight to blocks."""

    indent: int
    mark: str
    language: str
    number: int
    lines: int = 0
    end: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        self.end = re.compile(rf" {{0,3}}{re.escape(self.mark[0])}{{{len(self.mark)},}}[ \t]*$")

    def blocks(self, line: str) -> list[Block]:
        spaces = len(line) - len(line.lstrip(" "))
        line = line[min(spaces, self.indent) :]
        return code_line(line, self.number, self.language, first=not self.lines)


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
        self._offset = 0
        self._settled = 0
        self._unwritten: list[Block] = []  # settled, and told by no update yet
        self._closed: list[int] = []
        self._codes = 0
        self._fence: _Fence | None = None
        self._number: int | None = None
        self._table = ""  # the first two lines of a table that goes on
        self._known = len(self._references)
        self._checked = -1
        self._last: tuple[tuple[str, int, int | None], Parsed] | None = None

    def advance(self, text: str, final: bool) -> Update:
        """Take one step.

        Args:
            text: Safe text (`safe_text`) that starts with the text of the step before.
            final: It will not grow any more.
        """
        first, tail = self._settled, None
        if not self._unwritten:
            self._open_fence(text, final)
            read = self._fenced if self._fence else self._parsed
            tail = read(text, final, self._unwritten, self._closed)
        count = _for_a_step(self._unwritten)
        blocks, self._unwritten = self._unwritten[:count], self._unwritten[count:]
        self._settled = first + count
        if self._unwritten:
            return Update(first, blocks, [], True)
        closed, self._closed = self._closed, []
        more = tail is None
        if final and not more and len(self._references) > self._known:
            self._restart()  # links may use definitions that came after them
            more = True
        return Update(first, blocks + (tail or []), closed, more)

    def _open_fence(self, text: str, final: bool) -> None:
        opening = None if self._fence else FENCE.match(text, self._offset)
        if opening and (opening[0].endswith("\n") or final):
            words = opening[3].split(maxsplit=1)
            self._fence = _Fence(len(opening[1]), opening[2], words[0] if words else "", self._codes)
            self._codes += 1
            self._offset = opening.end()

    def _fenced(self, text: str, final: bool, blocks: list[Block], closed: list[int]) -> list[Block] | None:
        """Settle complete lines of the open code block; return the open tail, or None when there is more to do."""
        fence = self._fence
        assert fence is not None
        for _ in range(_LINES_A_STEP):
            end = text.find("\n", self._offset)
            complete = end >= 0 or (final and self._offset < len(text))
            line = text[self._offset : end if end >= 0 else len(text)]
            if not complete and not final:
                shown = "" if fence.end.match(line) else line
                return fence.blocks(shown) if shown or not fence.lines else []
            if not complete or fence.end.match(line):
                if not fence.lines:
                    blocks += fence.blocks("")
                self._offset = end + 1 if end >= 0 else len(text)
                self._fence = None
                closed.append(fence.number)
                return None if self._offset < len(text) else []
            blocks += fence.blocks(line)
            fence.lines += 1
            self._offset = end + 1 if end >= 0 else len(text)
        return None

    def _parsed(self, text: str, final: bool, blocks: list[Block], closed: list[int]) -> list[Block] | None:
        """Settle what cannot change any more; return the open tail, or None when there is more to do."""
        window = self._window(text, STEP)
        if self._offset + len(window) < len(text) and self._settle(window, blocks, closed):
            return None
        window = self._window(text, LONGEST_OPEN)
        if self._offset + len(window) < len(text):
            if not self._settle(window, blocks, closed):
                self._close_here(window, blocks, closed)
            return None
        if not final:
            self._settle(window, blocks, closed)
            opening = FENCE.match(text, self._offset)
            if opening and opening[0].endswith("\n"):
                return None
        parsed = self._parse(text[self._offset :])
        fence = parsed.starts[-1][0] if parsed.starts else 0
        if final and fence and FENCE.match(_lines_from(text[self._offset :], fence)):
            self._checked = -1
            self._settle(text[self._offset :] + "\n", blocks, closed)
            return None
        if final:
            self._take(parsed, len(parsed.blocks), blocks, closed)
            self._offset = len(text)
            return []
        return parsed.blocks

    def _window(self, text: str, size: tuple[int, int]) -> str:
        """Return what comes next of the text, up to so many characters and lines, and not too many table cells."""
        window = text[self._offset : self._offset + size[0]]
        if window.count("\n") > size[1]:
            window = window[: _line_start(window, size[1])]
        while window.count("|") > _MOST_CELLS and (half := window.rfind("\n", 0, len(window) * 3 // 4)) >= 0:
            window = window[: half + 1]
        return window

    def _parse(self, source: str) -> Parsed:
        key = self._table + source, self._codes, self._number
        if self._last is None or self._last[0] != key:  # a block that is too long is parsed, then closed as it is
            parsed = self._parser.parse(self._table + source, self._codes, self._references, self._number)
            self._last = key, _without_head(parsed) if self._table else parsed
        return self._last[1]

    def _settle(self, window: str, blocks: list[Block], closed: list[int]) -> bool:
        """Settle the blocks before the last one that a complete line starts. Whether there were any."""
        complete = window[: window.rfind("\n") + 1]
        end = self._offset + len(complete)
        if not complete or end == self._checked:
            return False
        self._checked = end
        parsed = self._parse(complete)
        line, count, number = 0, 0, None
        if len(parsed.starts) > 1:
            line, count = parsed.starts[-1]
        elif parsed.last_item and (len(complete) > _LONG_LIST[0] or complete.count("\n") > _LONG_LIST[1]):
            line, count, number = parsed.last_item
        if not line:
            return False
        self._take(parsed, count, blocks, closed)
        self._number = number
        self._offset += len(complete) - len(_lines_from(complete, line))
        return True

    def _close_here(self, window: str, blocks: list[Block], closed: list[int]) -> None:
        """End a block that grew too long for being parsed again and again."""
        complete = window[: window.rfind("\n") + 1]
        if complete:
            parsed = self._parse(complete)
            table = self._table_head(complete, parsed)
            self._take(parsed, len(parsed.blocks), blocks, closed)
            self._table = table
            self._offset += len(complete)
        else:
            cut = pieces(window)[0]
            blocks.append(Block(Kind.TEXT, (Run(cut),), tight=True))
            self._offset += len(cut)

    def _table_head(self, complete: str, parsed: Parsed) -> str:
        """Return the first two lines of the table that a piece ends in; nothing where it ends otherwise."""
        last = parsed.blocks[-1] if parsed.blocks else None
        if last is None or last.kind is not Kind.TABLE or last.indent or last.quotes:
            return ""
        if last.joined and len(parsed.blocks) == 1:
            return self._table
        lines = _lines_from(complete, parsed.starts[-1][0]).split("\n", 2)
        return "\n".join([*lines[:2], ""])

    def _take(self, parsed: Parsed, count: int, blocks: list[Block], closed: list[int]) -> None:
        taken = parsed.blocks[:count]
        blocks += taken
        self._codes = max([self._codes, *(block.code + 1 for block in taken)])
        closed += [number for number in parsed.closed if number < self._codes]
        self._references = parsed.references
        self._number = None
        self._table = ""
        self._last = None


def _without_head(parsed: Parsed) -> Parsed:
    """Return what was parsed behind the first two lines of a table, without them."""
    table, *others = parsed.blocks
    gone = 0
    if table.kind is Kind.TABLE:
        gone = 0 if table.rows[1:] else 1
        others = [*([] if gone else [replace(table, rows=table.rows[1:], joined=True)]), *others]
    else:
        others = parsed.blocks
    starts = [(max(0, line - 2), max(0, place - gone)) for line, place in parsed.starts[gone:]]
    return replace(parsed, blocks=others, starts=starts)


def _for_a_step(blocks: list[Block]) -> int:
    """Return how many blocks are written in a step: one at least, and not too many formulas."""
    formulas = 0
    for count, block in enumerate(blocks):
        formulas += sum(1 for run in block.runs if run.maths)
        if count and formulas > _MOST_FORMULAS:
            return count
    return len(blocks)


def _lines_from(source: str, line: int) -> str:
    return source[_line_start(source, line) :]


def _line_start(source: str, line: int) -> int:
    start = 0
    for _ in range(line):
        start = source.index("\n", start) + 1
    return start
