"""Writes blocks as Markdown and as plain text."""

from collections.abc import Iterator, Sequence

from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run

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
