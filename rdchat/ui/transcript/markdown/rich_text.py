"""Writes blocks as HTML for word processors and mail programs, which keep their own fonts and colours.

Formats are inline, as style sheets do not survive a paste. Sizes and colours of text are left to where it is pasted.
Not tried on a Mac with Pages, Word or Mail; it is the HTML that browsers put on the clipboard for such a text.
"""

from collections.abc import Iterator, Sequence
from html import escape

from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run

_MONO = "font-family: Menlo, Consolas, monospace"
_CODE = f"{_MONO}; background-color: #f4f4f5; padding: 8px; white-space: pre-wrap"
_QUOTE = "margin-left: 12px; padding-left: 10px; border-left: 3px solid #c8c8cc"
_CELL = "border: 1px solid #c8c8cc; padding: 3px 8px"
_TASKS = {"☐", "☑"}


def as_html(blocks: Sequence[Block]) -> str:
    """Return a whole document."""
    return f'<html><head><meta charset="utf-8"></head><body>{"".join(_Writer().write(blocks))}</body></html>'


class _Writer:
    """Opens and closes quotes and lists around the blocks that stand in them."""

    def __init__(self) -> None:
        self._quotes = 0
        self._lists: list[str] = []  # `ol` or `ul`, each with an item open
        self._code: list[str] = []

    def write(self, blocks: Sequence[Block]) -> Iterator[str]:
        for place, block in enumerate(blocks):
            yield from self._move_to(block)
            following = blocks[place + 1] if place + 1 < len(blocks) else None
            yield from self._block(block, following)
        yield from self._close_lists(0)
        yield "</blockquote>" * self._quotes

    def _move_to(self, block: Block) -> Iterator[str]:
        if block.quotes != self._quotes:
            yield from self._close_lists(0)
            yield f'<blockquote style="{_QUOTE}">' * (block.quotes - self._quotes)
            yield "</blockquote>" * (self._quotes - block.quotes)
            self._quotes = block.quotes
        yield from self._close_lists(block.indent)
        if block.marker and len(self._lists) == block.indent:
            kind = "ol" if block.marker.endswith(".") else "ul"
            if self._lists[-1] == kind:
                yield f"</li>{_item(block)}"
                return
            yield from self._close_lists(block.indent - 1)
        while len(self._lists) < block.indent:
            ordered = block.marker.endswith(".") and len(self._lists) == block.indent - 1
            number = block.marker.rstrip(".")
            start = f' start="{number}"' if ordered and number.isdigit() and number != "1" else ""
            self._lists.append("ol" if ordered else "ul")
            yield f"<ol{start}>" if ordered else "<ul>"
            yield _item(block) if len(self._lists) == block.indent else "<li>"

    def _close_lists(self, depth: int) -> Iterator[str]:
        while len(self._lists) > depth:
            yield f"</li></{self._lists.pop()}>"

    def _block(self, block: Block, following: Block | None) -> Iterator[str]:
        match block.kind:
            case Kind.CODE:
                separator = "\n" if self._code and not block.joined else ""
                self._code.append(separator + "".join(run.text for run in block.runs))
                if following is None or following.code != block.code:
                    yield f'<pre style="{_CODE}">{escape("".join(self._code), quote=False)}</pre>'
                    self._code.clear()
            case Kind.RULE:
                yield "<hr>"
            case Kind.HEADING:
                yield f"<h{block.level}>{_inline(block.runs)}</h{block.level}>"
            case Kind.TABLE:
                yield _table(block)
            case _ if block.indent and block.marker:
                yield _inline(block.runs)
            case _:
                yield f"<p{' style="margin: 0"' if block.tight else ''}>{_inline(block.runs)}</p>"


def _item(block: Block) -> str:
    """Return the beginning of a list's item; a task has its box in the place of the bullet."""
    if block.marker in _TASKS:
        return f'<li style="list-style-type: none">{block.marker} '
    return "<li>"


def _inline(runs: Sequence[Run]) -> str:
    return "".join(_run(run) for run in runs)


def _run(run: Run) -> str:
    text = escape(run.text, quote=False).replace("\n", "<br>")
    for wanted, name in ((run.strike, "s"), (run.italic, "i"), (run.bold, "b")):
        text = f"<{name}>{text}</{name}>" if wanted else text
    if run.code:
        text = f'<code style="{_MONO}">{text}</code>'
    return f'<a href="{escape(run.href)}">{text}</a>' if run.href else text


def _table(block: Block) -> str:
    rows = []
    for place, row in enumerate(block.rows):
        name = "th" if place == 0 and not block.joined else "td"
        cells = (
            f'<{name} style="{_CELL}; text-align: {alignment or "left"}">{_inline(cell)}</{name}>'
            for cell, alignment in zip(row, block.alignments, strict=True)
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table style="border-collapse: collapse">{"".join(rows)}</table>'
