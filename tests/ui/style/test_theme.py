from importlib import resources
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QPalette
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QRadioButton,
    QSpinBox,
    QStyle,
    QStyleOptionButton,
    QVBoxLayout,
    QWidget,
)
from pytestqt.qtbot import QtBot

import rdchat.ui
from rdchat.inference.api import Spent
from rdchat.ui.style import TabBar, ThinBar, layouts, line_icon, line_pixmap, show_share
from rdchat.ui.style.theme import DARK, LIGHT, Colors, Theme, control_font
from tests.grids import grid
from tests.ui.shown_widgets import picture_of


def _contrast(one: QColor, other: QColor) -> float:
    def luminance(color: QColor) -> float:
        parts = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in (color.redF(), color.greenF(), color.blueF())
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground_and_times_can_be_told_apart(colors: Colors) -> None:
    for ground in (colors.window, colors.surface, colors.raised, colors.selection):
        for ink in (colors.text, colors.muted):
            assert _contrast(ink, ground) >= 4.5, (ink.name(), ground.name())
    for ink in (colors.danger, colors.warning, colors.success, colors.accent):
        assert _contrast(ink, colors.surface) >= 4.5, ink.name()
    assert _contrast(colors.on_accent, colors.accent) >= 4.5
    for name in ("keyword", "name", "builtin", "string", "number", "comment", "inserted", "deleted"):
        assert _contrast(getattr(colors, name), colors.code) >= 4.5, name
    drawn = {spent: getattr(colors, spent.name.lower()) for spent in Spent}
    assert len({color.name() for color in drawn.values()}) == len(Spent)
    for spent, color in drawn.items():
        assert _contrast(color, colors.window) >= 3, spent


def test_a_forced_scheme_holds_where_the_platform_has_none(qtbot: QtBot, qapp: QApplication, theme: Theme) -> None:
    with qtbot.waitSignal(theme.changed):
        theme.set_scheme(Qt.ColorScheme.Dark)
    assert theme.colors is DARK
    assert qapp.palette().color(QPalette.ColorRole.Window) == DARK.window
    with qtbot.waitSignal(theme.changed):
        theme.set_scheme(Qt.ColorScheme.Light)
    assert qapp.palette().color(QPalette.ColorRole.Window) == LIGHT.window


@pytest.mark.parametrize("dark", [False, True])
def test_the_contrast_of_the_system_is_followed(qapp: QApplication, dark: bool) -> None:
    strong = Qt.ContrastPreference.HighContrast
    scheme = Qt.ColorScheme.Dark if dark else Qt.ColorScheme.Light
    signal = SimpleNamespace(connect=lambda _slot: None)
    accessibility = SimpleNamespace(contrastPreference=lambda: strong, contrastPreferenceChanged=signal)
    hints = SimpleNamespace(colorScheme=lambda: scheme, accessibility=lambda: accessibility, colorSchemeChanged=signal)

    class App(QObject):
        """An application on a system that asks for contrast."""

        def styleHints(self) -> object:
            return hints

        def setPalette(self, _palette: QPalette) -> None:
            """Leave the other tests their palette."""

    theme = Theme(App())  # type: ignore[arg-type]
    colors = theme.colors
    assert colors.dark == dark
    for ground in (colors.window, colors.surface, colors.raised, colors.selection):
        assert _contrast(colors.muted, ground) >= 7, ground.name()
    assert _contrast(colors.border, colors.surface) >= 4.5


def test_a_bar_rests_where_motion_is_reduced(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    bar = ThinBar("Reading")
    qtbot.addWidget(bar)
    show_share(bar, None)
    assert bar.maximum() == 0, "it moves to and fro"
    hints = SimpleNamespace(motionPreference=lambda: Qt.MotionPreference.ReducedMotion)
    monkeypatch.setattr(QGuiApplication, "styleHints", lambda: SimpleNamespace(accessibility=lambda: hints))
    show_share(bar, None)
    assert (bar.maximum(), bar.value()) == (1000, 0)


@pytest.mark.parametrize(
    ("height", "width", "scheme"), grid([2, 4, 6], [40, 300], [Qt.ColorScheme.Light, Qt.ColorScheme.Dark], one_in=4)
)
def test_a_bar_that_knows_nothing_moves_and_never_looks_full(
    qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch, height: int, width: int, scheme: Qt.ColorScheme
) -> None:
    clock = count(0, 0.2)
    monkeypatch.setattr(layouts, "monotonic", lambda: next(clock))
    theme.set_scheme(scheme)
    bar = ThinBar("Reading", height)
    qtbot.addWidget(bar)
    bar.resize(width, height)
    bar.show()
    for share in (0.0, 0.25, 1.0):
        show_share(bar, share)
        assert _filled(bar, theme) == pytest.approx(share, abs=0.1)
    show_share(bar, None)
    pictures = []
    for _ in range(12):
        assert 0.1 < _filled(bar, theme) < 0.5
        pictures.append(bar.grab().toImage())
    assert pictures[0] != pictures[1]
    show_share(bar, 0.0)
    assert _filled(bar, theme) == 0


def _filled(bar: QWidget, theme: Theme) -> float:
    """Return the share of a bar's middle row that has the colour of progress."""
    image = bar.grab().toImage()
    ground = QColor(theme.colors.window)
    accent = theme.colors.accent

    def is_near_accent(color: QColor) -> bool:
        distances = [
            sum(abs(one - two) for one, two in zip(color.getRgb()[:3], other.getRgb()[:3], strict=True))
            for other in (accent, ground)
        ]
        return distances[0] < distances[1]

    middle = image.height() // 2
    return sum(is_near_accent(image.pixelColor(x, middle)) for x in range(image.width())) / image.width()


def test_each_bar_of_progress_is_a_thin_one() -> None:
    folder = Path(rdchat.ui.__file__).parent
    users = [path.name for path in folder.rglob("*.py") if "QProgressBar" in path.read_text("utf-8")]
    assert users == ["layouts.py"], "Qt's own styles paint a thin bar that knows nothing as a full one"


def test_text_size_changes_fonts_once(qtbot: QtBot, theme: Theme) -> None:
    small = theme.body_font().pointSizeF()
    with qtbot.waitSignal(theme.changed):
        theme.set_text_size(26)
    assert theme.body_font().pointSizeF() == pytest.approx(2 * small)
    with qtbot.assertNotEmitted(theme.changed):
        theme.set_text_size(26)


def test_control_fonts_keep_figures_in_place(qapp: QApplication) -> None:
    assert control_font(2).pointSizeF() == pytest.approx(control_font().pointSizeF() + 2)
    assert control_font(tabular=True).featureTags()


@pytest.mark.parametrize("scheme", [Qt.ColorScheme.Light, Qt.ColorScheme.Dark])
@pytest.mark.parametrize(("enabled", "least"), [(True, 3.0), (False, 1.6)])
def test_the_rings_of_check_boxes_and_radio_buttons_can_be_seen(
    qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme, enabled: bool, least: float
) -> None:
    # Fusion draws them darker than the window, which in the dark hid them
    theme.set_scheme(scheme)
    page = QWidget()
    qtbot.addWidget(page)
    column = QVBoxLayout(page)
    controls = {
        QCheckBox("Choice"): QStyle.SubElement.SE_CheckBoxIndicator,
        QRadioButton("Choice"): QStyle.SubElement.SE_RadioButtonIndicator,
    }
    for control in controls:
        control.setEnabled(enabled)
        column.addWidget(control)
    page.show()
    picture = picture_of(page)
    for control, part in controls.items():
        option = QStyleOptionButton()
        control.initStyleOption(option)
        ring = control.style().subElementRect(part, option, control).translated(control.pos())
        edge = [picture.pixelColor(x, ring.center().y()) for x in range(ring.left() - 1, ring.left() + 3)]
        assert max(_contrast(color, theme.colors.window) for color in edge) >= least, type(control).__name__


@pytest.mark.parametrize("scheme", [Qt.ColorScheme.Light, Qt.ColorScheme.Dark])
def test_empty_fields_and_boxes_can_be_seen(qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme) -> None:
    """In the dark, an empty field, an empty list and the box of a row that is off were the colour of the window."""
    theme.set_scheme(scheme)
    page = QWidget()
    qtbot.addWidget(page)
    rows = QListWidget()
    off = QListWidgetItem("Off", rows)
    off.setCheckState(Qt.CheckState.Unchecked)
    fields = QLineEdit(), QPlainTextEdit(), QSpinBox(), QListWidget(), rows
    column = QVBoxLayout(page)
    for field in fields:
        column.addWidget(field)
    page.show()
    picture = picture_of(page)
    for field in fields:
        edge = [picture.pixelColor(field.x() + x, field.geometry().center().y()) for x in range(3)]
        assert max(_contrast(color, theme.colors.window) for color in edge) >= 2.5, type(field).__name__
    row = rows.visualItemRect(off).translated(rows.viewport().mapTo(page, QPoint()))
    box = [picture.pixelColor(row.left() + x, row.center().y()) for x in range(8)]
    assert max(_contrast(color, theme.colors.surface) for color in box) >= 2.5


@pytest.mark.parametrize("scheme", [Qt.ColorScheme.Light, Qt.ColorScheme.Dark])
@pytest.mark.parametrize("document", [False, True])
def test_the_chosen_tab_can_be_told_from_the_others(
    qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme, document: bool
) -> None:
    """In the dark it was a shade lighter than the others."""
    theme.set_scheme(scheme)
    bar = TabBar(documentMode=document, drawBase=not document, expanding=False)
    qtbot.addWidget(bar)
    for name in ("One", "Two", "Three"):
        bar.addTab(name)
    bar.setCurrentIndex(1)
    bar.show()
    picture = picture_of(bar)
    places = [QPoint(bar.tabRect(place).center().x(), bar.tabRect(1).bottom()) for place in range(3)]
    one, chosen, three = map(picture.pixelColor, places)
    assert _contrast(chosen, one) >= 3
    assert _contrast(chosen, three) >= 3


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


def test_a_disabled_icon_is_fainter(qapp: QApplication) -> None:
    icon = line_icon("stop", QColor("black"))
    centre = [
        icon.pixmap(18, 18, mode).toImage().pixelColor(9, 9).alpha()
        for mode in (QIcon.Mode.Normal, QIcon.Mode.Disabled)
    ]
    assert centre[0] > 2 * centre[1] > 0
