"""The blocks that Markdown is parsed into: a flat list of frozen values that can be compared."""

import re
from dataclasses import dataclass
from enum import Enum, auto

LINE_LIMIT = 4000
"""Characters in one block of plain text or code, because Qt lays out a block as a whole."""
# A line feed counts as so many characters, because Qt lays out empty lines too.
_LINE_FEED = 25
# QTextDocument uses the first ones for its own structure; a lone surrogate is no character at all.
_UNSAFE = re.compile("[\0\ufdd0\ufdd1\ufffc\u2029\ud800-\udfff]")


class Kind(Enum):
    """The kind of a block. Each line of code is a block, so that a growing code block only gains blocks."""

    TEXT = auto()
    HEADING = auto()
    CODE = auto()
    RULE = auto()
    TABLE = auto()
    MATHS = auto()


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of the same style.

    Attributes:
        text: The characters; a line feed breaks the line. Of a formula, its source with its signs.
        href: The address that a click opens.
        refused: An address that is never opened.
        maths: The TeX of a formula.
        display: Whether the formula is on a line of its own.
        undrawn: Whether the text is the source of a formula that cannot be drawn.
        raised: Whether the text is the mark of a footnote, such as `[1]`.
    """

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    href: str = ""
    refused: str = ""
    maths: str = ""
    display: bool = False
    undrawn: bool = False
    raised: bool = False


Cell = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One paragraph, heading, code line, rule, table or formula.

    Attributes:
        level: The level of a heading, 1 to 6.
        nesting: `l` for each list and `q` for each quote around the block, the outermost first.
        marker: The bullet or number before the first block of a list item.
        tight: Whether the block stands close under the one above it.
        code: The number of the code block that a code line belongs to.
        joined: Whether the block continues the one above: the same code line, table or paragraph.
        language: The language of the code block, as written.
        rows: The rows of a table, the header row first.
        alignments: The alignment of each column of a table: `left`, `center`, `right` or empty.
    """

    kind: Kind
    runs: tuple[Run, ...] = ()
    level: int = 0
    nesting: str = ""
    marker: str = ""
    tight: bool = False
    code: int = -1
    joined: bool = False
    language: str = ""
    rows: tuple[tuple[Cell, ...], ...] = ()
    alignments: tuple[str, ...] = ()

    @property
    def quotes(self) -> int:
        """How many quotes it is in."""
        return self.nesting.count("q")

    @property
    def indent(self) -> int:
        """How many lists it is in."""
        return self.nesting.count("l")


def safe_text(text: str) -> str:
    """Replace code points that are not characters, and those that QTextDocument would treat as structure."""
    return _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def display_end(text: str, room: int) -> int:
    """Return where the beginning of a text ends that has `room` characters; a line feed counts as more than one."""
    end = 0
    while (feed := text.find("\n", end)) >= 0 and feed + 1 + _LINE_FEED <= room:
        room -= _LINE_FEED
        end = feed + 1
    # What the line feeds took is off the room, so that it is a position in the text now.
    return min(len(text), room)


def pieces(line: str) -> list[str]:
    """Cut a line into pieces of at most `LINE_LIMIT` characters, at spaces where there are any."""
    parts = []
    while len(line) > LINE_LIMIT:
        cut = line.rfind(" ", LINE_LIMIT // 2, LINE_LIMIT) + 1 or LINE_LIMIT
        parts.append(line[:cut])
        line = line[cut:]
    return [*parts, line]


def columns_of(block: Block) -> int:
    """Estimate the width of a line of code in columns: characters of East Asia and emoji take two."""
    text = "".join(run.text for run in block.runs)
    if not text.isascii():
        return sum(2 if character > "\u10ff" else 1 for character in text.expandtabs(4))
    return len(text.expandtabs(4))


def formulas_of(block: Block) -> list[Run]:
    """Return the formulas of a block, those in a table's cells too."""
    cells = (cell for row in block.rows for cell in row)
    return [run for runs in (block.runs, *cells) for run in runs if run.maths]
