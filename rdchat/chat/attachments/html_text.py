"""Converts HTML to text that reads as Markdown. It runs and fetches nothing."""

import re
from html.parser import HTMLParser

_SILENT = {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "head", "select", "canvas"}
_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "figure", "figcaption", "address",
    "form", "fieldset", "dl", "dt", "dd", "details", "summary", "blockquote", "hr", "table", "caption", "body",
    "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "pre",
}  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}
_MOST_NESTED = 12  # lists and quotes: deeper ones are indented no further
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")


def html_to_text(html: str) -> str:
    """Return what a page says: headings, lists, tables, code and the words of links."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    """Converts tag by tag, without recursion."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = []  # those that are done
        self._line = ""
        self._silent: list[str] = []
        self._lists: list[int | None] = []  # the last number; None where the list has none
        self._quotes = 0
        self._pre = 0
        self._cells: list[str] | None = None  # of the row that is read
        self._inner = 0  # tables in a cell of it, whose words are the cell's
        self._rows = 0
        self._title = False

    def text(self) -> str:
        self._end_row()
        self._end_line()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and self._silent == ["head"]:
            self._title = True
            self._line = "# "
            return
        if tag == "body":
            self._silent.clear()  # a head that was never closed
        if tag in _SILENT:
            self._silent.append(tag)
        if not self._silent:
            self._start(tag, dict(attrs))

    def _start(self, tag: str, attrs: dict[str, str | None]) -> None:
        if self._cells is not None and self._start_in_row(tag):
            return
        if tag in ("ul", "ol"):
            self._break(blank=not self._lists)
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._end_line()
            self._line = self._bullet()
        elif tag == "tr":
            self._end_line()
            self._cells = []
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "br":
            self._break_line()
        elif tag == "img" and attrs.get("alt"):
            self._add(f"[image: {attrs['alt']}]")
        elif tag in _MARKS and not self._pre:
            self._line += _MARKS[tag]
        elif tag in _BLOCKS:
            self._start_block(tag)

    def _start_in_row(self, tag: str) -> bool:
        """Take a tag that would break the line, which a row's cells cannot; tell whether it was one."""
        if tag == "table":
            self._inner += 1
        elif tag == "tr" and not self._inner:
            self._end_row()
            return False
        elif tag not in ("ul", "ol", "li", "tr") and not (self._inner and tag in ("td", "th")):
            return False
        self._add(" - " if tag == "li" else " ")
        return True

    def _break_line(self) -> None:
        if self._cells is None:
            self._end_line()
        else:
            self._line += " "

    def _start_block(self, tag: str) -> None:
        if self._cells is not None:
            self._line += " "  # a paragraph in a cell
        else:
            self._begin_line(tag)
        self._quotes += tag == "blockquote"

    def _begin_line(self, tag: str) -> None:
        if not (self._lists and tag in ("p", "div")):
            self._break()
        if tag == "table":
            self._rows = 0
        elif tag == "hr":
            self._put("---")
            self._lines.append("")
        elif tag == "pre":
            self._put("```")
            self._pre += 1
        self._line += _HEADINGS.get(tag, "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title" and self._title:
            self._title = False
            self._break()
        if self._silent:
            if tag in self._silent:
                del self._silent[self._silent.index(tag) :]
            return
        if self._cells is not None and tag in ("ul", "ol", "table", "tr"):
            self._end_in_row(tag)
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._break(blank=not self._lists)
        elif tag == "pre" and self._pre:
            self._end_line()
            self._pre -= 1
            self._put("```")
            self._lines.append("")
        elif tag in _MARKS and not self._pre:
            self._line += _MARKS[tag]
        elif tag in _BLOCKS and self._cells is None:
            self._break(blank=not self._lists)
        self._quotes -= tag == "blockquote" and self._quotes > 0

    def _end_in_row(self, tag: str) -> None:
        if self._inner:
            self._inner -= tag == "table"
            self._add(" ")
        elif tag in ("ul", "ol"):
            self._add(" ")
        else:
            self._end_row()
            if tag == "table":
                self._break(blank=not self._lists)

    def handle_data(self, data: str) -> None:
        if not self._silent or self._title:
            self._add(data)

    def _add(self, data: str) -> None:
        if self._pre and self._cells is None:
            *whole, rest = data.split("\n")
            for line in whole:
                self._put(self._line + line)
                self._line = ""
            self._line += rest
            return
        words = _SPACES.sub(" ", data)
        self._line += words.lstrip() if not self._line or self._line.endswith(" ") else words

    def _bullet(self) -> str:
        indent = "  " * min(max(len(self._lists) - 1, 0), _MOST_NESTED)
        if not self._lists or self._lists[-1] is None:
            return f"{indent}- "
        self._lists[-1] += 1
        return f"{indent}{self._lists[-1]}. "

    def _end_cell(self) -> None:
        if self._cells is not None:
            self._cells.append(self._line.strip().replace("|", "\\|"))
        self._line = ""

    def _end_row(self) -> None:
        if self._cells is None:
            return
        self._end_cell()
        self._inner = 0
        cells, self._cells = self._cells[1:], None  # what stood before the first cell is no cell
        if cells:
            self._put(f"| {' | '.join(cells)} |")
            if not self._rows:
                self._put(f"|{' --- |' * len(cells)}")
            self._rows += 1

    def _break(self, *, blank: bool = True) -> None:
        self._end_line()
        if blank and self._lines and self._lines[-1]:
            self._lines.append("")

    def _end_line(self) -> None:
        line = self._line if self._pre else self._line.rstrip()
        self._line = ""
        if line.strip() or self._pre:
            self._put(line)

    def _put(self, line: str) -> None:
        """Add a line that is done."""
        self._lines.append("> " * min(self._quotes, _MOST_NESTED) + line)
