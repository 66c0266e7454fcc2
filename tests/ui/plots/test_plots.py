from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QImage, QPainter
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.api import MLX_LM, BenchResult, Dtype, Figure
from rdchat.ui.benchmark.results import ResultsView
from rdchat.ui.plots.drawing import Drawing, Plot, PlotView, save_picture
from rdchat.ui.plots.measured_plots import LINES, Curve, CurvesPlot, SpeedBars, speed_bars
from rdchat.ui.style.theme import DARK, LIGHT, Theme
from tests.inference.benchmark.results import LOOKUP, beam, plan, run
from tests.services.bench_runs import PLAN
from tests.ui.shown_widgets import focus_on, press_key

BARS = SpeedBars(
    (
        ("Auto", Figure(2.0, 2.0, 2.0, 1)),
        ("Prompt lookup, 4 tokens", Figure(1.5, 1.4, 1.75, 12)),
        ("Drafter, 4 beams of 5 tokens", Figure(0.5, 0.45, 0.55, 12)),
    )
)
CURVES = CurvesPlot("Loss", "Lower is better.", [Curve("a", ((0, 2.0), (1, 1.0))), Curve("b", ((1, 0.5),))], False)
BOTH = [BARS, CURVES]


class Recorded(Drawing):
    """A drawing that also keeps its filled areas: left edge, right edge and colour."""

    def __init__(self, width: float) -> None:
        super().__init__(width, LIGHT, QFont())
        self.areas: list[tuple[float, float, str]] = []

    def area(self, box: QRectF, fill: str = "", color: str = "", *args: Any, **options: Any) -> None:
        super().area(box, fill, color, *args, **options)
        if fill:
            self.areas.append((box.x(), box.right(), fill))


@pytest.fixture(autouse=True)
def app(qapp: QApplication) -> QApplication:
    """Fonts need an application."""
    return qapp


def of(*plots: Plot) -> Recorded:
    drawing = Recorded(600)
    for plot in plots:
        plot.draw_plot(drawing)
    return drawing


def test_bars_end_at_their_medians_and_say_their_quartiles() -> None:
    drawing = of(BARS)
    bars = [area for area in drawing.areas if area[2] in ("faster", "slower")]
    assert [color for _, _, color in bars] == ["faster", "faster", "slower"]
    (left,) = {left for left, _, _ in bars}
    widths = [right - left for left, right, _ in bars]
    assert widths == pytest.approx([widths[0], 1.5 / 2 * widths[0], 0.5 / 2 * widths[0]])
    room = drawing.width - (left + widths[0])
    assert room == pytest.approx(drawing.width_of("2.00x", bold=True) + 12), "the fastest one fills the width"
    assert [mark.text for mark in drawing.marks[:2]] == [
        "Auto: 2.00x plain decoding. One value.",
        "Prompt lookup, 4 tokens: 1.50x plain decoding. Half of the 12 values are between 1.40 and 1.75.",
    ]
    assert all(mark.text in drawing.descriptions[0] for mark in drawing.marks)


def test_pictures_stand_one_below_the_other() -> None:
    both = of(*BOTH)
    assert both.height > of(BARS).height + of(CURVES).height
    boxes = [mark.box for mark in both.marks]
    assert len(boxes) == 3 + 2
    assert max(box.bottom() for box in boxes[:3]) <= min(box.top() for box in boxes[3:])
    assert "Nothing was measured." in of(speed_bars(BenchResult(PLAN, (), {}))).descriptions[0]


def test_curves_say_what_was_measured_at_each_point_of_the_first() -> None:
    drawing = of(CURVES)
    words = [mark.text for mark in drawing.marks]
    assert words == ["0\N{NARROW NO-BREAK SPACE}% of the training: a 2.0.",
                     "100\N{NARROW NO-BREAK SPACE}% of the training: a 1.0, b 0.5."]  # fmt: skip
    assert drawing.descriptions == ["Loss. a 1.0; b 0.5."]
    assert of(CurvesPlot("Loss", "", [], False)).descriptions == ["Loss. Nothing was measured yet."]


def test_a_text_that_does_not_fit_is_cut() -> None:
    image = QImage(200, 20, QImage.Format.Format_RGB32)
    image.fill(Qt.GlobalColor.white)
    painter = QPainter(image)
    Drawing(200, LIGHT, QFont(), painter).write_text(QRectF(0, 0, 50, 20), "M" * 20)
    painter.end()
    inked = {x for x in range(200) for y in range(20) if image.pixelColor(x, y) != QColor(Qt.GlobalColor.white)}
    assert 20 < max(inked) <= 51


def test_a_png_has_twice_the_size(tmp_path: Path) -> None:
    save_picture(BOTH, tmp_path / "bench.PNG")
    image = QImage(str(tmp_path / "bench.PNG"))
    assert (image.width(), image.height()) == (1440, round(2 * (of(*BOTH).height + 48)))
    colors = {image.pixelColor(x, y).name() for x in range(0, 1440, 8) for y in range(0, image.height(), 8)}
    assert {LIGHT.faster.name(), LIGHT.slower.name()} <= colors


def test_a_pdf_is_one_page(tmp_path: Path) -> None:
    save_picture(BOTH, tmp_path / "bench.pdf")
    written = (tmp_path / "bench.pdf").read_bytes()
    assert written.startswith(b"%PDF-")
    assert written.count(b"/Type /Page\n") == 1


def test_other_names_and_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"bench\.gif cannot be drawn: .*\.png or \.pdf"):
        save_picture([BARS], tmp_path / "bench.gif")
    with pytest.raises(StorageError, match="cannot be written"):
        save_picture([BARS], tmp_path / "missing" / "bench.pdf")


def test_the_keyboard_reaches_every_part(qtbot: QtBot, theme: Theme) -> None:
    view = PlotView(theme, "Pictures")
    qtbot.addWidget(view)
    view.show_plots(BOTH)
    view.resize(view.sizeHint())
    view.show()
    focus_on(view)
    whole = view.accessibleDescription()
    said = []
    for _ in range(6):
        press_key(view, "Down")
        said.append(view.accessibleDescription())
    assert said[0].startswith("Auto: 2.00x")
    assert said[4] == said[5]
    assert said[4].endswith("b 0.5.")
    view.clearFocus()
    assert view.accessibleDescription() == whole


def test_the_view_follows_the_theme(qtbot: QtBot, theme: Theme) -> None:
    view = PlotView(theme, "Pictures")
    qtbot.addWidget(view)
    view.show_plots([BARS])
    view.resize(view.sizeHint())
    assert LIGHT.faster != DARK.faster
    for scheme, colors in ((Qt.ColorScheme.Light, LIGHT), (Qt.ColorScheme.Dark, DARK)):
        theme.set_scheme(scheme)
        image = view.grab().toImage()
        drawn = {image.pixelColor(x, y).name() for x in range(0, image.width(), 4) for y in range(60, 200, 4)}
        assert colors.faster.name() in drawn


def test_what_the_keys_come_to_is_scrolled_into_view(qtbot: QtBot, theme: Theme) -> None:
    results = ResultsView(theme)
    qtbot.addWidget(results)
    many = tuple((f"Setting {number}", Figure(1.5, 1.4, 1.75, 12)) for number in range(40))
    results.picture.show_plots([SpeedBars(many)])
    results.setCurrentIndex(2)
    results.resize(500, 300)
    with qtbot.waitExposed(results):
        results.show()
    for _ in range(30):
        press_key(results.picture, "Down")
    marked = results.picture.area_of(results.picture.drawing.marks[29]).toRect()
    seen = results.picture.visibleRegion().boundingRect()
    assert seen.top() <= marked.top() <= marked.bottom() <= seen.bottom()


def test_what_stands_above_a_picture_fits_beside_the_form() -> None:
    """At the smallest size of the benchmark window a picture is 340 pixels wide."""
    drawing = Drawing(340, LIGHT, QFont("DejaVu Sans"))
    assert all(drawing.width_of(line, more=-1) <= 340 for line in LINES)


def test_there_is_a_bar_for_each_setting_and_the_fastest_is_first() -> None:
    asked = plan(LOOKUP, beam(2, 3), beam(2, 3, Dtype.FLOAT16))
    runs = [run(asked, index, tps, dtype="float32") for index, tps in ((0, 10), (2, 10), (3, 15))]
    runs += [run(asked, index, tps, baseline=1, dtype="float16") for index, tps in ((1, 20), (4, 36))]
    runs += [run(asked, MLX_LM, 9), run(asked, MLX_LM, 16, baseline=1)]
    plot = speed_bars(BenchResult(asked, tuple(runs), {}))
    assert [(name, round(figure.median, 3)) for name, figure in plot.bars] == [
        ("Drafter, 2 beams of 3 tokens, float16", 1.8),
        ("Drafter, 2 beams of 3 tokens, float32", 1.5),
        ("Prompt lookup, 3 tokens, float32", 1.0),
        ("mlx-lm, not drafting, float32", 0.9),
        ("mlx-lm, not drafting, float16", 0.8),
    ]
