"""Copies messages and selections as Markdown, plain text or rich text.

Rich text is HTML for word processors and mail programs, which keep their own fonts and colours. Formats are inline, as
style sheets do not survive a paste. Not tried on a Mac with Pages, Word or Mail.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import zip_longest

from PySide6.QtCore import QStringListModel
from PySide6.QtGui import QGuiApplication, QTextCursor

from rdchat.ui.look.labels import without_controls
from rdchat.ui.transcript.markdown.block_stream import BlockStream
from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, length_of, safe_text
from rdchat.ui.transcript.markdown.formulas import OBJECT, source_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser, Parser

_TASKS = {"☐": "- [ ]", "☑": "- [x]"}


def as_markdown(blocks: Sequence[Block]) -> str:
    """Return Markdown with the same meaning."""
    return _joined(blocks, marked=True)


def as_plain(blocks: Sequence[Block]) -> str:
    """Return the visible text: bullets and numbers, but no Markdown marks; tabs between the cells of a table."""
    return _joined(blocks, marked=False)


def _joined(blocks: Sequence[Block], *, marked: bool) -> str:
    lines: list[str] = []
    widths: dict[int, int] = {}  # of the marker of each list that a block stands in, from 1
    last: Block | None = None
    for place, block in enumerate(blocks):
        following = blocks[place + 1] if place + 1 < len(blocks) else None
        begins, ends = last is None or last.code != block.code, following is None or following.code != block.code
        marker = f"{_marker(block, marked=marked)} " if block.marker else ""
        if marker:
            widths[block.indent] = len(marker)
        before = sum(widths.get(level, 0) for level in range(1, block.indent))
        inside = before + (widths.get(block.indent, 0) if block.indent else 0)
        quote = "> " * block.quotes if marked else ""
        if last is not None and not (block.tight or block.joined or (block.code >= 0 and not begins)):
            lines.append("> " * min(block.quotes, last.quotes) if marked else "")
        written = list(_lines(block, marked=marked, begins=begins, ends=ends))
        if block.kind is Kind.CODE and block.joined and lines and not begins:
            lines[-1] += written.pop(0)
        for number, line in enumerate(written):
            margin = " " * before + marker if number == 0 and marker else " " * inside
            lines.append(quote + margin + line)
        last = block
    return "\n".join(line.rstrip() for line in lines)


def _marker(block: Block, *, marked: bool) -> str:
    if not marked or block.marker.endswith("."):
        return block.marker
    return _TASKS.get(block.marker, "-")


def _lines(block: Block, *, marked: bool, begins: bool, ends: bool) -> Iterator[str]:
    match block.kind:
        case Kind.CODE:
            if marked and begins:
                yield f"```{block.language}"
            yield "".join(run.text for run in block.runs)
            if marked and ends:
                yield "```"
        case Kind.RULE:
            yield "---" if marked else "—" * 3
        case Kind.TABLE:
            yield from _table(block, marked=marked)
        case _:
            text = _text(block.runs, marked=marked)
            yield from (f"{'#' * block.level} {text}" if marked and block.level else text).split("\n")


def _text(runs: Sequence[Run], *, marked: bool) -> str:
    return _marked(runs) if marked else "".join(run.text for run in runs)


def _marked(runs: Sequence[Run]) -> str:
    """Return runs with Markdown marks; spaces at their ends stay outside of the marks, as Markdown requires."""
    text, open_marks = "", list[str]()

    def close_unless(wanted: Sequence[str]) -> None:
        nonlocal text
        while any(mark not in wanted for mark in open_marks):
            inside = text.rstrip()
            text = inside + open_marks.pop() + text[len(inside) :]

    for run in runs:
        wanted = [mark for on, mark in ((run.bold, "**"), (run.italic, "*"), (run.strike, "~~")) if on]
        close_unless(wanted)
        written = _word(run)
        begun = written.lstrip()
        text += written[: len(written) - len(begun)]
        if begun:
            new = [mark for mark in wanted if mark not in open_marks]
            open_marks += new
            text += "".join(new) + begun
    close_unless(())
    return text


def _word(run: Run) -> str:
    text = run.text
    if run.code:
        tick = "``" if "`" in text else "`"
        text = f"{tick} {text} {tick}" if text.startswith("`") or text.endswith("`") else f"{tick}{text}{tick}"
    return f"[{text}]({run.href})" if run.href and run.href != run.text else text


def _table(block: Block, *, marked: bool) -> Iterator[str]:
    for place, row in enumerate(block.rows):
        cells = [_text(cell, marked=marked).replace("\n", " ") for cell in row]
        yield f"| {' | '.join(cell.replace('|', '\\|') for cell in cells)} |" if marked else "\t".join(cells)
        if marked and place == 0 and not block.joined:
            rules = {"left": ":--", "center": ":-:", "right": "--:"}
            yield f"| {' | '.join(rules.get(each, '---') for each in block.alignments)} |"


_IN_LINES = {Kind.TEXT, Kind.HEADING, Kind.CODE}
_MOST_RICH = 200_000  # characters of Markdown; a longer text is copied as plain text only
_MONO = "font-family: Menlo, Consolas, monospace"
_CELL = "border: 1px solid #c8c8cc; padding: 3px 8px"
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
    rich = form is CopyForm.RICH and len(markdown) <= _MOST_RICH
    return without_controls(text), without_controls(as_html(markdown)) if rich else ""


def as_html(markdown: str) -> str:
    """Return a whole HTML document."""
    html = MarkdownParser().html(markdown)
    for plain, styled in _STYLED.items():  # what looks like a tag is one: the text is escaped
        html = html.replace(plain, styled)
    return f'<html><head><meta charset="utf-8"></head><body>{html}</body></html>'


def put_on_clipboard(text: str, html: str) -> None:
    """Replace what is on the clipboard."""
    # made by Qt and then emptied: one made here would outlive Python on the clipboard, and crash the exit
    source = QStringListModel([""])
    data = source.mimeData([source.index(0, 0)])
    data.clear()
    data.setText(text)
    if html:
        data.setHtml(html)
    QGuiApplication.clipboard().setMimeData(data)


def blocks_of(text: str, parser: Parser) -> list[Block]:
    """Return all blocks of a text; a megabyte takes seconds."""
    stream, blocks, safe = BlockStream(parser), list[Block](), safe_text(text)
    more = bool(safe)
    while more:
        update = stream.advance(safe, True)
        blocks[update.first :] = update.blocks
        more = update.more
    return blocks


def cut_out(blocks: Sequence[Block], spans: Sequence[tuple[int, int]], begin: int, end: int) -> list[Block]:
    """Return the blocks between two places of a document.

    What has no lines of text, such as a table, is taken whole where anything of it is selected. A block that is cut at
    its beginning loses its marker.

    Args:
        blocks: All of the document's.
        spans: Where each begins and ends, in UTF-16 units as QTextDocument counts.
        begin: The first place, in the same units.
        end: The place behind the last one.
    """
    found: list[Block] = []
    for block, (start, last) in zip(blocks, spans, strict=True):
        if last <= begin or start >= end:
            continue
        if block.kind not in _IN_LINES:
            found.append(block)
            continue
        first = start + (len(block.marker) + 1 if block.marker else 0)
        runs = tuple(_part(block.runs, max(begin - first, 0), max(end - first, 0)))
        whole = begin <= first
        if runs or (whole and block.kind is Kind.CODE):
            found.append(replace(block, runs=runs, marker=block.marker if whole else "", joined=block.joined and whole))
    return found


def text_of(cursor: QTextCursor) -> str:
    """Return the plain text of a selection; formulas as they were written."""
    parts, sources = cursor.selection().toPlainText().split(OBJECT), list[str]()
    place = cursor.document().find(OBJECT, cursor.selectionStart())
    while not place.isNull() and place.selectionEnd() <= cursor.selectionEnd():
        sources.append(source_of(place.charFormat()))
        place = cursor.document().find(OBJECT, place)
    return "".join(part + source for part, source in zip_longest(parts, sources[: len(parts) - 1], fillvalue=""))


def _part(runs: Sequence[Run], begin: int, end: int) -> list[Run]:
    parts, place = [], 0
    for run in runs:
        length = length_of(run)
        if place + length > begin and place < end:
            parts.append(run if run.maths else _cut(run, max(begin - place, 0), min(end - place, length)))
        place += length
    return parts


def _cut(run: Run, begin: int, end: int) -> Run:
    units = run.text.encode("utf-16-le", "surrogatepass")[2 * begin : 2 * end]
    return replace(run, text=units.decode("utf-16-le", "replace"))
