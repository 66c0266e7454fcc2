"""Formulas: what is one, how it is drawn, and what becomes of one that cannot be."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from rdchat.chat.rendering.formulas import UNITS, Formula, FormulaDrawer, draw_formula
from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.blocks import Block, Kind
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.markdown.text_formats import FORMULAS, FormulaLibrary, TextFormats
from tests.ui.transcript.conftest import draw, new_body

OBJECT = "\ufffc"


def parsed(source: str) -> list[Block]:
    return MarkdownParser().parse(source, 0, {}, None).blocks


def formulas(source: str) -> list[tuple[str, bool]]:
    return [(run.maths, run.display) for block in parsed(source) for run in block.runs if run.maths]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("so $x^2$ is", [("x^2", False)]),
        (r"so \(x_1 * y_1\) is", [("x_1 * y_1", False)]),
        ("$$a*b*c$$", [("a*b*c", True)]),
        ("text $$a$$ text", [("a", True)]),
        ("\\[\na = b\n- c\n\\]", [("a = b\n- c", True)]),
        ("$$\na\n= b\n$$\nafter", [("a\n= b", True)]),
        ("$$\nx = 1\n\ny = 2\n$$\nafter", [("x = 1\ny = 2", True)]),
        ("$$\na\n\n- b \\text{if it is so}\n\n\n= c\n$$", [("a\n- b \\text{if it is so}\n= c", True)]),
        ("\\[\nx\n\n\\sin y\n\\]\n\nThen **it** is.", [("x\n\\sin y", True)]),
        ("- item\n\n  $$\n  b\n\n  c\n  $$\n\nafter", [("b\nc", True)]),
        ("$$\nx = 1\n\nWithout its end.\n\n$$\ny = 2\n$$", [("y = 2", True)]),
        ("$$\nx = 1\n\n所以\n\n$$\ny = 2\n$$", [("y = 2", True)]),
        ("$$\nx = 1\n\n## So\n\n$$\ny = 2\n$$", [("y = 2", True)]),
        ("\\[\nx = 1\n\n$$\ny = 2\n$$", [("y = 2", True)]),
        ("$$\nx = 1\n\n$$y = 2$$", [("y = 2", True)]),
        ("\\begin{align}\na &= b\n\\end{align}", [("\\begin{align}\na &= b\n\\end{align}", True)]),
        ("- item $a_i$\n\n  $$\n  b\n  $$", [("a_i", False), ("b", True)]),
        ("| $a$ |\n|---|", []),  # cells are in `rows`
        ("> $$x$$", [("x", True)]),
        ("$5$", [("5", False)]),
        ("the set $A$, $ABCD$, $RMSE$, $a_B$", [("A", False), ("ABCD", False), ("RMSE", False), ("a_B", False)]),
        ("$2x+1$ and $n$-th", [("2x+1", False), ("n", False)]),
        ("设$x^2$为正数。", [("x^2", False)]),
        ("Here $ \\alpha $ and $ \\beta $.", [("\\alpha", False), ("\\beta", False)]),
        # Prices, code and single dollars
        *[(source, []) for source in (
            "It costs $5 and $10.", "between $5-$10 or US$20", "from $5 to 10$", "He paid $ 5 and $ 6 there",
            "价格是$5\uff0c或者$10。", "a $ b $ c", "`$x$`", "```\n$x$\n```", "    $$\n    x\n    $$", r"\$x\$",
            "open $x and no end", "$$", "PATH=$HOME:$PATH", "echo $USER$",
            "type `env` to see $PATH$, or $HOME/$USER$", "export -n $name$ and $MY_VAR$",
        )],
    ],
)  # fmt: skip
def test_formulas_are_found(source: str, found: list[tuple[str, bool]]) -> None:
    assert formulas(source) == found


@pytest.mark.parametrize(
    "tex",
    [
        r"\frac{a}{b}", r"\sum_{i=1}^{n} i", r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", r"\sqrt[3]{x}",
        r"\begin{cases} x & \text{if } x > 0 \\ 0 & \text{otherwise} \end{cases}", r"\hat{x} \bar{y} \vec{v}",
        r"\begin{aligned} a &= b \\ &= d \end{aligned}", r"\alpha\Gamma\varepsilon", r"\operatorname{argmax}_\theta",
        r"\underbrace{a+b}_{n} \overbrace{a}^{m}", r"\left( \frac{1}{2} \right)", r"\mathbb{R}^n \mathbf{x}",
        r"\int_0^\infty e^{-x^2}\,dx", r"\binom{n}{k}", "\\begin{align*}\na &= b \\tag{1}\n\\end{align*}",
        r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}^{-1}", r"\begin{bmatrix*} 1 \\ 2 \end{bmatrix*}_2^T",
        r"\begin{vmatrix} a & \begin{matrix} b \end{matrix}^2 \\ c & d \end{vmatrix}'",
    ],
)  # fmt: skip
def test_common_formulas_are_drawn(tex: str) -> None:
    formula = draw_formula(tex, True)
    assert formula.width > 4
    assert formula.ascent + formula.depth > 4


@pytest.mark.parametrize("tex", [r"\notacommand{x}", r"\frac{a", r"\mathop{foo}", "{" * 1500, "", r"\begin{x}"])
def test_what_cannot_be_drawn_whole_is_not_drawn(tex: str) -> None:
    assert draw_formula(tex, True) is None


@pytest.fixture(scope="module")
def begun() -> None:
    """Begin the process that draws, and give it time: on a busy machine both take some seconds."""
    FORMULAS._drawer._limits = replace(FORMULAS._drawer._limits, seconds=60.0)
    until = time.monotonic() + 120
    while FORMULAS.find_picture("x", True) is None and time.monotonic() < until:
        time.sleep(0.01)


@pytest.fixture
def body(qtbot: QtBot, theme: Theme, begun: None) -> TextBody:
    body = new_body(qtbot, theme)
    body.resize(400, 400)
    return body


def test_a_formula_stands_in_its_line_and_is_copied_as_written(qtbot: QtBot, body: TextBody) -> None:
    draw(qtbot, body, "So $\\frac{a}{b}$ and\n\n$$\n\\frac{a}{b}\n$$\n\n- \\(y\\) end")
    assert body.toPlainText() == f"So {OBJECT} and\n{OBJECT}\n•\t{OBJECT} end"
    body.selectAll()
    body.copy()
    assert QGuiApplication.clipboard().text() == "So $\\frac{a}{b}$ and\n\n$$\n\\frac{a}{b}\n$$\n\n• \\(y\\) end"
    body.heightForWidth(400)  # lays it out
    formula = body.document().firstBlock().next()
    drawn = draw_formula("\\frac{a}{b}", True)
    tall = (drawn.ascent + drawn.depth) / UNITS * body.fontMetrics().ascent()
    height = body.document().documentLayout().blockBoundingRect(formula).height()
    assert tall <= height < 2 * tall  # it overlaps nothing


def test_a_formula_that_cannot_be_drawn_is_its_source_and_says_so(qtbot: QtBot, body: TextBody) -> None:
    draw(qtbot, body, r"Bad $\nosuchthing{x}$, good $z^3$.")
    assert body.toPlainText() == f"Bad $\\nosuchthing{{x}}$, good {OBJECT}."
    assert body.document().find("nosuch").charFormat().toolTip() == "This formula cannot be drawn."


def test_an_unfinished_formula_is_text_until_it_closes(qtbot: QtBot, body: TextBody) -> None:
    text = "Look:\n\n$$\na\n- b\n= c_1\n$$\n\nand $d$ end"
    seen = []
    for end in range(len(text) + 1):
        draw(qtbot, body, text[:end], final=False)
        seen.append(body.toPlainText())
    assert seen[text.index("_1") + 2].replace("\u2028", "\n") == "Look:\n$$\na\n- b\n= c_1"
    draw(qtbot, body, text)
    assert body.toPlainText() == f"Look:\n{OBJECT}\nand {OBJECT} end"


@pytest.mark.parametrize("signs", ["$$%s$$", "So $$x$$ is.\n\nHere $$%s$$ stands in a line, and goes on.\n\nMore."])
def test_a_wide_formula_shrinks_to_the_column(qtbot: QtBot, body: TextBody, signs: str) -> None:
    draw(qtbot, body, signs % " + ".join(f"x_{{{n}}}" for n in range(20)))

    def widest(width: int) -> float:
        body.resize(width, body.heightForWidth(width))
        layouts = [body.document().findBlockByNumber(n).layout() for n in range(body.document().blockCount())]
        return max(each.lineAt(n).naturalTextWidth() for each in layouts for n in range(each.lineCount()))

    assert 300 < widest(400) <= 400
    assert 500 < widest(600) <= 600


def test_formulas_take_the_texts_colour(qtbot: QtBot, body: TextBody, theme: Theme) -> None:
    draw(qtbot, body, "$x$")
    body.show()
    picture = body.grab().toImage()
    ground = picture.pixelColor(399, 399).lightness()
    tones = [picture.pixelColor(x, y).lightness() for x in range(20) for y in range(20)]
    ink = max(tones, key=lambda tone: abs(tone - ground))
    assert abs(ink - theme.colors.text.lightness()) < 90


def test_a_formula_that_is_drawn_while_its_table_is_made_leaves_no_wide_column(
    qtbot: QtBot, body: TextBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column was as wide as the formula's source, which it was measured by."""
    measure = TextFormats.column_widths

    def measure_before_it_is_drawn(formats: TextFormats, block: Block) -> list[float]:
        widths = measure(formats, block)
        assert FORMULAS._jobs["\\operatorname{argmin}_\\varrho", False].result() is not None
        return widths

    monkeypatch.setattr(TextFormats, "column_widths", measure_before_it_is_drawn)
    draw(qtbot, body, "| $\\operatorname{argmin}_\\varrho$ | b |\n|---|---|\n| 1 | 2 |")
    assert body._writer.blocks[0].kind is Kind.TABLE
    assert body._writer.tables[0].format().columnWidthConstraints()[0].rawValue() < 130


def test_a_formula_alone_in_a_cell_stands_on_the_line_of_the_words_beside_it(qtbot: QtBot, body: TextBody) -> None:
    draw(qtbot, body, "| a | b |\n|---|---|\n| $x > 0$ | words |\n")
    body.resize(400, body.heightForWidth(400))
    ascents = {}
    document = body.document()
    for place in range(document.blockCount()):
        block = document.findBlockByNumber(place)
        if (text := block.text()) in {OBJECT, "words"}:
            layout = block.layout()
            ascents[text] = layout.lineAt(0).ascent()
    assert len(ascents) == 2
    assert ascents[OBJECT] == pytest.approx(ascents["words"], abs=1)  # in pixels


class Drawer(FormulaDrawer):
    """Draws nothing, and waits before each formula until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_draw = threading.Semaphore(0)
        self.begun: list[str] = []

    def draw_formula(self, tex: str, display: bool, waiting: Callable[[], None] = lambda: None) -> Formula | None:
        self.begun.append(tex)
        while not self.may_draw.acquire(timeout=0.01):
            waiting()
        return None if tex == "bad" else Formula("", 1, 1, 0)


@pytest.fixture
def drawer() -> Drawer:
    return Drawer()


@pytest.fixture
def library(drawer: Drawer) -> Iterator[FormulaLibrary]:
    library = FormulaLibrary(drawer)
    yield library
    for job in library._jobs.values():
        job.cancel()
    library._thread.wait_for_jobs()


def test_they_are_drawn_once_in_the_order_they_are_asked_for(
    qtbot: QtBot, drawer: Drawer, library: FormulaLibrary
) -> None:
    for tex in "abcb":
        library.find_picture(tex, True)
    drawer.may_draw.release(5)
    qtbot.waitUntil(lambda: library.is_known("c", True))
    assert drawer.begun == list("abc")


def test_what_cannot_be_drawn_is_not_tried_again(qtbot: QtBot, drawer: Drawer, library: FormulaLibrary) -> None:
    drawer.may_draw.release()
    library.find_picture("bad", True)
    qtbot.waitUntil(lambda: library.cannot_draw("bad", True))
    assert library.find_picture("bad", True) is None
    assert library.find_picture("good", True) is None
    drawer.may_draw.release()
    qtbot.waitUntil(lambda: library.find_picture("good", True) is not None)
    assert drawer.begun == ["bad", "good"]
