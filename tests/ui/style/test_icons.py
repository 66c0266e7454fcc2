from importlib import resources

from PySide6.QtCore import QSizeF
from PySide6.QtGui import QColor, QIcon
from PySide6.QtWidgets import QApplication

from rdchat.ui.style import app_icon, draw_svg, line_icon, line_pixmap


def test_every_line_icon_draws_in_its_colour(qapp: QApplication) -> None:
    icons = [*resources.files("rdchat.ui").joinpath("resources/icons").iterdir()]
    assert len(icons) > 30
    for icon in icons:
        image = line_pixmap(icon.name.removesuffix(".svg"), QColor("#ff0000"), 20, 2).toImage()
        inked = {
            image.pixelColor(x, y).name()
            for x in range(image.width())
            for y in range(image.height())
            if image.pixelColor(x, y).alpha() > 250
        }
        assert "#ff0000" in inked, icon.name


def test_an_icon_is_drawn_once(qapp: QApplication) -> None:
    first, again = (line_pixmap("copy", QColor("#123456"), 21, 2) for _ in range(2))
    assert first.cacheKey() == again.cacheKey()
    assert line_pixmap("copy", QColor("#123457"), 21, 2).cacheKey() != first.cacheKey()


def test_a_picture_with_more_room_is_another_one(qapp: QApplication) -> None:
    svg = resources.files("rdchat.ui").joinpath("resources/icons/copy.svg").read_bytes()
    tight, roomy = (draw_svg(svg, QSizeF(19, 19), 1, room=room) for room in (0, 2))
    assert (tight.width(), roomy.width()) == (19, 21)


def test_a_disabled_icon_is_fainter(qapp: QApplication) -> None:
    icon = line_icon("stop", QColor("black"))
    centre = [
        icon.pixmap(18, 18, mode).toImage().pixelColor(9, 9).alpha()
        for mode in (QIcon.Mode.Normal, QIcon.Mode.Disabled)
    ]
    assert centre[0] > 2 * centre[1] > 0


def test_the_app_icon_is_sharp_at_every_size(qapp: QApplication) -> None:
    sizes = {size.width() for size in app_icon().availableSizes()}
    assert {16, 32, 128, 512} <= sizes
