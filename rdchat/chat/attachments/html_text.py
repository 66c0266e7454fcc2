"""Converts HTML and Jupyter notebooks to text in Markdown style. It runs and loads nothing.

A page becomes a tree (`_TreeParser`), as a browser would make it where end tags are missing. Each element is inline, so
its text goes on in a line, or gives blocks: paragraphs, lists, tables or code, between which an empty line stands. Of a
notebook the cells and what they showed are taken, without the data of pictures.

HTML of files, of notebooks and of `docx_text` is read here; numbers of list items have the forms of Word and of HTML.
"""

import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROMAN = {
    "m": 1000, "cm": 900, "d": 500, "cd": 400, "c": 100, "xc": 90, "l": 50, "xl": 40, "x": 10, "ix": 9, "v": 5,
    "iv": 4, "i": 1,
}  # fmt: skip
# The types of HTML for forms of numbers in Word and in CSS.
_TYPES = {
    "": "1", "decimal": "1", "decimalZero": "01", "lowerRoman": "i", "upperRoman": "I", "lower-roman": "i",
    "upper-roman": "I", "lower-alpha": "a", "upper-alpha": "A",
}  # fmt: skip
_LIST_STYLE = re.compile(r"list-style(?:-type)?\s*:\s*([a-z-]+)", re.IGNORECASE)
# A whole number at the beginning of an attribute, as browsers read it.
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,9}(?![0-9])")
# Elements whose content is left out.
_SILENT = {"script", "style", "noscript", "template", "math", "iframe", "object", "canvas"}
# Elements without an end tag or content.
_VOID = {"br", "hr", "img", "meta", "link", "input", "area", "base", "col", "embed", "source", "track", "wbr"}
_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "figure", "figcaption", "address",
    "form", "fieldset", "dl", "dt", "dd", "details", "summary", "blockquote", "hr", "table", "caption", "body", "tr",
    "title", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "pre", "text",
}  # fmt: skip
_HEADINGS = {"title": "# "} | {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "s": "~~", "del": "~~", "strike": "~~"}
RAISED = {
    "sup": ("^", str.maketrans("0123456789+-\u2212=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿ")),
    "sub": ("_", str.maketrans("0123456789+-\u2212=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎")),
}
"""By tag, the sign of TeX, and the characters that Unicode has raised or lowered."""
# Most columns or rows of a merged cell.
_MAX_SPANNED = 100
# Start tags that end open elements without an end tag: which elements, and where the search for them stops. `<li>` ends
# the open `li`, but not one outside of the list that it stands in.
_CELLS = {"td", "th"}
_TABLE = {"table"}
_ENDS = {
    "p": ({"p"}, _BLOCKS - {"p"} | {"li", "td", "th"}),
    "option": ({"option"}, {"select"}),
    "li": ({"li"}, {"ul", "ol"}),
    "td": (_CELLS, _TABLE),
    "th": (_CELLS, _TABLE),
    "tr": ({"tr"} | _CELLS, _TABLE),
}
# Elements of an SVG whose text is shown.
_DRAWN = {"text", "foreignobject"}
# The limit of elements in each other: what is in deeper ones belongs to the last one.
_DEEPEST = 40
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_BACKTICKS = re.compile("`{3,}")


def numeral(number: int, form: str) -> str:
    """Return a number in a form of HTML, CSS or Word, such as `a`, `lower-roman` or `upperLetter`; `001` fills up to 3.

    After z, HTML goes on with aa and ab, and Word with aa and bb. It is empty if the form is unknown, or has no such
    number.
    """
    kind = _TYPES.get(form, form)
    text = ""
    if kind.lstrip("0") == "1":
        text = str(number).zfill(len(kind))
    elif kind in ("i", "I") and 0 < number < 4000:
        for sign, value in _ROMAN.items():
            text += sign * (number // value)
            number %= value
    elif kind in ("a", "A"):
        while number > 0:
            number, letter = divmod(number - 1, 26)
            text = _LETTERS[letter] + text
    # Word has at most 30 letters in a number.
    elif kind in ("lowerLetter", "upperLetter") and 0 < number <= 30 * 26:
        times, letter = divmod(number - 1, 26)
        text = _LETTERS[letter] * (times + 1)
    return text.upper() if kind[0] in "AIu" else text


def html_to_text(html: str) -> str:
    """Return the text of a page: headings, lists, tables, code and link texts."""
    parser = _TreeParser()
    # No tag begins behind the last end of one; the parser would look for it at each opening.
    last = html.rfind(">") + 1
    parser.feed(html[:last] + html[last:].replace("<", "&lt;"))
    parser.close()
    return "\n\n".join(_blocks(parser.root.children))


def fenced(code: str, language: str = "") -> str:
    """Return a block of code, in a fence that is longer than any in it."""
    fence = max(["```", *(f"{each}`" for each in _BACKTICKS.findall(code))], key=len)
    return f"{fence}{language}\n{code}\n{fence}"


class _Element:
    """An element of a page, with its texts and elements in order."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[_Element | str] = []

    def number(self, name: str, default: int) -> int:
        """Return the number in an attribute, or `default` where it has none."""
        match = _INTEGER.match(self.attributes.get(name) or "")
        return int(match[0]) if match else default

    def span(self, name: str) -> int:
        """Return the number of columns or rows of a cell."""
        return min(max(self.number(name, 1), 1), _MAX_SPANNED)


class _TreeParser(HTMLParser):
    """Makes the tree of a page, even if end tags are missing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = _Element("", {})
        self._open = [self.root]
        self._has_comment_ends = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in _ENDS:
            self._end(*_ENDS[tag])
        # The element that it becomes below is left out with its content (`_SILENT`).
        if tag == "math":
            self.handle_data(f"[formula {attributes.get('alttext') or ''}]")
        if tag == "img" and (alt := attributes.get("alt")):
            self.handle_data(f"[image: {alt}]")
        elif tag == "input":
            self.handle_data(_typed(attributes))
        # At the limit of depth only tags of `_ENDS` and `_VOID` still become elements.
        elif len(self._open) < _DEEPEST or tag in _ENDS or tag in _VOID:
            element = _Element(tag, attributes)
            self._open[-1].children.append(element)
            if tag not in _VOID:
                self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        # Within a table, the end tag of a row, cell or other element in `_ENDS` ends nothing outside of the table.
        self._end({tag}, _TABLE if tag in _ENDS else set(), last=True)

    def parse_marked_section(self, i: int, _report: bool = True) -> int:
        """Leave out `<![if ...]>`, as browsers do; the base class gives up where it does not know the word."""
        return self.rawdata.find(">", i) + 1 or -1

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Look for the end of a comment. After one failure look no more, since the complete page is here."""
        end = super().parse_comment(i, report) if self._has_comment_ends else -1
        self._has_comment_ends = end >= 0
        return end

    def _end(self, tags: set[str], within: set[str], *, last: bool = False) -> None:
        """End an open element with one of `tags`, and what is open in it; nothing happens without such an element.

        The search goes from the innermost open element outwards, up to one with a tag of `within`. It ends the
        outermost one that it finds, or the innermost if `last`.
        """
        first = 0
        for index in range(len(self._open) - 1, 0, -1):
            if self._open[index].tag in tags:
                first = index
            if self._open[index].tag in within or (first and last):
                break
        if first:
            del self._open[first:]

    def handle_data(self, data: str) -> None:
        tags = {element.tag for element in self._open}
        if "svg" not in tags or tags & _DRAWN:
            self._open[-1].children.append(data if "pre" in tags else _SPACES.sub(" ", data))


def _blocks(children: Iterable[_Element | str]) -> list[str]:
    """Return the blocks among some children of an element: paragraphs, lists, tables and so on.

    The pieces of text from `_parts` are joined to a line, which is a paragraph; a list of blocks ends it.
    """
    blocks: list[str] = []
    line = ""
    # The empty list at the end completes the last paragraph.
    for part in (*_parts(children), []):
        if isinstance(part, str):
            line += part.lstrip(" ") if not line or line[-1] in " \n" else part
            continue
        if text := "\n".join(each.strip() for each in line.split("\n")).strip():
            blocks.append(text)
        line = ""
        blocks += filter(None, part)
    return blocks


def _parts(children: Iterable[_Element | str]) -> Iterator[str | list[str]]:
    """Yield the text of some children in pieces, and the blocks of each block among them."""
    for child in children:
        if isinstance(child, str):
            yield child
        elif child.tag == "br":
            yield "\n"
        elif child.tag in _BLOCKS | _CELLS:
            yield _blocks_of(child)
        elif child.tag in RAISED:
            yield _raised(child)
        elif _is_visible(child):
            yield _MARKS.get(child.tag, "")
            yield from _parts(child.children)
            yield _MARKS.get(child.tag, "")


def _blocks_of(element: _Element) -> list[str]:
    """Return the blocks of an element that is not inline."""
    tag = element.tag
    if tag in ("ul", "ol"):
        return ["\n".join(_items(element))]
    # A row has no place for lines of code.
    if tag in ("table", "tr") and not any(_elements(element, {"pre"}, set())):
        return [*_blocks(_between_cells(element)), "\n".join(_rows(element))]
    if tag == "hr":
        return ["---"]
    if tag == "pre":
        return [fenced("".join(_code(element)).strip("\n"))]
    blocks = _blocks(element.children)
    if tag == "blockquote":
        return [_prefixed(block, "> ") for block in blocks]
    return [_HEADINGS[tag] + " ".join(blocks)] if tag in _HEADINGS and blocks else blocks


def _items(element: _Element) -> Iterator[str]:
    """Yield the items of a list, with a number or dash each, and further lines indented."""
    for child, bullet in _with_bullets(element):
        if text := "\n".join(_blocks([child])):
            indented = _prefixed(text, "  ")
            yield indented if bullet is None else f"{bullet} ".lstrip() + indented.removeprefix("  ")


def _with_bullets(element: _Element) -> Iterator[tuple[_Element | str, str | None]]:
    """Yield what is in an element, with the number or dash before each item of a list; None before anything else.

    An attribute `label`, which is not of HTML but comes from `docx_text`, stands instead of the number or dash.
    """
    # The number of the last item; before the first one, one less.
    number = element.number("start", 1) - 1
    for child in element.children:
        bullet = None
        if isinstance(child, _Element) and child.tag == "li":
            number = child.number("value", number + 1)
            bullet = child.attributes.get("label")
            form = _form_of(child) or _form_of(element)
            if bullet is None and element.tag == "ol" and form != "none":
                bullet = f"{numeral(number, form) or number}."
            elif bullet is None:
                bullet = "-"
        yield child, bullet


def _form_of(element: _Element) -> str:
    """Return the form of numbers that a list or an item asks for, in CSS or by its type; empty if it does not."""
    match = _LIST_STYLE.search(element.attributes.get("style") or "")
    return match[1].lower() if match else element.attributes.get("type") or ""


def _between_cells(element: _Element) -> Iterator[_Element | str]:
    """Yield what a table has in none of its cells, such as its caption; a browser shows it above."""
    for child in element.children:
        if isinstance(child, str) or child.tag == "table":
            yield child
        elif child.tag not in _CELLS and _is_visible(child):
            yield from _between_cells(child)


def _code(element: _Element) -> Iterator[str]:
    """Yield the text of a block of code, with its line ends and without marks."""
    for child in element.children:
        if isinstance(child, str):
            yield child
        elif _is_visible(child):
            yield from _code(child)
            if child.tag in _BLOCKS | {"br", "li"}:
                yield "\n"


def _rows(element: _Element) -> Iterator[str]:
    """Yield the lines of a table. A merged cell has its text in the first place that it covers; others are empty."""
    # How many of the next rows a merged cell covers, by column.
    covered: dict[int, int] = {}
    first = True
    for row in _elements(element, {"tr"} | _CELLS, _TABLE):
        cells = _cells(row, covered)
        if cells:
            yield f"| {' | '.join(cells)} |"
            if first:
                yield f"|{' --- |' * len(cells)}"
            first = False


def _cells(row: _Element, covered: dict[int, int]) -> list[str]:
    """Return the text of a row's cells, and empty ones where it is covered; count `covered` on to the next row."""
    cells: list[str] = []

    def fill_covered() -> None:
        while covered.get(len(cells), 0):
            covered[len(cells)] -= 1
            cells.append("")

    for cell in _elements(row, _CELLS, _TABLE):
        fill_covered()
        text = " ".join("".join(_texts(cell)).split()).replace("|", "\\|")
        columns = cell.span("colspan")
        covered.update(dict.fromkeys(range(len(cells), len(cells) + columns), cell.span("rowspan") - 1))
        cells += [text] + [""] * (columns - 1)
    if cells:
        fill_covered()
    return cells


def _raised(element: _Element) -> str:
    """Return a superscript or subscript: `⁶` where all its characters exist in Unicode, otherwise `^{th}`."""
    text = "".join(_texts(element)).strip()
    mark, table = RAISED[element.tag]
    # This is a reference to a note.
    if not text or text.startswith("["):
        return text
    return text.translate(table) if all(ord(each) in table for each in text) else f"{mark}{{{text}}}"


def _typed(attributes: dict[str, str | None]) -> str:
    """Return what a field of a form holds."""
    kind = (attributes.get("type") or "text").casefold()
    if kind in ("checkbox", "radio"):
        return "[x] " if "checked" in attributes else "[ ] "
    if kind in ("hidden", "password", "image"):
        return ""
    return attributes.get("value") or attributes.get("placeholder") or ""


def _is_visible(element: _Element) -> bool:
    """Return whether an element is shown: of a list of choices, the chosen ones are."""
    return element.tag not in _SILENT and (element.tag != "option" or "selected" in element.attributes)


def _elements(element: _Element, tags: set[str], but: set[str]) -> Iterator[_Element]:
    """Yield an element or those inside it with one of `tags`, but not those inside another with one of `but`."""
    if element.tag in tags:
        yield element
        return
    for child in element.children:
        if isinstance(child, _Element) and child.tag not in but:
            yield from _elements(child, tags, but)


def _texts(element: _Element) -> Iterator[str]:
    """Yield all text of an element on one line."""
    for child, bullet in _with_bullets(element):
        if isinstance(child, str):
            yield child
        elif child.tag in RAISED:
            yield _raised(child)
        elif _is_visible(child):
            ends = " " if child.tag in _BLOCKS | _CELLS | {"br", "li"} else _MARKS.get(child.tag, "")
            yield f" {bullet} " if bullet else ends
            yield from _texts(child)
            yield ends


def _prefixed(text: str, prefix: str) -> str:
    return "\n".join(prefix + line for line in text.split("\n"))


# Of an output in several formats, Jupyter shows the first of these.
_FORMATS = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PICTURE = re.compile(r"data:image/[^;,\s]{1,40};base64,[A-Za-z0-9+/=]+")


def notebook_text(text: str) -> tuple[str, str]:
    """Return a notebook in Markdown, and a note; one in another format, as it is."""
    try:
        blocks = [block for cell in json.loads(text)["cells"] for block in _cell_blocks(cell)]
    # Anything can be wrong in a foreign file.
    except Exception:
        return text, "It was read as JSON: it is damaged, or not in the present format of notebooks."
    has_pictures = '"image/' in text or "data:image/" in text
    return _PICTURE.sub("[picture]", "\n\n".join(blocks)), "Its pictures were left out." if has_pictures else ""


def _cell_blocks(cell: dict[str, Any]) -> Iterator[str]:
    """Yield a cell's source and its outputs as Markdown; one of a damaged notebook raises any error.

    An output is printed text, the traceback of an error, or data in several formats. Of these the first in `_FORMATS`
    counts, else the first that it has. A format that is no text is only named.
    """
    source = "".join(cell["source"])
    yield fenced(source.strip("\n")) if cell["cell_type"] == "code" else source
    for output in cell.get("outputs", ()):
        lines = output.get("text") or "\n".join(output.get("traceback", ()))
        data = output.get("data", {"text/plain": lines})
        # Some outputs show nothing.
        kind = next((each for each in (*_FORMATS, *data) if each in data), "")
        if not kind:
            continue
        if kind == "text/html":
            yield html_to_text("".join(data[kind]))
        elif kind.startswith("text/"):
            yield fenced(_COLOUR.sub("", "".join(data[kind])).strip("\n"))
        else:
            yield f"[{kind}]"
