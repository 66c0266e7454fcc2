r"""Rules for markdown-it: formulas, harmless tags, footnotes, emphasis in East Asian text, code blocks, and tables.

A rule is a function with markdown-it's signature. It reads one element at the state's position, moves the state behind
it and returns True, or it returns False. With `silent`, it adds no token: markdown-it then only asks whether there is
such an element, and for a block, whether it ends the paragraph above.

Formulas are `$...$` and `\(...\)` in a line, and `$$...$$` and `\[...\]` on their own. Dollars also stand for prices
and variables of a shell, so a text between two dollars is not a formula

- if it begins or ends with a space (`$5 and $6`), unless it has a command of TeX and does not begin with a digit;
- if a digit or a letter stands before its beginning or behind its end (`$HOME/$USER`);
- if it begins with a digit and goes on in words (`$5 for two, or 3$`);
- if it is the name of a variable (`$PATH$`), or could be one and stands behind a command of a shell (`echo $file$`);
- if it has a blank line.
"""

import re
import unicodedata
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock, fence, table
from markdown_it.rules_block.reference import reference
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token

from rdchat.chat.attachments.html_text import RAISED

# The elements that a formula or a code block can end.
_INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}

# Formulas
MAX_FORMULA = 2000
"""The longest formula, in characters; a longer one stays text."""
_ENVIRONMENT = r"\\begin\{(?P<name>(?:align|equation|gather|multline|eqnarray|alignat)\*?)\}"
_OPENING = re.compile(rf"\$\$|\\\[|{_ENVIRONMENT}")
_PROSE = r"(?<![\\\w])[^\W\d_]{2,} +[^\W\d_]{2}"
# Text behind a blank line that may still be TeX: no words in a row, no heading, no code, no East Asian letters.
_TEX = re.compile(rf"(?:\\text\w*\{{[^{{}}\n]*\}}|(?!\$\$|\\\]|\\end\{{|{_PROSE})[^`#\u3000-\ud7a3])*+")
# What stands between two dollars, and is no formula: a price with words behind it, or the name of a shell's variable.
_PRICE = re.compile(r"\d[^\\^_=]*[^\W\d_]{2}")
_VARIABLE = re.compile(r"[A-Z]{2,}_[A-Z\d_]+|HOME|HOST(?:NAME)?|PATH|PWD|SHELL|TERM|TMPDIR|USER(?:NAME)?|LANG|EDITOR")
# What stands before the dollar of a variable.
_COMMAND = re.compile(r"\b(?:echo|printf|printenv|export|unset|cd|sudo)\s+(?:-\w+\s+)?[\"']?$")
# The longer of two signs that begin alike comes first.
_CLOSINGS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}

# Footnotes and tags
_FOOTNOTE = re.compile(r"\[\^([^\s\[\]]{1,50})\](?!\()")
_TAG = re.compile(
    r"(?P<break><br[ \t]*/?>)|<(?P<name>sub|sup)>(?P<inner>[^<>\n]{1,50})</(?P=name)>"
    r"|</?(?:kbd|u|mark|ins|small|sub|sup)>",
    re.IGNORECASE,
)

# Code blocks: the groups are the indentation, the mark, and what is written behind it.
FENCE = re.compile(r"( {0,3})(`{3,}+(?=[^`\n]*(?:\n|$))|~{3,}+)[ \t]*+([^\n]*)(?:\n|$)")

# Tables; this matches the code and formulas of a line.
_ONE_CELL = re.compile(
    r"(?<![`\\])(?P<ticks>`+)(?!`).{1,2000}?(?<!`)(?P=ticks)(?!`)|\$\$.{1,2000}?\$\$|\\\(.{1,2000}?\\\)"
    r"|(?<![\\$])\$(?![\s$])(?:[^$\\]|\\.)+(?<!\s)\$(?![\w$])"
)
_DELIMITERS = re.compile(r"[-:|][-:| \t]*")
# Stands for a pipe inside code or a formula while a table is read: `safe_text` leaves no such character in a text.
_PIPE = "\ufdd0"


def enable_syntax(markdown: MarkdownIt) -> None:
    """Let a parser find formulas and marks of footnotes, and keep all cells of tables and code in blocks of Markdown.

    Formulas are found before their signs are taken for emphasis, escapes or lists. CommonMark knows no footnotes.
    """
    inline = markdown.inline.ruler
    block = markdown.block.ruler
    inline.before("escape", "maths", _inline_formula)
    inline.before("link", "footnote", _footnote)
    inline.before("html_inline", "tag", _tag)
    block.at("fence", _fence, _INTERRUPTS)
    block.before("fence", "maths_block", _block_formula, _INTERRUPTS)
    block.at("table", _table, {"alt": ["paragraph", "reference"]})
    block.at("reference", _reference, {"alt": []})
    markdown.add_render_rule("maths", lambda _, tokens, index, *_more: escapeHtml(tokens[index].markup))
    markdown.add_render_rule(
        "maths_block", lambda _, tokens, index, *_more: f"<p>{escapeHtml(tokens[index].markup)}</p>"
    )
    markdown.add_render_rule(
        "footnote", lambda _, tokens, index, *_more: f"<sup>{escapeHtml(tokens[index].content)}</sup>"
    )


# --- formulas


def _inline_formula(state: StateInline, silent: bool) -> bool:
    """Read a formula in a line."""
    source = state.src
    start = state.pos
    if source[start] not in "$\\":
        return False
    opening = next((each for each in _CLOSINGS if source.startswith(each, start)), "")
    if not opening or (start and source[start - 1] == "\\"):
        return False
    closing = _CLOSINGS[opening]
    begin = start + len(opening)
    end = _closing_position(source, begin, closing, min(state.posMax, begin + MAX_FORMULA))
    tex = source[begin:end].strip() if end >= 0 else ""
    if not tex or "`" in tex or (opening == "$" and not _is_formula(source, begin, end)):
        return False
    if not silent:
        token = state.push("maths", "", 0)
        token.content = tex
        token.markup = source[start : end + len(closing)]
        token.info = "display" if opening in {"$$", "\\["} else "inline"
    state.pos = end + len(closing)
    return True


def _closing_position(source: str, begin: int, closing: str, limit: int) -> int:
    """Return the position of a formula's closing sign; -1 where there is none. A dollar behind a backslash is none."""
    end = source.find(closing, begin, limit)
    while end > 0 and source[end - 1] == "\\" and closing[0] == "$":
        end = source.find(closing, end + 1, limit)
    return end


def _is_formula(source: str, begin: int, end: int) -> bool:
    """Return whether the text between single dollars is a formula, not the text between two prices or variables."""
    before = source[max(0, begin - 2) : begin - 1]
    after = source[end + 1 : end + 2]
    inner = source[begin:end]
    if any(each.isalnum() and not _is_east_asian(each) for each in (before, after)) or "\n\n" in inner:
        return False
    # Between blanks it is a formula only if it is TeX beyond doubt.
    if (inner[0].isspace() or inner[-1].isspace()) and ("\\" not in inner or inner.strip()[:1].isdigit()):
        return False
    # The name of a variable, of two characters or more, behind a command of a shell.
    is_argument = inner[1:].isidentifier() and _COMMAND.search(source[max(0, begin - 30) : begin - 1])
    return not (is_argument or _VARIABLE.fullmatch(inner)) and _PRICE.match(inner) is None


def _block_formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a formula that begins a line, up to its closing sign, or else up to the next blank line."""
    if state.is_code_block(start):
        return False
    first = getLine(state, start)
    opening = _OPENING.match(first)
    if opening is None:
        return False
    if silent and first.strip() == opening[0]:
        # It ends the paragraph above before anything is known of its end, so that a text that grows is read alike.
        return True
    closing = f"\\end{{{opening['name']}}}" if opening["name"] else _CLOSINGS[opening[0]]
    lines, sign = _formula_lines(state, start, end, opening[0], closing)
    is_closed = sign >= 0
    if silent and not is_closed:
        return False
    if is_closed and lines[-1][sign + len(closing) :].strip():
        # More follows in the line: the formula is a part of a paragraph.
        return False
    if not silent:
        state.line = start + len(lines)
        token = state.push("maths_block", "", 0)
        token.markup = "\n".join(lines).strip()
        token.map = [start, state.line]
        # Without its end it stays one block of text, because its lines may look like those of a list.
        if is_closed:
            # TeX allows no blank line in a formula.
            source = "\n".join(filter(str.strip, lines)).strip()
            token.content = source if opening["name"] else source[len(opening[0]) : -len(closing)].strip()
    return True


def _formula_lines(state: StateBlock, start: int, end: int, opening: str, closing: str) -> tuple[list[str], int]:
    """Return the lines of a formula on its own, and where in the last of them it is closed; -1 if it is not."""
    # It goes on behind a blank line only if what follows is TeX up to the closing sign or the end of the text.
    blank = next((line for line in range(start, end) if state.isEmpty(line)), end)
    behind = _TEX.match(state.src, state.bMarks[blank], state.bMarks[start] + MAX_FORMULA)
    if not (behind and (state.src.startswith(closing, behind.end()) or behind.end() == len(state.src))):
        end = blank
    lines = list[str]()
    for line in range(start, end):
        if line > start and not state.isEmpty(line) and state.sCount[line] < state.blkIndent:
            # The list item or quote around the formula ends here.
            break
        lines.append(getLine(state, line))
        sign = _closing_position(lines[-1], len(opening) if line == start else 0, closing, len(lines[-1]))
        if sign >= 0:
            return lines, sign
    return lines, -1


# --- tags of HTML


def _tag(state: StateInline, silent: bool) -> bool:
    """Read a harmless tag of HTML: a line break, raised or lowered figures, or one that is left out.

    `x<sup>2</sup>` becomes `x²`; where Unicode lacks a character, as in `x<sup>ab</sup>`, it becomes `x^(ab)`.
    """
    tag = _TAG.match(state.src, state.pos, state.posMax)
    if tag is None:
        return False
    if not silent and tag["break"]:
        state.push("hardbreak", "br", 0)
    elif not silent and tag["inner"]:
        sign, figures = RAISED[tag["name"].lower()]
        inner = tag["inner"].translate(figures)
        state.push("text", "", 0).content = inner if not {*inner} & {*tag["inner"]} else f"{sign}({tag['inner']})"
    state.pos = tag.end()
    return True


# --- footnotes


def _footnote(state: StateInline, silent: bool) -> bool:
    """Read the mark of a footnote, such as `[^1]`."""
    mark = _FOOTNOTE.match(state.src, state.pos, state.posMax)
    if mark is None:
        return False
    if not silent:
        state.push("footnote", "", 0).content = f"[{mark[1]}]"
    state.pos = mark.end()
    return True


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a link definition as markdown-it does, but not the text of a footnote, which stays visible."""
    is_note = state.src.startswith("[^", state.bMarks[start] + state.tShift[start])
    return not is_note and reference(state, start, end, silent)


# --- emphasis in East Asian text


class EastAsianInline(StateInline):
    """Lets emphasis begin and end beside East Asian letters and punctuation, which no spaces set apart.

    That is for signs that may stand within a word, such as `*` (`canSplitWord`). There, emphasis may begin before
    anything but a blank, and end behind anything but a blank.
    """

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N803  markdown-it's name
        scanned = super().scanDelims(start, canSplitWord)
        before = self.src[max(0, start - 1) : start]
        after = self.src[start + scanned.length : self.posMax][:1]
        if not canSplitWord or not (_is_east_asian(before) or _is_east_asian(after)):
            return scanned
        return Scanned(bool(after.strip()), bool(before.strip()), scanned.length)


def _is_east_asian(character: str) -> bool:
    """Whether a character, or none, is a letter or punctuation of East Asia; emoji are not."""
    wide = bool(character) and unicodedata.east_asian_width(character) in {"W", "F", "H"}
    return wide and unicodedata.category(character) != "So"


# --- code blocks


@dataclass(slots=True)
class OpenFence:
    """The fence of a code block that is not closed yet.

    In a block of Markdown, a fence with a language opens a block inside it, whose end is not the end of the outer one.
    CommonMark says otherwise, but models write Markdown so.
    """

    mark: str
    language: str
    # Marks and languages of the open blocks, the outermost first.
    _open: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._open = [(self.mark, self.language)]

    def is_end(self, line: str) -> bool:
        """Whether a line would close the block."""
        return len(self._open) == 1 and _closes(line, self.mark)

    def add_line(self, line: str) -> bool:
        """Take the next line, and return whether it closes the block."""
        mark, language = self._open[-1]
        opening = FENCE.match(line) if _is_markdown(language) else None
        if opening and opening[3].strip() and opening[2].startswith(mark):
            self._open.append((opening[2], opening[3].split()[0]))
        elif _closes(line, mark):
            self._open.pop()
        return not self._open


def _closes(line: str, mark: str) -> bool:
    """Whether a line closes a code block that was opened with a mark."""
    bare = line.rstrip(" \t")
    signs = bare.lstrip(" ")
    return len(bare) - len(signs) < 4 and signs.startswith(mark) and not signs.strip(mark[0])


def _is_markdown(info: str) -> bool:
    """Whether what is written behind the mark of a fence begins with the name of Markdown."""
    return (info.split() or [""])[0].lower() in {"markdown", "md"}


def _fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a code block as markdown-it does; one of Markdown ends where `OpenFence` says."""
    if not fence(state, start, end, silent):
        return False
    if silent or not _is_markdown(state.tokens[-1].info):
        return True
    token = state.tokens[-1]
    opening = OpenFence(token.markup, token.info.split()[0])
    line = start + 1
    closed = False
    # A line that is indented less ends the list item or quote around the block.
    while line < end and not closed and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        closed = opening.add_line(state.getLines(line, line + 1, state.blkIndent, False))
        line += 1
    last = line - 1 if closed else line
    token.content = state.getLines(start + 1, last, state.sCount[start], True)
    token.map = [start, line]
    state.line = line
    return True


# --- tables


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a table. Unlike GitHub's it keeps surplus cells, and pipes in code or formulas."""
    if start + 2 > end or not _DELIMITERS.fullmatch(getLine(state, start + 1).strip()):
        return False
    source = state.src
    first_token = len(state.tokens)
    width = len(_cells(getLine(state, start + 1)))
    header = getLine(state, start)
    if len(_cells(header)) > width:
        # Otherwise markdown-it would refuse the table, because its header has more cells than the line below.
        begin = state.bMarks[start] + state.tShift[start]
        state.src = source[:begin] + _merge_split_cells(header) + source[state.eMarks[start] :]
    is_table = table(state, start, end, silent)
    state.src = source
    if is_table and not silent:
        state.tokens[first_token:] = _with_all_cells(state, state.tokens[first_token:], width)
    return is_table


def _cells(row: str) -> list[str]:
    """Return the cells of a row, without the empty texts outside of its outer pipes."""
    cells = escapedSplit(row.strip())
    begin = 0 if cells[0] else 1
    end = len(cells) if cells[-1] or len(cells) == 1 else -1
    return cells[begin:end]


def _merge_split_cells(row: str) -> str:
    """Hide the pipes in code and formulas of a row, which would split them into cells."""
    return _ONE_CELL.sub(lambda match: match[0].replace("|", _PIPE), row)


def _with_all_cells(state: StateBlock, tokens: list[Token], width: int) -> list[Token]:
    """Return a table's tokens, with the cells of its rows beyond the header's `width`, which markdown-it leaves out."""
    result = list[Token]()
    cells = iter(list[str]())
    for token in tokens:
        if token.type == "tr_open" and token.map:
            row = getLine(state, token.map[0])
            row = _merge_split_cells(row) if len(_cells(row)) > width else row
            cells = iter([cell.replace(_PIPE, "|").strip() for cell in _cells(row)])
        elif token.type == "inline":
            token.content = next(cells, "")
        elif token.type == "tr_close":
            for cell in cells:
                inline = Token("inline", "", 0, level=token.level + 2, content=cell, children=[])
                result += [Token("td_open", "td", 1), inline, Token("td_close", "td", -1)]
        result.append(token)
    return result
