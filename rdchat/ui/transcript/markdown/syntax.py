r"""Rules for markdown-it: formulas.

Formulas are `$...$` and `\(...\)` in a line, and `$$...$$` and `\[...\]` on their own. Dollars are also prices: a
formula neither begins nor ends with a space, no figure or letter follows its end, and one that begins with a figure
and goes on in words is none.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.reference import reference
from markdown_it.rules_inline import StateInline

LONGEST = 2000  # characters of a formula; a longer one stays text
_ENVIRONMENT = r"\\begin\{(?P<name>(?:align|equation|gather|multline|eqnarray|alignat)\*?)\}"
_OPENING = re.compile(rf"\$\$|\\\[|{_ENVIRONMENT}")
_PRICE = re.compile(r"\d[\d.,]*[^\\^_=]*[^\W\d_]{2}")
_CLOSINGS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}


def enable_maths(markdown: MarkdownIt) -> None:
    """Let a parser find formulas before it takes their signs for emphasis, escapes or lists."""
    markdown.inline.ruler.before("escape", "maths", _inline)
    markdown.block.ruler.before(
        "fence", "maths_block", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    markdown.add_render_rule("maths", lambda _, tokens, place, *_more: escapeHtml(tokens[place].markup))
    markdown.add_render_rule(
        "maths_block", lambda _, tokens, place, *_more: f"<p>{escapeHtml(tokens[place].markup)}</p>"
    )


def _inline(state: StateInline, silent: bool) -> bool:
    """Read a formula in a line: markdown-it's signature of a rule."""
    source, start = state.src, state.pos
    if source[start] not in "$\\":
        return False
    opening = next((each for each in ("$$", "\\(", "\\[", "$") if source.startswith(each, start)), "")
    if not opening or (start and source[start - 1] == "\\"):
        return False
    closing, begin = _CLOSINGS[opening], start + len(opening)
    end = _end(source, begin, closing, min(state.posMax, begin + LONGEST))
    tex = source[begin:end].strip() if end >= 0 else ""
    if not tex or "`" in tex or (opening == "$" and not _is_formula(source, begin, end)):
        return False
    if not silent:
        token = state.push("maths", "", 0)
        token.content, token.markup, token.info = tex, source[start : end + len(closing)], _style(opening)
    state.pos = end + len(closing)
    return True


def _style(opening: str) -> str:
    return "display" if opening in {"$$", "\\["} else "inline"


def _end(source: str, begin: int, closing: str, limit: int) -> int:
    """Return where a formula's closing sign stands, which no backslash precedes; -1 where there is none."""
    place = source.find(closing, begin, limit)
    while place > 0 and source[place - 1] == "\\" and closing[0] == "$":
        place = source.find(closing, place + 1, limit)
    return place


def _is_formula(source: str, begin: int, end: int) -> bool:
    """Tell whether what stands between single dollars is one, not what is said between two prices."""
    before, after = source[begin - 2 : begin - 1], source[end + 1 : end + 2]
    inner = source[begin:end]
    if before.isalnum() or after.isalnum() or inner[0].isspace() or inner[-1].isspace() or "\n\n" in inner:
        return False
    return _PRICE.match(inner) is None


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a formula that begins a line, up to its closing sign; an unfinished one up to the next blank line."""
    if state.is_code_block(start):
        return False
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opening = _OPENING.match(first)
    if opening is None:
        return False
    closing = f"\\end{{{opening['name']}}}" if opening["name"] else _CLOSINGS[opening[0]]
    lines, line = [], start
    while line < end and not state.isEmpty(line) and (line == start or state.sCount[line] >= state.blkIndent):
        lines.append(state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]])
        line += 1
        place = _end(lines[-1], opening.end() if len(lines) == 1 else 0, closing, len(lines[-1]))
        if place >= 0:
            if lines[-1][place + len(closing) :].strip():
                return False  # more follows in the line: it is a part of a paragraph
            break
    else:
        return False if silent else _unfinished(state, lines, start, line)
    if silent:
        return True
    source = "\n".join(lines).strip()
    tex = source if opening["name"] else source[len(opening[0]) : -len(closing)].strip()
    state.line = line
    token = state.push("maths_block", "", 0)
    token.content, token.markup, token.map = tex, source, [start, line]
    return True


def _unfinished(state: StateBlock, lines: list[str], start: int, line: int) -> bool:
    """Keep an unfinished formula in one block of text: its lines may look like a list's."""
    state.line = line
    token = state.push("maths_block", "", 0)
    token.content, token.markup, token.map = "", "\n".join(lines), [start, line]
    return True


def keep_footnotes(markdown: MarkdownIt) -> None:
    """Let a parser show footnotes as they were written: CommonMark takes some of them for the definition of a link."""
    markdown.block.ruler.at("reference", _reference, {"alt": []})


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    is_note = state.src.startswith("[^", state.bMarks[start] + state.tShift[start])
    return not is_note and reference(state, start, end, silent)
