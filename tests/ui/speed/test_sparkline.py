import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.ui.look.theme import Theme
from rdchat.ui.speed.charts import Sparkline


def _sparkline(qtbot: QtBot, theme: Theme) -> Sparkline:
    sparkline = Sparkline(theme)
    qtbot.addWidget(sparkline)
    return sparkline


def test_samples_are_speeds_of_the_moment_not_means(qtbot: QtBot, theme: Theme) -> None:
    samples = _sparkline(qtbot, theme)
    for tokens, decode_ms in ((1, 0), (11, 500), (16, 1000)):
        samples.add(Statistics(generated_tokens=tokens, decode_ms=decode_ms))
    assert list(samples.rates) == pytest.approx([20.0, 10.0])


def test_a_few_milliseconds_make_no_sample(qtbot: QtBot, theme: Theme) -> None:
    samples = _sparkline(qtbot, theme)
    samples.add(Statistics(generated_tokens=2, decode_ms=20))
    assert not samples.rates


def test_counters_that_fall_back_begin_anew(qtbot: QtBot, theme: Theme) -> None:
    samples = _sparkline(qtbot, theme)
    samples.add(Statistics(generated_tokens=101, decode_ms=1000))
    samples.add(Statistics(generated_tokens=1, decode_ms=0))
    assert not samples.rates


def test_the_line_is_drawn_and_cleared(qtbot: QtBot, theme: Theme) -> None:
    sparkline = _sparkline(qtbot, theme)
    sparkline.resize(200, 50)
    empty = sparkline.grab().toImage()
    for step in range(1, 20):
        sparkline.add(Statistics(generated_tokens=step * 10, decode_ms=step * 300))
    drawn = sparkline.grab().toImage()
    assert drawn != empty
    assert _holds(drawn, theme)
    sparkline.clear()
    assert sparkline.grab().toImage() == empty


def _holds(image: QImage, theme: Theme) -> bool:
    accent = theme.colors.accent.rgb()
    return any(image.pixel(x, y) == accent for x in range(image.width()) for y in range(image.height()))
