"""Things are dragged over the windows: where they land is shown, and nothing for what is refused."""

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, QRect
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.files.file_drops import FileDrops
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.chat.attachments.documents import docx, pdf
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine, app, machine, models, models_window, sources
from tests.ui.shown_widgets import HOW, PLACE, drag_over, files_data, let_go

__all__ = ["app", "machine", "models", "models_window", "sources"]


def drag(qtbot: QtBot, window: QWidget, drops: FileDrops, *paths: Path) -> QMimeData:
    """Drag files over a window and wait until they were looked at."""
    data = files_data(*paths)
    assert drag_over(window, data)
    wait_until_seen(qtbot, drops, *paths)
    return data


def wait_until_seen(qtbot: QtBot, drops: FileDrops, *paths: Path) -> None:
    qtbot.waitUntil(lambda: drops._seen is not None and drops._seen.paths == tuple(map(str, paths)))


def place_of(window: QWidget, part: QWidget) -> QRect:
    return QRect(part.mapTo(window, QPoint(0, 0)), part.size())


def test_a_file_is_shown_where_it_lands_until_it_leaves(qtbot: QtBot, app: MainWindow, prices: Path) -> None:
    drops = app.windows.drops
    data = files_data(prices)
    handle = app.windowHandle()
    field = app.conversation.composer.field.viewport()
    over_field = QPointF(field.mapTo(app, field.rect().center()))
    QApplication.sendEvent(handle, QDragEnterEvent(PLACE, HOW[0], data, HOW[1], HOW[2]))
    wait_until_seen(qtbot, drops, prices)
    assert (drops.sign.text, drops.sign.name) == ("Attach to this chat", "prices.csv")
    assert drops.sign.geometry() == place_of(app, app.conversation)
    for place in (over_field, PLACE, over_field):
        move = QDragMoveEvent(place, HOW[0], data, HOW[1], HOW[2])
        QApplication.sendEvent(handle, move)
        assert move.isAccepted()
        assert drops.sign.isVisible()
    QApplication.sendEvent(handle, QDragLeaveEvent())
    assert not drops.sign.isVisible()


def test_the_sign_goes_with_the_drop_and_lets_it_through(
    qtbot: QtBot, app: MainWindow, prices: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["One"]))
    (tmp_path / "b.docx").write_bytes(docx("<w:p/>"))
    drops = app.windows.drops
    data = drag(qtbot, app, drops, prices, tmp_path / "a.pdf", tmp_path / "b.docx")
    assert drops.sign.name == "3 files"
    assert app.childAt(drops.sign.geometry().center()) is not drops.sign
    with qtbot.waitSignal(drops.files_dropped):
        let_go(app, data)
    assert not drops.sign.isVisible()


def test_a_model_is_opened_by_either_window(
    qtbot: QtBot, chat: Chat, app: MainWindow, models_window: ModelsWindow, tmp_path: Path
) -> None:
    for window, drops in ((app, app.windows.drops), (models_window, models_window._drops)):
        data = drag(qtbot, window, drops, tmp_path)
        assert drops.sign.isVisible()
        assert (drops.sign.text, drops.sign.name) == ("Open this model", tmp_path.name)
    assert drops.sign.geometry() == models_window.rect()
    let_go(models_window, data)
    assert not drops.sign.isVisible()
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == str(tmp_path))
    chat.wait_for(EngineState.IDLE)


@pytest.mark.slow
def test_nothing_is_shown_for_what_is_refused(
    qtbot: QtBot, app: MainWindow, models_window: ModelsWindow, machine: Machine, prices: Path, tmp_path: Path
) -> None:
    (empty := tmp_path / "empty").mkdir()
    machine.problems[str(empty)] = machine.problems[str(prices)] = "That is no model."
    (archive := tmp_path / "b.zip").write_bytes(b"PK\3\4")
    (binary := tmp_path / "c.bin").write_bytes(bytes(range(256)))
    main = app.windows.drops
    other = models_window._drops
    for refused in ([empty], [tmp_path, empty], [archive], [binary], [tmp_path / "no"]):
        drag(qtbot, app, main, *refused)
        assert not main.sign.isVisible(), refused
    for refused in ([empty], [prices], [tmp_path, tmp_path]):
        drag(qtbot, models_window, other, *refused)
        assert not other.sign.isVisible(), refused
    drag(qtbot, app, main, archive, prices)
    assert main.sign.name == "prices.csv"


def test_nothing_is_shown_for_text_and_for_what_has_left_before_it_was_looked_at(
    qtbot: QtBot, app: MainWindow, prices: Path
) -> None:
    drops = app.windows.drops
    text = QMimeData()
    data = files_data(prices)
    text.setText("hello")
    assert not drag_over(app, text)
    drag_over(app, data)
    QApplication.sendEvent(app, QDragLeaveEvent())
    wait_until_seen(qtbot, drops, prices)
    assert not drops.sign.isVisible()
    drag_over(app, data)  # it is known by now: between two parts of a window it does not flicker
    assert drops.sign.isVisible()
