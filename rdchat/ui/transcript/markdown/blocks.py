"""What markdown becomes before it is drawn: a flat list of frozen blocks that can be compared with each other."""

import re
from dataclasses import dataclass
from enum import Enum, auto

LINE_LIMIT = 4000  # characters in one block of plain text or code: Qt lays a block out as a whole
_OPENABLE = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)
# QTextDocument uses the first four for its own structure; a lone surrogate is no character at all
_UNSAFE = re.compile("[\0\ufdd0\ufdd1\ufffc\u2029\ud800-\udfff]")


class Kind(Enum):
    """What a block is. Code is one block a line, so that a growing code block only gains blocks."""

    TEXT = auto()
    HEADING = auto()
    CODE = auto()
    RULE = auto()
    TABLE = auto()
    MATHS = auto()


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look.

    Attributes:
        text: The characters; a line feed breaks the line.
        bold, italic, strike, code: The look.
        href: Where a click leads; empty for text.
        refused: An address that the text carries and that is never opened.
        raised: Small and above the line, as the mark of a footnote.
        maths: A formula's TeX; `text` is its source with its signs.
        display: A formula that stands on its own.
        undrawn: A formula's source, because it cannot be drawn.
    """

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    href: str = ""
    refused: str = ""
    raised: bool = False
    maths: str = ""
    display: bool = False
    undrawn: bool = False


Cell = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One paragraph, heading, code line, rule, table or formula.

    Attributes:
        kind: What it is.
        runs: Its text.
        level: Of a heading, 1 to 6.
        quotes: How many quotes it stands in.
        indent: How many lists it stands in.
        nesting: Where it stands in both: `l` for each list and `q` for each quote, the outermost first.
        marker: The bullet or number before the first block of a list item.
        note: Belongs to a footnote.
        tight: Stands close under the block above it.
        code: Which code block of the text a code line belongs to, from 0; -1 for other blocks.
        joined: Goes on where the block above ended: code without a line break, a table with more rows, a paragraph in
            the next line.
        language: That code block's language as written, often empty.
        rows: A table's cells, the header row first.
        alignments: A table's columns: `left`, `center`, `right` or empty.
    """

    kind: Kind
    runs: tuple[Run, ...] = ()
    level: int = 0
    quotes: int = 0
    indent: int = 0
    nesting: str = ""
    marker: str = ""
    note: bool = False
    tight: bool = False
    code: int = -1
    joined: bool = False
    language: str = ""
    rows: tuple[tuple[Cell, ...], ...] = ()
    alignments: tuple[str, ...] = ()


def is_openable(address: str) -> bool:
    """Whether a click may open the address: web and mail addresses only, never `javascript:` or `file:`."""
    return _OPENABLE.match(address) is not None


def safe_text(text: str) -> str:
    """Return the text with characters replaced that are none, or that QTextDocument would take for structure."""
    return _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def length_of(run: Run) -> int:
    """Return the run's length in the document, which counts UTF-16 units; a formula is one of them."""
    return 1 if run.maths else len(run.text) + sum(character > "\uffff" for character in run.text)


def pieces(line: str) -> list[str]:
    """Cut an overlong line into blocks, at spaces where there are any."""
    parts = []
    while len(line) > LINE_LIMIT:
        cut = line.rfind(" ", LINE_LIMIT // 2, LINE_LIMIT) + 1 or LINE_LIMIT
        parts.append(line[:cut])
        line = line[cut:]
    return [*parts, line]


def columns_of(block: Block) -> int:
    """Estimate how wide a line of code is: characters of East Asia and emoji take two columns."""
    text = "".join(run.text for run in block.runs)
    if not text.isascii():
        return sum(2 if character > "\u10ff" else 1 for character in text.expandtabs(4))
    return len(text.expandtabs(4))


def formulas_of(block: Block) -> list[Run]:
    """Return the formulas of a block, those in a table's cells too."""
    cells = (cell for row in block.rows for cell in row)
    return [run for runs in (block.runs, *cells) for run in runs if run.maths]
