"""The whole app in a window, driven by keys and clicks, and read as a person reads it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QFileDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QTextBrowser,
    QWidget,
)
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App, make_engine
from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import SamplingParams
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style import ConsentPause
from rdchat.ui.transcript.message_widget import MessageWidget

WAIT_MS = 60_000
_DIRECT = Qt.FindChildOption.FindDirectChildrenOnly


@contextmanager
def running_app(
    qapp: QApplication, qtbot: QtBot, store: ConversationStore | None = None, app: App | None = None
) -> Iterator[App]:
    """Show the real app with the real engine; it is closed as its window is."""
    if app is None:
        store = store or ConversationStore(paths.database_path())
        app = App(qapp, store, SettingsStore(paths.settings_path()), make_engine)
    with qtbot.waitExposed(app.window):
        app.open_window()
    try:
        yield app
    finally:
        app.window.close()
        assert app.end_app()
        app.window.deleteLater()


def start_with(model: Path, max_tokens: int = 12) -> None:
    """Make this the model that the app starts with; greedy, so that it says the same every time."""
    SettingsStore(paths.settings_path()).save_settings(
        Settings(
            model=str(model),
            sampling=SamplingParams(temperature=0, max_tokens=max_tokens),
            titles_by_model=False,
            panel_visible=True,
        )
    )


def type_and_send(qtbot: QtBot, app: App, text: str) -> None:
    field = app.window.conversation.composer.field
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Return)


def words() -> list[str]:
    """Return what labels, messages and buttons of all windows say where a person can see it."""
    seen = [each for window in QApplication.topLevelWidgets() for each in (window, *window.findChildren(QWidget))]
    return [said for widget in seen if not widget.visibleRegion().isEmpty() and (said := _said_by(widget))]


def _said_by(widget: QWidget) -> str:
    if isinstance(widget, QLabel | QAbstractButton):
        return widget.text()
    return widget.toPlainText() if isinstance(widget, QTextBrowser) else ""


def shown_messages(app: App) -> list[MessageWidget]:
    """Return the messages of the transcript, from the oldest to the latest."""
    transcript = app.window.conversation.transcript
    found = [each for each in transcript.findChildren(MessageWidget) if not each.isHidden()]
    return sorted(found, key=lambda widget: widget.message.id)


def wait_for_words(qtbot: QtBot, *wanted: str) -> None:
    """Wait until each of these is all that some part of a window says."""

    def said() -> None:
        seen = words()
        assert all(each in seen for each in wanted), f"{[each for each in wanted if each not in seen]} not in {seen}"

    qtbot.waitUntil(said, timeout=WAIT_MS)


def press(qtbot: QtBot, text: str) -> None:
    """Click the visible button of this text."""
    buttons = [
        widget
        for window in QApplication.topLevelWidgets()
        for widget in window.findChildren(QAbstractButton)
        if widget.text() == text and not widget.visibleRegion().isEmpty()
    ]
    assert len(buttons) == 1, f"{len(buttons)} buttons {text!r}"
    qtbot.waitUntil(lambda: _counts(buttons[0]))
    qtbot.mouseClick(buttons[0], Qt.MouseButton.LeftButton)


def _counts(button: QAbstractButton) -> bool:
    """Whether a press of this button counts: not while its question has just appeared."""
    part: QWidget | None = button
    while part is not None:
        if not all(pause.is_over for pause in part.findChildren(ConsentPause, options=_DIRECT)):
            return False
        part = part.parentWidget()
    return True


def pick_model(qtbot: QtBot, app: App, folder: Path) -> None:
    """Choose a folder with 'Open Model Folder…' of the header's menu."""
    menu = app.window.header.model.menu()
    assert isinstance(menu, QMenu)
    menu.aboutToShow.emit()
    next(action for action in menu.actions() if action.text() == "Open Model Folder…").trigger()
    (dialog,) = [each for each in app.window.findChildren(QFileDialog) if each.isVisible()]
    name = dialog.findChild(QLineEdit, "fileNameEdit")
    assert name is not None
    name.setText(str(folder))
    dialog.accept()


def ask(qtbot: QtBot, app: App, prompt: str) -> Message:
    """Type a prompt, send it and return the reply when it has ended."""
    controller, before = app.controller, len(app.controller.chat.path)
    type_and_send(qtbot, app, prompt)
    qtbot.waitUntil(lambda: len(controller.chat.path) == before + 2, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: controller.chat.path[-1].status is not MessageStatus.STREAMING, timeout=WAIT_MS)
    return controller.chat.path[-1]


def assert_usable(qtbot: QtBot, app: App, good_model: Path) -> None:
    """Pick a model that is whole, start a new chat, and have a question answered in the window."""
    controller = app.controller
    window = app.window
    pick_model(qtbot, app, good_model)
    qtbot.waitUntil(
        lambda: controller.model_slot.info is not None and controller.model_slot.info.path == good_model,
        timeout=WAIT_MS,
    )
    qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
    window.actions_.new_chat.trigger()
    controller.settings.change(replace(controller.settings.values, seed=7))  # of others, one in sixty ends at once
    reply = ask(qtbot, app, "Hello")
    assert (reply.status, reply.error) == (MessageStatus.COMPLETE, "")
    assert len(reply.text) > 3
    shown = shown_messages(app)
    assert [widget.written_text for widget in shown] == ["Hello", reply.text]
    # the last characters are drawn a frame later, so what is drawn is asked for anew each time
    qtbot.waitUntil(lambda: {"Hello", shown[-1].body.toPlainText()} <= set(words()), timeout=WAIT_MS)
