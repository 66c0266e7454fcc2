"""Flat buttons under the pointer and with the focus, in light and dark."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QDialogButtonBox, QLineEdit, QMenu, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.style import IconButton, TextButton, Theme, column, dialog_buttons, push_button

_SCHEMES = (Qt.ColorScheme.Light, Qt.ColorScheme.Dark)


def _shown(qtbot: QtBot, *widgets: QWidget) -> QWidget:
    window = QWidget()
    column(QLineEdit(), *widgets, within=window)
    qtbot.addWidget(window)
    window.show()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    return window


def _lightness(image: QImage, place: QPoint) -> int:
    return image.pixelColor(place).lightness()


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_a_button_with_a_menu_is_as_light_as_the_window_under_the_pointer(
    qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    """The filter's button had a style sheet, and turned white under the pointer in the dark."""
    theme.set_scheme(scheme)
    button = IconButton("filter", "Filter", theme)
    button.setMenu(QMenu(button))
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    window = _shown(qtbot, button)
    button.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)
    image = button.grab().toImage()
    ground = theme.colors.window.lightness()
    assert abs(_lightness(image, QPoint(4, 4)) - ground) < 60
    assert not button.styleSheet()
    window.close()


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_the_focus_ring_is_at_the_edge(qtbot: QtBot, theme: Theme, scheme: Qt.ColorScheme) -> None:
    """Fusion draws it three pixels inside, through the text."""
    theme.set_scheme(scheme)
    button = TextButton("Show Downloads", theme)
    window = _shown(qtbot, button)
    plain = button.grab().toImage()
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(button.hasFocus)
    focused = button.grab().toImage()
    middle = button.height() // 2
    assert focused.pixelColor(1, middle) == QColor(theme.colors.accent)
    inside = button.rect().adjusted(3, 3, -3, -3)
    assert plain.copy(inside) == focused.copy(inside)
    window.close()


def test_a_button_that_is_disabled_keeps_the_focus(qtbot: QtBot, theme: Theme) -> None:
    buttons = IconButton("send", "Send", theme), push_button("Pause")
    window = _shown(qtbot, *buttons)
    for button in buttons:
        button.setFocus()
        qtbot.waitUntil(button.hasFocus)
        button.setEnabled(False)
        assert button.hasFocus()
        button.setEnabled(True)
        assert button.hasFocus()
    window.close()


def test_a_dialogs_buttons_have_roles_so_that_the_platform_orders_them(qtbot: QtBot) -> None:
    cancel = push_button("Cancel")
    use = push_button("Use")
    box = dialog_buttons(reject=cancel, accept=use)
    qtbot.addWidget(box)
    role = QDialogButtonBox.ButtonRole
    assert (box.buttonRole(cancel), box.buttonRole(use)) == (role.RejectRole, role.AcceptRole)
