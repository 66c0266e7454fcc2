"""Parses a piece of Markdown, or of a prompt as it was typed, into blocks.

markdown-it finds the tokens, from which `_Walk` makes the blocks. Raw HTML stays text, images are never fetched, and a
paragraph or table that would take markdown-it or Qt too long is shown in a simpler form.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from rdchat.ui.style import is_openable
from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, pieces
from rdchat.ui.transcript.markdown.syntax import FENCE, MAX_FORMULA, EastAsianInline, enable_syntax
from rdchat.ui.transcript.markdown.text_formats import FORMULAS

# The style of a run: all its fields but the text.
_look = attrgetter(*(field.name for field in fields(Run) if field.name != "text"))
# These signs end an address, because East Asian text follows it without a space.
_EAST_ASIAN = r"\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u2018-\u201d\u2026"
_BARE_ADDRESS = re.compile(rf"https?://[^\s<>\"'`{_EAST_ASIAN}]+", re.IGNORECASE)

_TASK = re.compile(r"\[([ xX])\] +")
# A paragraph with more characters or brackets is shown as it was written: markdown-it needs a quadratic time for nested
# brackets.
_INLINE_LIMIT = 6000
_BRACKET_LIMIT = 200
# The bullets of lists, the outermost first.
_BULLETS = "•◦▪"
# A larger table is shown row by row, because Qt would need seconds to lay it out.
_MAX_COLUMNS = 40
_MAX_CELLS = 800
PLAIN = re.compile(r"(?:(?!https?:)[^\\`*_~\[\]!<>&$])+", re.IGNORECASE)
"""Matches a paragraph that is only text."""
# A line break in such a paragraph, with the blanks around it.
_BREAK = re.compile(r"(?<! ) *+\n[ \t]*")


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs without empty ones; neighbours that look the same become one."""
    looks: list[tuple[Run, list[str]]] = []
    for run in runs:
        if not run.text:
            continue
        if looks and not run.maths and _look(looks[-1][0]) == _look(run):
            looks[-1][1].append(run.text)
        else:
            looks.append((run, [run.text]))
    return tuple(replace(run, text="".join(texts)) for run, texts in looks)


def inline_runs(tokens: list[Token]) -> Iterator[Run]:
    """Yield the runs of a paragraph; neighbours may have the same style."""
    # How many open tokens of each kind there are: emphasis may be nested.
    depth = {"strong": 0, "em": 0, "s": 0}
    address = ""
    for token in tokens:
        name = token.type.removesuffix("_open").removesuffix("_close")
        if name in depth:
            depth[name] += token.nesting
        elif name == "link":
            address = str(token.attrGet("href") or "") if token.nesting > 0 else ""
        else:
            openable = is_openable(address)
            # The fields `href` and `refused` of the run.
            links = (address, "") if openable else ("", address)
            yield from _text(token, Run("", depth["strong"] > 0, depth["em"] > 0, depth["s"] > 0, False, *links))


def _text(token: Token, look: Run) -> Iterable[Run]:
    match token.type:
        case "maths":
            return [formula_run(token, look)]
        case "code_inline" | "footnote" as kind:
            is_code = kind == "code_inline"
            return [replace(look, text=token.content, code=is_code, raised=not is_code)]
        case "softbreak" | "hardbreak":
            return [replace(look, text="\n")]
        case "image":
            source = str(token.attrGet("src") or "")
            return [replace(look, text=f"{token.content} ({source})" if token.content else source)]
        case _ if look.href or look.refused:
            return [replace(look, text=token.content)]
    return _with_bare_addresses(token.content, look)


def formula_run(token: Token, look: Run) -> Run:
    """Return a formula as a run; its source if it is unfinished or cannot be drawn."""
    display = token.type == "maths_block" or token.info == "display"
    if not token.content:
        return replace(look, text=token.markup)
    if len(token.content) > MAX_FORMULA or FORMULAS.cannot_draw(token.content, display):
        return replace(look, text=token.markup, undrawn=True)
    return replace(look, text=token.markup, maths=token.content, display=display)


def _with_bare_addresses(text: str, look: Run) -> Iterator[Run]:
    end = 0
    for match in _BARE_ADDRESS.finditer(text):
        address = _without_end_signs(match[0])
        yield replace(look, text=text[end : match.start()])
        yield replace(look, text=address, href=address)
        end = match.start() + len(address)
    yield replace(look, text=text[end:])


def _without_end_signs(address: str) -> str:
    """Return an address without punctuation at its end; a bracket that it opens belongs to it."""
    end = len(address)
    closed = address.count(")") - address.count("(")
    while address[end - 1] in ".,;:!?*]" or (address[end - 1] == ")" and closed > 0):
        closed -= address[end - 1] == ")"
        end -= 1
    return address[:end]


def code_line(line: str, code: int, language: str, first: bool) -> list[Block]:
    """Return a line of code as a block, or as several if it is overlong."""
    return [
        Block(
            Kind.CODE,
            (Run(piece),) if piece else (),
            code=code,
            language=language,
            tight=not first or index > 0,
            joined=index > 0,
        )
        for index, piece in enumerate(pieces(line))
    ]


@dataclass(slots=True)
class Parsed:
    """A piece of source, parsed.

    Attributes:
        starts: The line and the index in `blocks` of each top-level block.
        closed: Numbers of the code blocks that are complete.
        last_item: The line, the index in `blocks` and the number of the last item of the last list that is in no other
            one; the number is 1 for a bullet.
        references: Link definitions known after this piece.
    """

    blocks: list[Block] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    last_item: tuple[int, int, int] | None = None
    references: dict[str, Any] = field(default_factory=dict)


class _BoundedInline(ParserInline):
    """Leaves a paragraph as it was written if markdown-it would need a quadratic time for it."""

    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        if len(src) > _INLINE_LIMIT or src.count("[") > _BRACKET_LIMIT:
            tokens.append(Token("text", "", 0, content=src))
            return tokens
        state = EastAsianInline(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _AnyLink(MarkdownIt):
    """Accepts every address as a link; what a link may open is decided later.

    `inline_runs` makes a dangerous address text, and `_link_html` leaves the link out.
    """

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False, "breaks": True})
        self.inline = _BoundedInline()
        self.enable(["table", "strikethrough"])
        self.block.ruler.before("table", "deep", _too_deep)
        enable_syntax(self)
        self.add_render_rule("image", lambda _, tokens, index, *_more: escapeHtml(tokens[index].content))
        self.add_render_rule("link_open", _link_html)

    def validateLink(self, url: str) -> bool:
        return True


def _link_html(_: object, tokens: Sequence[Token], index: int, *_more: object) -> str:
    """Return the opening tag of a link; one that may not be opened loses its closing tag too."""
    address = str(tokens[index].attrGet("href") or "")
    if is_openable(address):
        return f'<a href="{escapeHtml(address)}">'
    next(each for each in tokens[index:] if each.type == "link_close").hidden = True
    return ""


class MarkdownParser:
    """CommonMark with tables, strike-through, task lists, formulas and bare web addresses."""

    @cached_property
    def _markdown(self) -> MarkdownIt:
        return _AnyLink()

    def html(self, source: str) -> str:
        """Return a text as HTML without styles."""
        return str(self._markdown.render(source))

    def parse(self, source: str, first_code: int, references: dict[str, Any], number: int | None) -> Parsed:
        """Parse a piece of source that begins where a block begins.

        Args:
            source: Whole lines, and maybe the start of one more.
            first_code: Number of the first code block in it.
            references: Link definitions from pieces before it; not changed.
            number: If the piece starts inside a list, the number of the item it starts with.
        """
        tokens: list[Token] = []
        env: dict[str, Any] = {"references": dict(references)}
        self._markdown.block.parse(source, self._markdown, env, tokens)
        walk = _Walk(lambda content: self._runs(content, env), first_code, number)
        walk.walk(tokens)
        walk.parsed.references = env["references"]
        return walk.parsed

    def _runs(self, content: str, env: dict[str, Any]) -> tuple[Run, ...]:
        if PLAIN.fullmatch(content):
            return (Run(_BREAK.sub("\n", content)),)
        tokens: list[Token] = []
        self._markdown.inline.parse(content, self._markdown, env, tokens)
        return merged(inline_runs(tokens))


def _too_deep(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A rule for markdown-it: read text that is nested too deeply as plain text; without it the text would be lost."""
    # A list takes two levels.
    if state.level < state.md.options.maxNesting - 2:
        return False
    if not silent:
        state.line = end
        state.push("paragraph_open", "p", 1).map = [start, end]
        token = state.push("inline", "", 0)
        token.content = state.getLines(start, end, state.blkIndent, False).strip()
        token.map = [start, end]
        token.children = []
        state.push("paragraph_close", "p", -1)
    return True


class PlainParser:
    """Keeps a prompt line by line as it was typed; `BlockStream` sets fenced code apart."""

    def parse(self, source: str, first_code: int, references: dict[str, Any], number: int | None) -> Parsed:
        """Parse a piece up to a fence, as `MarkdownParser.parse` does.

        The line of the fence is the last of `starts`: `BlockStream` settles what is above it, and reads on from there.
        """
        parsed = Parsed(references=references)
        lines = source.split("\n")
        if lines[-1] == "":
            lines.pop()
        offset = 0
        for index, line in enumerate(lines):
            parsed.starts.append((index, len(parsed.blocks)))
            if FENCE.match(source, offset):
                break
            parsed.blocks += [Block(Kind.TEXT, (Run(piece),) if piece else (), tight=True) for piece in pieces(line)]
            offset += len(line) + 1
        return parsed


Parser = MarkdownParser | PlainParser


class _Walk:
    """One pass over markdown-it's block tokens, which makes `Parsed` of them.

    A token of type `x`, `x_open` or `x_close` is given to the method `_visit_x`; its `nesting` is 1, -1 or 0.
    """

    def __init__(self, runs: Callable[[str], tuple[Run, ...]], first_code: int, number: int | None) -> None:
        self.parsed = Parsed()
        # The number of the next code block.
        self._codes = first_code
        # Returns the runs of a paragraph's text.
        self._runs = runs
        # The number that the list goes on with; None if the piece does not begin inside a list.
        self._number = number
        self._nesting = ""  # `l` for each open list, `q` for each open quote
        # The next number of each open list; None for bullets.
        self._lists: list[int | None] = []
        # The marker for the next block; empty unless a list item has begun.
        self._marker = ""
        # Whether the paragraph is one of a list without blank lines.
        self._tight = False
        # Whether the next paragraph may stand close: not the first one of an outermost list.
        self._continues = False
        # The table that is open: without rows, none is.
        self._rows: list[list[tuple[Run, ...]]] = []
        self._alignments: list[str] = []
        # The level of the open heading; 0 for none.
        self._heading = 0

    def walk(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            if token.level == 0 and token.nesting >= 0 and token.map:
                self.parsed.starts.append((token.map[0], len(self.parsed.blocks)))
            kind = token.type.removesuffix("_open").removesuffix("_close")
            visit: Callable[[Token], None] | None = getattr(self, f"_visit_{kind}", None)
            if visit:
                visit(token)

    def _add(self, block: Block) -> None:
        """Add a block at the present nesting, with the marker if a list item begins with it."""
        tight = block.tight or (bool(self._marker) and self._tight)
        block = replace(block, nesting=self._nesting, marker=self._marker, tight=tight)
        self.parsed.blocks.append(block)
        self._marker = ""

    def _visit_blockquote(self, token: Token) -> None:
        self._nesting = f"{self._nesting}q" if token.nesting > 0 else self._nesting[:-1]

    def _visit_bullet_list(self, token: Token) -> None:
        """Open or close a list, also a numbered one."""
        if token.nesting > 0 and self._marker:
            # The item begins with another list.
            self._add(Block(Kind.TEXT, tight=True))
        if token.nesting < 0:
            self._nesting = self._nesting[:-1]
            self._lists.pop()
            return
        self._nesting += "l"
        start = int(token.attrs.get("start", 1)) if token.type.startswith("ordered") else None
        if not self._lists and start is not None and self._number is not None:
            start = self._number
        self._continues = bool(self._lists) or self._number is not None
        self._number = None
        self._lists.append(start)

    _visit_ordered_list = _visit_bullet_list

    def _visit_list_item(self, token: Token) -> None:
        number = self._lists[-1]
        if token.nesting < 0:
            if self._marker:
                # The item is empty.
                self._add(Block(Kind.TEXT, tight=True))
            return
        if token.level == 1 and token.map:
            self.parsed.last_item = (token.map[0], len(self.parsed.blocks), 1 if number is None else number)
        if number is None:
            self._marker = _BULLETS[min(len(self._lists), len(_BULLETS)) - 1]
        else:
            self._marker = f"{number}."
            self._lists[-1] = number + 1

    def _visit_paragraph(self, token: Token) -> None:
        if token.nesting > 0:
            # markdown-it hides the paragraphs of a list without blank lines.
            self._tight = token.hidden and self._continues
            self._continues = True

    def _visit_heading(self, token: Token) -> None:
        self._heading = int(token.tag[1:]) if token.nesting > 0 else 0

    def _visit_inline(self, token: Token) -> None:
        """Add a text: a cell of the open table, a heading, or a paragraph, in pieces if it is too long."""
        content = token.content
        if self._rows:
            self._rows[-1].append(self._runs(content))
            return
        task = _TASK.match(content) if self._marker else None
        if task:
            self._marker = "☐" if task[1] == " " else "☑"
            content = content[task.end() :]
        if self._heading:
            self._add(Block(Kind.HEADING, self._runs(content), level=self._heading))
            return
        if len(content) <= _INLINE_LIMIT:
            runs = self._runs(content)
            if runs or self._marker:
                self._add(Block(Kind.TEXT, runs, tight=self._tight))
            return
        for index, piece in enumerate(pieces(content)):
            self._add(Block(Kind.TEXT, (Run(piece),), tight=index > 0 or self._tight))

    def _visit_fence(self, token: Token) -> None:
        number = self._codes
        self._codes += 1
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        lines = token.content.removesuffix("\n").split("\n")
        for index, line in enumerate(lines):
            for block in code_line(line, number, language, first=index == 0):
                self._add(block)
        # A fenced block that is closed has two lines more in the source than in its content: its fences.
        written = token.content.count("\n")
        if token.type == "code_block" or (token.map and token.map[1] - token.map[0] >= written + 2):
            self.parsed.closed.append(number)

    _visit_code_block = _visit_fence

    def _visit_hr(self, _: Token) -> None:
        self._add(Block(Kind.RULE))

    def _visit_maths_block(self, token: Token) -> None:
        run = formula_run(token, Run(""))
        self._add(Block(Kind.MATHS if run.maths else Kind.TEXT, (run,)))

    def _visit_tr(self, token: Token) -> None:
        if token.nesting > 0:
            self._rows.append([])

    def _visit_th(self, token: Token) -> None:
        if token.nesting > 0:
            self._alignments.append(str(token.attrGet("style") or "").removeprefix("text-align:"))

    def _visit_table(self, token: Token) -> None:
        if token.nesting > 0:
            self._rows = []
            self._alignments = []
            return
        width = max(len(row) for row in self._rows)
        self._alignments += [""] * (width - len(self._alignments))
        rows = tuple(tuple([*row, *[()] * width][:width]) for row in self._rows)
        self._rows = []
        if width <= _MAX_COLUMNS and width * len(rows) <= _MAX_CELLS:
            self._add(Block(Kind.TABLE, rows=rows, alignments=tuple(self._alignments)))
            return
        self._add(Block(Kind.TEXT, (Run("This table is too large to draw. Its rows:", italic=True),)))
        for index, row in enumerate(rows):
            runs = merged(run for cell in row for run in (*cell, Run(" | ")))
            self._add(Block(Kind.TEXT, runs, tight=index > 0))
