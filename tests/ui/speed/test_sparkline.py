from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from rdchat.ui.speed.figures import Sparkline
from rdchat.ui.style import Theme


def _sparkline(qtbot: QtBot, theme: Theme) -> Sparkline:
    sparkline = Sparkline(theme)
    qtbot.addWidget(sparkline)
    return sparkline


def test_the_line_is_drawn_and_cleared(qtbot: QtBot, theme: Theme) -> None:
    sparkline = _sparkline(qtbot, theme)
    sparkline.resize(200, 50)
    empty = sparkline.grab().toImage()
    sparkline.show_speeds((30.0,) * 20)
    drawn = sparkline.grab().toImage()
    assert drawn != empty
    assert _holds(drawn, theme)
    sparkline.show_speeds(())
    assert sparkline.grab().toImage() == empty


def test_a_single_peak_does_not_flatten_the_line(qtbot: QtBot, theme: Theme) -> None:
    """Prompt lookup that copies a long passage once is ten times as fast; all else lay on the ground then."""
    sparkline = _sparkline(qtbot, theme)
    sparkline.resize(200, 50)
    usual = (30.0, 40.0) * 20
    sparkline.show_speeds(usual)
    low = _lowest_end(sparkline.grab().toImage(), theme)
    sparkline.show_speeds((*usual[:20], 400.0, *usual[21:]))
    assert _lowest_end(sparkline.grab().toImage(), theme) == low


def _lowest_end(image: QImage, theme: Theme) -> int:
    """Return how far down the newest point is drawn."""
    accent = theme.colors.accent.rgb()
    x = max(x for x in range(image.width()) for y in range(image.height()) if image.pixel(x, y) == accent)
    return max(y for y in range(image.height()) if image.pixel(x, y) == accent)


def _holds(image: QImage, theme: Theme) -> bool:
    accent = theme.colors.accent.rgb()
    return any(image.pixel(x, y) == accent for x in range(image.width()) for y in range(image.height()))
