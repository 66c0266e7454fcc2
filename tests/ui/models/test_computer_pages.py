"""The Remote page, with servers on this machine, and the Macs page: which models fit, and where one is loaded."""

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QLabel, QMessageBox
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from rdchat import paths
from rdchat.inference.api import Host, RemoteServer, Role, ServerState
from rdchat.inference.remote import server_keys
from rdchat.server.credentials import fingerprint, own_certificate
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from rdchat.services.models import macs
from rdchat.ui.models.computer_pages import MacSheet, MacsPage, RemotePage, ServerSheet
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.style import model_label
from rdchat.ui.style.formatting import MACHINE
from rdchat.ui.window.main_window import MainWindow
from tests.server.fakes import KEY, ScriptedGate
from tests.services.models.library_samples import GB, library_model
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import answer, pick
from tests.ui.shown_widgets import accept, press_key

REMOTE = "remote:studio/qwen"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(server_keys, "_KEYS", {})
    monkeypatch.setenv("NO_PROXY", "*")
    gate = ScriptedGate()
    server = Server(ServerSettings(KEY, port=0, certificate=own_certificate()), gate)
    server.listen()
    yield server
    assert server.stop_server(60)
    gate.close()


@pytest.fixture
def remote(models_window: ModelsWindow) -> RemotePage:
    return models_window.remote


@pytest.fixture
def here(models_window: ModelsWindow) -> InstalledPage:
    """The page that lists the computers."""
    return models_window.installed


def sheet_of(page: RemotePage) -> ServerSheet:
    """Return the open sheet; open it if there is none."""
    if not (sheets := [each for each in page.window().findChildren(ServerSheet) if each.isVisible()]):
        page.open_sheet()
        sheets = page.window().findChildren(ServerSheet)
    return sheets[0]


def add(qtbot: QtBot, page: RemotePage, *texts: str) -> ServerSheet:
    sheet = sheet_of(page)
    for field, text in zip((sheet.name, sheet.address, sheet.key), texts, strict=True):
        field.clear()
        qtbot.keyClicks(field, text)
    press_key(sheet.key, "Return")
    return sheet


def add_studio(qtbot: QtBot, page: RemotePage, server: Server) -> None:
    add(qtbot, page, "studio", server.address, KEY)
    answer(qtbot, page.window(), "Accept")
    qtbot.waitUntil(lambda: bool(page.rows.rows))


def test_a_server_is_added_by_its_fingerprint_and_removed(
    qtbot: QtBot, remote: RemotePage, here: InstalledPage, server: Server, chat: Chat
) -> None:
    sheet = add(qtbot, remote, "studio", server.address, KEY)
    assert fingerprint(paths.server_certificate_path()) in answer(qtbot, remote.window(), "Accept")
    qtbot.waitUntil(lambda: not isValid(sheet))
    qtbot.waitUntil(remote.isVisible)
    qtbot.waitUntil(lambda: remote.entries[0].marks == (("1 model", "muted"),))
    assert (remote.name.text(), remote.source.text()) == ("studio", server.address)
    (stored,) = chat.settings.values.remote_servers
    assert stored.fingerprint == fingerprint(paths.server_certificate_path())
    remote.remove.click()
    assert "studio" in answer(qtbot, remote.window(), "Remove")
    qtbot.waitUntil(lambda: remote.entries == [])
    assert chat.settings.values.remote_servers == ()
    assert here.details.isVisible()


def test_what_is_wrong_or_not_safe_is_said_and_can_be_mended(
    qtbot: QtBot, remote: RemotePage, server: Server, chat: Chat
) -> None:
    sheet = add(qtbot, remote, "my studio", "https://studio", "")
    qtbot.waitUntil(lambda: "is no name" in sheet.status.text())
    add(qtbot, remote, "studio", "studio", "")
    qtbot.waitUntil(lambda: "is no address" in sheet.status.text())
    add(qtbot, remote, "studio", "http://10.0.0.1:1", "")
    assert "without encryption" in answer(qtbot, remote.window(), "Cancel")
    assert sheet.status.isHidden()
    add(qtbot, remote, "studio", server.address, "wrong-key")
    answer(qtbot, remote.window(), "Accept")
    qtbot.waitUntil(lambda: "refused the key" in sheet.status.text())
    assert sheet.buttons[-1].isEnabled()
    assert remote.entries == []
    add_studio(qtbot, remote, server)
    assert [each.name for each in chat.settings.values.remote_servers] == ["studio"]


def test_an_answer_to_a_closed_sheet_is_nobodys(qtbot: QtBot, remote: RemotePage, server: Server, chat: Chat) -> None:
    sheet = add(qtbot, remote, "studio", server.address, KEY)
    press_key(sheet, "Esc")
    qtbot.waitUntil(lambda: not isValid(sheet))
    qtbot.waitUntil(lambda: not chat.controller.remote._work.busy)
    assert not [box for box in remote.window().findChildren(QMessageBox) if box.isVisible()]


def test_a_servers_models_are_used_from_the_page(qtbot: QtBot, remote: RemotePage, server: Server, chat: Chat) -> None:
    add_studio(qtbot, remote, server)
    (row,) = remote.rows.rows.values()
    assert "goes there" in remote.state.text()
    assert (row.main.text(), row.facts.text(), row.state.text()) == ("Use", "On studio ↗", "")
    chat.engine.load_gate.shut()
    row.main.click()
    qtbot.waitUntil(lambda: (row.main.text(), row.state.text()) == ("Stop Loading", "Loading…"))
    chat.engine.load_gate.open()
    qtbot.waitUntil(lambda: row.state.text() == "In use now.")
    assert not row.main.isVisible(), "it takes no memory here that could be freed"
    assert chat.slot.chosen == f"remote:studio/{row.name.text()}"


def know(chat: Chat, *states: ServerState) -> None:
    """Let servers have answered."""
    chat.settings.change_values(remote_servers=tuple(each.server for each in states))
    chat.controller.remote._search.results = states
    chat.controller.remote.changed.emit()


def test_a_server_that_was_added_is_chosen(remote: RemotePage, here: InstalledPage, chat: Chat) -> None:
    names = ("attic", "studio", "garage")
    states = [ServerState(RemoteServer(name, f"https://{name}.local")) for name in names]
    for count, name in enumerate(names, start=1):
        know(chat, *states[:count])
        assert remote.name.text() == name
    know(chat, *states[1:])
    assert remote.name.text() == "garage", "the chosen one stays when another goes"


def test_of_very_many_models_the_menu_has_the_rest(remote: RemotePage, chat: Chat) -> None:
    """A row for each of a thousand would hold the window up for seconds."""
    know(chat, ServerState(RemoteServer("studio", "https://studio.local"), tuple(f"m{n}" for n in range(1000))))
    assert [*remote.rows.rows] == [f"m{number}" for number in range(50)]
    assert "has 1,000 models of it" in remote.state.text()


def test_a_server_that_does_not_answer_stays_with_the_reason(
    qtbot: QtBot, remote: RemotePage, server: Server, app: MainWindow, chat: Chat
) -> None:
    add_studio(qtbot, remote, server)
    (name,) = remote.rows.rows
    menu = app.header.model.menu()
    chat.load(f"remote:studio/{name}")
    menu.aboutToShow.emit()
    texts = [each.text() for each in menu.actions()]
    assert texts[texts.index("On studio ↗") + 1] == name, "a recent model is missing in its own group"
    assert "Recent" not in texts, "it is listed once"
    assert [each.text() for each in menu.actions() if each.isChecked()] == [name]
    assert server.stop_server(60)
    remote.again.click()
    qtbot.waitUntil(lambda: remote.entries[0].marks == (("Not available", "warning"),))
    assert "Check that it runs" in remote.state.text()
    assert not remote.rows.isVisible()
    menu.aboutToShow.emit()
    entries = menu.actions()
    heading = next(index for index, each in enumerate(entries) if each.text() == "On studio ↗")
    reason = entries[heading + 1]
    # The menu has its beginning.
    words = reason.text().removesuffix(" …")
    assert words
    assert words in remote.state.text()
    assert not reason.isEnabled()


def test_a_remote_model_is_marked_and_a_chat_asks_before_it_goes_there(
    qtbot: QtBot, app: MainWindow, chat: Chat
) -> None:
    chat.say("Hi")
    last = chat.open.path[-1]
    for weather in ("rain", "sun"):
        last = chat.store.add_message(last.conversation_id, last.id, Role.TOOL, weather)
    chat.open.read_path()
    chat.load(REMOTE)
    assert app.header.model.text() == "qwen  ·  on studio ↗"
    menu = app.header.model.menu()
    menu.aboutToShow.emit()
    assert "qwen  ·  on studio ↗" in [each.text() for each in menu.actions()]
    assert not app.panel.drafting.mode.isEnabled()
    chat.controller.send("And you?")
    widget = app.conversation.transcript.widgets[chat.open.path[-1].id]
    assert widget._status.text() == app.panel.status.state.text() == "Waits for you"
    words = answer(qtbot, app, "Cancel")
    assert "to studio? qwen runs on studio (https://studio.local)" in words
    assert f"leave {MACHINE}: 5 messages and 2 tool results." in words
    chat.wait_for_reply()
    assert len(chat.engine.requests) == 1
    chat.controller.send("Again?")
    assert "6 messages" in answer(qtbot, app, "Send")
    chat.wait_for_reply()
    assert len(chat.engine.requests) == 2
    quick = app.windows.quick
    quick.open_here()
    assert quick.remote.text() == "qwen  ·  on studio ↗"
    quick.close()


FACTS = {"versions": {}, "free_bytes": 12 * GB, "limit_bytes": 11 * GB, "latency_ms": 0.2, "bytes_per_s": 1.2e9}


@pytest.fixture
def machine() -> Machine:
    sizes = (("org/Alpha-8B-4bit", 8), ("org/Beta-30B-4bit", 30), ("org/Gamma-70B-4bit", 70))
    return Machine([library_model(name, size * 10**9) for name, size in sizes])


@pytest.fixture
def page(models_window: ModelsWindow, monkeypatch: pytest.MonkeyPatch) -> MacsPage:
    """The page with checks that find every Mac but one ready."""

    def check(host: Host) -> dict[str, object]:
        if host.ssh == "attic.local":
            return {"problem": "ssh cannot reach attic.local: Permission denied. Check your keys."}
        return FACTS

    monkeypatch.setattr(macs, "check_mac", check)
    return models_window.macs


def add_mac(qtbot: QtBot, page: MacsPage, name: str, address: str) -> MacSheet:
    page.open_sheet()
    (sheet,) = [each for each in page.window().findChildren(MacSheet) if each.isVisible()]
    sheet.name.setText(name)
    sheet.address.setText(address)
    press_key(sheet.address, "Return")
    qtbot.waitUntil(lambda: not page._macs._work.busy)
    return sheet


def facts(page: MacsPage) -> list[str]:
    return [row.facts.text().partition("  ·  ")[2] for row in page.rows.rows.values()]


def test_a_mac_is_added_checked_and_removed(qtbot: QtBot, page: MacsPage, here: InstalledPage) -> None:
    sheet = add_mac(qtbot, page, "localhost", "")
    assert any("stay awake" in label.text() for label in sheet.findChildren(QLabel)), "before ranks are joined"
    assert "This Mac is always there" in sheet.status.text()
    assert not page._macs.hosts
    sheet.name.setText("studio.local")
    sheet.address.setText("192.168.1.5")
    accept(sheet)
    qtbot.waitUntil(lambda: not isValid(sheet) and not page._macs._work.busy)
    assert page._macs._settings.values.hosts == (Host("studio.local", ("192.168.1.5",)),)
    (entry,) = page.entries
    assert (entry.title, entry.marks) == ("studio.local", (("Ready", "success"),))
    assert (page.name.text(), page.source.text()) == ("studio.local", "192.168.1.5")
    assert "12.9 GB of memory free, 0.2 ms and 9.6 Gbit/s" in page.state.text()
    add_mac(qtbot, page, "attic.local", "169.254.3.4")
    assert "ssh cannot reach attic.local" in page.entries[1].facts
    assert page.entries[1].marks == ()
    pick(here, "studio.local")
    press_key(here.list, "Del")
    assert [host.ssh for host in page._macs.hosts] == ["attic.local"]
    assert here.details.isVisible()
    pick(here, "attic.local")
    assert "ssh cannot reach attic.local" in page.state.text()
    page.check.click()
    assert page.state.text() == "Checking…"
    qtbot.waitUntil(lambda: "ssh cannot reach" in page.state.text())
    page.remove.click()
    assert page.entries == []


def test_models_say_where_they_fit_and_load_there(qtbot: QtBot, page: MacsPage) -> None:
    slot = page._models.slot
    add_mac(qtbot, page, "attic.local", "169.254.3.4")
    assert facts(page) == [], "no Mac is ready"
    add_mac(qtbot, page, "studio.local", "192.168.1.5")
    assert facts(page) == ["fits this Mac", "fits these Macs together", "too large for these Macs"]
    row = page.rows.rows["org/Beta-30B-4bit"]
    assert (row.main.text(), row.state.text()) == ("Load", "")
    row.main.click()
    assert slot.chosen == "ranks:localhost,studio.local:org/Beta-30B-4bit"
    assert model_label(slot.chosen) == "Beta-30B-4bit  ·  on 2 Macs"
    qtbot.waitUntil(lambda: (row.main.text(), row.state.text()) == ("Unload", "In use now."))
