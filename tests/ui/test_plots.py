import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QImage, QPainter
from pytestqt.qtbot import QtBot

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.api.bench_results import Figure
from rdchat.inference.benchmark.pictures import HeatMap, Pictures, SpeedBars
from rdchat.ui.benchmark.results_view import ResultsView
from rdchat.ui.look.theme import DARK, DARK_PLOT, LIGHT, LIGHT_PLOT, Theme
from rdchat.ui.plots.heat_map import HeatMapPlot
from rdchat.ui.plots.picture_files import plot_of, save_picture
from rdchat.ui.plots.plot import Plot, PlotStyle, ink_on, luminance
from rdchat.ui.plots.plot_view import PlotView
from rdchat.ui.plots.speed_bars import _LINES, SpeedBarsPlot

AREA = QRectF(0, 0, 600, 400)
STYLE = PlotStyle(LIGHT, LIGHT_PLOT, "DejaVu Sans")
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


def painted(plot: Plot, style: PlotStyle = STYLE) -> QImage:
    image = QImage(AREA.size().toSize(), QImage.Format.Format_RGB32)
    image.fill(style.colors.surface)
    painter = QPainter(image)
    plot.paint(painter, AREA, style)
    painter.end()
    return image


@pytest.mark.parametrize("style", [STYLE, PlotStyle(DARK, DARK_PLOT, "DejaVu Sans")])
def test_colours_tell_slower_from_faster_and_values_can_be_read_on_them(style: PlotStyle) -> None:
    speeds = (0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5)
    grounds = [style.ground_of(speed, 2.5) for speed in speeds]
    assert grounds[3] == style.plot.neutral
    assert (grounds[0], grounds[-1]) == (style.plot.slower, style.plot.faster)
    warmth = [ground.redF() - ground.blueF() for ground in grounds]
    assert all(one > two for one, two in pairwise(warmth)), "orange turns to blue step by step"
    for ground in grounds:
        lighter, darker = sorted((luminance(ground), luminance(ink_on(ground))), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_bars_end_at_their_medians(qtbot: QtBot) -> None:
    plot = SpeedBarsPlot(BARS)
    image, bars = painted(plot), plot.bar_area(AREA, STYLE)
    assert plot.x_of(0, bars) == bars.left()
    assert plot.x_of(2.0, bars) == bars.right(), "the fastest one fills the width"
    medians, colors = (1.5, 0.5, 2.0), (LIGHT_PLOT.faster, LIGHT_PLOT.slower, LIGHT_PLOT.faster)
    for mark, median, color in zip(plot.marks(AREA, STYLE), medians, colors, strict=True):
        end, above_the_line = round(plot.x_of(median, bars)), round(mark.area.center().y()) - 6
        assert image.pixelColor(end - 3, above_the_line) == color
        assert image.pixelColor(end + 3, above_the_line) not in colors


def test_a_bar_says_its_quartiles(qtbot: QtBot) -> None:
    plot = SpeedBarsPlot(BARS)
    first = plot.marks(AREA, STYLE)[0].words
    assert first == "Prompt lookup K4, float32: 1.50x plain decoding. Half of the 12 values lie from 1.40 to 1.75."
    assert all(words in plot.words for words in ("Drafter W4 L5", "float16", "2.00x"))


def test_cells_of_the_map_are_coloured_and_the_best_one_is_framed(qtbot: QtBot) -> None:
    plot = HeatMapPlot(MAP)
    image = painted(plot)
    assert MAP.best == (4, 5)
    for pair, speed in MAP.values.items():
        corner = plot.cell(pair, AREA, STYLE).topLeft()
        pixel = image.pixelColor(round(corner.x()) + 8, round(corner.y()) + 8)
        assert pixel.name() == STYLE.ground_of(speed, 1.6).name()
    frames = {
        pair: image.pixelColor(round(cell.left()) + 2, round(cell.center().y()))
        for pair in MAP.values
        if (cell := plot.cell(pair, AREA, STYLE))
    }
    assert [pair for pair, color in frames.items() if color == LIGHT.text] == [(4, 5)]


def test_the_map_says_its_values_and_what_was_not_measured(qtbot: QtBot) -> None:
    plot = HeatMapPlot(MAP)
    assert [mark.words for mark in plot.marks(AREA, STYLE)] == [
        "W 1, L 3: 0.80x.", "W 1, L 5: 1.10x.", "W 4, L 3: not measured.", "W 4, L 5: 1.60x. This is the best.",
    ]  # fmt: skip
    assert "Plain decoding is 1x." in plot.words
    empty = HeatMap("float32", (1,), (2,), {}, "W 1, L 2")
    assert "W 1, L 2 is 1x. Nothing was measured." in HeatMapPlot(empty).words
    painted(HeatMapPlot(empty))


def test_pictures_stand_one_below_the_other(qtbot: QtBot) -> None:
    both, bars, heat_map = plot_of(Pictures(BARS, (MAP,))), SpeedBarsPlot(BARS), HeatMapPlot(MAP)
    assert both.height(STYLE) > bars.height(STYLE) + heat_map.height(STYLE)
    areas = [mark.area for mark in both.marks(QRectF(0, 0, 600, both.height(STYLE)), STYLE)]
    assert len(areas) == 3 + 4
    assert max(area.bottom() for area in areas[:3]) <= min(area.top() for area in areas[3:])
    only_map = plot_of(Pictures(SpeedBars(()), (MAP,)))
    assert only_map.height(STYLE) == heat_map.height(STYLE), "bars without anything to show are left out"


def test_a_png_has_twice_the_size(qtbot: QtBot, tmp_path: Path) -> None:
    plot = plot_of(Pictures(BARS, (MAP,)))
    save_picture(plot, tmp_path / "bench.PNG")
    image = QImage(str(tmp_path / "bench.PNG"))
    assert (image.width(), image.height()) == (1440, round(2 * (plot.height(STYLE) + 48)))
    colors = {image.pixelColor(x, y).name() for x in range(0, 1440, 8) for y in range(0, image.height(), 8)}
    assert {LIGHT_PLOT.faster.name(), LIGHT_PLOT.slower.name()} <= colors


def test_an_svg_holds_its_words_as_text(qtbot: QtBot, tmp_path: Path) -> None:
    save_picture(plot_of(Pictures(BARS, (MAP,))), tmp_path / "bench.svg")
    root = ET.parse(tmp_path / "bench.svg").getroot()
    texts = {"".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Speed-up over plain decoding", "Prompt lookup K4", "1.50x", "best", "W 4"} <= texts
    assert root.get("viewBox", "").startswith("0 0 720 ")


def test_a_pdf_is_one_page(qtbot: QtBot, tmp_path: Path) -> None:
    save_picture(plot_of(Pictures(BARS, (MAP,))), tmp_path / "bench.pdf")
    written = (tmp_path / "bench.pdf").read_bytes()
    assert written.startswith(b"%PDF-")
    assert written.count(b"/Type /Page\n") == 1


def test_other_names_and_places_that_cannot_be_written_are_refused(qtbot: QtBot, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"bench\.gif cannot be drawn: .*\.png, \.svg or \.pdf"):
        save_picture(plot_of(Pictures(BARS)), tmp_path / "bench.gif")
    with pytest.raises(StorageError, match="cannot be written"):
        save_picture(plot_of(Pictures(BARS)), tmp_path / "missing" / "bench.svg")


def test_the_keyboard_reaches_every_part(qtbot: QtBot, theme: Theme) -> None:
    view = PlotView(theme, "Pictures")
    qtbot.addWidget(view)
    view.show_plot(plot_of(Pictures(BARS, (MAP,))))
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
    view.show_plot(plot_of(Pictures(BARS)))
    view.resize(view.sizeHint())
    grounds = {}
    for scheme in (Qt.ColorScheme.Light, Qt.ColorScheme.Dark):
        theme.set_scheme(scheme)
        image = view.grab().toImage()
        grounds[scheme] = {image.pixelColor(x, y).name() for x in range(0, image.width(), 4) for y in range(60, 200, 4)}
    assert QColor(DARK_PLOT.faster).name() in grounds[Qt.ColorScheme.Dark]
    assert QColor(LIGHT_PLOT.faster).name() in grounds[Qt.ColorScheme.Light]
    assert QColor(LIGHT_PLOT.faster).name() not in grounds[Qt.ColorScheme.Dark]


def test_what_the_keys_come_to_is_scrolled_into_view(qtbot: QtBot, theme: Theme) -> None:
    results = ResultsView(theme)
    qtbot.addWidget(results)
    many = tuple((f"Setting {number}", Figure(1.5, 1.4, 1.75, 12)) for number in range(40))
    results.picture.show_plot(SpeedBarsPlot(SpeedBars((("float32", many),))))
    results.setCurrentIndex(2)
    results.resize(500, 300)
    with qtbot.waitExposed(results):
        results.show()
    for _ in range(30):
        qtbot.keyClick(results.picture, Qt.Key.Key_Down)
    marked = results.picture._marks()[29].area.toRect()
    seen = results.picture.visibleRegion().boundingRect()
    assert seen.top() <= marked.top() <= marked.bottom() <= seen.bottom()


def test_what_stands_above_a_picture_fits_beside_the_form() -> None:
    """At the smallest size of the benchmark window a picture is 340 pixels wide."""
    small = QFontMetricsF(STYLE.font(-1))
    assert all(small.horizontalAdvance(line) <= 340 for line in (*_LINES, *HeatMapPlot(MAP)._lines))
