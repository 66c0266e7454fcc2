# ruff: noqa: RUF001  full-width punctuation is what these tests are about
import pytest

from rdchat.ui.style import is_openable
from rdchat.ui.transcript.markdown.block_stream import BlockStream
from rdchat.ui.transcript.markdown.blocks import Block, Kind, Run, safe_text
from rdchat.ui.transcript.markdown.copying import as_plain, blocks_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser, PlainParser
from tests.ui.transcript.conftest import blocks_after, updates


def blocks(source: str) -> list[Block]:
    return MarkdownParser().parse(source, 0, {}, None).blocks


def text(block: Block) -> str:
    return "".join(run.text for run in block.runs)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        # QTextDocument.setMarkdown took List<String> for a tag and swallowed the rest of the message.
        (
            "A List<String> and <b>bold</b>\n\n<div>\nx\n</div>",
            ["A List<String> and <b>bold</b>", "<div>\nx\n</div>"],
        ),
        ("Roses are red,\nviolets are blue.", ["Roses are red,\nviolets are blue."]),
        ("![a cat](https://example.org/cat.png)", ["a cat (https://example.org/cat.png)"]),
        ("![](https://example.org/cat.png)", ["https://example.org/cat.png"]),
    ],
)
def test_html_line_breaks_and_images_stay_text(source: str, texts: list[str]) -> None:
    assert [text(block) for block in blocks(source)] == texts


def test_looks_nest_and_join() -> None:
    (block,) = blocks("a **b *c*** `d` ~~e~~")
    assert block.runs == (
        Run("a "),
        Run("b ", bold=True),
        Run("c", bold=True, italic=True),
        Run(" "),
        Run("d", code=True),
        Run(" "),
        Run("e", strike=True),
    )


def test_marks_of_footnotes_are_raised_in_the_text_and_before_each_note() -> None:
    mark, notes = blocks("It is so[^1], see[^long name][^b].\n\n[^1]: Word\n[^b]: Two\n  lines *here*.")
    assert text(mark) == "It is so[1], see[^long name][b]."
    assert [run.text for run in mark.runs if run.raised] == ["[1]", "[b]"]
    assert text(notes) == "[1]: Word\n[b]: Two\nlines here."
    assert [run.text for run in notes.runs if run.raised] == ["[1]", "[b]"]
    assert text(blocks("`[^1]` and [^1](x)\n\n    [^1]: code")[0]) == "[^1] and ^1"
    assert as_plain([mark]) == text(mark)
    assert MarkdownParser().html("So[^<]") == "<p>So<sup>[&lt;]</sup></p>\n"


def test_a_quote_in_a_list_knows_that_it_stands_there() -> None:
    assert [block.nesting for block in blocks("- a\n\n  > b\n  > - c\n\n> d\n> - e")] == ["l", "lq", "lql", "q", "ql"]


def test_a_long_table_goes_on_in_parts_that_are_bounded() -> None:
    source = "Before\n\n| a | b |\n|---|--:|\n" + "".join(
        f"| {n} | *x* |{' more |' * (n % 40 == 39)}\n" for n in range(400)
    )
    source += "\nAfter | it\n"
    for final in (True, False):
        before, *tables, after = blocks_after([], updates(BlockStream(MarkdownParser()), source, final=final))
        assert (text(before), text(after)) == ("Before", "After | it")
        assert all(block.kind is Kind.TABLE and block.alignments[:2] == ("", "right") for block in tables)
        assert [block.joined for block in tables] == [False, *[True] * (len(tables) - 1)]
        assert max(len(block.rows) for block in tables) < 80
        rows = [row for block in tables for row in block.rows]
        assert [row[0][0].text for row in rows] == ["a", *map(str, range(400))]
        assert sum(len(row) > 2 and row[2] == (Run("more"),) for row in rows) == 10, "no surplus cell is lost"


@pytest.mark.parametrize(
    "address", ["https://example.org/a", "HTTP://example.org", "mailto:a@example.org", "https://example.org/a_(b)"]
)
def test_web_and_mail_addresses_are_links(address: str) -> None:
    assert blocks(f"[x](<{address}>)")[0].runs[0].href
    assert is_openable(address)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JAVASCRIPT:alert(1)",
        "java\tscript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "vbscript:x",
        "relative/path",
        "#anchor",
        "//example.org",
        " https:",
    ],
)
def test_other_addresses_stay_text_and_say_which(address: str) -> None:
    (run,) = blocks(f"[x](<{address}>)")[0].runs
    assert (run.text, run.href, bool(run.refused)) == ("x", "", True)
    assert not is_openable(address)


def test_a_numbered_list_may_begin_at_any_number() -> None:
    for first in (0, 1, 7):
        markers = [f"{first + index}." for index in range(3)]
        assert [block.marker for block in blocks("\n".join(f"{marker} x" for marker in markers))] == markers
        # An item that is long settles what is above it: the number of the next piece is its own.
        source = f"\n\n{first}. {'word ' * 300}\n\n   more\n"
        begun = blocks_after([], updates(BlockStream(MarkdownParser()), source, final=False))
        assert [block.marker for block in begun if block.marker] == [f"{first}."]


def test_lists_carry_markers_levels_and_numbers() -> None:
    found = [
        (block.marker, block.indent, text(block))
        for block in blocks("4. a\n5. b\n   - c\n     - d\n- [x] e\n-\n- [ ] f")
    ]
    assert found == [
        ("4.", 1, "a"),
        ("5.", 1, "b"),
        ("◦", 2, "c"),
        ("▪", 3, "d"),
        ("☑", 1, "e"),
        ("•", 1, ""),
        ("☐", 1, "f"),
    ]


def test_tables_have_equally_long_rows_and_alignments() -> None:
    (table,) = blocks("| a | b |\n|:-:|--:|\n| 1 |\n| 2 | 3 | 4 |")
    assert table.kind is Kind.TABLE
    assert table.alignments == ("center", "right", "")
    assert [len(row) for row in table.rows] == [3, 3, 3], "the surplus cell is kept"


def test_code_is_one_block_a_line_and_knows_its_language() -> None:
    found = blocks("- x\n  ```python title\n  a\n\n  b\n  ```")
    code = [block for block in found if block.kind is Kind.CODE]
    assert [(text(block), block.language, block.tight) for block in code] == [
        ("a", "python", False),
        ("", "python", True),
        ("b", "python", True),
    ]


def test_what_a_person_typed_is_kept_line_by_line() -> None:
    parsed = PlainParser().parse("  *not* italic\n\n# not a heading\n", 0, {}, None)
    assert [text(block) for block in parsed.blocks] == ["  *not* italic", "", "# not a heading"]


def test_a_person_can_fence_code() -> None:
    found = blocks_of("look:\n```c\nint a;\n```\nthanks", PlainParser())
    assert [(block.kind, text(block)) for block in found] == [
        (Kind.TEXT, "look:"),
        (Kind.CODE, "int a;"),
        (Kind.TEXT, "thanks"),
    ]


def test_characters_that_qt_takes_for_structure_are_replaced() -> None:
    assert safe_text("a\0b\ufdd0c\u2029d\ud800e\r\nf") == "a\ufffdb\ufffdc\ufffdd\ufffde\nf"


def marked(source: str) -> list[str]:
    return [run.text for block in blocks(source) for run in block.runs if run.bold or run.italic or run.strike]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("**注意：**请看说明。", ["注意："]),
        ("他说**「你好」**吗", ["「你好」"]),
        ("这是**“引用”**说明", ["“引用”"]),
        ("*（注）*后面", ["（注）"]),
        ("~~删除线（test）~~后面", ["删除线（test）"]),
        ("**スクリプト（script）**を", ["スクリプト（script）"]),
        ("**스크립트(script)**를", ["스크립트(script)"]),
        ("请用**`ls -l`**命令", ["`ls -l`".strip("`")]),
        ("**价格：$5**。", ["价格：$5"]),
    ],
)
def test_emphasis_ends_beside_east_asian_text(source: str, words: list[str]) -> None:
    assert marked(source) == words
    assert marked(f"| a |\n|---|\n| x |\n\n- {source}") == words


@pytest.mark.parametrize(
    "source", ["中文 ** 中文 **", "2 * 3 * 4", "**Note:**text", "a**😀**b", "文_件_名", "** 注意**"]
)
def test_emphasis_elsewhere_is_as_commonmark_has_it(source: str) -> None:
    assert marked(source) == []


def cells(source: str) -> list[list[str]]:
    return [["".join(run.text for run in cell) for cell in row] for block in blocks(source) for row in block.rows]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("| f | v |\n|---|---|\n| $|x|$ | 2 |", [["f", "v"], ["$|x|$", "2"]]),
        ("| f | v |\n|---|---|\n| \\(|x|\\) | $P(A|B)$ |", [["f", "v"], ["\\(|x|\\)", "$P(A|B)$"]]),
        ("| `a | b` | v |\n|---|---|\n| ``x ` | y`` | 2 |", [["a | b", "v"], ["x ` | y", "2"]]),
        ("f | v\n---|---\n`a|b` | $5\n$5 | $6 | 7", [["f", "v", ""], ["a|b", "$5", ""], ["$5", "$6", "7"]]),
        ("| a |\n|---|\n| 1 | 2 | 3 |\n| 4 |", [["a", "", ""], ["1", "2", "3"], ["4", "", ""]]),
        ("| a | b |\n|---|---|\n| `x\\|y` | z |", [["a", "b"], ["x|y", "z"]]),
        ("| a |\n|---|\n| one<br>two<BR/>three<br />`<br>` \\<br> |", [["a"], ["one\ntwo\nthree\n<br> <br>"]]),
        ("> | a | b |\n> |---|---|\n> | $|x|$ | 2 | 3<br>4", [["a", "b", ""], ["$|x|$", "2", "3\n4"]]),
    ],
)
def test_no_cell_of_a_table_is_lost(rows: str, expected: list[list[str]]) -> None:
    assert cells(rows) == expected


def test_rich_text_has_all_cells_and_breaks() -> None:
    html = MarkdownParser().html("| a |\n|---|\n| 1<br>2 | 3 |")
    assert "<td>1<br />\n2</td>" in html.replace("<td>\n", "<td>")
    assert "<td>3</td>" in html


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("Results:<br>one<br/>two", "Results:\none\ntwo"),
        ("`a<br>b`", "a<br>b"),
        ("H<sub>2</sub>O, 10<sup>6</sup> m, x<sup>th</sup>", "H₂O, 10⁶ m, x^(th)"),
        ("Press <kbd>Esc</kbd>, <u>now</u>", "Press Esc, now"),
        ("a < b and <b> and <script>", "a < b and <b> and <script>"),
    ],
)
def test_harmless_tags_are_formats(source: str, shown: str) -> None:
    assert as_plain(blocks(source)) == shown


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("See https://example.org/a?b=1.", "https://example.org/a?b=1"),
        ("见 https://example.com/docs\uff0c然后继续。", "https://example.com/docs"),
        ("\u300chttps://example.com/下载\u300d", "https://example.com/下载"),
        ("See https://example.com/Foo_(bar) there.", "https://example.com/Foo_(bar)"),
        ("(see https://example.com/Foo_(bar)).", "https://example.com/Foo_(bar)"),
        ("(see https://example.com/a).", "https://example.com/a"),
        ("https://example.com/" + ")" * 2000, "https://example.com/"),
    ],
    ids=range(7),
)
def test_an_address_ends_where_the_sentence_goes_on(source: str, address: str) -> None:
    assert [run.href for block in blocks(source) for run in block.runs if run.href] == [address]
