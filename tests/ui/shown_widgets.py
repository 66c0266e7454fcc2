"""Finds what a window shows, uses mouse and keys on it, answers its questions and dialogs; drags and drops."""

import time
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import (
    QAction,
    QCloseEvent,
    QDragEnterEvent,
    QDropEvent,
    QImage,
    QKeyEvent,
    QKeySequence,
    QWheelEvent,
)
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QFileDialog, QMenu, QMessageBox, QWidget

from rdchat.ui.style import Sheet

HOW = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
PLACE = QPointF(300, 300)


def click_on(widget: QWidget, at: QPoint | None = None) -> None:
    """Click on the middle of a widget, or on another point of it, once it stands where it is painted next."""
    for _ in range(5):  # what is laid out may have more laid out
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=at or QPoint())


def accept(sheet: Sheet) -> None:
    """Press the button of a sheet that agrees, its last one."""
    sheet.buttons[-1].click()


def press_key(widget: QWidget, keys: str | QKeySequence.StandardKey) -> None:
    """Press keys, named as in menus: `Return`, `Ctrl+Shift+C`."""
    QTest.keySequence(widget, QKeySequence(keys))


def type_number(field: QAbstractSpinBox, number: str) -> None:
    """Type a number in place of a field's, with the decimal point of its locale."""
    field.selectAll()
    for sign in number.replace(".", field.locale().decimalPoint()):
        QApplication.sendEvent(field, QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_unknown, HOW[2], sign))


def picture_of(widget: QWidget) -> QImage:
    """Return what a widget shows, with one pixel for each of its size on every screen."""
    image = QImage(widget.size(), QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    widget.render(image)
    return image


def shown_child[W: QWidget](parent: QWidget, kind: type[W]) -> W:
    """Return the one visible child of a kind."""
    (child,) = [each for each in parent.findChildren(kind) if each.isVisible()]
    return child


def forbid_nested_fits(monkeypatch: pytest.MonkeyPatch, kind: type[QWidget]) -> None:
    """Fail a test in which a widget that fits its content begins to do so again meanwhile: that may never end."""
    fit = kind._fit  # type: ignore[attr-defined]
    fitting: list[QWidget] = []

    def fit_once(widget: QWidget) -> None:
        assert widget not in fitting, "a layout within a layout"
        fitting.append(widget)
        fit(widget)
        fitting.remove(widget)

    monkeypatch.setattr(kind, "_fit", fit_once)


def activate(window: QWidget) -> None:
    """Bring a window to the front, and wait until it has the keyboard.

    Qt's own function returns too early: it counts a window above or below as well.
    """
    window.activateWindow()
    until = time.monotonic() + 10
    while not window.isActiveWindow() and time.monotonic() < until:
        QTest.qWait(1)
    assert window.isActiveWindow()


def focus_on(widget: QWidget) -> None:
    """Give a widget the keyboard, in the window in front."""
    activate(widget.window())
    widget.setFocus()
    assert widget.hasFocus()


def answer_question(parent: QWidget, answer: str) -> str:
    """Press a button of the question that is open, by the beginning of its text; return what the question says."""
    box = shown_child(parent, QMessageBox)
    text = f"{box.text()} {box.informativeText()}"
    next(button for button in box.buttons() if button.text().startswith(answer)).click()
    return text


class _ClosedByHand(QCloseEvent):
    """What the window manager sends when the window's own button is pressed."""

    def spontaneous(self) -> bool:
        return True


def close_by_hand(window: QWidget) -> bool:
    """Press the button of a window's frame; return whether it closes."""
    event = _ClosedByHand()
    window.closeEvent(event)
    return event.isAccepted()


def turn_wheel(
    widget: QWidget, angle: QPoint, place: QPointF, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> bool:
    """Turn the wheel over a widget, with keys held down; return whether the widget takes it."""
    no_buttons = Qt.MouseButton.NoButton
    no_phase = Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(place, widget.mapToGlobal(place), angle, angle, no_buttons, keys, no_phase, False)
    QApplication.sendEvent(widget, event)
    return event.isAccepted()


def entries_of(menu: QMenu) -> dict[str, QAction]:
    """Return the entries of a menu that is about to be shown, by their texts."""
    menu.aboutToShow.emit()
    return {action.text(): action for action in menu.actions()}


def choose_files(parent: QWidget, *paths: Path) -> None:
    """Choose files, or the file to write, in the dialog that is open."""
    dialog = shown_child(parent, QFileDialog)
    dialog.close()
    if dialog.acceptMode() is QFileDialog.AcceptMode.AcceptSave:
        dialog.fileSelected.emit(str(paths[0]))
    else:
        dialog.filesSelected.emit([str(path) for path in paths])


def files_data(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def drag_over(window: QWidget, data: QMimeData) -> bool:
    """Drag data over a window; return whether they can be dropped there."""
    event = QDragEnterEvent(PLACE, HOW[0], data, HOW[1], HOW[2])
    QApplication.sendEvent(window, event)
    return event.isAccepted()


def let_go(window: QWidget, data: QMimeData) -> None:
    QApplication.sendEvent(window, QDropEvent(PLACE, HOW[0], data, HOW[1], HOW[2]))


def drop(window: QWidget, data: QMimeData) -> bool:
    """Drop data on a window; return whether they can be dropped there."""
    accepted = drag_over(window, data)
    let_go(window, data)
    return accepted
