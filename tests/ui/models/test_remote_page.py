"""The Remote page, and a remote model in the window."""

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.inference.remote import server_list
from rdchat.server.certificate import fingerprint, own_certificate
from rdchat.server.server import Server
from rdchat.server.settings import ServerSettings
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.models.remote_page import RemotePage
from rdchat.ui.models.window import ModelsWindow
from rdchat.ui.transcript.messages import ReplyMessage
from rdchat.ui.window.main_window import MainWindow
from tests.server.fakes import KEY, ScriptedGate
from tests.ui.conftest import Chat
from tests.ui.models.page_steps import answer

REMOTE = "remote:studio/qwen"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(server_list, "_KEYS", {})
    monkeypatch.setenv("NO_PROXY", "*")
    gate = ScriptedGate()
    server = Server(ServerSettings(KEY, port=0, certificate=own_certificate()), gate)
    server.start()
    yield server
    assert server.stop(60)
    gate.close()


@pytest.fixture
def remote(models_window: ModelsWindow) -> RemotePage:
    models_window.show_page(models_window.remote)
    return models_window.remote


def add(qtbot: QtBot, page: RemotePage, *texts: str) -> None:
    for field, text in zip((page.name, page.address, page.key), texts, strict=True):
        field.clear()
        qtbot.keyClicks(field, text)
    qtbot.keyClick(page.key, Qt.Key.Key_Return)


def test_a_server_is_added_by_its_fingerprint_and_removed(
    qtbot: QtBot, remote: RemotePage, server: Server, chat: Chat
) -> None:
    assert not remote.remove.isEnabled()
    add(qtbot, remote, "studio", server.address, KEY)
    assert fingerprint(paths.server_certificate_path()) in answer(qtbot, remote.window(), "Accept")
    qtbot.waitUntil(lambda: remote.result.text().startswith("studio is added"))
    qtbot.waitUntil(lambda: "1 model" in remote.list.item(0).text())
    assert remote.key.text() == remote.address.text() == ""
    (stored,) = chat.controller.settings.values.remote_servers
    assert stored.fingerprint == fingerprint(paths.server_certificate_path())
    remote.remove.click()
    assert "studio" in answer(qtbot, remote.window(), "Remove")
    qtbot.waitUntil(lambda: remote.list.count() == 0)
    assert chat.controller.settings.values.remote_servers == ()


def test_what_is_wrong_or_not_safe_is_said(qtbot: QtBot, remote: RemotePage, server: Server) -> None:
    add(qtbot, remote, "my studio", "https://studio", "")
    qtbot.waitUntil(lambda: "is no name" in remote.result.text())
    add(qtbot, remote, "studio", "studio", "")
    qtbot.waitUntil(lambda: "is no address" in remote.result.text())
    add(qtbot, remote, "studio", "http://10.0.0.1:1", "")
    assert "without encryption" in answer(qtbot, remote.window(), "Cancel")
    add(qtbot, remote, "studio", server.address, "wrong-key")
    answer(qtbot, remote.window(), "Accept")
    qtbot.waitUntil(lambda: "refused the key" in remote.result.text())
    assert remote.add.isEnabled()
    assert remote.list.count() == 0


def test_a_remote_model_is_marked_and_a_chat_asks_before_it_goes_there(
    qtbot: QtBot, app: MainWindow, chat: Chat
) -> None:
    chat.say("Hi")
    chat.controller.model_slot.load(REMOTE)
    chat.wait_for(EngineState.IDLE)
    assert app.header.model.text() == "qwen  ·  on studio ↗"
    menu = app.header.model.menu()
    assert isinstance(menu, QMenu)
    menu.aboutToShow.emit()
    assert "qwen  ·  on studio ↗" in [each.text() for each in menu.actions()]
    assert not app.panel.drafting.mode.isEnabled()
    chat.controller.send("And you?")
    widget = app.conversation.transcript.widgets[chat.controller.chat.path[-1].id]
    assert isinstance(widget, ReplyMessage)
    assert widget._status.text() == "Waiting…"
    words = answer(qtbot, app, "Cancel")
    assert "to studio? qwen runs on studio (https://studio.local)" in words
    assert "leave this machine: 3 messages." in words
    qtbot.waitUntil(lambda: not chat.writing)
    assert len(chat.engine.requests) == 1
    chat.controller.send("Again?")
    assert "4 messages" in answer(qtbot, app, "Send")
    qtbot.waitUntil(lambda: not chat.writing)
    assert len(chat.engine.requests) == 2
    quick = app.windows.quick
    quick.open_here()
    assert quick.remote.text() == "qwen  ·  on studio ↗"
    quick.close()
