"""Footnotes: `[^1]` in the text, and `[^1]: the note` at the start of a line."""

import re
from collections.abc import Iterator
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock

from rdchat.ui.transcript.markdown.blocks import Run

_NOTE = re.compile(r"\[\^([^\]\s]{1,40})\]:[ \t]*")
_MARK = re.compile(r"\[\^([^\]\s]{1,40})\]")


def enable_footnotes(markdown: MarkdownIt) -> None:
    """Let a parser take the notes for blocks: CommonMark takes some of them for the definition of a link."""
    markdown.block.ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]})


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a note to the next blank line or the next note: markdown-it's signature of a rule."""
    if state.is_code_block(start):
        return False
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opening = _NOTE.match(first)
    if opening is None:
        return False
    if silent:
        return True
    lines, line = [first[opening.end() :]], start + 1
    while line < end and not state.isEmpty(line):
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
        if _NOTE.match(text) or state.sCount[line] < state.blkIndent:
            break
        lines.append(text)
        line += 1
    state.line = line
    token = state.push("footnote_open", "", 1)
    token.info, token.map = opening[1], [start, line]
    token = state.push("inline", "", 0)
    token.content, token.map, token.children = "\n".join(lines).strip(), [start, line], []
    state.push("footnote_close", "", -1)
    return True


def with_marks(text: str, look: Run) -> Iterator[Run]:
    """Part a text at the marks of footnotes."""
    end = 0
    for match in _MARK.finditer(text):
        yield replace(look, text=text[end : match.start()])
        yield replace(look, text=match[1], raised=True)
        end = match.end()
    yield replace(look, text=text[end:])
