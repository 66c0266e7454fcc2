"""The pages of the Models window, and folders that are dropped on it."""

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QTabWidget, QWidget
from pytestqt.qtbot import QtBot

from rdchat import host
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.window.main_window import MainWindow
from tests.project.scripts import ROOT
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.shown_widgets import drop, files_data

NUMBERS = {4: "four", 5: "five", 6: "six", 7: "seven"}


def test_the_guide_names_every_page(models_window: ModelsWindow) -> None:
    """It had four of six."""
    titles = [models_window.tabs.tabText(index) for index in range(models_window.tabs.count())]
    titles += [] if host.MACOS else ["Macs"]
    part = re.search(r"has (\w+) pages:\n((?:[-*] .*\n(?:  .*\n)*)+)", (ROOT / "docs/guide.md").read_text())
    assert part is not None
    assert part[1] == NUMBERS[len(titles)]
    assert re.findall(r"\*([A-Z][a-z]+)\*", part[2]) == titles


def test_macs_are_a_part_of_remote_except_on_a_mac(models_window: ModelsWindow) -> None:
    titles = [models_window.tabs.tabText(index) for index in range(models_window.tabs.count())]
    assert titles[4:] == (["Remote", "Macs"] if host.MACOS else ["Remote"])
    for page in (models_window.macs, models_window.installed, models_window.remote):
        models_window.show_page(page)
        assert page.isVisible()
    if not host.MACOS:
        places = models_window.remote.parentWidget().parentWidget()
        assert isinstance(places, QTabWidget)
        assert [places.tabText(index) for index in range(places.count())] == ["Computers", "Macs"]


def test_everything_is_reached_by_tab_and_has_a_name(models_window: ModelsWindow) -> None:
    window = models_window
    for page in (window.installed, window.discover, window.downloads, window.drafters, window.remote, window.macs):
        window.show_page(page)
        buttons = [each for each in page.findChildren(QAbstractButton) if not isinstance(each.parent(), QLineEdit)]
        wanted = {each for each in buttons if each.isVisible() and each.isEnabled()}
        assert all(each.accessibleName() or each.text() for each in wanted)
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


def test_files_over_the_message_field_are_left_to_the_window(
    qtbot: QtBot, chat: Chat, app: MainWindow, tmp_path: Path
) -> None:
    assert drop(app.conversation.composer.field.viewport(), files_data(tmp_path))
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == str(tmp_path))
    chat.wait_for(EngineState.IDLE)
    assert app.conversation.composer.text == ""
