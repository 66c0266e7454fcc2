import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QImage
from pytestqt.qtbot import QtBot

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.benchmark.result import BenchResult, Figure
from rdchat.ui.benchmark.results import ResultsView
from rdchat.ui.look.theme import DARK, LIGHT, Theme
from rdchat.ui.plots.curves import Curve, CurvesPlot
from rdchat.ui.plots.drawing import PAPER, Box, Drawing, Plot, Shape, Text, ink_on, luminance
from rdchat.ui.plots.painting import measure_in
from rdchat.ui.plots.pictures import drawn, save_picture, svg
from rdchat.ui.plots.plot_view import PlotView, palette_of
from rdchat.ui.plots.speedups import LINES, HeatMap, SpeedBars, plots_of
from tests.services.bench_runs import PLAN

BARS = SpeedBars(
    (
        (
            "float32",
            (("Prompt lookup K4", Figure(1.5, 1.4, 1.75, 12)), ("Drafter W4 L5", Figure(0.5, 0.45, 0.55, 12))),
        ),
        ("float16", (("Auto", Figure(2.0, 2.0, 2.0, 1)),)),
    )
)
MAP = HeatMap("float32", (1, 4), (3, 5), {(1, 3): 0.8, (1, 5): 1.1, (4, 5): 1.6})
BOTH = [BARS, MAP]


def of(plot: Plot) -> Drawing:
    return drawn([plot], 600)


def areas(drawing: Drawing, *fills: str) -> list[tuple[float, float, str]]:
    """Return left and right edge and colour of the areas of these colours."""
    found = [shape for shape in drawing.shapes if isinstance(shape, Shape) and shape.fill in fills]
    return [(min(x for x, _ in shape.points), max(x for x, _ in shape.points), shape.fill) for shape in found]


def test_colours_tell_slower_from_faster_and_values_can_be_read_on_them(theme: Theme) -> None:
    for scheme in (Qt.ColorScheme.Light, Qt.ColorScheme.Dark):
        theme.set_scheme(scheme)
        palette = palette_of(theme)
        grounds = [palette.of_speed(speed, 2.5) for speed in (0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5)]
        assert grounds[3] == palette.neutral
        assert (grounds[0], grounds[-1]) == (palette.slower, palette.faster)
        warmth = [QColor(ground).redF() - QColor(ground).blueF() for ground in grounds]
        assert all(one > two for one, two in pairwise(warmth)), "orange turns to blue step by step"
        for ground in grounds:
            lighter, darker = sorted((luminance(ground), luminance(ink_on(ground))), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_files_have_the_colours_of_the_light_window(theme: Theme) -> None:
    theme.set_scheme(Qt.ColorScheme.Light)
    assert palette_of(theme) == PAPER


def test_bars_end_at_their_medians() -> None:
    drawing = of(BARS)
    bars = areas(drawing, PAPER.faster, PAPER.slower)
    assert [color for _, _, color in bars] == [PAPER.faster, PAPER.slower, PAPER.faster]
    (left,) = {left for left, _, _ in bars}
    widths = [right - left for left, right, _ in bars]
    assert widths == pytest.approx([1.5 / 2 * widths[2], 0.5 / 2 * widths[2], widths[2]])
    room = drawing.width - (left + widths[2])
    assert room == pytest.approx(drawing.width_of("2.00x", bold=True) + 12), "the fastest one fills the width"


def test_a_bar_says_its_quartiles() -> None:
    drawing = of(BARS)
    first = drawing.marks[0].words
    assert first == "Prompt lookup K4, float32: 1.50x plain decoding. Half of the 12 values lie from 1.40 to 1.75."
    assert all(words in drawing.words[0] for words in ("Drafter W4 L5", "float16", "2.00x"))


def test_cells_of_the_map_are_coloured_and_the_best_one_is_framed() -> None:
    drawing = of(MAP)
    assert MAP.best == (4, 5)
    grounds = [PAPER.of_speed(speed, 1.6) for speed in MAP.values.values()]
    assert [color for _, _, color in areas(drawing, *grounds)] == grounds
    frames = [shape for shape in drawing.shapes if isinstance(shape, Shape) and shape.color == PAPER.text]
    (frame,) = frames
    best = drawing.marks[3].box
    assert all(best.x <= x <= best.right and best.y <= y <= best.y + best.height for x, y in frame.points)


def test_the_map_says_its_values_and_what_was_not_measured() -> None:
    drawing = of(MAP)
    assert [mark.words for mark in drawing.marks] == [
        "W 1, L 3: 0.80x.", "W 1, L 5: 1.10x.", "W 4, L 3: not measured.", "W 4, L 5: 1.60x. This is the best.",
    ]  # fmt: skip
    assert "Plain decoding is 1x." in drawing.words[0]
    empty = HeatMap("float32", (1,), (2,), {}, "W 1, L 2")
    assert "W 1, L 2 is 1x. Nothing was measured." in of(empty).words[0]


def test_pictures_stand_one_below_the_other() -> None:
    both = drawn(BOTH)
    assert both.height > of(BARS).height + of(MAP).height
    boxes = [mark.box for mark in both.marks]
    assert len(boxes) == 3 + 4
    assert max(box.y + box.height for box in boxes[:3]) <= min(box.y for box in boxes[3:])
    (empty,) = plots_of(BenchResult(PLAN, (), {}))
    assert "Nothing was measured." in of(empty).words[0]


def test_curves_say_what_was_measured_at_each_point_of_the_first() -> None:
    plot = CurvesPlot("Loss", "Lower is better.", [Curve("a", ((0, 2.0), (1, 1.0))), Curve("b", ((1, 0.5),))], False)
    drawing = of(plot)
    words = [mark.words for mark in drawing.marks]
    assert words == ["0\N{NARROW NO-BREAK SPACE}% of the training: a 2.0.",
                     "100\N{NARROW NO-BREAK SPACE}% of the training: a 1.0, b 0.5."]  # fmt: skip
    assert drawing.words == ["Loss. a 1.0; b 0.5."]
    assert of(CurvesPlot("Loss", "", [], False)).words == ["Loss. Nothing was measured yet."]


def test_a_text_that_does_not_fit_is_cut() -> None:
    drawing = Drawing(100, PAPER, lambda text, _size, _bold: 10.0 * len(text))
    drawing.text(Box(0, 0, 50, 10), "abcdefgh")
    assert [shape.text for shape in drawing.shapes if isinstance(shape, Text)] == ["abcd…"]


def test_a_png_has_twice_the_size(qtbot: QtBot, tmp_path: Path) -> None:
    save_picture(BOTH, tmp_path / "bench.PNG")
    image = QImage(str(tmp_path / "bench.PNG"))
    assert (image.width(), image.height()) == (1440, round(2 * (drawn(BOTH).height + 48)))
    colors = {image.pixelColor(x, y).name() for x in range(0, 1440, 8) for y in range(0, image.height(), 8)}
    assert {LIGHT.faster.name(), LIGHT.slower.name()} <= colors


def test_an_svg_holds_its_words_as_text(tmp_path: Path) -> None:
    save_picture(BOTH, tmp_path / "bench.svg")
    root = ET.parse(tmp_path / "bench.svg").getroot()
    texts = {"".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Speed-up over plain decoding", "Prompt lookup K4", "1.50x", "best", "W 4"} <= texts
    assert root.get("viewBox", "").startswith("0 0 720 ")


def test_an_svg_takes_no_name_for_markup() -> None:
    named = SpeedBars((("<b>", (("a & b", Figure(1.5, 1.4, 1.75, 12)),)),))
    assert "&lt;b&gt;" in svg(of(named))
    assert "<b>" not in svg(of(named))


def test_a_pdf_is_one_page(qtbot: QtBot, tmp_path: Path) -> None:
    save_picture(BOTH, tmp_path / "bench.pdf")
    written = (tmp_path / "bench.pdf").read_bytes()
    assert written.startswith(b"%PDF-")
    assert written.count(b"/Type /Page\n") == 1


def test_other_names_and_places_that_cannot_be_written_are_refused(qtbot: QtBot, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"bench\.gif cannot be drawn: .*\.png, \.svg or \.pdf"):
        save_picture([BARS], tmp_path / "bench.gif")
    with pytest.raises(StorageError, match="cannot be written"):
        save_picture([BARS], tmp_path / "missing" / "bench.svg")


def test_the_keyboard_reaches_every_part(qtbot: QtBot, theme: Theme) -> None:
    view = PlotView(theme, "Pictures")
    qtbot.addWidget(view)
    view.show_plots(BOTH)
    view.resize(view.sizeHint())
    view.show()
    view.activateWindow()
    view.setFocus()
    qtbot.waitUntil(view.hasFocus)
    whole = view.accessibleDescription()
    said = []
    for _ in range(8):
        qtbot.keyClick(view, Qt.Key.Key_Down)
        said.append(view.accessibleDescription())
    assert said[0].startswith("Prompt lookup K4")
    assert said[6] == said[7] == "W 4, L 5: 1.60x. This is the best."
    view.clearFocus()
    assert view.accessibleDescription() == whole


def test_the_view_follows_the_theme(qtbot: QtBot, theme: Theme) -> None:
    view = PlotView(theme, "Pictures")
    qtbot.addWidget(view)
    view.show_plots([BARS])
    view.resize(view.sizeHint())
    grounds = {}
    for scheme in (Qt.ColorScheme.Light, Qt.ColorScheme.Dark):
        theme.set_scheme(scheme)
        image = view.grab().toImage()
        grounds[scheme] = {image.pixelColor(x, y).name() for x in range(0, image.width(), 4) for y in range(60, 200, 4)}
    assert QColor(DARK.faster).name() in grounds[Qt.ColorScheme.Dark]
    assert QColor(LIGHT.faster).name() in grounds[Qt.ColorScheme.Light]
    assert QColor(LIGHT.faster).name() not in grounds[Qt.ColorScheme.Dark]


def test_what_the_keys_come_to_is_scrolled_into_view(qtbot: QtBot, theme: Theme) -> None:
    results = ResultsView(theme)
    qtbot.addWidget(results)
    many = tuple((f"Setting {number}", Figure(1.5, 1.4, 1.75, 12)) for number in range(40))
    results.picture.show_plots([SpeedBars((("float32", many),))])
    results.setCurrentIndex(2)
    results.resize(500, 300)
    with qtbot.waitExposed(results):
        results.show()
    for _ in range(30):
        qtbot.keyClick(results.picture, Qt.Key.Key_Down)
    marked = results.picture.area_of(results.picture.drawing.marks[29]).toRect()
    seen = results.picture.visibleRegion().boundingRect()
    assert seen.top() <= marked.top() <= marked.bottom() <= seen.bottom()


def test_what_stands_above_a_picture_fits_beside_the_form(qtbot: QtBot) -> None:
    """At the smallest size of the benchmark window a picture is 340 pixels wide."""
    width = measure_in(QFont("DejaVu Sans"))
    assert all(width(line, Drawing.SIZE - 1, False) <= 340 for line in (*LINES, *MAP.lines))
