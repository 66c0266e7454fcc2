"""The pages of the Models window, and folders that are dropped on it."""

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from rdchat import host
from rdchat.inference.api import Host, RemoteServer
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.servers.remote_servers import RemoteServers
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.project.scripts import ROOT
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.shown_widgets import drop, files_data, press_key


def test_the_guide_names_every_page(models_window: ModelsWindow) -> None:
    """It had four of six."""
    titles = [models_window.tabs.tabText(index) for index in range(models_window.tabs.count())]
    part = re.search(r"has two pages:\n((?:[-*] .*\n(?:  .*\n)*)+)", (ROOT / "docs/guide.md").read_text())
    assert re.findall(r"^- \*([A-Z][\w ]+)\*", part[1], re.MULTILINE) == titles == ["On This Computer", "Find"]


def test_ctrl_tab_turns_the_pages(models_window: ModelsWindow) -> None:
    """It did so in Settings alone."""
    pages = (models_window.installed, models_window.discover)
    control = "Meta" if host.MACOS else "Ctrl"  # Qt's name of a Mac's control key
    for keys in (f"{control}+Tab", f"{control}+Shift+Tab"):
        for page in (pages[1], pages[0]):
            press_key(models_window, keys)
            assert page.isVisible()


def test_other_computers_are_listed_only_where_there_are_some(chat: Chat, models_window: ModelsWindow) -> None:
    page = models_window.installed
    headings = lambda: [entry.title for entry in page.list.entries if not entry.key]  # noqa: E731
    assert headings() == ["Models"]
    assert [each.text() for each in page.add.menu().actions()] == [
        "With Models of Its Own…", "To Run a Model Together…",
    ]  # fmt: skip
    chat.settings.change_values(hosts=(Host("studio.local"),))
    models_window.macs.changed.emit()
    assert headings() == ["Models", "Macs"]
    models_window.show_page(models_window.discover)
    models_window.show_page(models_window.macs)
    assert models_window.macs.isVisible()
    assert models_window.macs.name.text() == "studio.local"


def test_everything_is_reached_by_tab(chat: Chat, models_window: ModelsWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    window = models_window
    monkeypatch.setattr(RemoteServers, "ask_servers", lambda _servers: None)
    chat.settings.change_values(
        hosts=(Host("studio.local"),), remote_servers=(RemoteServer("attic", "https://a.local"),)
    )
    window.remote.changed.emit()
    for page in (window.installed, window.discover, window.drafters, window.remote, window.macs):
        window.show_page(page)
        buttons = [each for each in page.findChildren(QAbstractButton) if not isinstance(each.parent(), QLineEdit)]
        wanted = {each for each in buttons if each.isVisible() and each.isEnabled()}
        reached: set[QObject] = set()
        part: QWidget = page
        while (part := part.nextInFocusChain()) is not page:
            if part.focusPolicy() & Qt.FocusPolicy.TabFocus:
                reached.add(part)
        assert [each.text() for each in wanted - reached] == []


@pytest.mark.slow
def test_what_is_no_model_is_refused_and_the_model_stays(
    qtbot: QtBot, chat: Chat, app: MainWindow, machine: Machine, tmp_path: Path
) -> None:
    machine.problems[str(tmp_path)] = "That folder is empty. Choose another."
    page = app.windows.models.installed
    drop(app.windows.models, files_data(tmp_path))
    qtbot.waitUntil(lambda: page.result.label.text() == "That folder is empty. Choose another.")
    drop(app, files_data(tmp_path))
    qtbot.waitUntil(lambda: app.conversation.banners.banner("dropped model") is not None)
    drop(app.windows.models, files_data(tmp_path, tmp_path))
    qtbot.waitUntil(lambda: page.result.label.text().startswith("2 items were dropped."))
    assert chat.controller.replies.state is EngineState.IDLE
    assert [model for model, _ in chat.engine.loads] == [None]


def test_files_over_the_message_field_are_left_to_the_window(chat: Chat, app: MainWindow, tmp_path: Path) -> None:
    assert drop(app.conversation.composer.field.viewport(), files_data(tmp_path))
    chat.qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == str(tmp_path))
    chat.wait_for(EngineState.IDLE)
    assert app.conversation.composer.text == ""
