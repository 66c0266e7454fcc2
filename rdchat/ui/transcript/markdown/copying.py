"""Writes blocks as Markdown, plain text, HTML or CSV, for copies of messages and selections; cuts out what is selected.

Markdown is written from the blocks, not copied from the message: a selection may begin inside a list or a table. What
the parser would read as something else is escaped. Positions are in UTF-16 units, as QTextDocument counts. Rich text is
HTML for word processors and mail programs, which keep their own fonts and colours. Formats are inline, as style sheets
do not survive a paste. Not tried on a Mac with Pages, Word or Mail.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import groupby, takewhile
from typing import Any

from PySide6.QtCore import QMimeData, QStringListModel
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextTable

from rdchat.errors import without_controls
from rdchat.ui.transcript.markdown.block_stream import BlockStream
from rdchat.ui.transcript.markdown.blocks import Block, Cell, Kind, Run, safe_text
from rdchat.ui.transcript.markdown.parser import MarkdownParser, Parser
from rdchat.ui.transcript.markdown.text_formats import column_step
from rdchat.wording import utf16_length

# The markers of a task in blocks and in Markdown.
_TASKS = {"☐": "- [ ]", "☑": "- [x]"}
# The kinds whose text can be selected in part.
_IN_LINES = {Kind.TEXT, Kind.HEADING, Kind.CODE}
# In characters of Markdown; a longer text is copied as plain text only.
_MAX_RICH = 200_000
_MONO = "font-family: Menlo, Consolas, monospace"
_CELL = "border: 1px solid #c8c8cc; padding: 3px 8px"
# The tags of plain HTML, and the same with styles.
_STYLED = {
    "<pre><code": f'<pre style="{_MONO}; background-color: #f4f4f5; padding: 8px; white-space: pre-wrap"><code',
    "<code>": f'<code style="{_MONO}">',
    "<blockquote>": '<blockquote style="margin-left: 12px; padding-left: 10px; border-left: 3px solid #c8c8cc">',
    "<table>": '<table style="border-collapse: collapse">',
    "<th>": f'<th style="{_CELL}; text-align: left">',
    "<td>": f'<td style="{_CELL}; text-align: left">',
    '<th style="text-align:': f'<th style="{_CELL}; text-align: ',
    '<td style="text-align:': f'<td style="{_CELL}; text-align: ',
    "<li>[x] ": '<li style="list-style-type: none">☑ ',
    "<li>[ ] ": '<li style="list-style-type: none">☐ ',
}

# The marks of emphasis around a text, such as `**`, and the text.
_Unit = tuple[list[str], str]
# The marks of bold and of italic text, in the order in which they are tried.
_STYLES = (("**", "*"), ("**", "_"), ("__", "*"))
# Signs that Markdown may read as marks. `[` is not one of them: escaped, it would begin a formula.
_SPECIAL = re.compile(r"[\\`*~\]<&$]|!\Z|:(?=//)|(?<![^\W_])_|_(?![^\W_])")
# Spaces that Markdown drops, and what it may read as another block at the start of a line.
_SPACE = re.compile(r"^\s|[^\S\n]$|\n\Z", re.MULTILINE)
_LINE_START = re.compile(r"^(\d{0,9})([#+\-=>:|.)])|#(?=#*$)", re.MULTILINE)
# What `is_formula` returns; the exceptions are in the order of its list. `N` stands for a number, which the possessive
# `*+` keeps whole.
_FORMULA = re.compile(
    r"""
    (?! [-=+@S][-=+@S\s]*+(?![\w"'(\[{$#\\]|[.,]\d)
    | [-+S]\s*+[$€£¥]?+\s*+N\Z | [-+S]\d\d?(?::\d\d){1,2}\Z
    | [+](?=(?:\D*\d){7,15}\D*\Z)[\d\s()./-]+\Z
    | [-+S]\s*+[$€£¥]?+\s*+(?!.*[|])N(?:\s*+[-+*/^&=<>S]\s*+[-+S]*+N)*+\s*+(?![-+*/^&=<>:!S]|\Z)
    | [-+S]\s+(?!.*\b[A-Za-z]{1,3}\d)[^\W\d_](?:[^(|\[{&=<>^*"$#!:]|[!:](?![\w'(]))*+\Z
    )[-=+@S\t\r]
    """.replace("S", "\uff0b\uff0d\uff1d\uff20").replace("N", r"(?:\d[\d.,]*+|[.,]\d++)(?:[eE][+-]?\d++)?+\s*+%*+"),
    re.VERBOSE | re.DOTALL,
)


def as_markdown(blocks: Sequence[Block]) -> str:
    """Return Markdown with the same meaning."""
    return _joined(blocks, MarkdownParser())


def as_plain(blocks: Sequence[Block]) -> str:
    """Return the visible text: bullets and numbers, but no Markdown marks; tabs between the cells of a table."""
    return _joined(blocks, None)


def _joined(blocks: Sequence[Block], parser: MarkdownParser | None) -> str:
    """Return blocks as Markdown that the parser reads alike, or as plain text without one.

    What stands before a line for the lists and quotes around it is its margin: `> ` for a quote (nothing in plain
    text), and for a list spaces as wide as the marker of its open item. The first line of an item has the marker in
    place of these spaces. Three blocks with the nesting `ql`, `qlq` and `ql` (see `Block`), of which the first and the
    last begin an item, are written as

        > - One
        >
        >   > A quote in the first item
        >
        > - Two
    """
    lines: list[str] = []
    # The marker of the open item of each list around the block, the outermost first; empty where it is not selected.
    markers: list[str] = []
    above: Block | None = None
    for block in _with_whole_code(blocks):
        shared = _shared_nesting(block, above) if above else ""
        # Of an item: what is around its list, and the quotes that it begins with.
        around_list, _, in_item = block.nesting.rpartition("l")
        if above is not None and not _stands_close(block, above):
            # The empty line has the margin of the lists and quotes that both blocks are in. Above the next item of a
            # list these are only those around the list: the quotes in the two items are not the same ones.
            is_next_item = block.marker and len(around_list) < len(shared)
            lines.append(_margin(around_list if is_next_item else shared, markers, parser).rstrip())
        # Lists that end with the block above, those that begin, and the item that begins.
        del markers[shared.count("l") :]
        markers += [""] * (block.indent - len(markers))
        if block.marker:
            markers[-1] = _marker(block, markers[-1]) if parser else block.marker
        for number, line in enumerate(_lines(block, parser)):
            margin = _margin(block.nesting, markers, parser)
            if number == 0 and block.marker:
                margin = f"{_margin(around_list, markers, parser)}{markers[-1]} {_margin(in_item, [], parser)}"
            lines.append(margin + line if line else margin.rstrip())
        above = block
    return "\n".join(lines)


def _with_whole_code(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks, with each code as one block of several lines.

    Among `blocks` each line of code is one, or several if it is overlong; those of one code have the same number.
    """
    for code, group in groupby(blocks, lambda block: block.code):
        if code < 0:
            yield from group
            continue
        first, *others = group
        text = _text_of(first)
        for block in others:
            text += _text_of(block) if block.joined else f"\n{_text_of(block)}"
        yield replace(first, runs=(Run(text),))


def _text_of(block: Block) -> str:
    return "".join(run.text for run in block.runs)


def _shared_nesting(block: Block, above: Block) -> str:
    """Return the lists and quotes that two blocks are both in, as in `Block.nesting`."""
    pairs = zip(block.nesting, above.nesting, strict=False)
    return "".join(letter for letter, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _stands_close(block: Block, above: Block) -> bool:
    """Whether no empty line stands between two blocks.

    Below a text, the `-` of an empty item would make a heading of the text.
    """
    is_empty_item = block.kind is Kind.TEXT and not block.runs and above.runs and block.indent != above.indent
    return block.joined or (block.tight and not is_empty_item)


def _margin(nesting: str, markers: Sequence[str], parser: MarkdownParser | None) -> str:
    """Return what stands before a line in lists and quotes: `> `, and spaces as wide as a list's marker."""
    # Of `- [ ]`, only the hyphen counts.
    widths = iter(2 if marker.startswith("-") else len(marker) + bool(marker) for marker in markers)
    quote = "> " if parser else ""
    return "".join(quote if letter == "q" else " " * next(widths) for letter in nesting)


def _marker(block: Block, before: str) -> str:
    """Return an item's marker in Markdown, below an item with the marker `before`.

    Where the numbers do not go on from that, another list begins, which takes the other delimiter: `)` for `.`.
    """
    if not block.marker.endswith("."):
        return _TASKS.get(block.marker, "-")
    number = block.marker[:-1]
    delimiter = before[-1:]
    if not before[:-1].isdecimal():
        return block.marker
    if int(number) != int(before[:-1]) + 1:
        delimiter = ")" if delimiter == "." else "."
    return number + delimiter


def _fence(code: str, language: str) -> str:
    """Return a fence that no line of a code would close."""
    sign = "~" if "`" in language else "`"
    return sign * max(3, 1 + max(map(len, re.findall(f"{sign}+", code)), default=0))


def _lines(block: Block, parser: MarkdownParser | None) -> Iterator[str]:
    """Yield the lines of a block, without what lists and quotes put before them."""
    match block.kind:
        case Kind.CODE if parser:
            fence = _fence(_text_of(block), block.language)
            yield fence + block.language
            yield from _text_of(block).split("\n")
            yield fence
        case Kind.RULE:
            yield ("***" if block.nesting else "---") if parser else "—" * 3
        case Kind.TABLE:
            yield from _table(block, parser)
        case _ if parser and block.kind in {Kind.TEXT, Kind.HEADING} and not _is_as_typed(block):
            item = "- " if block.marker else ""
            meaning = [(block.kind, block.level, normal(block.runs))]

            def means_the_same(text: str) -> bool:
                read = parser.parse((item + _heading(block, text)).replace("\n", f"\n{' ' * len(item)}"), 0, {}, None)
                return [(each.kind, each.level, normal(each.runs)) for each in read.blocks] == meaning

            yield from _heading(block, written_runs(block.runs, means_the_same)).split("\n")
        case _:
            yield from _text_of(block).split("\n")


def _is_as_typed(block: Block) -> bool:
    """Whether a block is a line of a prompt, of a text too long to be read as Markdown, or of too large a table.

    The parsers give these lines as texts that are tight, in no list or quote, and continue nothing. Other tight texts
    are in a list or quote, or continue the text above.
    """
    return block.kind is Kind.TEXT and block.tight and not (block.joined or block.nesting)


def _heading(block: Block, text: str) -> str:
    """Return a text as a heading of the block's level; level 0 is a paragraph."""
    if block.level and "\n" in text:
        return f"{text}\n{'=-'[block.level - 1] * 3}"
    return f"{'#' * block.level} {text}" if block.level else text


def _table(block: Block, parser: MarkdownParser | None) -> Iterator[str]:
    for index, row in enumerate(block.rows):
        cells = [_cell(cell, parser) for cell in row]
        yield f"| {' | '.join(cells)} |" if parser else "\t".join(cells)
        if parser and index == 0 and not block.joined:
            rules = {"left": ":--", "center": ":-:", "right": "--:"}
            yield f"| {' | '.join(rules.get(each, '---') for each in block.alignments)} |"


def csv_of(table: Block) -> bytes:
    """Return a table as CSV in UTF-8, with the mark that Excel needs. A formula gets an apostrophe."""
    text = io.StringIO()
    rows = ([_cell(cell, None) for cell in row] for row in table.rows)
    csv.writer(text).writerows([f"'{cell}" if is_formula(cell) else cell for cell in row] for row in rows)
    return text.getvalue().encode("utf-8-sig")


def is_formula(cell: str) -> bool:
    """Return whether a spreadsheet would take a cell of a CSV file for a formula.

    OWASP's rule for CSV marks each cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return, in full width
    too. Excel reads a cell that begins with a sign as a formula if it can be one, else as text. So of OWASP's cells
    these stay as they are, since they are no formulas by their syntax, or compute nothing from cells or programs:

    - signs without an operand behind them: `-`, `+/- 5`, `-> next`;
    - a number, an amount or a time: `-5`, `-$1,000`, `+02:00`;
    - `+` and 7 to 15 digits in groups, as telephone numbers are written, although Excel may subtract the groups;
    - numbers and then a word, a unit or another number without an operator: `-5 °C`, `-10 to -5`, `+49 170 1234567`;
    - an item of a list: a sign, a blank, and words without references to cells and without signs of calls.
    """
    return _FORMULA.match(cell) is not None


def _cell(runs: Cell, parser: MarkdownParser | None) -> str:
    if parser is None:
        return " ".join(re.split("[\n\t]", "".join(run.text for run in runs)))

    def means_the_same(text: str) -> bool:
        blocks = parser.parse(f"| {_in_cell(text)} |\n|---|", 0, {}, None).blocks
        return normal(blocks[0].rows[0][0] if blocks[0].rows else ()) == normal(runs)

    return _in_cell(written_runs(runs, means_the_same))


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


class CopyForm(StrEnum):
    """The form of a copy, as menus name it."""

    MARKDOWN = "Markdown"
    PLAIN = "Plain text"
    RICH = "Rich text"


def forms_of(blocks: Sequence[Block], form: CopyForm) -> tuple[str, str]:
    """Return blocks as text and as HTML, which is empty unless they are copied as rich text; a megabyte takes seconds.

    Rich text comes with plain text for programs that take nothing else.
    """
    markdown = as_markdown(blocks)
    text = markdown if form is CopyForm.MARKDOWN else as_plain(blocks)
    rich = form is CopyForm.RICH and len(markdown) <= _MAX_RICH
    return without_controls(text), without_controls(as_html(markdown)) if rich else ""


def as_html(markdown: str) -> str:
    """Return a complete HTML document."""
    html = MarkdownParser().html(markdown)
    # The text is escaped, so only real tags look like tags.
    for plain, styled in _STYLED.items():
        html = html.replace(plain, styled)
    return f'<html><head><meta charset="utf-8"></head><body>{html}</body></html>'


def text_data(text: str) -> QMimeData:
    """Return a text for the clipboard or a drag."""
    # Qt makes the object, which is then emptied: one made here would outlive Python on the clipboard, and crash the
    # exit.
    source = QStringListModel([""])
    data = source.mimeData([source.index(0, 0)])
    data.clear()
    data.setText(text)
    return data


def put_on_clipboard(text: str, html: str) -> None:
    """Replace what is on the clipboard."""
    data = text_data(text)
    if html:
        data.setHtml(html)
    QGuiApplication.clipboard().setMimeData(data)


def blocks_of(text: str, parser: Parser) -> list[Block]:
    """Return all blocks of a text; a megabyte takes seconds."""
    stream = BlockStream(parser)
    blocks = list[Block]()
    safe = safe_text(text)
    more = bool(safe)
    while more:
        update = stream.advance(safe, True)
        blocks[update.first :] = update.blocks
        more = update.more
    return blocks


def cut_out(blocks: Sequence[Block], spans: Sequence[tuple[int, int]], begin: int, end: int) -> list[Block]:
    """Return the blocks between two positions of a document.

    All of a block without lines of text, such as a table, is taken where anything of it is selected: so Qt selects it,
    too. A block has its marker if a part of that is selected, or if the selection begins right behind it and reaches
    into the next block: the text of one item alone, or the end of it, is no list.

    Args:
        blocks: All blocks of the document.
        spans: Begin and end of each block, in UTF-16 units as QTextDocument counts.
        begin: The first position, in the same units.
        end: The position behind the last one.
    """
    selected: list[Block] = []
    for block, (start, last) in zip(blocks, spans, strict=True):
        if last <= begin or start >= end:
            continue
        if block.kind not in _IN_LINES:
            selected.append(block)
            continue
        first = start + (len(block.marker) + 1 if block.marker else 0)
        runs = tuple(_part(block.runs, max(begin - first, 0), max(end - first, 0)))
        uncut = begin <= first
        if runs or (uncut and not block.runs):
            marker = block.marker if begin < first or (uncut and end > last) else ""
            selected.append(replace(block, runs=runs, marker=marker, joined=block.joined and uncut))
    return selected


def cut_cells(block: Block, table: QTextTable, cursor: QTextCursor) -> Block:
    """Return the part of a table that is selected in it: whole cells, or a part of one cell's text."""
    cells: Any = cursor.selectedTableCells()
    first_row, rows, first_column, columns = cells
    step = column_step(table)
    if rows < 0:
        cell = table.cellAt(cursor.position())
        start = cell.firstPosition()
        runs = block.rows[cell.row()][::step][cell.column()]
        return Block(Kind.TEXT, tuple(_part(runs, cursor.selectionStart() - start, cursor.selectionEnd() - start)))
    if step < 0:
        first_column = table.columns() - first_column - columns
    selected = slice(first_column, first_column + columns)
    cut_rows = tuple(row[selected] for row in block.rows[first_row : first_row + rows])
    return Block(Kind.TABLE, rows=cut_rows, alignments=block.alignments[selected])


def _part(runs: Sequence[Run], begin: int, end: int) -> list[Run]:
    """Return the runs between two positions in UTF-16 units; a formula is one unit, and is never cut."""
    parts = []
    start = 0
    for run in runs:
        last = start + (1 if run.maths else utf16_length(run.text))
        if last > begin and start < end:
            units = run.text.encode("utf-16-le", "surrogatepass")[2 * max(begin - start, 0) : 2 * (end - start)]
            parts.append(run if run.maths else replace(run, text=units.decode("utf-16-le", "replace")))
        start = last
    return parts


def written_runs(runs: Sequence[Run], means_the_same: Callable[[str], bool]) -> str:
    """Return runs as Markdown, without escapes if possible: the first of a few ways that is read as these runs.

    Args:
        runs: The runs of one paragraph, heading or cell.
        means_the_same: Returns whether a text is read as these runs.
    """
    plain = _emphasised(list(_units(runs, _STYLES[0], escaped=False)))
    if means_the_same(plain):
        return plain
    texts = [_escape_lines(_emphasised(list(_units(runs, style, escaped=True)))) for style in _STYLES]
    return next(filter(means_the_same, texts), texts[0])


def normal(runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """Return runs in a form to compare: without the look of spaces, and whether a formula can be drawn."""
    looks = [
        replace(run, text=run.text.strip(), maths="", display=False, undrawn=bool(run.maths or run.undrawn))
        for run in runs
    ]
    return "".join(run.text for run in runs), [look for look in looks if look.text]


def _units(runs: Sequence[Run], style: tuple[str, str], *, escaped: bool) -> Iterator[_Unit]:
    """Yield the text of each run with its marks; a link, which may have several runs, is one unit."""
    for link, linked in groupby(runs, lambda run: run.href or run.refused):
        group = list(linked)
        units = [(_marks(run, style), _word(run, escaped=escaped)) for run in group]
        if not link:
            yield from units
        elif len(group) == 1 and group[0].href == group[0].text:
            yield units[0][0], f"<{link}>" if escaped else link
        else:
            around = [mark for mark in units[0][0] if all(mark in marks for marks, _ in units)]
            inside = [([mark for mark in marks if mark not in around], text) for marks, text in units]
            yield around, f"[{_emphasised(inside)}]({_destination(link)})"


def _marks(run: Run, style: tuple[str, str]) -> list[str]:
    return [mark for on, mark in ((run.bold, style[0]), (run.italic, style[1]), (run.strike, "~~")) if on]


def _emphasised(units: Sequence[_Unit]) -> str:
    """Return text with marks; spaces at their ends stay outside of the marks, as Markdown requires."""
    text = ""
    # The innermost mark is the last one.
    open_marks = list[str]()
    # A unit without marks at the end closes all.
    for index, (marks, written) in enumerate([*units, ([], "")]):
        while any(mark not in marks for mark in open_marks):
            inside = text.rstrip()
            text = inside + open_marks.pop() + text[len(inside) :]
        begun = written.lstrip()
        text += written[: len(written) - len(begun)]
        if begun:
            new = [mark for mark in marks if mark not in open_marks]
            # Of marks that open here, the one that closes last must open first: sorted by the units until they close.
            new.sort(
                key=lambda mark: next((n for n, unit in enumerate(units[index:]) if mark not in unit[0]), len(units))
            )
            open_marks += reversed(new)
            text += "".join(reversed(new)) + begun
    return text


def _word(run: Run, *, escaped: bool) -> str:
    """Return the text of a run in Markdown, without its marks of emphasis."""
    if run.code:
        longest = max(map(len, re.findall("`+", run.text)), default=0)
        pad = " " if re.match(r"`|.*`$| .* $", run.text) and run.text.strip() else ""
        ticks = "`" * (longest + 1)
        return f"{ticks}{pad}{run.text}{pad}{ticks}"
    if run.raised:
        return f"[^{run.text[1:]}"
    if not escaped or run.maths or run.undrawn:
        return run.text
    text = _SPECIAL.sub(r"\\\g<0>", run.text)
    return text.replace("[", "&#91;") if run.href or run.refused else text


def _destination(address: str) -> str:
    """Return the address of a link as Markdown has it between round brackets."""
    bracketed = re.sub(r"[<>\\&]", r"\\\g<0>", address)
    return f"<{bracketed}>" if re.search(r"[()<>\s\\&]", address) else address


def _escape_lines(text: str) -> str:
    """Escape what would begin another block or vanish: signs at the start of lines, and spaces at either end."""
    text = _LINE_START.sub(lambda match: f"{match[1]}\\{match[2]}" if match[2] else "\\#", text)
    return _SPACE.sub(lambda match: f"&#{ord(match[0])};", text)
